"""What three controllers do under load: CreateTopics and heartbeats on many connections, and with many observers.

Figures are of the active controller, and come with what the load generator took of the same cores.
"""

from __future__ import annotations

import itertools
import statistics
import time
from typing import TYPE_CHECKING, Final
from uuid import uuid4

from quorate_protocol.errors import ErrorCode

from benchmarks.broker import heartbeat_request, registration_request
from benchmarks.client import Connection, decode_answer, describe_quorum, request_frame
from benchmarks.figures import percentiles
from benchmarks.fleet import Fleet
from benchmarks.load import drive, topic_frames
from benchmarks.topics import check_created, create_topics, new_topic

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from benchmarks.figures import Figures
    from benchmarks.load import Load
    from benchmarks.quorum import Quorum

WARM_UP_TOPICS: Final = 6_000
"""On 64 connections: the JVM compiles what runs often."""
CREATE_REQUESTS: Final = {1: 400, 8: 2_000, 64: 8_000}
"""By the number of connections."""

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


def warm_up(quorum: Quorum, topics: itertools.count[int]) -> Figures:
    """Creates some thousand topics; there is no figure of them."""
    frames = topic_frames(topics)
    load = drive(quorum.addresses[quorum.active()], [frames] * max(CREATE_REQUESTS), WARM_UP_TOPICS)
    _check_created(load)
    return {}


def create(quorum: Quorum, topics: itertools.count[int], connections: int) -> Figures:
    """CreateTopics requests of one topic each: rate, latencies and processor time."""
    frames = topic_frames(topics)
    name = f"create_{connections}"
    figures, load = _measured(quorum, name, [frames] * connections, CREATE_REQUESTS[connections])
    _check_created(load)
    return figures


def heartbeats(quorum: Quorum) -> Figures:
    """Heartbeats of brokers that send the next one as soon as they have the answer; each has its connection."""
    address = quorum.addresses[quorum.active()]
    brokers = range(HEARTBEATS_FROM_ID, HEARTBEATS_FROM_ID + max(HEARTBEAT_CONNECTIONS))
    frames = [itertools.repeat(_registered(address, quorum.cluster_id, broker)) for broker in brokers]
    deadline = time.monotonic() + UNFENCE_SECONDS
    while _fenced(drive(address, frames, WARM_UP_HEARTBEATS)):
        if time.monotonic() > deadline:
            raise TimeoutError(f"brokers were not unfenced in {UNFENCE_SECONDS:.0f} s")
    figures: Figures = {}
    for connections in HEARTBEAT_CONNECTIONS:
        measured, load = _measured(quorum, f"heartbeat_{connections}", frames[:connections], HEARTBEATS)
        if _fenced(load):
            raise RuntimeError("a broker was fenced while its heartbeats were measured")
        figures |= measured
    return figures


def _measured(
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
    """Raises RuntimeError if a topic was refused: the figures would be those of refusals."""
    request = create_topics(())
    for answer in load.answers:
        check_created(decode_answer(request, answer))


def _registered(address: tuple[str, int], cluster_id: str, broker_id: int) -> bytes:
    """Registers a broker, and returns the frame of its heartbeat."""
    with Connection(address) as connection:
        response = connection.ask(registration_request(broker_id, cluster_id, uuid4(), uuid4()))
    if response.error_code is not ErrorCode.none:
        raise RuntimeError(f"broker {broker_id} was not registered: {response.error_code.name}")
    return request_frame(heartbeat_request(broker_id, response.broker_epoch))


def _fenced(load: Load) -> bool:
    """Whether the last answers say so of a broker. Raises RuntimeError if a heartbeat was refused."""
    request = heartbeat_request(HEARTBEATS_FROM_ID, 0)
    decoded = {answer: decode_answer(request, answer) for answer in set(load.answers)}
    refused = {one.error_code.name for one in decoded.values() if one.error_code is not ErrorCode.none}
    if refused:
        raise RuntimeError(f"heartbeats were refused: {', '.join(sorted(refused))}")
    return any(decoded[answer].is_fenced for answer in load.answers[-10 * max(HEARTBEAT_CONNECTIONS) :])


def observed(quorum: Quorum, replicas: int) -> Figures:
    """One client's CreateTopics while many observers follow the log, without what these cost anyway."""
    active = quorum.active()
    described = describe_quorum(quorum.addresses[active])
    fleet = Fleet(quorum.addresses, quorum.cluster_id)
    try:
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
    finally:
        fleet.close()
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
