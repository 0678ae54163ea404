"""The brokers and observers of `make bench`, in their process, at a controller on loopback sockets."""

import asyncio
import importlib
import os
import signal
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from kit.controller_in_process import only_voter
from kit.waiting import HANG_S, eventually
from quorate_controller.node.status import ACTIVE, FENCED, NodeStatus

ROOT = Path(__file__).parents[2]
HEARTBEAT_S = 0.05
OBSERVERS = 2
FIRST_OBSERVER = 7_000

Status = Callable[[], NodeStatus]


@pytest.fixture
def benchmarks(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(str(ROOT))
    for name in ("client", "controllers", "fleet", "scale"):
        importlib.import_module(f"benchmarks.{name}")
    return importlib.import_module("benchmarks")


async def beside_a_controller(
    benchmarks: ModuleType, directory: Path, story: Callable[[Any, tuple[str, int], Status], None]
) -> None:
    """Run a story with a fleet in a thread, so that the controller responds."""

    def run(address: tuple[str, int], cluster_id: str, status: Status) -> None:
        with benchmarks.fleet.Fleet({3000: address}, cluster_id) as fleet:
            story(fleet, address, status)

    async with only_voter(directory) as (driver, port):
        await asyncio.to_thread(run, ("127.0.0.1", port), driver.cluster_id, driver.status)


async def test_brokers_send_heartbeats_and_are_fenced(benchmarks: ModuleType, tmp_path: Path) -> None:
    def story(fleet: Any, _: tuple[str, int], status: Status) -> None:
        fleet.grow(3, HEARTBEAT_S)
        assert status().broker_states == dict.fromkeys(range(3), ACTIVE)
        fleet.pace(HEARTBEAT_S)
        eventually(lambda: len(fleet.samples()) > 3, HANG_S, "heartbeats")
        assert all(0 < latency < HANG_S for _, latency in fleet.samples())
        fleet.fence(1)
        expected = {0: ACTIVE, 1: FENCED, 2: ACTIVE}
        eventually(lambda: status().broker_states == expected, HANG_S, "a fenced broker", status)
        assert fleet.processor_seconds() > 0

    await beside_a_controller(benchmarks, tmp_path, story)


async def test_observers_follow_the_log(benchmarks: ModuleType, tmp_path: Path) -> None:
    def story(fleet: Any, address: tuple[str, int], status: Status) -> None:
        def at_the_end() -> bool:
            fleet.check()  # raises the error of an observer
            described = benchmarks.client.describe_quorum(address)
            ends = {observer.replica_id: observer.log_end_offset for observer in described.observers}
            return ends == dict.fromkeys(observers, described.high_watermark)

        observers = range(FIRST_OBSERVER, FIRST_OBSERVER + OBSERVERS)
        before = benchmarks.client.describe_quorum(address)
        fleet.observe(OBSERVERS, before.high_watermark, before.leader_epoch, first_id=FIRST_OBSERVER)
        eventually(at_the_end, HANG_S, "observers to follow", status)
        fleet.grow(1, HEARTBEAT_S)
        assert status().high_watermark > before.high_watermark
        eventually(at_the_end, HANG_S, "observers to read the registration", status)

    await beside_a_controller(benchmarks, tmp_path, story)


async def test_an_observer_that_fails_ends_the_fleet_with_its_error(
    benchmarks: ModuleType, tmp_path: Path
) -> None:
    def story(fleet: Any, _: tuple[str, int], status: Status) -> None:
        fleet.grow(1, HEARTBEAT_S)
        fleet.observe(1, "no offset", status().leader_epoch)
        eventually(lambda: not fleet._process.is_alive(), HANG_S, "the child to end")
        for _ in range(2):
            with pytest.raises(RuntimeError, match=r"^the fleet failed: \w+: "):
                fleet.samples()

    with pytest.raises(RuntimeError, match="the fleet failed"):
        await beside_a_controller(benchmarks, tmp_path, story)


async def test_a_broker_that_fails_ends_the_command_that_waits_for_it(
    benchmarks: ModuleType, tmp_path: Path
) -> None:
    def story(fleet: Any, *_: object) -> None:
        fleet.grow(2, "no interval")

    with pytest.raises(RuntimeError, match="the fleet failed: TypeError"):
        await beside_a_controller(benchmarks, tmp_path, story)


async def test_a_child_that_dies_is_reported(benchmarks: ModuleType, tmp_path: Path) -> None:
    def story(fleet: Any, *_: object) -> None:
        fleet.grow(1, HEARTBEAT_S)
        os.kill(fleet._process.pid, signal.SIGKILL)
        fleet.check()

    with pytest.raises(RuntimeError, match="the fleet failed: its process ended with exit status -9"):
        await beside_a_controller(benchmarks, tmp_path, story)


class FailingFleet:
    """A fleet whose process ends while its brokers start, or, with `at_end`, while the last part is measured."""

    FAILURE = "the fleet failed: its process ended with exit status -9"

    def __init__(self, *, at_end: bool) -> None:
        self._at_end = at_end

    def __enter__(self) -> "FailingFleet":
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is None:
            raise RuntimeError(self.FAILURE)

    def grow(self, *_: object) -> None:
        if not self._at_end:
            raise RuntimeError(self.FAILURE)


class MeasuredQuorum:
    """A quorum without processes, whose parts fail when they are measured."""

    addresses = ()
    cluster_id = "cluster"

    def start(self) -> None:
        """Nothing to start."""

    stop = start

    def wait_until_registered(self) -> float:
        return 1.5

    def __getattr__(self, name: str) -> object:
        raise OSError(f"no {name}")


@pytest.mark.parametrize("at_end", [False, True])
def test_a_failed_fleet_costs_no_other_figure_of_controllers(
    benchmarks: ModuleType, monkeypatch: pytest.MonkeyPatch, at_end: bool
) -> None:
    controllers: Any = benchmarks.controllers
    monkeypatch.setattr(controllers, "Quorum", lambda *_: MeasuredQuorum())
    monkeypatch.setattr(controllers, "Fleet", lambda *_: FailingFleet(at_end=at_end))
    monkeypatch.setattr(controllers, "_idle", lambda _: {"resident_bytes": 7})
    figures = controllers.measure(None, Path(), (), lambda _: None)
    assert figures["start failed"] == FailingFleet.FAILURE
    assert (figures["start_seconds"], figures["resident_bytes"]) == (1.5, 7)
    assert ("failover failed" in figures) is at_end


@pytest.mark.parametrize("at_end", [False, True])
def test_a_failed_fleet_costs_no_other_figure_of_a_size(
    benchmarks: ModuleType, monkeypatch: pytest.MonkeyPatch, at_end: bool
) -> None:
    scale: Any = benchmarks.scale
    monkeypatch.setattr(scale, "Quorum", lambda *_: MeasuredQuorum())
    monkeypatch.setattr(scale, "started", lambda _: FailingFleet(at_end=at_end))
    run = scale.ScaleRun(None, Path(), (), partitions=1, progress=lambda _: None)
    figures = run.measure()
    assert figures["failed"] == FailingFleet.FAILURE
    assert ("create failed" in figures) is at_end
