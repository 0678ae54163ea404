"""Nothing is written that Kafka's readers, or ours, refuse: strings over 32,767 bytes, batches over 8 MiB."""

from collections.abc import Sequence
from random import Random
from typing import Any
from uuid import UUID

import pytest
from quorate_controller.config import ControllerConfig
from quorate_controller.control.api import ControlError, ControlResult
from quorate_controller.node.assembly import open_node
from quorate_controller.storage.os_filesystem import OsFileSystem
from quorate_protocol.errors import ErrorCode
from quorate_protocol.features import SUPPORTED_FEATURES
from quorate_protocol.image.snapshot import read_checkpoint, write_checkpoint
from quorate_protocol.kafka.generated import broker_registration_request as broker
from quorate_protocol.kafka.generated import incremental_alter_configs_request as alter
from quorate_protocol.records.batch import BATCH_SIZE_BYTES_MAX, RECORD_SIZE_BYTES_MAX, scan_batches
from quorate_protocol.records.generated import ConfigRecord, DelegationTokenRecord, MetadataRecord
from quorate_protocol.wire.schema import ARRAY_ELEMENTS_MAX

from tests.unit.controller.node.conftest import CLIENT_METRICS, Bench, alter_config, control_request

BROKER = 4
SET, APPEND = 0, 2
LONGEST = "v" * 32_767


def metrics(*names: str, value: str = LONGEST) -> alter.IncrementalAlterConfigsRequest:
    """Set the metrics of several subscriptions."""
    configs = (alter.AlterableConfig(name="metrics", config_operation=SET, value=value),)
    resources = tuple(
        alter.AlterConfigsResource(resource_type=CLIENT_METRICS, resource_name=name, configs=configs)
        for name in names
    )
    return alter.IncrementalAlterConfigsRequest(resources=resources, validate_only=False)


def registration(hosts: Sequence[str]) -> broker.BrokerRegistrationRequest:
    """The registration of a broker with a listener for each host."""
    return broker.BrokerRegistrationRequest(
        broker_id=1,
        cluster_id="abc",
        incarnation_id=UUID(int=1 << 100),
        listeners=tuple(
            broker.Listener(name=f"L{number}", host=host, port=9092, security_protocol=0)
            for number, host in enumerate(hosts)
        ),
        features=tuple(
            broker.Feature(name=name, min_supported_version=0, max_supported_version=100)
            for name in SUPPORTED_FEATURES
        ),
        rack=None,
        log_dirs=(UUID(int=1 << 101),),
    )


def batch_sizes(bench: Bench, start_offset: int) -> list[int]:
    """The size of each batch from an offset on."""
    log, sizes = bench.node.storage.log, []
    while start_offset < log.end_offset:
        for header in scan_batches(log.read(start_offset, 1 << 20, log.end_offset)):
            sizes.append(header.size_bytes)
            start_offset = header.last_offset + 1
    return sizes


def assert_restarts(bench: Bench, config: ControllerConfig) -> None:
    """Assert that a checkpoint of the image can be read, and that another process starts on the same disk."""
    image = bench.node.metadata.image
    for _ in read_checkpoint(write_checkpoint(image.committed_copy(), now_ms=1)).records:
        pass
    bench.node.close()
    node = open_node(config, file_system=OsFileSystem(), rng=Random(1), clock=lambda: bench.now_ms)
    try:
        Bench(node).assert_serves()
    finally:
        node.close()


def test_a_value_that_grows_is_counted_in_bytes(bench: Bench) -> None:
    append = lambda end: alter_config(BROKER, "", "metric.reporters", "é" * 16_000 + end, APPEND)  # noqa: E731
    (first,), (second,) = (bench.ask(append(end))[0].responses for end in "ab")
    assert first.error_code is ErrorCode.none
    assert second.error_code is ErrorCode.invalid_config
    assert "exceeds the maximum value size of 32767 bytes" in second.error_message
    bench.assert_serves()


@pytest.mark.parametrize(
    ("request_", "message"),
    [
        (alter_config(BROKER, "", "n" * 40_000, "v"), "ConfigRecord: name has 40000 bytes, at most 32767"),
        (
            alter_config(CLIENT_METRICS, "n" * 9_000_000, "interval.ms", "500"),
            "ConfigRecord: resource_name has 9000000 bytes, at most 32767",
        ),
    ],
)
def test_a_string_that_no_broker_can_read_is_refused(bench: Bench, request_: Any, message: str) -> None:
    end_offset = bench.node.storage.log.end_offset
    result, effects = bench.ask(request_)
    assert isinstance(result, ControlError)
    assert result.error_code is ErrorCode.invalid_config
    assert message in result.message
    assert not [note for note in effects.notes if note.exception]
    assert bench.node.storage.log.end_offset == end_offset
    bench.assert_serves()


