"""What `make bench` measures of three controllers: start, idle, CreateTopics, load, observers, failover."""

from __future__ import annotations

import itertools
import time
from functools import partial
from typing import TYPE_CHECKING, Final

import psutil

from benchmarks import under_load
from benchmarks.broker import BROKER_ID
from benchmarks.client import Connection, describe_quorum
from benchmarks.figures import percentiles
from benchmarks.fleet import Fleet
from benchmarks.quorum import KAFKA, Quorum, free_ports, java_implementation, python_implementation
from benchmarks.topics import check_forwarded, create_topics, failover_seconds, forwarded, new_topic

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from quorate_operator.runtime.local.stock_kafka import Kafka
    from quorate_protocol.kafka.generated.create_topics_request import CreateTopicsRequest

    from benchmarks.figures import Figures
    from benchmarks.quorum import Implementation

BROKERS: Final = 3
"""Simulated; they send heartbeats and are as many as a topic has replicas while observers follow."""
HEARTBEAT_SECONDS: Final = 2.0
SETTLE_SECONDS: Final = 2.0
IDLE_SECONDS: Final = 8.0
FORWARDED_REQUESTS: Final = 150
FORWARDED_WARM_UP_REQUESTS: Final = 20
FAILOVER_SECONDS_MAX: Final = 120.0

WITHOUT_LINGER: Final = f"{KAFKA}, linger 0"
"""The name of Kafka beside itself with its default linger."""


def measure_rounds(
    python: str, kafka: Kafka, scratch: Path, rounds: int, progress: Callable[[str], None]
) -> dict[str, list[Figures]]:
    """Figures of each round by name of the implementation. Another one begins each round."""
    contenders = (
        python_implementation(python, kafka.version),
        java_implementation(kafka),
        java_implementation(kafka, linger_ms=0, name=WITHOUT_LINGER),
    )
    runs: dict[str, list[Figures]] = {one.name: [] for one in contenders}
    for number in range(rounds):
        first = number % len(contenders)
        for one in contenders[first:] + contenders[:first]:
            label = f"round {number + 1} of {rounds}, {one.name}"
            directory = scratch / f"{contenders.index(one)}-{number}"
            tell = partial(_tell, progress, label)
            runs[one.name].append(measure(one, directory, free_ports(3), tell))
    return runs


def _tell(progress: Callable[[str], None], label: str, part: str) -> None:
    progress(f"{label}: {part}")


def measure(
    implementation: Implementation, directory: Path, ports: tuple[int, ...], progress: Callable[[str], None]
) -> Figures:
    """Runs all measurements on a fresh quorum; leaves no process behind. A part that fails says why in its place."""
    quorum = Quorum(implementation, directory, ports)
    topics = itertools.count()
    phases: dict[str, Callable[[], Figures]] = {
        "warm up": lambda: under_load.warm_up(quorum, topics),
        **{
            f"create {connections}": partial(under_load.create, quorum, topics, connections)
            for connections in under_load.CREATE_REQUESTS
        },
        "forwarded": lambda: _forwarded(quorum, topics),
        "observed": lambda: under_load.observed(quorum, BROKERS),
        "heartbeats": lambda: under_load.heartbeats(quorum),
        "failover": lambda: _failover(quorum, topics),
    }
    fleet: Fleet | None = None
    figures: Figures = {}
    try:
        progress("start")
        quorum.start()
        figures["start_seconds"] = quorum.wait_until_registered()
        figures |= _idle(quorum)
        fleet = Fleet(quorum.addresses, quorum.cluster_id)
        fleet.grow(BROKERS, HEARTBEAT_SECONDS)
        for name, phase in phases.items():
            progress(name)
            try:
                figures |= phase()
            except (OSError, RuntimeError, psutil.Error) as error:
                figures[f"{name} failed"] = str(error)
    except (OSError, psutil.Error) as error:
        figures["start failed"] = str(error)
    finally:
        if fleet is not None:
            fleet.close()
        quorum.stop()
    return figures


def _idle(quorum: Quorum) -> Figures:
    """Memory, and the share of one core that the three take, when nothing is asked of them."""
    time.sleep(SETTLE_SECONDS)
    before, started = quorum.all_processor_seconds(), time.monotonic()
    time.sleep(IDLE_SECONDS)
    share = (quorum.all_processor_seconds() - before) / (time.monotonic() - started)
    return {"resident_bytes": quorum.resident_bytes(), "idle_share": share}


def _create(number: int) -> CreateTopicsRequest:
    return create_topics([new_topic(f"topic-{number}")])


def _forwarded(quorum: Quorum, topics: itertools.count[int]) -> Figures:
    """Requests that a broker forwards, one after the other, while the broker follows the log."""
    address = quorum.addresses[quorum.active()]
    described = describe_quorum(address)
    follower = Fleet(quorum.addresses, quorum.cluster_id)
    seconds = []
    try:
        follower.observe(1, described.high_watermark, described.leader_epoch, first_id=BROKER_ID)
        with Connection(address, client_id=str(BROKER_ID)) as connection:
            for number in itertools.islice(topics, FORWARDED_WARM_UP_REQUESTS + FORWARDED_REQUESTS):
                taken, response = connection.timed_ask(forwarded(_create(number)))
                seconds.append(taken)
                check_forwarded(response)
    finally:
        follower.close()
    return percentiles("forwarded", seconds[FORWARDED_WARM_UP_REQUESTS:])


def _failover(quorum: Quorum, topics: itertools.count[int]) -> Figures:
    seconds = failover_seconds(
        quorum, lambda: _create(next(topics)), seconds_max=FAILOVER_SECONDS_MAX, answer_seconds_max=1.0
    )
    return {"failover_seconds": seconds}
