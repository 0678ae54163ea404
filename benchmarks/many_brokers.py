"""What heartbeats of many brokers cost, at a fixed rate."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Final

from benchmarks.figures import percentiles
from benchmarks.fleet import started
from benchmarks.quorum import Quorum

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from benchmarks.figures import Figures
    from benchmarks.fleet import Fleet
    from benchmarks.quorum import Implementation

BROKERS: Final = (10, 100, 1_000)
HEARTBEATS_PER_SECOND: Final = 500
"""Of all brokers together, whatever their number: that of 1,000 brokers with the default interval of 2 s."""
HEARTBEAT_PHASE_SECONDS: Final = 10.0
WARM_UP_SECONDS: Final = 3.0
REGULAR_INTERVAL_SECONDS: Final = 2.0


def measure_many_brokers(
    implementation: Implementation,
    directory: Path,
    ports: tuple[int, ...],
    progress: Callable[[str], None],
) -> Figures:
    """Measures on a fresh quorum without partitions; leaves no process behind."""
    quorum = Quorum(implementation, directory, ports)
    figures: Figures = {}
    try:
        with started(quorum) as fleet:
            for brokers in BROKERS:
                progress(f"heartbeats of {brokers:,} brokers")
                figures |= _heartbeats(quorum, fleet, brokers)
    except (OSError, RuntimeError) as error:
        figures["failed"] = str(error)
    return figures


def _heartbeats(quorum: Quorum, fleet: Fleet, brokers: int) -> Figures:
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
        **percentiles(name, latencies),
    }
