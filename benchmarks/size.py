"""The largest requests beside the heartbeats of many brokers: do they cost the leader, and what do others wait?"""

from __future__ import annotations

import time
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Final

from quorate_protocol.errors import ErrorCode
from quorate_protocol.kafka.generated.create_partitions_request import (
    CreatePartitionsRequest,
    CreatePartitionsTopic,
)
from quorate_protocol.kafka.generated.create_topics_request import CreateTopicsRequest
from quorate_protocol.kafka.generated.delete_topics_request import DeleteTopicsRequest, DeleteTopicState

from benchmarks import tables
from benchmarks.client import Connection, describe_quorum
from benchmarks.figures import percentiles
from benchmarks.fleet import started
from benchmarks.topics import new_topic

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from benchmarks.figures import Figures
    from benchmarks.fleet import Fleet
    from benchmarks.quorum import Quorum

HEARTBEAT_INTERVAL_SECONDS: Final = 2.0
"""Kafka's `broker.heartbeat.interval.ms`."""
PARTITIONS_PER_REQUEST: Final = 9_900
REPLICAS: Final = 3
TIMEOUT: Final = timedelta(seconds=60)
QUIET_SECONDS: Final = 4.0
"""The heartbeats of two intervals, without anything beside them."""
LARGE_TOPIC: Final = "large"


@dataclass(frozen=True, slots=True, kw_only=True)
class Sizes:
    """What is created and deleted."""

    brokers: int = 1_000
    topics: int = 4_900
    """Topics of one partition each, in one request."""
    partitions: int = 100_000
    """Partitions of one topic, which is deleted afterwards."""


def measure_size(quorum: Quorum, sizes: Sizes, progress: Callable[[str], None]) -> Figures:
    """Measure on a quorum that was not started yet, and end its processes."""
    figures: Figures = {}
    try:
        with started(quorum) as fleet:
            progress(f"{sizes.brokers:,} brokers")
            fleet.grow(sizes.brokers, HEARTBEAT_INTERVAL_SECONDS)
            stage = _Stage(quorum, fleet, figures)
            stage.run("quiet", _wait)
            progress(f"{sizes.topics:,} topics")
            topics = CreateTopicsRequest(
                topics=tuple(new_topic(f"t{number}", replicas=REPLICAS) for number in range(sizes.topics)),
                timeout=TIMEOUT,
            )
            stage.run("create", lambda: stage.ask(topics))
            progress(f"a topic of {sizes.partitions:,} partitions")
            stage.run("grow", lambda: [stage.ask(request) for request in _growth(sizes.partitions)])
            progress("its deletion")
            deletion = DeleteTopicsRequest(
                topics=(DeleteTopicState(name=LARGE_TOPIC, topic_id=None),), timeout=TIMEOUT
            )
            stage.run("delete", lambda: stage.ask(deletion))
    except (OSError, RuntimeError) as error:
        figures["failed"] = str(error)
    return figures


def _wait() -> None:
    time.sleep(QUIET_SECONDS)


def _growth(partitions: int) -> Iterator[Any]:
    """The requests that make the large topic."""
    first = min(partitions, PARTITIONS_PER_REQUEST)
    topic = new_topic(LARGE_TOPIC, partitions=first, replicas=REPLICAS)
    yield CreateTopicsRequest(topics=(topic,), timeout=TIMEOUT)
    for count in range(
        first + PARTITIONS_PER_REQUEST, partitions + PARTITIONS_PER_REQUEST, PARTITIONS_PER_REQUEST
    ):
        grown = CreatePartitionsTopic(name=LARGE_TOPIC, count=min(count, partitions), assignments=None)
        yield CreatePartitionsRequest(topics=(grown,), timeout=TIMEOUT, validate_only=False)


def size_rows(sizes: Sizes, *measured: Figures) -> list[tuple[str, ...]]:
    """Return the rows of a table: of each stage its duration, the heartbeats beside it, and the elections."""
    if any("failed" in figures for figures in measured):
        return [("failed", *(str(figures.get("failed", "")) for figures in measured))]
    stages = {
        "quiet": "nothing beside the heartbeats",
        "create": f"CreateTopics of {sizes.topics:,} topics",
        "grow": f"a topic of {sizes.partitions:,} partitions, in requests of {PARTITIONS_PER_REQUEST:,}",
        "delete": "its deletion",
    }
    rows: list[tuple[str, ...]] = []
    for stage, label in stages.items():
        for name, what, text in (
            ("seconds", "", tables.seconds),
            ("heartbeat_p99_seconds", ", heartbeats' p99", tables.milliseconds),
            ("heartbeat_max_seconds", ", the slowest", tables.milliseconds),
            ("elections", ", elections", tables.count),
        ):
            values = (float(figures[f"{stage}_{name}"]) for figures in measured)
            rows.append((f"{label}{what}", *(text(value) for value in values)))
    return rows


class _Stage:
    """Requests, with the heartbeats that were due meanwhile."""

    def __init__(self, quorum: Quorum, fleet: Fleet, figures: Figures) -> None:
        self._quorum = quorum
        self._fleet = fleet
        self._figures = figures

    def run(self, name: str, work: Callable[[], object]) -> None:
        """Note the seconds, the heartbeats' latency and the elections of a stage, with some seconds behind it."""
        epoch = self._epoch()
        self._fleet.pace(HEARTBEAT_INTERVAL_SECONDS)
        began = time.monotonic()
        work()
        self._figures[f"{name}_seconds"] = time.monotonic() - began
        _wait()
        latencies = [latency for _, latency in self._fleet.samples()]
        self._figures |= percentiles(f"{name}_heartbeat", latencies)
        self._figures[f"{name}_heartbeat_max_seconds"] = max(latencies)
        self._figures[f"{name}_elections"] = self._epoch() - epoch

    def ask(self, request: Any) -> None:
        """Ask the active controller. Raises RuntimeError if it refuses."""
        with Connection(
            self._quorum.addresses[self._quorum.active()], timeout_seconds=TIMEOUT.total_seconds()
        ) as connection:
            response = connection.ask(request)
        results = (
            getattr(response, "topics", None) or getattr(response, "results", None) or response.responses
        )
        codes = {result.error_code for result in results} - {ErrorCode.none}
        if codes:
            names = ", ".join(sorted(code.name for code in codes))
            raise RuntimeError(f"{type(request).__name__} was refused: {names}")

    def _epoch(self) -> int:
        active = self._quorum.active()
        return int(describe_quorum(self._quorum.addresses[active]).leader_epoch)
