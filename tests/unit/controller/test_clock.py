"""The clocks of a controller: what never jumps, and what others compare."""

from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from random import Random

import pytest
from kit.controller_parts import write_controller_properties
from kit.led_node import VOTERS, LedNode
from quorate_controller import commands
from quorate_controller.config import load_config
from quorate_controller.driver import STEP_MS_MIN, Clock
from quorate_controller.node.assembly import open_node
from quorate_controller.node.events import Principal
from quorate_controller.raft.events import QuorumDescription
from quorate_controller.storage.os_filesystem import OsFileSystem
from quorate_protocol.errors import ErrorCode
from quorate_protocol.kafka.field_types import EPOCH, MILLISECOND
from quorate_protocol.kafka.generated.create_delegation_token_request import CreateDelegationTokenRequest
from quorate_protocol.records.batch import decode_batches
from typer.testing import CliRunner

TWO_DAYS_MS = 2 * 24 * 3_600_000
START_S = 1_700_000_000.0


class Machine:
    """The clocks of a machine."""

    def __init__(self) -> None:
        self.wall_s = START_S
        self.monotonic_s = 77.0
        self.clock = Clock(lambda: self.wall_s, lambda: self.monotonic_s)

    def pass_s(self, seconds: float) -> None:
        self.wall_s += seconds
        self.monotonic_s += seconds

    def set_s(self, by: float) -> None:
        self.wall_s += by

    def suspend_s(self, seconds: float) -> None:
        """Linux does not count the time of a suspended host in CLOCK_MONOTONIC."""
        self.wall_s += seconds


@pytest.mark.parametrize("by_s", [TWO_DAYS_MS / 1000, -TWO_DAYS_MS / 1000, 0.5, -0.5])
def test_timers_do_not_see_that_a_clock_was_set(by_s: float, caplog: pytest.LogCaptureFixture) -> None:
    """No election and no fenced broker because of NTP."""
    machine = Machine()
    before_ms = machine.clock.now_ms()
    assert machine.clock.unix_ms_of(before_ms) == before_ms == START_S * 1000
    machine.set_s(by_s)
    machine.pass_s(1)
    now_ms = machine.clock.now_ms()
    assert now_ms == before_ms + 1000
    assert machine.clock.unix_ms_of(now_ms) == int(machine.wall_s * 1000)
    assert machine.clock.unix_ms_of(before_ms) == int(machine.wall_s * 1000) - 1000
    assert [record.message for record in caplog.records] == ["clock_stepped"]
    machine.set_s(-by_s)
    assert machine.clock.unix_ms_of(now_ms) == now_ms


def test_a_suspended_host_knows_the_time_again() -> None:
    machine = Machine()
    machine.suspend_s(3600)
    assert machine.clock.now_ms() == START_S * 1000
    assert machine.clock.unix_ms_of(machine.clock.now_ms()) == (START_S + 3600) * 1000


def test_times_do_not_tremble() -> None:
    """Records of one leader have times in order while the clock is not set."""
    machine = Machine()
    times_ms = []
    for _ in range(1000):
        machine.pass_s(0.0101)
        now_ms = machine.clock.now_ms()
        machine.wall_s += 1e-5 * (len(times_ms) % 2)  # as if the read of one clock came later
        times_ms.append(machine.clock.unix_ms_of(now_ms))
    assert times_ms == sorted(times_ms)
    assert abs(times_ms[-1] - machine.wall_s * 1000) <= STEP_MS_MIN


@pytest.fixture
def led(tmp_path: Path) -> Iterator[LedNode]:
    """An active controller whose system's clock is set by `led.stepped_ms`."""
    config = write_controller_properties(
        tmp_path, {"controller.quorum.voters": VOTERS, "delegation.token.secret.key": "secret"}
    )
    assert CliRunner().invoke(commands.app, ["format", "-c", str(config), "-t", "abc"]).exit_code == 0
    led = LedNode()
    led.stepped_ms = 0  # type: ignore[attr-defined]
    node = open_node(
        load_config(config),
        file_system=OsFileSystem(),
        rng=Random(1),
        clock=led.clock,
        unix_ms_of=lambda now_ms: now_ms + led.stepped_ms,  # type: ignore[attr-defined]
    )
    led.start(node)
    led.lead()
    yield led
    node.close()


@pytest.mark.parametrize("stepped_ms", [TWO_DAYS_MS, -TWO_DAYS_MS])
def test_what_others_compare_has_the_time_of_the_system(led: LedNode, stepped_ms: int) -> None:
    """No token is born expired, and no record two days old."""
    deadline_ms = led.node.raft.deadline_ms
    led.stepped_ms = stepped_ms  # type: ignore[attr-defined]
    led.turn()
    assert led.node.raft.deadline_ms == deadline_ms, "raft does not see the step"
    assert led.node.is_active
    create = CreateDelegationTokenRequest(
        owner_principal_type=None, owner_principal_name="", renewers=(), max_lifetime=timedelta(hours=1)
    )
    response = led.apply(create, principal=Principal(name="alice"), forwarded=True)
    assert response.error_code is ErrorCode.none
    unix_ms = led.now_ms + stepped_ms
    issued_ms = (response.issue_timestamp - EPOCH) // MILLISECOND
    assert abs(issued_ms - unix_ms) < 60_000
    assert (response.max_timestamp - response.issue_timestamp) == timedelta(hours=1)
    log = led.node.storage.log
    *_, newest = decode_batches(log.read(log.end_offset - 1, 1 << 20))
    assert abs(newest.max_timestamp_ms - unix_ms) < 60_000


def test_quorums_are_described_in_unix_time(led: LedNode) -> None:
    """`metadata-quorum describe --replication` says how long ago replicas fetched, by the clock of its
    machine.
    """
    described = led.node.raft.describe_quorum(led.now_ms)
    later = described.in_unix_time(lambda now_ms: now_ms + TWO_DAYS_MS)
    assert len(later.voters) == 3
    for before, after in zip(described.voters, later.voters, strict=True):
        for name in ("last_fetch_timestamp_ms", "last_caught_up_timestamp_ms"):
            was_ms = getattr(before, name)
            assert getattr(after, name) == (was_ms if was_ms < 0 else was_ms + TWO_DAYS_MS)
    assert QuorumDescription().in_unix_time(lambda now_ms: now_ms) == QuorumDescription()
