"""What heartbeats of many brokers cost, and CreateTopics while many observers follow the log."""

from __future__ import annotations

import statistics
import time
from typing import TYPE_CHECKING, Final

from benchmarks.client import Connection, describe_quorum
from benchmarks.fleet import Fleet
from benchmarks.quorum import Quorum, linger
from benchmarks.topics import check_created, create_topics, new_topic

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from benchmarks.quorum import Implementation

BROKERS: Final = (10, 100, 1_000)
HEARTBEATS_PER_SECOND: Final = 500
"""Of all brokers together, whatever their number: that of 1,000 brokers with the default interval of 2 s."""
HEARTBEAT_PHASE_SECONDS: Final = 10.0
WARM_UP_SECONDS: Final = 3.0
REGULAR_INTERVAL_SECONDS: Final = 2.0
OBSERVERS: Final = 500
REPLICAS: Final = 3
WARM_UP_TOPICS: Final = 30
TOPICS: Final = 150


def measure_many_brokers(
    implementation: Implementation,
    directory: Path,
    ports: tuple[int, ...],
    linger_ms: int | None,
    progress: Callable[[str], None],
) -> dict[str, float | str]:
    """Measures on a fresh quorum without partitions; leaves no process behind."""
    quorum = Quorum(implementation, directory, ports, linger(linger_ms))
    fleet: Fleet | None = None
    observers: Fleet | None = None
    figures: dict[str, float | str] = {}
    try:
        quorum.start()
        quorum.wait_until_registered()
        fleet = Fleet(quorum.addresses, quorum.cluster_id)
        fleet.grow(REPLICAS, REGULAR_INTERVAL_SECONDS)
        observers = Fleet(quorum.addresses, quorum.cluster_id)
        progress(f"{OBSERVERS} observers")
        try:
            figures |= _observed(quorum, observers)
        except (OSError, RuntimeError) as error:
            figures["observed failed"] = str(error)
        observers.close()
        for brokers in BROKERS:
            progress(f"heartbeats of {brokers:,} brokers")
            figures |= _heartbeats(quorum, fleet, brokers)
    except (OSError, RuntimeError) as error:
        figures["failed"] = str(error)
    finally:
        for each in (fleet, observers):
            if each is not None:
                each.close()
        quorum.stop()
    return figures


def _heartbeats(quorum: Quorum, fleet: Fleet, brokers: int) -> dict[str, float | str]:
    interval = brokers / HEARTBEATS_PER_SECOND
    fleet.grow(brokers, REGULAR_INTERVAL_SECONDS)
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
        f"{name}_p50_seconds": statistics.median(latencies),
        f"{name}_p99_seconds": statistics.quantiles(latencies, n=100)[98],
    }


def _observed(quorum: Quorum, fleet: Fleet) -> dict[str, float | str]:
    described = describe_quorum(quorum.addresses[quorum.active()])
    fleet.observe(OBSERVERS, described.high_watermark, described.leader_epoch)
    time.sleep(WARM_UP_SECONDS)
    active = quorum.active()
    idle = quorum.processor_seconds(active)
    time.sleep(WARM_UP_SECONDS)
    idle_share = (quorum.processor_seconds(active) - idle) / WARM_UP_SECONDS
    seconds: list[float] = []
    before, started = quorum.processor_seconds(active), time.monotonic()
    with Connection(quorum.addresses[active]) as connection:
        for number in range(WARM_UP_TOPICS + TOPICS):
            if number == WARM_UP_TOPICS:
                before, started = quorum.processor_seconds(active), time.monotonic()
            taken, response = connection.timed_ask(
                create_topics([new_topic(f"observed-{number}", replicas=REPLICAS)])
            )
            check_created(response)
            seconds.append(taken)
    # Without what the observers cost anyway, who ask twice a second when nothing is written.
    idle = (time.monotonic() - started) * idle_share
    spent = quorum.processor_seconds(active) - before - idle
    latencies = seconds[WARM_UP_TOPICS:]
    return {
        "observed_idle_share": idle_share,
        "observed_create_p50_seconds": statistics.median(latencies),
        "observed_create_p99_seconds": statistics.quantiles(latencies, n=100)[98],
        "observed_create_cpu_seconds": spent / len(latencies),
    }
