"""Errors between records, image and checkpoint."""

from quorate_protocol.errors import ErrorCode, ProtocolError
from quorate_protocol.records.generated import MetadataRecord


class CannotReplay(Exception):  # noqa: N818 - never leaves the package: MetadataImage turns it into a ReplayError
    """A record does not fit the image; raised before anything has changed."""


class ReplayError(ProtocolError):
    """A metadata record can't be replayed: the log or snapshot contradicts the image.

    It is fatal: Kafka's controllers and brokers stop with a fatal fault as well.
    """

    def __init__(self, *, record: MetadataRecord, key: str, reason: str, offset: int) -> None:
        self.record_name = type(record).__name__
        self.key = key
        """The fields that identify the record's subject, for instance ``broker_id=3``."""
        self.reason = reason
        self.offset = offset
        super().__init__(
            ErrorCode.unknown_server_error,
            f"Can't replay {self.record_name}({key}) at offset {offset}: {reason}",
        )


class UnwritableImageError(Exception):
    """The image has state that records of its metadata.version can't express."""

    def __init__(self, metadata_version: int, loss: str) -> None:
        self.metadata_version = metadata_version
        self.loss = loss
        super().__init__(f"Metadata has been lost: metadata.version {metadata_version} can't express {loss}")


class CorruptCheckpointError(ProtocolError):
    """The structure of a checkpoint is wrong: no header, no footer, a gap, or a batch out of bounds."""

    def __init__(self, message: str) -> None:
        super().__init__(ErrorCode.corrupt_message, message)
