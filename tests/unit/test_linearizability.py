"""The checker of linearizability: histories that some order explains, and histories that none does."""

from __future__ import annotations

from typing import Any

import pytest
from kit.linearizability import (
    CREATE,
    DELETE,
    READ,
    SET,
    TOPIC_ALREADY_EXISTS,
    UNKNOWN_TOPIC_ID,
    UNKNOWN_TOPIC_OR_PARTITION,
    Operation,
    SearchTooLargeError,
    TopicModel,
    ValueModel,
    first_violation,
)

NOBODY_HEARD = None


def did(
    action: str,
    invoked_at: float,
    returned_at: float | None,
    written: object = None,
    *,
    key: str = "x",
    **more: Any,
) -> Operation:
    return Operation(
        client=f"client-{invoked_at}",
        key=key,
        action=action,
        invoked_at=invoked_at,
        returned_at=returned_at,
        written=written,
        **more,
    )


def set_to(value: object, invoked_at: float, returned_at: float | None, **more: Any) -> Operation:
    return did(SET, invoked_at, returned_at, value, **more)


def read(value: object, invoked_at: float, returned_at: float, **more: Any) -> Operation:
    return did(READ, invoked_at, returned_at, observed=value, **more)


ANOTHER_KEY = (set_to(7, 0, 1, key="y"), read(7, 2, 3, key="y"))

LINEARIZABLE_VALUES = {
    "nothing": (),
    "one after the other": (set_to(1, 0, 1), read(1, 2, 3), set_to(None, 4, 5), read(None, 6, 7)),
    "a read beside a write sees it or not": (set_to(1, 0, 9), read(None, 1, 2), read(1, 3, 4)),
    "what touches is concurrent": (set_to(1, 0, 5), read(None, 5, 6)),
    "writes that overlap, in either order": (set_to(1, 0, 9), set_to(2, 1, 8), read(1, 10, 11)),
    "no answer, and it was done much later": (set_to(1, 0, NOBODY_HEARD), read(None, 5, 6), read(1, 7, 8)),
    "no answer, and it was never done": (set_to(1, 0, NOBODY_HEARD), read(None, 5, 6), read(None, 700, 800)),
    "no answer, undone by another": (set_to(1, 0, NOBODY_HEARD), set_to(2, 1, 2), read(1, 3, 4)),
    "a refused write": (set_to(1, 0, 1, refused="POLICY_VIOLATION"), read(None, 2, 3)),
    "equal writes without an answer, both seen": (
        *(set_to(1, 0, NOBODY_HEARD), set_to(1, 1, NOBODY_HEARD)),
        *(read(1, 2, 3), set_to(2, 4, 5), read(1, 6, 7)),
    ),
    "two keys": (set_to(1, 0, 1), read(1, 2, 3), *ANOTHER_KEY),
}

BROKEN_VALUES = {
    "a read of what was before": ((set_to(1, 0, 1), read(None, 2, 3)), read(None, 2, 3)),
    "a read of what nobody wrote": ((set_to(1, 0, 1), read(2, 0, 3)), read(2, 0, 3)),
    "a read of what is only written later": ((read(1, 0, 1), set_to(1, 2, 3)), read(1, 0, 1)),
    "back to the old value": ((set_to(1, 0, 9), read(1, 1, 2), read(None, 3, 4)), read(None, 3, 4)),
    "done and undone": ((set_to(1, 0, NOBODY_HEARD), read(1, 2, 3), read(None, 4, 5)), read(None, 4, 5)),
    "a refusal that was carried out": (
        (set_to(1, 0, 1, refused="POLICY_VIOLATION"), read(1, 2, 3)),
        read(1, 2, 3),
    ),
    "two readers disagree about the order": (
        (set_to(1, 0, 90), set_to(2, 0, 90), read(1, 1, 2), read(2, 3, 4), read(1, 5, 6)),
        read(1, 5, 6),
    ),
    "one no answer explains one read": (
        (set_to(1, 0, NOBODY_HEARD), read(1, 2, 3), set_to(2, 4, 5), read(1, 6, 7)),
        read(1, 6, 7),
    ),
    "among other keys": ((*ANOTHER_KEY, set_to(1, 0, 1), read(3, 2, 3)), read(3, 2, 3)),
}


def created(topic_id: str | None, invoked_at: float, returned_at: float | None) -> Operation:
    return did(CREATE, invoked_at, returned_at, observed=topic_id)


def deleted(topic_id: str | None, invoked_at: float, returned_at: float | None) -> Operation:
    return did(DELETE, invoked_at, returned_at, topic_id)


def refused(
    action: str, error: str, invoked_at: float, returned_at: float, written: object = None
) -> Operation:
    return did(action, invoked_at, returned_at, written, refused=error)


LINEARIZABLE_TOPICS = {
    "created, deleted, created": (
        *(created("a", 0, 1), read("a", 2, 3), deleted(None, 4, 5)),
        *(refused(READ, UNKNOWN_TOPIC_OR_PARTITION, 6, 7), created("b", 8, 9), read("b", 10, 11)),
    ),
    "two create it, one is refused": (created("a", 0, 9), refused(CREATE, TOPIC_ALREADY_EXISTS, 1, 2)),
    "created without an answer, found by its name": (
        *(created(None, 0, NOBODY_HEARD), refused(CREATE, TOPIC_ALREADY_EXISTS, 5, 6)),
        *(read("a", 7, 8), deleted("a", 9, 10), created("b", 11, 12)),
    ),
    "an unknown id is not that one": (
        *(created(None, 0, NOBODY_HEARD), refused(CREATE, TOPIC_ALREADY_EXISTS, 1, 2)),
        *(refused(DELETE, UNKNOWN_TOPIC_ID, 3, 4, "a"), read("b", 5, 6)),
    ),
    "created without being told its id": (created(None, 0, 1), read("a", 2, 3)),
    "deleted without an answer": (
        *(created("a", 0, 1), deleted(None, 2, NOBODY_HEARD), read("a", 3, 4)),
        *(created("b", 5, 6), read("b", 7, 8)),
    ),
    "seen to be there": (created("a", 0, 1), read(None, 2, 3), deleted("a", 4, 5)),
    "refused for another reason": (refused(CREATE, "INVALID_REPLICATION_FACTOR", 0, 1), created("a", 2, 3)),
}

