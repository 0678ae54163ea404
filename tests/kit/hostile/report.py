"""The bounds of the figures, and the tables of docs/limits.md."""

import os
import platform
import time
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Final

from kit.hostile.attacks import ATTACKS
from kit.hostile.siege import Figures, quantile

DOCUMENT: Final = Path(__file__).parents[3] / "docs" / "limits.md"
BEGIN: Final = "<!-- figures: `make hostile WRITE=1` -->"
END: Final = "<!-- end of the figures -->"
MIB: Final = 1024 * 1024
HEARTBEAT_S_MAX: Final = 4.5
"""Half of the session timeout of brokers: with a heartbeat every 2 s none is fenced."""
LARGE_S_MAX: Final = 1.0
NEWCOMER_S_MAX: Final = 2.0
"""To connect, log in and ask: brokers and controllers that start do that."""
COLUMNS: Final = (
    "attack",
    "heartbeats",
    "CreateTopics",
    "40 kB of a broker",
    "new connection: connect, log in, describe",
    "a scrape",
    "memory, MiB",
    "processors",
    "elections",
    "limits that applied",
)
RSS_BYTES_MAX: Final = 500 * MIB
"""60 MiB of a small controller, 128 for unread responses, 128 for those that are being written, 148 for requests of
all classes.
"""
TLS_BYTES_MAX: Final = 300 * MIB
"""360 KiB in the buffers of each of 500 connections that have sent a lot, and what growing buffers leave unused."""


def violations(figures: Figures) -> list[str]:
    """The ways in which an attack exceeded the bounds."""
    found = []
    if figures.elections:
        found.append(f"{figures.elections} epochs passed")
    for what, values_s, allowed_s in (
        ("a heartbeat", figures.heartbeats_s, HEARTBEAT_S_MAX),
        ("a broker's request of 40 kB", figures.large_s, LARGE_S_MAX),
        ("a newcomer", figures.connects_s, NEWCOMER_S_MAX),
    ):
        slowest_s = max(values_s, default=figures.seconds)
        if slowest_s > allowed_s:
            found.append(f"{what} took {slowest_s:.1f} s, allowed are {allowed_s}")
    allowed_bytes = RSS_BYTES_MAX + (TLS_BYTES_MAX if figures.protocol.endswith("SSL") else 0)
    if figures.rss_max_bytes > allowed_bytes:
        rss, allowed = figures.rss_max_bytes // MIB, allowed_bytes // MIB
        found.append(f"{rss} MiB of resident memory, allowed are {allowed}")
    if figures.failures:
        found.append(f"clients that behave were refused: {', '.join(sorted(set(figures.failures))[:3])}")
    return found


def _milliseconds(values: Sequence[float]) -> str:
    if not values:
        return "no response"
    return " / ".join(f"{1000 * quantile(list(values), share):,.0f}" for share in (0.5, 0.99))


def label(figures: Figures) -> str:
    """The attack in words."""
    if not figures.attack:
        return "no attack"
    attack = ATTACKS[figures.attack]
    return attack.text.format(size=attack.size)


def row(figures: Figures) -> str:
    """One line of a table."""
    limits = ", ".join(f"`{name}` {count:,}" for name, count in figures.limited.items() if count)
    cells = (
        label(figures),
        _milliseconds(figures.heartbeats_s),
        _milliseconds(figures.creates_s),
        _milliseconds(figures.large_s),
        _milliseconds(figures.connects_s),
        _milliseconds(figures.scrapes_s) if figures.is_scraped else "-",
        f"{figures.rss_max_bytes // MIB:,}",
        f"{figures.processors:.2f}",
        str(figures.elections),
        limits or "-",
    )
    return f"| {' | '.join(cells)} |"


def markdown(tables: Iterable[tuple[str, Sequence[Figures]]]) -> str:
    """A table for each quorum that was attacked."""
    machine = f"{platform.machine()} with {os.cpu_count()} cores"
    lines = [
        f"Measured on {time.strftime('%Y-%m-%d')}, {machine}, which attackers,",
        "clients and three controllers share. Latencies are p50 / p99 in milliseconds.",
    ]
    for title, figures in tables:
        lines += [
            "",
            f"**{title}**",
            "",
            f"| {' | '.join(COLUMNS)} |",
            "|---" * len(COLUMNS) + "|",
            *map(row, figures),
        ]
    return "\n".join(lines)


def write(text: str) -> None:
    """Replace the figures in docs/limits.md."""
    content = DOCUMENT.read_text()
    before, _, rest = content.partition(f"{BEGIN}\n")
    _, _, after = rest.partition(f"\n{END}")
    assert rest, f"{DOCUMENT} has no line {BEGIN}"
    DOCUMENT.write_text(f"{before}{BEGIN}\n\n{text}\n\n{END}{after}")
