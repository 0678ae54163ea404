"""A decision that fails in a way that nobody foresaw: its sender is answered, and the node goes on."""

from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import Any
from uuid import UUID

import pytest
from kio.schema.errors import ErrorCode
from kio.schema.incremental_alter_configs.v1 import request as alter
from quorate_controller import commands
from quorate_controller.config import load_config
from quorate_controller.control.api import ControlError, ControlResult
from quorate_controller.node import ControllerNode, ControlRequest, Effects
from quorate_controller.node.assembly import open_node
from quorate_controller.node.events import Caller, Principal
from quorate_controller.storage.errors import StorageError
from quorate_controller.storage.os_filesystem import OsFileSystem
from quorate_protocol.image.snapshot import image_to_records
from quorate_protocol.records.generated import PartitionRecord, TopicRecord
from typer.testing import CliRunner

TOKEN = 5
CLIENT_METRICS = 16
TOPIC = TopicRecord(name="t", topic_id=UUID(int=7))
CALLER = Caller(
    principal=Principal(),
    client_host="127.0.0.1",
    client_id=None,
    listener="CONTROLLER",
    api_version=1,
    request_timeout_ms=1_000,
)


def partition(topic_id: int, partition_id: int = 0) -> PartitionRecord:
    return PartitionRecord(
        partition_id=partition_id,
        topic_id=UUID(int=topic_id),
        replicas=(1,),
        isr=(1,),
        removing_replicas=(),
        adding_replicas=(),
        leader=1,
        leader_epoch=0,
        partition_epoch=0,
        directories=(UUID(int=1),),
    )


def alter_subscription(value: str) -> ControlRequest:
    """Set the interval of a client metrics subscription."""
    configs = (alter.AlterableConfig(name="interval.ms", config_operation=0, value=value),)
    resource = alter.AlterConfigsResource(resource_type=CLIENT_METRICS, resource_name="s", configs=configs)
    request = alter.IncrementalAlterConfigsRequest(resources=(resource,), validate_only=False)
    return ControlRequest(token=TOKEN, request=request, caller=CALLER)


class Bench:
    """The only voter of a quorum, active, on a real disk."""

    def __init__(self, node: ControllerNode) -> None:
        self.node = node
        self.now_ms = 1_000_000
        self.node.start(self.now_ms)
        while not self.node.is_active:
            self.now_ms = max(self.now_ms, self.node.deadline_ms)
            self.node.turn([], self.now_ms)

    def ask(self) -> tuple[Any, Effects]:
        """The answer to a request, and all effects of its turn."""
        effects = self.node.turn([alter_subscription("500")], self.now_ms)
        ((token, outcome),) = [(answer.token, answer.outcome) for answer in effects.control_answers]
        assert token == TOKEN
        return outcome, effects

    def decide_next(self, monkeypatch: pytest.MonkeyPatch, result: ControlResult | Exception) -> None:
        """Have the next decision end so."""
        control = self.node.metadata.control
        original = control.decide

        def decide(_request: Any, _context: Any) -> ControlResult:
            monkeypatch.setattr(control, "decide", original)
            if isinstance(result, Exception):
                raise result
            return result

        monkeypatch.setattr(control, "decide", decide)

    def assert_serves(self) -> None:
        """Assert that the next request is decided, and its record is durable."""
        end_offset = self.node.storage.log.end_offset
        response, _ = self.ask()
        assert [one.error_code for one in response.responses] == [ErrorCode.none]
        assert self.node.storage.log.end_offset == end_offset + 1
        assert self.node.raft.high_watermark == end_offset + 1


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[Bench]:
    """A node that was formatted and has become active."""
    path = tmp_path / "controller.properties"
    path.write_text(
        "process.roles=controller\nnode.id=3000\ncontroller.listener.names=CONTROLLER\n"
        "listeners=CONTROLLER://:9093\ncontroller.quorum.bootstrap.servers=localhost:9093\n"
        f"log.dirs={tmp_path}/data\nlog.index.size.max.bytes=16384\n"
    )
    formatted = CliRunner().invoke(commands.app, ["format", "-c", str(path), "-t", "abc", "--standalone"])
    assert formatted.exit_code == 0, formatted.stderr
    node = open_node(load_config(path), file_system=OsFileSystem(), rng=Random(1), now_ms=1_000_000)
    try:
        yield Bench(node)
    finally:
        node.close()


@pytest.mark.parametrize("error", [OverflowError("too large"), RecursionError(), AssertionError("ours")])
def test_an_exception_is_answered_and_logged(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    """Goal: one request cannot end a controller. Method: a decision raises; the answer is Kafka's for errors of
    ours, the note has the exception, and the next request is served.
    """
    end_offset = bench.node.storage.log.end_offset
    bench.decide_next(monkeypatch, error)
    outcome, effects = bench.ask()
    assert isinstance(outcome, ControlError)
    assert outcome.error_code is ErrorCode.unknown_server_error
    assert outcome.message == "The server experienced an unexpected error when processing the request."
    (note,) = [note for note in effects.notes if note.event == "decision_failed"]
    assert note.exception is error
    assert note.facts == {"request": "IncrementalAlterConfigsRequest", "error": type(error).__name__}
    assert bench.node.storage.log.end_offset == end_offset
    bench.assert_serves()


@pytest.mark.parametrize(
    "records",
    [
        (TOPIC, partition(7), partition(8)),
        (TOPIC, partition(7), partition(7, partition_id=1 << 40)),
        (TOPIC, "not a record"),
    ],
    ids=["cannot be replayed", "cannot be encoded", "is no record"],
)
def test_a_decision_that_cannot_be_replayed_leaves_nothing(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, records: tuple[Any, ...]
) -> None:
    """Goal: nothing of it is half applied. Method: a topic and a partition that fit, and a record that does not:
    the image and the log are as before, and the next request is served.
    """
    image, log = bench.node.metadata.image, bench.node.storage.log
    before = image.end_offset, list(image_to_records(image)), log.end_offset
    bench.decide_next(monkeypatch, ControlResult(records=records))
    outcome, effects = bench.ask()
    assert isinstance(outcome, ControlError)
    assert outcome.error_code is ErrorCode.unknown_server_error
    assert [note.event for note in effects.notes if note.exception] == ["decision_failed"]
    assert (image.end_offset, list(image_to_records(image)), log.end_offset) == before
    assert not image.topics.by_name
    assert bench.node.metadata.pending_count == 0
    bench.assert_serves()


def test_a_disk_error_still_ends_the_node(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    """Goal: what is not the decision's fault is not answered. Method: the disk refuses the decision's record."""

    def append(_data: bytes) -> None:
        raise StorageError(Path("data"), "no space left")

    monkeypatch.setattr(bench.node.storage, "append", append)
    with pytest.raises(StorageError):
        bench.node.turn([alter_subscription("500")], bench.now_ms)
