"""The past of a blocker, from rows of a lake."""

from dataclasses import replace
from typing import Any

import pytest
from quorate_admin.diagnosis import Code, Finding, NodeKind, Severity
from quorate_admin.diagnosis.history import (
    HistoryError,
    parse_tables,
    past_json,
    past_lines,
    past_of,
    show_arguments,
)


def at(minute: int) -> str:
    """An instant as a lake prints it."""
    return f"2026-01-31T12:{minute:02d}:00.250Z"


def interval(begin: int, end: int | None = None, *, exact: bool = True, **columns: Any) -> dict[str, Any]:
    """A row that holds from one minute to another; the offset is the minute."""
    return {
        **columns,
        "valid_from": at(begin),
        "valid_to": at(end) if end is not None else None,
        "from_offset": begin,
        "to_offset": end,
        "from_exact": exact,
        "to_exact": exact if end is not None else None,
        "through_gap": False,
    }


def blocking(kind: NodeKind, node_id: int = 99, levels: tuple[int, int] = (28, 30)) -> Finding:
    """A finding about a node that blocks levels of metadata.version."""
    return Finding(
        severity=Severity.BLOCKED,
        code=Code.FEATURE_BLOCKED,
        message="",
        evidence="",
        node_kind=kind,
        node_id=node_id,
        blocks={"metadata.version": levels},
    )


def blocker(
    level: int, begin: int, end: int | None = None, *, role: str = "controller", **columns: Any
) -> Any:
    """A row of upgrade_blockers about node 99."""
    facts = {"role": role, "node_id": 99, "feature": "metadata.version", "level": level}
    return interval(begin, end, **{**facts, **columns})


def lines_of(finding: Finding, tables: dict[str, list[dict[str, Any]]]) -> list[str]:
    """The lines about a finding that has a past."""
    past = past_of(finding, tables)
    assert past is not None
    return list(past_lines(finding, past))


GHOST = {
    "upgrade_blockers": [
        blocker(28, 7, 9),
        blocker(28, 20),
        blocker(29, 10),
        blocker(28, 1, node_id=98),
        blocker(26, 1, feature="kraft.version"),
    ],
    "controller_registrations": [interval(5, 10, controller_id=99), interval(10, controller_id=99)],
    "membership": [
        interval(1, 4, voter_id=99, directory_id="A" * 22),
        interval(6, 15, voter_id=99, directory_id="B" * 22),
        interval(1, voter_id=98, directory_id="C" * 22),
    ],
    "advertised_addresses": [
        interval(5, 15, host="c", port=9093, role="controller", node_id=99),
        interval(1, 4, host="c", port=9093, role="controller", node_id=97),
        interval(16, host="c", port=9093, role="controller", node_id=98),
        interval(17, host="c", port=9093, role="voter", node_id=98),
        interval(16, 17, host="c", port=9093, role="controller", node_id=96),
        interval(18, host="d", port=9093, role="controller", node_id=95),
    ],
}


def test_the_past_of_a_ghost() -> None:
    finding = blocking(NodeKind.CONTROLLER)
    past = past_of(finding, GHOST)
    assert past is not None
    assert list(past_lines(finding, past)) == [
        "It keeps metadata.version from level 28 since 2026-01-31 12:20:00 UTC.",
        "It registered 2 times, last 2026-01-31 12:10:00 UTC.",
        f"It was a voter until 2026-01-31 12:15:00 UTC, with the directory {'B' * 22}.",
        (
            "Its address c:9093 is that of controller 98 since 2026-01-31 12:16:00 UTC: "
            "clients that still use it reach the wrong node."
        ),
    ]
    reported = past_json(past)
    assert reported["blocksSince"] == {"metadata.version": {"level": 28, "time": at(20), "exact": True}}
    assert reported["voterUntil"] == {"time": at(15), "exact": True}
    assert [heir["nodeId"] for heir in reported["addressesNowOf"]] == [98]


