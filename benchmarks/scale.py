"""What `make bench ONLY=scale` measures of three controllers with many partitions and brokers."""

from __future__ import annotations

import itertools
import threading
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Self

from quorate_protocol.errors import ErrorCode
from quorate_protocol.kafka.generated.incremental_alter_configs_request import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)

from benchmarks.client import Connection, describe_quorum, knows_topic
from benchmarks.figures import percentiles
from benchmarks.fleet import Fleet, started
from benchmarks.quorum import Quorum
from benchmarks.topics import create_topics, failover_seconds, new_topic

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from quorate_protocol.kafka.generated.create_topics_request import CreatableTopic

    from benchmarks.figures import Figures
    from benchmarks.fleet import Sample
    from benchmarks.quorum import Implementation


BROKERS: Final = 30
REPLICAS: Final = 3
PARTITIONS_PER_TOPIC: Final = 20
TOPICS_PER_REQUEST: Final = 100
LARGE_TOPIC_PARTITIONS: Final = 5_000
FENCED_BROKER: Final = 7

BOUND_SECONDS: Final = 120.0
"""The bound of each phase but those below. A row that takes longer is marked."""
CREATE_BOUND_SECONDS: Final = 900.0
SNAPSHOT_BOUND_SECONDS: Final = 300.0
QUIET_SECONDS: Final = 2.0
"""The log has settled if it has not grown for this long."""

REGULAR_HEARTBEAT_SECONDS: Final = 2.0
"""The default of broker.heartbeat.interval.ms."""
FREQUENT_HEARTBEAT_SECONDS: Final = 0.1
IDLE_SECONDS: Final = 10.0

BROKER_COUNTS: Final = (10, 100, 1_000)
HEARTBEATS_PER_SECOND: Final = 500
"""The rate of all brokers together, whatever their number: that of 1,000 brokers with the default interval of 2 s."""
HEARTBEAT_PHASE_SECONDS: Final = 10.0
WARM_UP_SECONDS: Final = 3.0

WATCH_SECONDS: Final = 0.005
LOG_BYTES_PER_PARTITION: Final = 160
"""Somewhat more than the records of a partition take in the log."""
BALLAST_BYTES: Final = 32_000
BALLAST_CONFIGS: Final = 30


def properties_for(partitions: int) -> dict[str, str]:
    """No snapshot while topics are created, and one soon after; nothing written that was not asked for."""
    snapshot_bytes = 4 * 1024 * 1024 + int(1.3 * LOG_BYTES_PER_PARTITION * partitions)
    return {
        "metadata.log.max.record.bytes.between.snapshots": str(snapshot_bytes),
        "metadata.max.idle.interval.ms": "0",
        "auto.leader.rebalance.enable": "false",
    }


