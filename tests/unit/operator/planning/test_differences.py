"""Which property a restart brings, and how that is stored and reported."""

import json

from hypothesis import given
from hypothesis import strategies as st
from kit.scenarios import healthy
from quorate_operator.planning.differences import (
    NAMED_MAX,
    RECORD_LENGTH_MAX,
    Rendering,
    Value,
    Withheld,
    differences,
    record_of,
    rendering_of,
    shortened,
)

values = st.dictionaries(st.text(), st.text() | st.builds(Withheld, st.text()), max_size=5)


def test_a_change_is_told_from_and_to_and_what_is_withheld_by_its_name() -> None:
    before: dict[str, Value] = {"a": "1", "b": "1", "c": "1", "d": Withheld("x"), "e": Withheld("x")}
    after: dict[str, Value] = {"a": "1", "b": "2", "d": Withheld("y"), "f": "3", "g": Withheld("x")}
    assert differences(before, after) == (
        "b: 1 -> 2",
        "c: removed",
        "d: content changed",
        "e: removed",
        "f: 3 added",
        "g: added",
    )


def test_a_value_that_begins_to_be_withheld_is_not_shown() -> None:
    """A release that takes a property for a secret shows no former value."""
    hidden: dict[str, Value] = {"a": Withheld("x")}
    assert (
        differences({"a": "plain"}, hidden) == differences(hidden, {"a": "plain"}) == ("a: content changed",)
    )


@given(before=values, after=values)
def test_each_difference_is_named_once_and_no_mark_is_shown(
    before: dict[str, Value], after: dict[str, Value]
) -> None:
    changed = {name for name in before.keys() | after.keys() if before.get(name) != after.get(name)}
    assert len(differences(before, after)) == len(changed)
    assert differences(before, before) == ()
    marked = {name: Withheld("MARK") if isinstance(value, Withheld) else "" for name, value in after.items()}
    reported = differences({}, marked)
    assert all(
        "MARK" not in change.removeprefix(name) for name, change in zip(sorted(marked), reported, strict=True)
    )


@given(st.dictionaries(st.text(), values, max_size=4))
def test_a_record_keeps_a_rendering(rendering: Rendering) -> None:
    record = record_of(rendering)
    assert record is not None
    assert rendering_of(json.loads(record)) == rendering


def test_a_record_that_quorate_did_not_write_is_ignored() -> None:
    edited = {"config": {"a": "1"}, "pod": 1, "resources": {"a": 1}, "secrets": {"a": []}, "x": {"a": [1]}}
    assert rendering_of(edited) == {"config": {"a": "1"}}


def test_a_record_that_is_too_long_is_not_kept() -> None:
    assert (
        record_of({"config": {str(number): "x" * 100 for number in range(RECORD_LENGTH_MAX // 100)}}) is None
    )


def test_a_reason_names_a_few_changes_and_counts_the_others() -> None:
    changes = [str(number) for number in range(NAMED_MAX + 3)]
    for count in (NAMED_MAX, NAMED_MAX + 1):
        assert shortened(changes[:count]) == tuple(changes[:count])
    assert shortened(changes) == (*changes[:NAMED_MAX], "and 3 more")


def test_the_step_says_which_property_changed_if_that_was_recorded() -> None:
    """The plan has the reason; nodes of an older operator have the former one, and decisions do not change."""

    def reasons(running: Rendering, asked: Rendering) -> list[str]:
        situation = healthy(3).node(3001, revision={"config": "a"}, rendering=running)
        return [
            step.reason
            for step in situation.asking_node(3001, revision={"config": "b"}, rendering=asked).due()
        ]

    before: Rendering = {"config": {"log.retention.ms": "604800000"}}
    after: Rendering = {"config": {"log.retention.ms": "86400000"}}
    assert reasons(before, after) == ["log.retention.ms: 604800000 -> 86400000"]
    assert reasons({}, after) == reasons(before, {}) == reasons(before, before) == ["config changed"]


def test_a_rendering_restarts_nobody() -> None:
    situation = healthy(3).node(3001, rendering={"config": {"a": "1"}})
    assert situation.asking_node(3001, rendering={"config": {"a": "2"}, "pod": {}}).due() == ()
