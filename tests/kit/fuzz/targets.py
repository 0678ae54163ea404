"""The readers of bytes from others, each with a corpus of valid ones and the exceptions that it may raise."""

from collections.abc import Iterator
from contextlib import suppress
from functools import cache, lru_cache
from pathlib import Path
from typing import Final
from unittest.mock import patch

from kit.captured import captured_exchanges, decode_response
from kit.fuzz import pages, responses
from kit.fuzz.files import captured_files, file_targets, with_right_sums
from kit.fuzz.simulated_controller import DIRECTORY, ServedController
from kit.fuzz.target import Target, as_text
from kit.fuzz.texts import text_targets
from kit.fuzz.tokens import token_targets
from kit.simulator.disk import SimulatedDisk
from quorate_controller.config import ConfigError, parse_config
from quorate_controller.storage.errors import StorageError
from quorate_controller.storage.log import LogConfig, MetadataLog
from quorate_controller.storage.quorum_state import QUORUM_STATE, QuorumStateFile
from quorate_operator.models.manifests import ManifestError, load_manifests
from quorate_operator.planning.desired import desired_cluster
from quorate_protocol.errors import ProtocolError
from quorate_protocol.image import MetadataImage
from quorate_protocol.image.loading import load_checkpoint, replay_log_batch
from quorate_protocol.kafka import config_names
from quorate_protocol.kafka.apis import APIS, api_of
from quorate_protocol.kafka.generated import describe_client_quotas_request as describe_quotas
from quorate_protocol.kafka.generated import describe_delegation_token_request as describe_tokens
from quorate_protocol.kafka.generated import describe_topic_partitions_request as describe_topics
from quorate_protocol.kafka.generated import describe_user_scram_credentials_request as describe_users
from quorate_protocol.properties import parse_properties
from quorate_protocol.records import batch
from quorate_protocol.records.framing import encode_record
from quorate_protocol.records.generated import NoOpRecord
from quorate_protocol.wire.client import encode_request
from quorate_protocol.wire.frames import FrameDecoder, encode_frame

_ROOT: Final = Path(__file__).parents[3]
_FRAME_SIZE_BYTES_MAX: Final = 65_536
BATCHES_MAX: Final = 12
NO_OP: Final = encode_record(NoOpRecord(), 0)


READS: Final = (
    describe_topics.DescribeTopicPartitionsRequest(
        topics=(describe_topics.TopicRequest(name="orders"),),
        response_partition_limit=3,
        cursor=describe_topics.Cursor(topic_name="orders", partition_index=1),
    ),
    describe_quotas.DescribeClientQuotasRequest(
        components=(
            describe_quotas.ComponentData(entity_type="user", match_type=0, match="alice"),
            describe_quotas.ComponentData(entity_type="client-id", match_type=1, match=None),
        ),
        strict=True,
    ),
    describe_users.DescribeUserScramCredentialsRequest(users=(describe_users.UserName(name="alice"),)),
    describe_tokens.DescribeDelegationTokenRequest(
        owners=(describe_tokens.DescribeDelegationTokenOwner(principal_type="User", principal_name="alice"),)
    ),
)
"""Requests that only brokers serve in Kafka, so that no capture of a controller has them."""


def _requests() -> Iterator[bytes]:
    yield from (captured_exchange.request for captured_exchange in captured_exchanges())
    for request in READS:
        api = api_of(request)
        yield encode_request(api, api.version_max, 1, "x", request)


def _read_frames(data: bytes) -> None:
    decoder = FrameDecoder(_FRAME_SIZE_BYTES_MAX)
    for start in range(0, len(data), 7):
        decoder.feed(data[start : start + 7])
        assert decoder.buffered_size_bytes <= _FRAME_SIZE_BYTES_MAX + 7


@lru_cache(maxsize=1)
def _served() -> ServedController:
    return ServedController()


def _serve(data: bytes) -> None:
    _served().serve(data)


def release() -> None:
    """Close what targets keep from one input to the next."""
    if _served.cache_info().currsize:
        _served().close()
        _served.cache_clear()
    pages.release()
    responses.release()


def _responses() -> Iterator[bytes]:
    for captured_exchange in captured_exchanges():
        yield bytes([captured_exchange.api.key, captured_exchange.version]) + captured_exchange.response


def _read_response(data: bytes) -> None:
    """The first two bytes say of which API and version the response is, which the client knows."""
    api = APIS.get(data[0]) if len(data) > 1 else None
    if api is not None and api.is_supported(data[1]):
        decode_response(api, data[1], data[2:])


def _short_logs() -> Iterator[bytes]:
    """The beginnings of the captured logs: short input is read often."""
    for content in captured_files("*.log"):
        ends = [scanned.position + scanned.size_bytes for scanned in batch.scan_batches(content)]
        yield from (content[:end] for end in ends[:BATCHES_MAX])


