"""The check of `tests/unit/controller/test_work.py` on 1,000 brokers, 50,000 topics and 200,000 partitions."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from kit.work.bench import benches, measure
from kit.work.records_and_tasks import REPLAYS, TASKS
from kit.work.requests_of_apis import CASES, Case

if TYPE_CHECKING:
    from collections.abc import Iterator

    from kit.work.bench import WorkBench

Benches = tuple["WorkBench", "WorkBench"]


@pytest.fixture(scope="module", name="both")
def full_benches() -> Iterator[Benches]:
    """The largest cluster, and one of a tenth of its size."""
    with benches(1.0) as both:
        yield both


@pytest.mark.parametrize(
    "case", [*CASES, *REPLAYS, *TASKS], ids=lambda case: f"{case.api} {case.what}".replace(" ", "-")
)
def test_no_step_is_long_and_nothing_grows_faster_than_it_must(both: Benches, case: Case) -> None:
    """No request of any size, and no record, stops a controller."""
    assert measure(case, *both, 1.0).problems == []
