"""What `make bench` measures of three controllers: start, memory, failover, CreateTopics."""

from __future__ import annotations

import itertools
import statistics
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from kio.schema.errors import ErrorCode

from benchmarks.broker import BROKER_ID, HeartbeatingBroker
from benchmarks.client import Connection, describe_quorum
from benchmarks.fleet import Fleet
from benchmarks.quorum import Implementation, Quorum
from benchmarks.topics import check_created, check_forwarded, create_topics, forwarded, new_topic

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from kio.schema.create_topics.v7.request import CreateTopicsRequest

IDLE_SECONDS: Final = 5.0
SEQUENTIAL_REQUESTS: Final = 300
WARM_UP_REQUESTS: Final = 50


@dataclass(frozen=True, slots=True, kw_only=True)
class Measurements:
    """Of one implementation, in one run."""

    start_seconds: float
    resident_bytes: int
    failover_seconds: float
    create_p50_seconds: float
    create_p99_seconds: float
    forwarded_p50_seconds: float
    forwarded_p99_seconds: float


def measure(
    implementation: Implementation, directory: Path, ports: tuple[int, ...], progress: Callable[[str], None]
) -> Measurements:
    """Runs all measurements on a fresh quorum; leaves no process behind."""
    quorum = Quorum(implementation, directory, ports)
    broker: HeartbeatingBroker | None = None
    try:
        progress("start")
        quorum.start()
        start_seconds = quorum.wait_until_registered()
        time.sleep(IDLE_SECONDS)
        resident_bytes = quorum.resident_bytes()
        broker = HeartbeatingBroker(quorum, quorum.cluster_id)
        if not broker.unfenced.wait(60):
            raise TimeoutError(f"{implementation.name}: the broker was not unfenced")
        topics = itertools.count()
        progress("CreateTopics")
        sequential = _sequential(quorum, topics)
        progress("CreateTopics through a broker")
        through_broker = _forwarded(quorum, topics)
        progress("failover")
        failover_seconds = _failover(quorum, topics)
    finally:
        if broker is not None:
            broker.close()
        quorum.stop()
    return Measurements(
        start_seconds=start_seconds,
        resident_bytes=resident_bytes,
        failover_seconds=failover_seconds,
        create_p50_seconds=statistics.median(sequential),
        create_p99_seconds=statistics.quantiles(sequential, n=100)[98],
        forwarded_p50_seconds=statistics.median(through_broker),
        forwarded_p99_seconds=statistics.quantiles(through_broker, n=100)[98],
    )


def _create(number: int) -> CreateTopicsRequest:
    return create_topics([new_topic(f"topic-{number}")])


def _sequential(quorum: Quorum, topics: itertools.count[int]) -> list[float]:
    """Seconds per request, one after the other."""
    seconds = []
    with Connection(quorum.addresses[quorum.active()]) as connection:
        for number in itertools.islice(topics, WARM_UP_REQUESTS + SEQUENTIAL_REQUESTS):
            started = time.perf_counter()
            response = connection.ask(_create(number))
            seconds.append(time.perf_counter() - started)
            check_created(response)
    return seconds[WARM_UP_REQUESTS:]


def _forwarded(quorum: Quorum, topics: itertools.count[int]) -> list[float]:
    """Seconds per request that a broker forwards, one after the other, while the broker follows the log."""
    address = quorum.addresses[quorum.active()]
    described = describe_quorum(address)
    follower = Fleet(quorum.addresses, quorum.cluster_id)
    seconds = []
    try:
        follower.observe(1, described.high_watermark, described.leader_epoch, first_id=BROKER_ID)
        with Connection(address, client_id=str(BROKER_ID)) as connection:
            for number in itertools.islice(topics, WARM_UP_REQUESTS + SEQUENTIAL_REQUESTS):
                taken, response = connection.timed_ask(forwarded(_create(number)))
                seconds.append(taken)
                check_forwarded(response)
    finally:
        follower.close()
    return seconds[WARM_UP_REQUESTS:]


def _failover(quorum: Quorum, topics: itertools.count[int]) -> float:
    """Seconds from kill -9 of the active controller until another one has committed a topic."""
    quorum.kill(quorum.active())
    started = time.perf_counter()
    while time.perf_counter() - started < 120:
        for address in quorum.living_addresses():
            try:
                with Connection(address, timeout_seconds=1.0) as connection:
                    response = connection.ask(_create(next(topics)))
            except OSError:
                continue
            if response.topics[0].error_code is ErrorCode.none:
                return time.perf_counter() - started
        time.sleep(0.002)
    raise TimeoutError(f"{quorum.implementation.name}: no new active controller in 120 s")