def _few_batches() -> Iterator[bytes]:
    """Each batch of the captured logs with the next."""
    for content in captured_files("*.log"):
        ends = [0, *(scanned.position + scanned.size_bytes for scanned in batch.scan_batches(content))]
        yield from (content[start:end] for start, end in zip(ends, ends[2:], strict=False))


def _read_batches(data: bytes) -> None:
    for content in (data, with_right_sums(data)):
        with suppress(ProtocolError):
            list(batch.scan_batches(content, check_crc=True, allow_partial_tail=True))
        image = MetadataImage()
        with suppress(ProtocolError):
            for decode_batch in batch.decode_batches(content):
                if decode_batch.base_offset < image.end_offset:
                    break  # the log refuses it before it is replayed
                replay_log_batch(image, decode_batch)
                image.commit(image.end_offset)


def _read_checkpoint(data: bytes) -> None:
    for content in (data, with_right_sums(data)):
        image = MetadataImage()
        with suppress(ProtocolError):
            load_checkpoint(image, [content], end_offset=218, epoch=1)


def _recover_log(data: bytes) -> None:
    """A log that is recovered must open a second time as it is, and take records behind its end."""
    for content in (data, with_right_sums(data)):
        disk = SimulatedDisk()
        disk.make_directory(DIRECTORY)
        file = disk.create_file(DIRECTORY / "00000000000000000000.log")
        file.append(content)
        file.close()
        with suppress(StorageError):
            log = MetadataLog.open(disk, DIRECTORY, LogConfig())
            end_offset = log.end_offset
            epoch = log.epochs[-1].epoch if log.epochs else 0
            log.append(batch.build_batch([NO_OP], end_offset, epoch, timestamp_ms=1))
            log.flush()
            log.close()
            again = MetadataLog.open(disk, DIRECTORY, LogConfig())
            assert again.end_offset == end_offset + 1
            again.close()


def _read_quorum_state(data: bytes) -> None:
    disk = SimulatedDisk()
    disk.make_directory(DIRECTORY)
    file = disk.create_file(DIRECTORY / QUORUM_STATE)
    file.append(data)
    file.close()
    QuorumStateFile(disk, DIRECTORY / QUORUM_STATE).read()


def _clusters() -> Iterator[bytes]:
    contents = (path.read_bytes() for path in sorted((_ROOT / "examples").glob("**/*.yaml")))
    return (content for content in contents if b"kind: KafkaController" in content)


def _read_properties(data: bytes) -> None:
    try:
        properties = parse_properties(as_text(data))
    except ValueError:
        return
    # The names that are like an unknown one are difflib's work, and most of the time.
    with patch.object(config_names, "get_close_matches", lambda *_, **__: []):
        parse_config(properties)


def _controller_properties() -> Iterator[bytes]:
    yield (
        b"process.roles=controller\nnode.id=3000\ncontroller.listener.names=CONTROLLER\n"
        b"listeners=CONTROLLER://:9093\nadvertised.listeners=CONTROLLER://h:9093\nlog.dirs=/a,/b\n"
        b"controller.quorum.bootstrap.servers=h:9093,[::1]:9094\nlog.segment.bytes=1048576\n"
        b"listener.security.protocol.map=CONTROLLER:PLAINTEXT,TLS:SSL\nnum.partitions \\\n  : \\u0031\n"
    )


def _read_manifests(data: bytes) -> None:
    desired_cluster(load_manifests(as_text(data), "fuzzed.yaml"))


@cache
def targets() -> dict[str, Target]:
    """Return all targets by name."""
    made = (
        Target(
            name="frames",
            read=_read_frames,
            good=lambda: (encode_frame(request) * 2 for request in _requests()),
            refusals=(ProtocolError,),
        ),
        Target(name="requests", read=_serve, good=_requests),
        Target(name="responses", read=_read_response, good=_responses, refusals=(ProtocolError,)),
        Target(name="batches", read=_read_batches, good=_few_batches),
        Target(name="checkpoints", read=_read_checkpoint, good=lambda: captured_files("*.checkpoint")),
        Target(name="logs", read=_recover_log, good=_short_logs),
        Target(
            name="quorum-state",
            read=_read_quorum_state,
            good=lambda: captured_files(QUORUM_STATE),
            refusals=(StorageError,),
        ),
        Target(
            name="properties", read=_read_properties, good=_controller_properties, refusals=(ConfigError,)
        ),
        Target(
            name="manifests",
            read=_read_manifests,
            good=_clusters,
            refusals=(ManifestError,),
        ),
        *file_targets(_few_batches),
        *responses.response_targets(),
        *text_targets(),
        *token_targets(),
        *pages.page_targets(),
    )
    return {target.name: target for target in made}