def test_the_past_of_a_broker() -> None:
    """A broker's registrations are its epochs; it was never a voter, and may be fenced."""
    finding = blocking(NodeKind.BROKER, 1)
    sessions = [
        interval(1, 3, broker_id=1, broker_epoch=1, state="unfenced"),
        interval(3, 5, broker_id=1, broker_epoch=1, state="fenced"),
        interval(5, 6, broker_id=1, broker_epoch=5, state="unfenced"),
        interval(6, broker_id=1, broker_epoch=5, state="fenced"),
        interval(9, broker_id=2, broker_epoch=9, state="fenced"),
    ]
    rows = {"broker_sessions": sessions, "upgrade_blockers": [blocker(28, 5, role="broker", node_id=1)]}
    assert lines_of(finding, rows) == [
        "It keeps metadata.version from level 28 since 2026-01-31 12:05:00 UTC.",
        "It registered 2 times, last 2026-01-31 12:05:00 UTC.",
        "It is fenced since 2026-01-31 12:06:00 UTC.",
    ]


def test_what_a_lake_does_not_know_is_said() -> None:
    finding = blocking(NodeKind.CONTROLLER)
    assert lines_of(finding, {}) == [
        "The lake does not yet show that it keeps metadata.version from level 28: ingest what is new.",
        "The lake has no voters of this cluster: those of a static quorum are not in the log.",
    ]
    rows = {
        "upgrade_blockers": [blocker(28, 5, exact=False)],
        "controller_registrations": [interval(5, controller_id=99, exact=False)],
        "membership": [interval(6, voter_id=99, directory_id="A" * 22)],
    }
    assert lines_of(finding, rows) == [
        "It keeps metadata.version from level 28 since 2026-01-31 12:05:00 UTC or earlier.",
        "It registered once, 2026-01-31 12:05:00 UTC or earlier.",
        f"It is a voter since 2026-01-31 12:06:00 UTC, with the directory {'A' * 22}.",
    ]
    others = {"membership": [interval(1, voter_id=1, directory_id="C" * 22)]}
    assert lines_of(finding, others)[-1] == "The lake has no record of it as a voter."


def test_many_features_are_one_sentence_and_a_lake_that_is_behind_says_so() -> None:
    blocks = {"metadata.version": (28, 30), "kraft.version": (1, 1), "a": (1, 1), "b": (2, 2)}
    finding = replace(blocking(NodeKind.CONTROLLER), blocks=blocks)
    rows = {
        "upgrade_blockers": [blocker(28, 5), blocker(1, 5, feature="kraft.version")],
        "membership": [interval(1, voter_id=99, directory_id="A" * 22)],
    }
    assert lines_of(finding, rows) == [
        "It keeps metadata.version from level 28 and kraft.version from level 1 since 2026-01-31 12:05:00 UTC.",
        "The lake does not yet show that it keeps a from level 1 and b from level 2: ingest what is new.",
        f"In the lake it is still a voter, since 2026-01-31 12:01:00 UTC, with the directory {'A' * 22}.",
    ]


def test_findings_that_block_nothing_have_no_past() -> None:
    """The past is that of blockers."""
    finding = Finding(severity=Severity.NOTE, code=Code.EVEN_VOTERS, message="", evidence="")
    assert past_of(finding, GHOST) is None


@pytest.mark.parametrize(
    ("document", "complaint"),
    [
        ([], "no object `tables`"),
        ({"tables": []}, "no object `tables`"),
        ({"tables": {"membership": {}}}, "tables.membership is no list"),
        ({"tables": {"membership": [1]}}, "tables.membership is no list"),
    ],
)
def test_what_is_no_lake_is_refused(document: object, complaint: str) -> None:
    with pytest.raises(HistoryError, match=complaint):
        parse_tables(document)
    with pytest.raises(HistoryError, match="a row lacks the column 'voter_id'"):
        past_of(blocking(NodeKind.CONTROLLER), {"membership": [{}]})


def test_the_command_is_what_the_lake_has() -> None:
    lake = pytest.importorskip("quorate.lake_command")
    registry = pytest.importorskip("pyspark_quorate.tables.registry")
    from typer.main import get_command  # noqa: PLC0415

    _, command, *arguments = show_arguments("/lake", "x")
    group = get_command(lake.app)
    show = group.commands[command]
    parsed = show.make_context("show", arguments)
    tables = {table.name: table for table in registry.TABLES}
    assert parsed.params["cluster_id"] == "x"
    for name in parsed.params["tables"]:
        for row in GHOST.get(name, ()):
            assert set(row) <= set(tables[name].schema.fieldNames()), name