BROKEN_TOPICS = {
    "created twice": (created("a", 0, 1), created("b", 2, 3)),
    "exists before anybody asked": (refused(CREATE, TOPIC_ALREADY_EXISTS, 0, 1), created("a", 2, 3)),
    "deleted and still there": (created("a", 0, 1), deleted(None, 2, 3), read("a", 4, 5)),
    "seen to be there after its deletion": (created("a", 0, 1), deleted("a", 2, 3), read(None, 4, 5)),
    "an old id again": (created("a", 0, 1), deleted("a", 2, 3), created("a", 4, 5)),
    "deleted by an id that it does not have": (created("a", 0, 1), deleted("b", 2, 3)),
    "deletion refused while it is there": (
        created("a", 0, 1),
        refused(DELETE, UNKNOWN_TOPIC_OR_PARTITION, 2, 3),
    ),
    "an id that was said not to be its own": (
        *(created(None, 0, NOBODY_HEARD), refused(CREATE, TOPIC_ALREADY_EXISTS, 1, 2)),
        *(refused(DELETE, UNKNOWN_TOPIC_ID, 3, 4, "a"), read("a", 5, 6)),
    ),
    "lost after it was created": (created("a", 0, 1), refused(READ, UNKNOWN_TOPIC_OR_PARTITION, 2, 3)),
    "another id without a deletion": (created("a", 0, 1), read("b", 2, 3)),
}


@pytest.mark.parametrize("name", LINEARIZABLE_VALUES)
def test_an_order_explains_the_values(name: str) -> None:
    assert first_violation(LINEARIZABLE_VALUES[name], ValueModel()) is None


@pytest.mark.parametrize("name", BROKEN_VALUES)
def test_no_order_explains_the_values(name: str) -> None:
    history, response = BROKEN_VALUES[name]
    violation = first_violation(history, ValueModel())
    assert violation is not None
    assert violation.response == response


@pytest.mark.parametrize("name", LINEARIZABLE_TOPICS)
def test_an_order_explains_the_topics(name: str) -> None:
    """No false alarm, though ids of topics are not always in responses."""
    assert first_violation(LINEARIZABLE_TOPICS[name], TopicModel()) is None


@pytest.mark.parametrize("name", BROKEN_TOPICS)
def test_no_order_explains_the_topics(name: str) -> None:
    history = BROKEN_TOPICS[name]
    violation = first_violation(history, TopicModel())
    assert violation is not None
    assert violation.response == history[0 if name == "exists before anybody asked" else -1]


def test_a_violation_reads_well() -> None:
    history = (
        *(set_to(number, 10 * number, 10 * number + 1) for number in range(1, 12)),
        set_to(50, 95, NOBODY_HEARD),
        read(4, 118, 119),
    )
    violation = first_violation(history, ValueModel())
    assert str(violation).splitlines() == [
        "no order explains [118 .. 119] client-118: read x: -> 4",
        "an order of the earlier operations:",
        "  (3 more)",
        *(
            f"  [{10 * number} .. {10 * number + 1}] client-{10 * number}: set x = {number}: done"
            for number in range(4, 12)
        ),
        "  which leaves (11,)",
        "under way at the same time:",
        "  [95 .. no response] client-95: set x = 50",
    ]


def test_the_earliest_of_several_violations_is_told() -> None:
    history = (
        *(set_to(1, 0, 1), read(2, 8, 9)),
        *(set_to(1, 0, 1, key="y"), read(2, 4, 5, key="y"), read(3, 6, 7, key="y")),
    )
    violation = first_violation(history, ValueModel())
    assert violation is not None
    assert violation.response == read(2, 4, 5, key="y")


def test_the_search_is_bounded() -> None:
    """A history that is too wide ends with an error, neither with yes nor no."""
    history = (*(set_to(number, 0, NOBODY_HEARD) for number in range(1, 20)), read(99, 1, 2))
    with pytest.raises(SearchTooLargeError, match="more than 100 configurations of 1 operations with"):
        first_violation(history, ValueModel(), configurations_max=100)


def test_reads_of_any_age_are_checked_quickly() -> None:
    writes = [set_to(number, 10 * number, 10 * number + 1) for number in range(1, 31)]
    reads = [read(number, 0, 10 * number + 5) for number in range(1, 31)]
    assert first_violation((*writes, *reads), ValueModel(), configurations_max=1_000) is None
    violation = first_violation((*writes, *reads, read(99, 0, 400)), ValueModel(), configurations_max=1_000)
    assert violation is not None


def test_a_long_history_is_checked_quickly() -> None:
    """Thousands of operations of several clients take no time."""
    history = []
    for number in range(400):
        begin = 10 * number
        history += [set_to(5 * number + client, begin + client, begin + 9) for client in range(4)]
        history.append(read(5 * number + number % 4, begin + 4, begin + 9))
    assert first_violation(history, ValueModel(), configurations_max=20_000) is None
