"""The largest requests on real processes: no leader is lost, and heartbeats are answered beside them."""

import importlib
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.integration

ROOT = Path(__file__).parents[2]
FETCH_TIMEOUT_MS = 8_000
"""Four times the default, for machines that run other tests, too. One turn for the deletion took 11 s."""


def test_the_largest_requests_cost_no_leader(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A request can't depose the active controller by its size."""
    monkeypatch.syspath_prepend(str(ROOT))
    size = importlib.import_module("benchmarks.size")
    quorum = importlib.import_module("benchmarks.quorum")
    controllers = quorum.Quorum(
        quorum.python_implementation(sys.executable),
        tmp_path / "quorum",
        quorum.free_ports(3),
        {"controller.quorum.fetch.timeout.ms": f"{FETCH_TIMEOUT_MS}"},
    )
    sizes = size.Sizes(brokers=50, topics=4_900, partitions=100_000)
    figures = size.measure_size(controllers, sizes, lambda _part: None)
    assert "failed" not in figures, figures["failed"]
    elections = {stage: figures[f"{stage}_elections"] for stage in ("quiet", "create", "grow", "delete")}
    assert elections == dict.fromkeys(elections, 0)
