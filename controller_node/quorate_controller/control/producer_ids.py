"""Blocks of producer ids for brokers: AllocateProducerIds (KIP-730)."""

from datetime import timedelta
from typing import TYPE_CHECKING, Final

from quorate_protocol.errors import ErrorCode
from quorate_protocol.kafka.generated.allocate_producer_ids_request import AllocateProducerIdsRequest
from quorate_protocol.kafka.generated.allocate_producer_ids_response import AllocateProducerIdsResponse
from quorate_protocol.records.generated import ProducerIdsRecord

from quorate_controller.control.api import ControlError, ControlResult
from quorate_controller.control.heartbeats import check_broker_epoch

if TYPE_CHECKING:
    from quorate_protocol.image import MetadataImage

BLOCK_SIZE: Final = 1_000
PRODUCER_ID_MAX: Final = 2**63 - 1


class ProducerIdManager:
    """Allocates consecutive blocks, each once. Stateless."""

    def __init__(self, image: "MetadataImage") -> None:
        self._image = image

    def allocate_producer_ids(self, request: AllocateProducerIdsRequest) -> ControlResult:
        """AllocateProducerIds 0.

        Raises:
            ControlError: STALE_BROKER_EPOCH; UNKNOWN_SERVER_ERROR when 64 bits are used up.
        """
        check_broker_epoch(self._image, request.broker_id, request.broker_epoch)
        first = max(self._image.next_producer_id, 0)
        if first > PRODUCER_ID_MAX - BLOCK_SIZE:
            raise ControlError(
                ErrorCode.unknown_server_error,
                "Exhausted all producerIds as the next block's end producerId has exceeded the int64 type "
                "limit",
            )
        record = ProducerIdsRecord(
            broker_id=request.broker_id,
            broker_epoch=request.broker_epoch,
            next_producer_id=first + BLOCK_SIZE,
        )
        response = AllocateProducerIdsResponse(
            throttle_time=timedelta(0),
            error_code=ErrorCode.none,
            producer_id_start=first,
            producer_id_len=BLOCK_SIZE,
        )
        return ControlResult(records=(record,), response=response)
