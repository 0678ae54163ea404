"""Every decision and every replay does a bounded amount of work in a turn: see `kit.work`.

Here on a tenth of the full size; `tests/integration/test_work_at_full_size.py` has the full one, which takes longer.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from kit.work.bench import benches, measure
from kit.work.records_and_tasks import REPLAYS, TASKS
from kit.work.requests_of_apis import CASES, NOT_CONTROL, Case
from quorate_controller.control import assignments
from quorate_controller.control.topics import TopicManager
from quorate_protocol.image.replay import WRITES_OF
from quorate_protocol.kafka.apis import CONTROLLER_READ_APIS, EXTENSION_APIS, SERVED_APIS
from quorate_protocol.records.generated import (
    AbortTransactionRecord,
    BeginTransactionRecord,
    EndTransactionRecord,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

    from kit.work.bench import WorkBench

SHARE = 0.1
Benches = tuple["WorkBench", "WorkBench"]


@pytest.fixture(scope="module", name="both")
def benches_of_a_tenth() -> Iterator[Benches]:
    """A cluster, and one of a tenth of its size."""
    with benches(SHARE) as both:
        yield both


@pytest.mark.parametrize(
    "case", [*CASES, *REPLAYS, *TASKS], ids=lambda case: f"{case.api} {case.what}".replace(" ", "-")
)
def test_no_step_is_long_and_nothing_grows_faster_than_it_must(both: Benches, case: Case) -> None:
    """No request of any size, and no record, stops a controller."""
    assert measure(case, *both, SHARE).problems == []


def test_each_api_has_a_case() -> None:
    served = {api.name for api in {**SERVED_APIS, **EXTENSION_APIS, **CONTROLLER_READ_APIS}.values()}
    measured = {case.api for case in CASES}
    assert measured & NOT_CONTROL.keys() == set()
    assert measured | NOT_CONTROL.keys() == served


def test_each_type_of_record_has_a_case() -> None:
    transactions = (BeginTransactionRecord, EndTransactionRecord, AbortTransactionRecord)
    assert {case.api for case in REPLAYS} == {kind.__name__ for kind in (*WRITES_OF, *transactions)}


def _case(api: str, what: str) -> Case:
    return next(case for case in CASES if (case.api, case.what) == (api, what))


def test_work_that_follows_the_cluster_is_found(both: Benches, monkeypatch: pytest.MonkeyPatch) -> None:
    place = assignments.Placing.place

    def read_again(placing: assignments.Placing, *asked: int) -> list[assignments.Assignment]:
        placing._read = None
        return place(placing, *asked)

    monkeypatch.setattr(assignments.Placing, "place", read_again)
    problems = measure(_case("CreateTopics", "topics of one partition"), *both, SHARE).problems
    assert any("grows with the cluster" in problem for problem in problems)


def test_quadratic_work_is_found(both: Benches, monkeypatch: pytest.MonkeyPatch) -> None:
    create = TopicManager._create
    comparisons = 20

    def compare(topics: TopicManager, topic: Any, *given: Any, **known: Any) -> Any:
        for _ in range(comparisons * int(topic.name.partition("-")[2])):
            pass
        return create(topics, topic, *given, **known)

    monkeypatch.setattr(TopicManager, "_create", compare)
    problems = measure(_case("CreateTopics", "topics of one partition"), *both, SHARE).problems
    assert any("grows with its items" in problem for problem in problems)
