"""The only voter of a quorum on a real disk, for the tests of the node."""

from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random
from typing import Any

import pytest
from kit.controller_parts import BOOTSTRAP_SERVERS, caller, write_controller_properties
from kit.led_node import VOTERS, LedNode
from quorate_controller import commands
from quorate_controller.config import ControllerConfig, load_config
from quorate_controller.control.api import ControlResult
from quorate_controller.node import ControllerNode, ControlRequest, Effects
from quorate_controller.node.assembly import open_node
from quorate_controller.storage.os_filesystem import OsFileSystem
from quorate_protocol.errors import ErrorCode
from quorate_protocol.kafka.generated import incremental_alter_configs_request as alter
from typer.testing import CliRunner

TOKEN = 5
CLIENT_METRICS = 16
LED_CLUSTER_ID = "4L6g3nShT-eMCtK--X86sw"


def control_request(request: Any, deadline_ms: int = 1 << 62) -> ControlRequest:
    """A request as it reaches the node."""
    return ControlRequest(token=TOKEN, request=request, caller=caller(), deadline_ms=deadline_ms)


def alter_config(resource_type: int, resource_name: str, name: str, value: str, operation: int = 0) -> Any:
    """Alter one config."""
    configs = (alter.AlterableConfig(name=name, config_operation=operation, value=value),)
    resource = alter.AlterConfigsResource(
        resource_type=resource_type, resource_name=resource_name, configs=configs
    )
    return alter.IncrementalAlterConfigsRequest(resources=(resource,), validate_only=False)


def alter_subscription(value: str) -> ControlRequest:
    """Set the interval of a client metrics subscription."""
    return control_request(alter_config(CLIENT_METRICS, "s", "interval.ms", value))


class Bench:
    """The only voter of a quorum, active, on a real disk."""

    def __init__(self, node: ControllerNode) -> None:
        self.node = node
        self.now_ms = 1_000_000
        self.node.start(self.now_ms)
        self.wait_until_active()

    def wait_until_active(self) -> None:
        """Take turns when they are due, until the node is active."""
        while not self.node.is_active:
            self.turn_when_due()

    def turn_when_due(self) -> Effects:
        """Take the next turn that no event causes."""
        self.now_ms = max(self.now_ms, self.node.deadline_ms)
        return self.node.turn([], self.now_ms)

    def ask(self, request: Any = None, deadline_ms: int = 1 << 62) -> tuple[Any, Effects]:
        """The answer to a request, and all effects of its turn."""
        event = control_request(
            alter_subscription("500").request if request is None else request, deadline_ms
        )
        effects = self.node.turn([event], self.now_ms)
        ((token, result),) = [(response.token, response.result) for response in effects.control_responses]
        assert token == TOKEN
        return result, effects

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
        assert [result.error_code for result in response.responses] == [ErrorCode.none]
        assert self.node.storage.log.end_offset == end_offset + 1
        assert self.node.raft.high_watermark == end_offset + 1


@pytest.fixture
def node_config(tmp_path: Path) -> ControllerConfig:
    """The configuration of a formatted node."""
    path = write_controller_properties(tmp_path, {**BOOTSTRAP_SERVERS, "log.index.size.max.bytes": "16384"})
    formatted = CliRunner().invoke(commands.app, ["format", "-c", str(path), "-t", "abc", "--standalone"])
    assert formatted.exit_code == 0, formatted.stderr
    return load_config(path)


@pytest.fixture
def bench(node_config: ControllerConfig) -> Iterator[Bench]:
    """A node that was formatted and has become active."""
    node = open_node(node_config, file_system=OsFileSystem(), rng=Random(1), clock=lambda: 1_000_000)
    try:
        yield Bench(node)
    finally:
        node.close()


@pytest.fixture
def bench_of() -> type[Bench]:
    """Start an opened node that is the only voter, and wait until it is active."""
    return Bench


@pytest.fixture
def voter_config(tmp_path: Path) -> ControllerConfig:
    """The properties of a formatted controller, which is one voter of three."""
    voters = "3000@localhost:9093,3001@localhost:9094,3002@localhost:9095"
    path = write_controller_properties(tmp_path, {"controller.quorum.voters": voters})
    formatted = CliRunner().invoke(commands.app, ["format", "-c", str(path), "-t", "abc"])
    assert formatted.exit_code == 0, formatted.stderr
    return load_config(path)


@pytest.fixture
def open_led(tmp_path: Path) -> Iterator[Callable[[dict[str, str]], LedNode]]:
    """Start a node that is one of three voters, with more properties, on a directory of its own."""
    started: list[LedNode] = []

    def open_one(properties: dict[str, str]) -> LedNode:
        directory = tmp_path / f"led{len(started)}"
        directory.mkdir()
        path = write_controller_properties(directory, {"controller.quorum.voters": VOTERS, **properties})
        formatted = CliRunner().invoke(commands.app, ["format", "-c", str(path), "-t", LED_CLUSTER_ID])
        assert formatted.exit_code == 0, formatted.stderr
        led = LedNode()
        led.start(open_node(load_config(path), file_system=OsFileSystem(), rng=Random(1), clock=led.clock))
        started.append(led)
        return led

    yield open_one
    for led in started:
        led.node.close()
