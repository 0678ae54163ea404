"""The search of the checker beside the definition: all orders of a short history, tried one after the other."""

from __future__ import annotations

from itertools import combinations, permutations
from typing import TYPE_CHECKING, Any

from hypothesis import given, settings
from hypothesis import strategies as st
from kit.linearizability import (
    CREATE,
    DELETE,
    READ,
    SET,
    TOPIC_ALREADY_EXISTS,
    UNKNOWN_TOPIC_ID,
    UNKNOWN_TOPIC_OR_PARTITION,
    Operation,
    TopicModel,
    ValueModel,
    first_violation,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

OPERATIONS_MAX = 5
TIMES = st.integers(0, 8)
IDS = ("a", "b")


@st.composite
def operations(draw: st.DrawFn, what: st.SearchStrategy[dict[str, Any]]) -> Operation:
    begin, end = sorted((draw(TIMES), draw(TIMES)))
    operation = Operation(client="c", key="x", invoked_at=begin, returned_at=end, **draw(what))
    return operation.without_response() if draw(st.integers(0, 3)) == 0 else operation


def one_of(action: str, **fields: tuple[object, ...]) -> st.SearchStrategy[dict[str, Any]]:
    return st.fixed_dictionaries(
        {"action": st.just(action), **{name: st.sampled_from(values) for name, values in fields.items()}}
    )


VALUES = st.one_of(one_of(SET, written=(1, 2, None)), one_of(READ, observed=(1, 2, None)))
TOPICS = st.one_of(
    one_of(CREATE, observed=(*IDS, None)),
    one_of(CREATE, refused=(TOPIC_ALREADY_EXISTS,)),
    one_of(DELETE, written=(*IDS, None), refused=(None, UNKNOWN_TOPIC_OR_PARTITION, UNKNOWN_TOPIC_ID)),
    one_of(READ, observed=(*IDS, None)),
    one_of(READ, refused=(UNKNOWN_TOPIC_OR_PARTITION,)),
)


def is_explained(history: Sequence[Operation], model: Any) -> bool:
    """Try every order of the answered operations with every choice of the others."""
    responses = [operation for operation in history if operation.has_response]
    others = [operation for operation in history if not operation.has_response]
    return any(
        _fits(order, model)
        for size in range(len(others) + 1)
        for chosen in combinations(others, size)
        for order in permutations([*responses, *chosen])
    )


def _fits(order: Sequence[Operation], model: Any) -> bool:
    for number, operation in enumerate(order):
        if any(
            later.returned_at is not None and later.returned_at < operation.invoked_at
            for later in order[number + 1 :]
        ):
            return False
    state = model.initial
    for operation in order:
        state = model.step(state, operation)
        if state is None:
            return False
    return True


@settings(max_examples=300, deadline=None)
@given(st.lists(operations(VALUES), max_size=OPERATIONS_MAX))
def test_values_are_judged_as_by_all_orders(history: list[Operation]) -> None:
    assert (first_violation(history, ValueModel()) is None) == is_explained(history, ValueModel())


@settings(max_examples=300, deadline=None)
@given(st.lists(operations(TOPICS), max_size=OPERATIONS_MAX))
def test_topics_are_judged_as_by_all_orders(history: list[Operation]) -> None:
    assert (first_violation(history, TopicModel()) is None) == is_explained(history, TopicModel())


@settings(max_examples=200, deadline=None)
@given(st.lists(operations(VALUES), min_size=2, max_size=OPERATIONS_MAX))
def test_what_is_told_is_the_first_answer_that_fits_no_order(history: list[Operation]) -> None:
    violation = first_violation(history, ValueModel())
    if violation is None:
        return
    end = violation.response.returned_at
    assert end is not None

    def known(is_late: Any) -> list[Operation]:
        return [
            operation.without_response()
            if operation.returned_at is None or is_late(operation.returned_at)
            else operation
            for operation in history
            if operation.invoked_at <= end
        ]

    assert is_explained(known(lambda returned_at: returned_at >= end), ValueModel())
    assert not is_explained(known(lambda returned_at: returned_at > end), ValueModel())
