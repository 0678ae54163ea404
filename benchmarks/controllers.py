"""What `make bench` measures of three controllers: start, idle, CreateTopics, load, observers, failover."""

from __future__ import annotations

import itertools
import statistics
import time
from functools import partial
from typing import TYPE_CHECKING, Final
from uuid import uuid4

import psutil
from quorate_protocol.errors import ErrorCode

from benchmarks.broker import BROKER_ID, heartbeat_request, registration_request
from benchmarks.client import Connection, decode_response, describe_quorum, request_frame
from benchmarks.figures import percentiles
from benchmarks.fleet import Fleet
from benchmarks.load import drive, topic_frames
from benchmarks.quorum import KAFKA, Quorum, free_ports, java_implementation, python_implementation
from benchmarks.topics import (
    check_created,
    check_forwarded,
    create_topics,
    failover_seconds,
    forwarded,
    new_topic,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from pathlib import Path

    from quorate_operator.runtime.local.stock_kafka import Kafka
    from quorate_protocol.kafka.generated.create_topics_request import CreateTopicsRequest

    from benchmarks.figures import Figures
    from benchmarks.load import Load
    from benchmarks.quorum import Implementation


BROKERS: Final = 3
"""Simulated, with heartbeats: as many as a topic has replicas while observers follow."""
HEARTBEAT_SECONDS: Final = 2.0
SETTLE_SECONDS: Final = 2.0
IDLE_SECONDS: Final = 8.0
FORWARDED_REQUESTS: Final = 150
FORWARDED_WARM_UP_REQUESTS: Final = 20
FAILOVER_SECONDS_MAX: Final = 120.0

WITHOUT_LINGER: Final = f"{KAFKA}, linger 0"
"""The name of Kafka beside itself with its default linger."""
WARM_UP_TOPICS: Final = 6_000
"""On 64 connections: the JVM compiles what runs often."""
CREATE_REQUESTS: Final = {1: 400, 8: 2_000, 64: 8_000}
"""Requests by the number of connections."""
HEARTBEATS_FROM_ID: Final = 1_000
HEARTBEAT_CONNECTIONS: Final = (64, 8)
"""In this order, so that the brokers of the first are still unfenced when the second are measured."""
WARM_UP_HEARTBEATS: Final = 10_000
HEARTBEATS: Final = 16_000
UNFENCE_SECONDS: Final = 30.0
OBSERVERS: Final = 500
OBSERVERS_SETTLE_SECONDS: Final = 3.0
OBSERVED_WARM_UP_TOPICS: Final = 20
OBSERVED_TOPICS: Final = 100


def measure_rounds(
    python: str, kafka: Kafka, scratch: Path, rounds: int, progress: Callable[[str], None]
) -> dict[str, list[Figures]]:
    """Figures of each round by name of the implementation. Another one begins each round."""
    contenders = (
        python_implementation(python, kafka.version),
        java_implementation(kafka),
        java_implementation(kafka, linger_ms=0, name=WITHOUT_LINGER),
    )
    runs: dict[str, list[Figures]] = {contender.name: [] for contender in contenders}
    for number in range(rounds):
        first = number % len(contenders)
        for contender in contenders[first:] + contenders[:first]:
            label = f"round {number + 1} of {rounds}, {contender.name}"
            directory = scratch / f"{contenders.index(contender)}-{number}"
            report = partial(_report, progress, label)
            runs[contender.name].append(measure(contender, directory, free_ports(3), report))
    return runs


def _report(progress: Callable[[str], None], label: str, part: str) -> None:
    progress(f"{label}: {part}")


def measure(
    implementation: Implementation, directory: Path, ports: tuple[int, ...], progress: Callable[[str], None]
) -> Figures:
    """Run all measurements on a fresh quorum, and end its processes. A failed part has the reason as figure."""
    quorum = Quorum(implementation, directory, ports)
    topics = itertools.count()
    phases: dict[str, Callable[[], Figures]] = {
        "warm up": lambda: warm_up(quorum, topics),
        **{
            f"create {connections}": partial(create, quorum, topics, connections)
            for connections in CREATE_REQUESTS
        },
        "forwarded": lambda: _forwarded(quorum, topics),
        "observed": lambda: observed(quorum, BROKERS),
        "heartbeats": lambda: heartbeats(quorum),
        "failover": lambda: _failover(quorum, topics),
    }
    figures: Figures = {}
    try:
        progress("start")
        quorum.start()
        figures["start_seconds"] = quorum.wait_until_registered()
        figures |= _idle(quorum)
        with Fleet(quorum.addresses, quorum.cluster_id) as fleet:
            fleet.grow(BROKERS, HEARTBEAT_SECONDS)
            for name, phase in phases.items():
                progress(name)
                try:
                    figures |= phase()
                except (OSError, RuntimeError, psutil.Error) as error:
                    figures[f"{name} failed"] = str(error)
    except (OSError, RuntimeError, psutil.Error) as error:
        figures["start failed"] = str(error)
    finally:
        quorum.stop()
    return figures


def _idle(quorum: Quorum) -> Figures:
    """Memory, and the share of one core that the three take, without requests."""
    time.sleep(SETTLE_SECONDS)
    before, started = quorum.all_processor_seconds(), time.monotonic()
    time.sleep(IDLE_SECONDS)
    share = (quorum.all_processor_seconds() - before) / (time.monotonic() - started)
    return {"resident_bytes": quorum.resident_bytes(), "idle_share": share}


def _create_request(number: int) -> CreateTopicsRequest:
    return create_topics([new_topic(f"topic-{number}")])


def _forwarded(quorum: Quorum, topics: itertools.count[int]) -> Figures:
    """Measure requests that a broker forwards, one after the other, while the broker follows the log."""
    address = quorum.addresses[quorum.active()]
    described = describe_quorum(address)
    seconds = []
    with Fleet(quorum.addresses, quorum.cluster_id) as follower:
        follower.observe(1, described.high_watermark, described.leader_epoch, first_id=BROKER_ID)
        with Connection(address, client_id=str(BROKER_ID)) as connection:
            for number in itertools.islice(topics, FORWARDED_WARM_UP_REQUESTS + FORWARDED_REQUESTS):
                taken, response = connection.timed_ask(forwarded(_create_request(number)))
                seconds.append(taken)
                check_forwarded(response)
    return percentiles("forwarded", seconds[FORWARDED_WARM_UP_REQUESTS:])


def _failover(quorum: Quorum, topics: itertools.count[int]) -> Figures:
    seconds = failover_seconds(
        quorum,
        lambda: _create_request(next(topics)),
        seconds_max=FAILOVER_SECONDS_MAX,
        response_seconds_max=1.0,
    )
    return {"failover_seconds": seconds}


def warm_up(quorum: Quorum, topics: itertools.count[int]) -> Figures:
    """Create some thousand topics; there is no figure of them."""
    frames = topic_frames(topics)
    load = drive(quorum.addresses[quorum.active()], [frames] * max(CREATE_REQUESTS), WARM_UP_TOPICS)
    _check_created(load)
    return {}


def create(quorum: Quorum, topics: itertools.count[int], connections: int) -> Figures:
    """CreateTopics requests of one topic each: rate, latencies and processor time."""
    frames = topic_frames(topics)
    name = f"create_{connections}"
    figures, load = _measured_load(quorum, name, [frames] * connections, CREATE_REQUESTS[connections])
    _check_created(load)
    return figures


def heartbeats(quorum: Quorum) -> Figures:
    """Heartbeats of brokers that send the next one as soon as they have the response; each has its connection."""
    address = quorum.addresses[quorum.active()]
    brokers = range(HEARTBEATS_FROM_ID, HEARTBEATS_FROM_ID + max(HEARTBEAT_CONNECTIONS))
    frames = [itertools.repeat(_registered(address, quorum.cluster_id, broker)) for broker in brokers]
    deadline = time.monotonic() + UNFENCE_SECONDS
    while _fenced(drive(address, frames, WARM_UP_HEARTBEATS)):
        if time.monotonic() > deadline:
            raise TimeoutError(f"brokers were not unfenced in {UNFENCE_SECONDS:.0f} s")
    figures: Figures = {}
    for connections in HEARTBEAT_CONNECTIONS:
        measured, load = _measured_load(quorum, f"heartbeat_{connections}", frames[:connections], HEARTBEATS)
        if _fenced(load):
            raise RuntimeError("a broker was fenced while its heartbeats were measured")
        figures |= measured
    return figures


def _measured_load(
    quorum: Quorum, name: str, frames: Sequence[Iterator[bytes]], requests: int
) -> tuple[Figures, Load]:
    """Figures of a load on the active controller; processor times are those of one request."""
    active = quorum.active()
    before, all_before = quorum.processor_seconds(active), quorum.all_processor_seconds()
    load = drive(quorum.addresses[active], frames, requests)
    spent, all_spent = (
        quorum.processor_seconds(active) - before,
        quorum.all_processor_seconds() - all_before,
    )
    return {
        f"{name}_rate": requests / load.seconds,
        **percentiles(name, load.latencies),
        f"{name}_cpu_seconds": spent / requests,
        f"{name}_all_cpu_seconds": all_spent / requests,
        f"{name}_generator_seconds": load.generator_seconds / requests,
    }, load


def _check_created(load: Load) -> None:
    """Raise RuntimeError if a topic was refused: the figures would be those of refusals."""
    request = create_topics(())
    for response in load.responses:
        check_created(decode_response(request, response))


def _registered(address: tuple[str, int], cluster_id: str, broker_id: int) -> bytes:
    """Register a broker, and return the frame of its heartbeat."""
    with Connection(address) as connection:
        response = connection.ask(registration_request(broker_id, cluster_id, uuid4(), uuid4()))
    if response.error_code is not ErrorCode.none:
        raise RuntimeError(f"broker {broker_id} was not registered: {response.error_code.name}")
    return request_frame(heartbeat_request(broker_id, response.broker_epoch))


def _fenced(load: Load) -> bool:
    """Whether a broker is fenced by the last responses. Raises RuntimeError if a heartbeat was refused."""
    request = heartbeat_request(HEARTBEATS_FROM_ID, 0)
    decoded = {frame: decode_response(request, frame) for frame in set(load.responses)}
    refused = {
        response.error_code.name for response in decoded.values() if response.error_code is not ErrorCode.none
    }
    if refused:
        raise RuntimeError(f"heartbeats were refused: {', '.join(sorted(refused))}")
    return any(decoded[frame].is_fenced for frame in load.responses[-10 * max(HEARTBEAT_CONNECTIONS) :])


def observed(quorum: Quorum, replicas: int) -> Figures:
    """One client's CreateTopics while many observers follow the log, without what these cost anyway."""
    active = quorum.active()
    described = describe_quorum(quorum.addresses[active])
    with Fleet(quorum.addresses, quorum.cluster_id) as fleet:
        fleet.observe(OBSERVERS, described.high_watermark, described.leader_epoch)
        time.sleep(OBSERVERS_SETTLE_SECONDS)
        before = quorum.processor_seconds(active)
        time.sleep(OBSERVERS_SETTLE_SECONDS)
        idle_share = (quorum.processor_seconds(active) - before) / OBSERVERS_SETTLE_SECONDS
        with Connection(quorum.addresses[active]) as connection:
            _create_observed(connection, range(OBSERVED_WARM_UP_TOPICS), replicas)
            before, fleet_before = quorum.processor_seconds(active), fleet.processor_seconds()
            started = time.monotonic()
            numbers = range(OBSERVED_WARM_UP_TOPICS, OBSERVED_WARM_UP_TOPICS + OBSERVED_TOPICS)
            latencies = _create_observed(connection, numbers, replicas)
            idle = (time.monotonic() - started) * idle_share
            spent = quorum.processor_seconds(active) - before - idle
            fleet_spent = fleet.processor_seconds() - fleet_before
    return {
        "observed_p50_seconds": statistics.median(latencies),
        "observed_cpu_seconds": spent / len(latencies),
        "observed_generator_seconds": fleet_spent / len(latencies),
        "observed_idle_share": idle_share,
    }


def _create_observed(connection: Connection, numbers: range, replicas: int) -> list[float]:
    """Seconds of each request, one after the other."""
    latencies = []
    for number in numbers:
        request = create_topics([new_topic(f"observed-{number}", replicas=replicas)])
        seconds, response = connection.timed_ask(request)
        check_created(response)
        latencies.append(seconds)
    return latencies