def test_an_array_that_no_broker_can_read_is_refused(bench: Bench) -> None:
    token = DelegationTokenRecord(
        owner="User:a",
        requester="User:a",
        renewers=("",) * (ARRAY_ELEMENTS_MAX + 1),
        issue_timestamp=0,
        max_timestamp=0,
        expiration_timestamp=0,
        token_id="t",
    )
    with pytest.raises(ControlError, match="renewers has 1000001 elements, at most 1000000") as caught:
        bench.node.metadata.encode_decision(ControlResult(records=(token,)))
    assert caught.value.error_code is ErrorCode.invalid_request


def test_a_string_of_another_record_is_an_invalid_request(bench: Bench) -> None:
    result, _ = bench.ask(registration(["h" * 40_000]))
    assert (result.error_code, result.message) == (
        ErrorCode.invalid_request,
        "RegisterBrokerRecord: host has 40000 bytes, at most 32767 are allowed",
    )


@pytest.mark.parametrize("count", [100, 350])
def test_a_record_that_fits_no_checkpoint_is_refused(
    bench: Bench, node_config: ControllerConfig, count: int
) -> None:
    end_offset = bench.node.storage.log.end_offset
    result, _ = bench.ask(registration([LONGEST] * count))
    assert isinstance(result, ControlError)
    assert result.error_code is ErrorCode.record_list_too_large
    assert f"bytes, at most {RECORD_SIZE_BYTES_MAX} are allowed" in result.message
    assert bench.node.storage.log.end_offset == end_offset
    assert_restarts(bench, node_config)


def test_a_part_of_a_request_fits_a_batch(bench: Bench) -> None:
    start_offset = bench.node.storage.log.end_offset
    request = metrics(*(f"s{number}" for number in range(300)))
    effects = bench.node.turn([control_request(request)], bench.now_ms)
    while not effects.control_responses:
        effects = bench.turn_when_due()
    (decided,) = effects.control_responses
    assert {response.error_code for response in decided.result.responses} == {ErrorCode.none}
    sizes = batch_sizes(bench, start_offset)
    assert len(sizes) > 5
    assert max(sizes) < BATCH_SIZE_BYTES_MAX / 4
    bench.assert_serves()


def test_a_decision_that_fits_no_batch_is_refused(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    """An atomic decision shares one batch of Kafka's size, or is not made."""
    end_offset = bench.node.storage.log.end_offset
    bench.decide_next(monkeypatch, ControlResult(records=configs(300), response="done"))
    result, _ = bench.ask()
    assert isinstance(result, ControlError)
    assert result.error_code is ErrorCode.record_list_too_large
    assert f"exceeds the maximum allowed batch size of {BATCH_SIZE_BYTES_MAX}" in result.message
    assert bench.node.storage.log.end_offset == end_offset
    bench.assert_serves()


def configs(count: int) -> tuple[MetadataRecord, ...]:
    """That number of records, of 32 kB each."""
    return tuple(
        ConfigRecord(resource_type=CLIENT_METRICS, resource_name=f"s{number}", name="metrics", value=LONGEST)
        for number in range(count)
    )


def test_other_decisions_are_split_between_batches(
    bench: Bench, node_config: ControllerConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    start_offset = bench.node.storage.log.end_offset
    bench.decide_next(monkeypatch, ControlResult(records=configs(600), response="done", atomic=False))
    result, _ = bench.ask()
    assert result == "done"
    assert bench.node.storage.log.end_offset == start_offset + 600
    sizes = batch_sizes(bench, start_offset)
    assert len(sizes) == 3
    assert max(sizes) <= BATCH_SIZE_BYTES_MAX
    assert_restarts(bench, node_config)


def test_the_decisions_of_one_turn_do_not_outgrow_a_batch(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    start_offset = bench.node.storage.log.end_offset
    decisions = iter(ControlResult(records=configs(count), response=count) for count in (25, 250))
    monkeypatch.setattr(bench.node.metadata.control, "decide", lambda _request, _context: next(decisions))
    effects = bench.node.turn([control_request(metrics("s"))] * 2, bench.now_ms)
    assert [response.result for response in effects.control_responses] == [25, 250]
    sizes = batch_sizes(bench, start_offset)
    assert len(sizes) == 2
    assert max(sizes) <= BATCH_SIZE_BYTES_MAX