class ScaleRun:
    """One quorum with 30 brokers and n partitions, through all phases."""

    def __init__(
        self,
        implementation: Implementation,
        directory: Path,
        ports: tuple[int, ...],
        *,
        partitions: int,
        progress: Callable[[str], None],
    ) -> None:
        self._partitions = partitions
        self._progress = progress
        self._quorum = Quorum(implementation, directory, ports, properties_for(partitions))
        self._fleet: Fleet | None = None
        self._connection: Connection | None = None
        self._names = itertools.count()
        self._figures: Figures = {}

    def measure(self) -> Figures:
        """Run all phases, and end the processes."""
        quorum = self._quorum
        phases = (
            ("create", self._create),
            ("large topic", self._create_large_topic),
            ("memory", self._memory),
            ("snapshot", self._snapshot),
            ("fence", self._fence),
            ("load", self._load),
            ("failover", self._failover),
        )
        try:
            with started(quorum) as self._fleet:
                self._fleet.grow(BROKERS, REGULAR_HEARTBEAT_SECONDS)
                for name, phase in phases:
                    self._progress(name)
                    try:
                        phase()
                    except (OSError, RuntimeError) as error:
                        self._figures[f"{name} failed"] = str(error)
                        if name == "create":
                            break
        except (OSError, RuntimeError) as error:
            self._figures["failed"] = str(error)
        return self._figures

    @property
    def fleet(self) -> Fleet:
        assert self._fleet is not None
        return self._fleet

    def _active_address(self) -> tuple[str, int]:
        return self._quorum.addresses[self._quorum.active()]

    # Phases

    def _create(self) -> None:
        """Send requests of 2,000 partitions, one after the other. The time of a request ends with its response."""
        epoch_before = describe_quorum(self._active_address()).leader_epoch
        processor_before = self._quorum.all_processor_seconds()
        seconds = 0.0
        slowest = 0.0
        batch = TOPICS_PER_REQUEST * PARTITIONS_PER_TOPIC
        for done in range(0, self._partitions, batch):
            if seconds > CREATE_BOUND_SECONDS:
                raise TimeoutError(f"{done:,} partitions were created in {seconds:.0f} s")
            count = min(TOPICS_PER_REQUEST, (self._partitions - done) // PARTITIONS_PER_TOPIC)
            taken = self._create_topics(self._new_topics(count, PARTITIONS_PER_TOPIC))
            seconds += taken
            slowest = max(slowest, taken)
            self._progress(f"create: {done + batch:,} partitions in {seconds:.1f} s")
        self._wait_until_quiet()
        self._figures |= {
            "create_seconds": seconds,
            "create_cpu_seconds": self._quorum.all_processor_seconds() - processor_before,
            "create_max_seconds": slowest,
            "create_elections": describe_quorum(self._active_address()).leader_epoch - epoch_before,
        }

    def _create_large_topic(self) -> None:
        """One topic of 5,000 partitions, in one request."""
        epoch_before = describe_quorum(self._active_address()).leader_epoch
        taken = self._create_topics(self._new_topics(1, LARGE_TOPIC_PARTITIONS))
        self._figures["large_topic_seconds"] = taken
        elections = describe_quorum(self._active_address()).leader_epoch - epoch_before
        self._figures["large_topic_elections"] = elections

    def _memory(self) -> None:
        self._wait_until_quiet()
        self._figures["resident_bytes"] = self._quorum.resident_bytes()

    def _snapshot(self) -> None:
        """Heartbeats of 30 brokers, ten a second each, before and while the active controller writes a snapshot."""
        quorum, fleet, active_id = self._quorum, self.fleet, self._quorum.active()
        fleet.pace(FREQUENT_HEARTBEAT_SECONDS)
        time.sleep(1)
        fleet.pace(FREQUENT_HEARTBEAT_SECONDS)
        processor_before, started = quorum.processor_seconds(active_id), time.monotonic()
        time.sleep(IDLE_SECONDS)
        idle_share = (quorum.processor_seconds(active_id) - processor_before) / (time.monotonic() - started)
        self._figures |= _latencies("idle", fleet.samples())
        fleet.pace(FREQUENT_HEARTBEAT_SECONDS)
        with SnapshotWatch(quorum, active_id) as watch:
            self._write_until_snapshot(watch)
        samples = fleet.samples()
        fleet.pace(REGULAR_HEARTBEAT_SECONDS)
        window = watch.window
        if window is None or quorum.active() != active_id:
            raise TimeoutError(f"no snapshot of one active controller in {SNAPSHOT_BOUND_SECONDS:.0f} s")
        self._figures |= _latencies("snapshot", [sample for sample in samples if window.overlaps(*sample)])
        self._figures |= {
            "snapshot_seconds": window.seconds,
            "snapshot_cpu_seconds": window.processor_seconds - window.seconds * idle_share,
        }

    def _write_until_snapshot(self, watch: SnapshotWatch) -> None:
        """Write large configs until the snapshot begins, and then nothing until its end."""
        deadline = time.monotonic() + SNAPSHOT_BOUND_SECONDS
        with Connection(self._active_address(), timeout_seconds=BOUND_SECONDS) as connection:
            number = 0
            while not watch.has_begun.is_set() and time.monotonic() < deadline:
                number += 1
                response = connection.ask(_ballast(number))
                if response.responses[0].error_code is not ErrorCode.none:
                    raise RuntimeError(f"configs were refused: {response.responses[0].error_message}")
            while watch.window is None and time.monotonic() < deadline:
                time.sleep(0.01)

    def _fence(self) -> None:
        """The time from a broker's request to be fenced until the changes of all its partitions are committed."""
        before = describe_quorum(self._active_address())
        expected = (self._partitions + LARGE_TOPIC_PARTITIONS) * REPLICAS // BROKERS
        processor_before, started = self._quorum.all_processor_seconds(), time.monotonic()
        self.fleet.fence(FENCED_BROKER)
        high_watermark, changed = before.high_watermark, started
        while True:
            try:
                now = describe_quorum(self._active_address())
            except (OSError, IndexError, TimeoutError):
                now = None
            if now is not None and now.high_watermark > high_watermark:
                high_watermark, changed = now.high_watermark, time.monotonic()
            elif high_watermark - before.high_watermark > 0.9 * expected:
                if time.monotonic() - changed > QUIET_SECONDS:
                    break
            elif time.monotonic() - started > BOUND_SECONDS:
                moved = high_watermark - before.high_watermark
                raise TimeoutError(
                    f"{moved:,} of {expected:,} changes were committed in {BOUND_SECONDS:.0f} s"
                )
            time.sleep(0.02)
        self._figures |= {
            "fence_seconds": changed - started,
            "fence_cpu_seconds": self._quorum.all_processor_seconds() - processor_before,
            "fence_elections": describe_quorum(self._active_address()).leader_epoch - before.leader_epoch,
        }

    def _load(self) -> None:
        """kill -9 of a standby and its start, until it knows the last topic that was created before."""
        quorum = self._quorum
        active_id = quorum.active()
        node_id = next(other_id for other_id in quorum.addresses if other_id != active_id)
        (last,) = self._new_topics(1, 1)
        self._create_topics([last])
        quorum.kill(node_id)
        started = time.monotonic()
        quorum.start_one(node_id)
        while not self._knows(node_id, last.name):
            if time.monotonic() - started > BOUND_SECONDS:
                raise TimeoutError(f"a controller was not caught up in {BOUND_SECONDS:.0f} s")
            time.sleep(0.02)
        self._figures |= {
            "load_seconds": time.monotonic() - started,
            "load_cpu_seconds": quorum.processor_seconds(node_id),
        }

    def _knows(self, node_id: int, topic: str) -> bool:
        try:
            return knows_topic(self._quorum.addresses[node_id], topic)
        except OSError:
            return False  # it does not listen yet

    def _failover(self) -> None:
        """kill -9 of the active controller until another one has committed a topic."""
        self._wait_until_quiet()
        self._figures["failover_seconds"] = failover_seconds(
            self._quorum,
            lambda: create_topics(self._new_topics(1, 1), timeout_seconds=BOUND_SECONDS),
            seconds_max=BOUND_SECONDS,
            response_seconds_max=BOUND_SECONDS,
        )

    # Helpers

    def _new_topics(self, count: int, partitions: int) -> list[CreatableTopic]:
        return [
            new_topic(f"orders-of-region-{number}", partitions=partitions, replicas=REPLICAS)
            for number in itertools.islice(self._names, count)
        ]

    def _create_topics(self, topics: Sequence[CreatableTopic]) -> float:
        """Create topics, at another active controller if the first one loses its leadership. Returns the seconds."""
        request = create_topics(topics, timeout_seconds=BOUND_SECONDS)
        started, lost = time.perf_counter(), 0.0
        while time.perf_counter() - started < BOUND_SECONDS:
            try:
                if self._connection is None:
                    self._connection = Connection(self._active_address(), timeout_seconds=BOUND_SECONDS)
                seconds, response = self._connection.timed_ask(request)
            except ConnectionError:
                self._connection = None
                continue
            codes = {topic.error_code for topic in response.topics}
            if codes <= {ErrorCode.none, ErrorCode.topic_already_exists}:
                return lost + seconds
            if not codes & {ErrorCode.not_controller, ErrorCode.request_timed_out}:
                raise RuntimeError(f"CreateTopics was refused: {codes}")
            self._connection = None
            time.sleep(0.02)
            lost = time.perf_counter() - started
        raise TimeoutError(f"did not commit in {BOUND_SECONDS:.0f} s")

    def _wait_until_quiet(self) -> None:
        """Wait until the three use less than half a core together, as when nothing is asked of them."""
        deadline = time.monotonic() + BOUND_SECONDS
        while time.monotonic() < deadline:
            before = self._quorum.all_processor_seconds()
            time.sleep(QUIET_SECONDS)
            if self._quorum.all_processor_seconds() - before < QUIET_SECONDS / 2:
                return


def _ballast(number: int) -> IncrementalAlterConfigsRequest:
    """About 1 MiB of records that replace those before."""
    value = f"{number}-".ljust(BALLAST_BYTES, "x")
    configs = tuple(
        AlterableConfig(name=f"ballast.{index}", config_operation=0, value=value)
        for index in range(BALLAST_CONFIGS)
    )
    resource = AlterConfigsResource(resource_type=4, resource_name="0", configs=configs)
    return IncrementalAlterConfigsRequest(resources=(resource,), validate_only=False)


def _latencies(name: str, samples: Sequence[Sample]) -> Figures:
    """p50, p99 and the longest."""
    latencies = sorted(latency for _, latency in samples)
    if len(latencies) < 2:
        return {f"heartbeat_{name}_p99_seconds": "too short to be measured"}
    return {
        **percentiles(f"heartbeat_{name}", latencies),
        f"heartbeat_{name}_max_seconds": latencies[-1],
    }


@dataclass(frozen=True, slots=True, kw_only=True)
class Window:
    """The time in which one controller wrote one snapshot, of time.monotonic."""

    begun: float
    ended: float
    processor_seconds: float
    """Processor time of the process meanwhile."""

    @property
    def seconds(self) -> float:
        return self.ended - self.begun

    def overlaps(self, begun: float, duration: float) -> bool:
        """Whether the window overlaps with that time."""
        return begun <= self.ended and begun + duration >= self.begun


class SnapshotWatch:
    """Polls the directory of one controller in a thread of its own while it is entered, until a snapshot is there."""

    def __init__(self, quorum: Quorum, node_id: int) -> None:
        self._quorum = quorum
        self._node_id = node_id
        self._stop = threading.Event()
        self.has_begun = threading.Event()
        self.window: Window | None = None
        """The window of the first snapshot, once it is complete."""
        self._thread = threading.Thread(target=self._run, name="snapshots", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()

    def _run(self) -> None:
        directory = self._quorum.log_directory(self._node_id)
        while not _has_unfinished(directory):
            if self._stop.wait(WATCH_SECONDS):
                return
        begun, used = time.monotonic(), self._quorum.processor_seconds(self._node_id)
        self.has_begun.set()
        while _has_unfinished(directory):
            if self._stop.wait(WATCH_SECONDS):
                return
        used = self._quorum.processor_seconds(self._node_id) - used
        self.window = Window(begun=begun, ended=time.monotonic(), processor_seconds=used)


def _has_unfinished(directory: Path) -> bool:
    return any(path.name.endswith(".checkpoint.part") for path in directory.iterdir())


def measure_many_brokers(
    implementation: Implementation,
    directory: Path,
    ports: tuple[int, ...],
    progress: Callable[[str], None],
) -> Figures:
    """Measure on a fresh quorum without partitions, and end its processes."""
    quorum = Quorum(implementation, directory, ports)
    figures: Figures = {}
    try:
        with started(quorum) as fleet:
            for brokers in BROKER_COUNTS:
                progress(f"heartbeats of {brokers:,} brokers")
                figures |= _heartbeats(quorum, fleet, brokers)
    except (OSError, RuntimeError) as error:
        figures["failed"] = str(error)
    return figures


def _heartbeats(quorum: Quorum, fleet: Fleet, brokers: int) -> Figures:
    interval = brokers / HEARTBEATS_PER_SECOND
    fleet.grow(brokers, REGULAR_HEARTBEAT_SECONDS)
    fleet.pace(interval)
    time.sleep(WARM_UP_SECONDS)
    active = quorum.active()
    fleet.pace(interval)
    before = quorum.processor_seconds(active)
    time.sleep(HEARTBEAT_PHASE_SECONDS)
    spent = quorum.processor_seconds(active) - before
    latencies = [latency for _, latency in fleet.samples()]
    name = f"heartbeats_{brokers}"
    return {
        f"{name}_cpu_seconds": spent / len(latencies),
        **percentiles(name, latencies),
    }
