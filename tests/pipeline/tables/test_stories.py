"""Histories that are short enough to write their tables by hand."""

import json
from datetime import UTC, datetime, timedelta
from typing import Any

from kit.lake.fold import Row, fold_rows, timelines
from pyspark_quorate import rows
from pyspark_quorate.tables import (
    controller_registrations,
    gaps,
    membership,
    producer_id_blocks,
    topics,
    upgrade_blockers,
)

START = datetime(2026, 3, 1, tzinfo=UTC)
Line = tuple[Any, ...]


def line(
    cluster: str, file: str, place: int | tuple[int, int], epoch: int, kind: str, **payload: Any
) -> Line:
    """A row of the log at an offset, or of the checkpoint at (end offset, ordinal). An hour is an offset."""
    offset, ordinal = place if isinstance(place, tuple) else (place, 0)
    read = rows.SNAPSHOT if isinstance(place, tuple) else rows.LOG
    time = START + timedelta(hours=offset - (read == rows.SNAPSHOT))
    return (
        cluster,
        f"{cluster}/{file}/log",
        read,
        offset,
        ordinal,
        epoch,
        time,
        kind,
        0,
        json.dumps(payload),
    )


def config(cluster: str, file: str, offset: int, epoch: int) -> Line:
    """A record that says where it stood."""
    return line(cluster, file, offset, epoch, "ConfigRecord", name=f"{file}@{offset}")


def voters(cluster: str, offset: int, *ids: int) -> Line:
    """A set of voters."""
    reported = [{"voterId": id_, "voterDirectoryId": f"d{id_}", "endpoints": []} for id_ in ids]
    return line(cluster, "a", offset, 1, "VotersRecord", voters=reported)


def registered(cluster: str, offset: int, node: int, level: int) -> Line:
    """A controller that supports metadata.version up to a level."""
    payload = registration(node, f"i{offset}", level)
    return line(cluster, "a", offset, 1, "RegisterControllerRecord", **payload)


def registration(node: int, incarnation: str, level: int) -> dict[str, Any]:
    """The payload of it."""
    features = [{"name": "metadata.version", "minSupportedVersion": 7, "maxSupportedVersion": level}]
    return {"controllerId": node, "incarnationId": incarnation, "endPoints": [], "features": features}


def fork() -> list[Line]:
    """Leader 2 had only 0..4 of what leader 1 wrote, and lost; leader 3 had 0..6 (the Raft paper's figure 8)."""
    kept = [config("fork", "a", offset, 1 if offset < 7 else 3) for offset in range(9)]
    common = [(row[0], "fork/b/log", *row[2:]) for row in kept[:5]]
    return kept + common + [config("fork", "b", offset, 2) for offset in range(5, 9)]


def transactions() -> list[Line]:
    """Transactions: aborted by the next leader, ended, open before a gap, open at the end."""
    kinds = {0: "Begin", 2: "Abort", 4: "Begin", 6: "End", 8: "Begin", 14: "Begin"}
    offsets = [offset for offset in range(16) if offset not in (10, 11)]
    made = [
        line("tx", "a", offset, 1, f"{kinds[offset]}TransactionRecord")
        if offset in kinds
        else config("tx", "a", offset, 1)
        for offset in offsets
    ]
    return [*made, line("tx", "a", 16, 2, "LeaderChangeMessage", leaderId=1)]


def checkpoints() -> list[Line]:
    """The log begins at 5. The checkpoint at 5 is torn, that at 7 is whole, and that at 9 has nothing new."""
    made = [config("snap", "a", offset, 1) for offset in range(5, 11)]
    for end, kinds in ((5, ("Header",)), (7, ("Header", "Footer")), (9, ("Header", "Footer"))):
        made += [line("snap", f"{end}", (end, n), 1, f"Snapshot{kind}Record") for n, kind in enumerate(kinds)]
    return made


def ghost() -> list[Line]:
    """Controller 2 leaves the voters at 4 and stays registered; 1 is upgraded at 5; 2 is unregistered at 7."""
    return [
        line("ghost", "a", 0, 1, "LeaderChangeMessage", leaderId=1, voters=[], grantingVoters=[]),
        voters("ghost", 1, 1, 2),
        registered("ghost", 2, 1, 25),
        registered("ghost", 3, 2, 25),
        voters("ghost", 4, 1),
        registered("ghost", 5, 1, 27),
        config("ghost", "a", 6, 1),
        line("ghost", "a", 7, 1, "UnregisterControllerRecord", controllerId=2),
    ]


def right_behind() -> list[Line]:
    """Controller 1 stands in the checkpoint at 5 and registers again at 5; 3 is new at 6, 2 goes at 7."""
    reported = [
        ("SnapshotHeaderRecord", {}),
        *(("RegisterControllerRecord", registration(node, "i1", 25)) for node in (1, 2)),
        ("SnapshotFooterRecord", {}),
    ]
    made = [line("behind", "5", (5, n), 1, kind, **payload) for n, (kind, payload) in enumerate(reported)]
    made += [registered("behind", 5, 1, 25), registered("behind", 6, 3, 25)]
    return [*made, line("behind", "a", 7, 1, "UnregisterControllerRecord", controllerId=2)]


def lines_of(found: list[Row], cluster: str, *columns: str) -> list[Line]:
    """Some columns of one cluster, sorted; instants as hours since the start."""

    def hours(value: Any) -> Any:
        return (value - START) // timedelta(hours=1) if isinstance(value, datetime) else value

    some = (row for row in found if row["cluster_id"] == cluster)
    return sorted((tuple(hours(row[name]) for name in columns) for row in some), key=repr)


def timeline_of(raw: list[Line]) -> list[Row]:
    """The lines of all clusters as rows."""
    return [
        {**line._asdict(), "cluster_id": cluster, "name": line.fields.get("name")}
        for cluster, lines in timelines(raw).items()
        for line in lines
    ]


def test_stories() -> None:
    """What the tables say of the cases that are easy to get wrong."""
    raw = [*fork(), *transactions(), *checkpoints(), *ghost(), *right_behind()][::-1]
    wanted = (gaps.TABLE, membership.TABLE, controller_registrations.TABLE, upgrade_blockers.TABLE)
    made = fold_rows(raw, wanted)
    timeline = timeline_of(raw)

    names = [name for _, name in sorted(lines_of(timeline, "fork", "offset", "name"))]
    assert names == [f"a@{offset}" for offset in range(9)]
    lost = ("reason", "epoch", "first_offset", "end_offset", "hides_records", "not_before", "not_after")
    assert lines_of(made["gaps"], "fork", *lost) == [("truncated-epoch", 2, 5, 9, False, 4, None)]

    offsets = [offset for offset, *_ in sorted(lines_of(timeline, "tx", "offset", "type", "run"))]
    assert offsets == [3, 5, 7, 12, 12, 13, 16]
    missing = (
        "reason",
        "first_offset",
        "end_offset",
        "hides_records",
        "bridged_at",
        "not_before",
        "not_after",
    )
    assert lines_of(made["gaps"], "tx", *missing) == [("missing-offsets", 10, 12, True, None, 9, 12)]

    stretches = sorted(lines_of(timeline, "snap", "offset", "ordinal", "type", "run"))
    assert [(offset, run) for offset, _, kind, run in stretches if kind == "ConfigRecord"] == [
        *((5, 0), (6, 0)),
        *((7, 1), (8, 1), (9, 1), (10, 1)),
    ]
    assert [(offset, kind) for offset, _, kind, _ in stretches if kind != "ConfigRecord"] == [
        *((5, "gap"), (7, "SnapshotHeaderRecord"), (7, "SnapshotFooterRecord")),
    ]
    assert lines_of(made["gaps"], "snap", *missing) == [("missing-offsets", 0, 5, True, 7, None, 5)]

    span = ("from_offset", "to_offset")
    assert lines_of(made["membership"], "ghost", "voter_id", "directory_id", *span) == [
        (1, "d1", 1, None),
        (2, "d2", 1, 4),
    ]
    registration_columns = (
        "controller_id",
        "incarnation_id",
        *span,
        "valid_from",
        "from_exact",
        "to_exact",
        "through_gap",
    )
    assert lines_of(made["controller_registrations"], "behind", *registration_columns) == [
        (1, "i1", 4, 5, 4, False, True, False),
        (1, "i5", 5, None, 5, True, None, False),
        (2, "i1", 4, 7, 4, False, True, False),
        (3, "i6", 6, None, 6, True, None, False),
    ]
    blocker = ("level", "level_name", "node_id", "supported_max", "is_ghost", "ghost_since", *span)
    assert lines_of(made["upgrade_blockers"], "ghost", *blocker) == [
        (26, "4.1-IV0", 2, 25, True, 4, 5, 7),
        (27, "4.1-IV1", 2, 25, True, 4, 5, 7),
    ]


def test_a_topic_that_takes_a_name_ends_the_one_before() -> None:
    """The deletion is at 1 or 2, which no file has."""
    raw = [
        line("names", "a", offset, 1, "TopicRecord", name="orders", topicId=topic_id)
        for offset, topic_id in ((0, "first"), (3, "second"))
    ]
    columns = ("topic_id", "previous_topic_id", "from_offset", "to_offset", "from_exact", "to_exact")
    assert lines_of(fold_rows(raw, [topics.TABLE])["topics"], "names", *columns) == [
        ("first", None, 0, 3, True, False),
        ("second", "first", 3, None, False, None),
    ]


def test_producer_ids_that_a_gap_hides_are_a_block() -> None:
    """The second block, of ids from 1000 on, was assigned at 1, which no file has."""
    raw = [
        line("ids", "a", offset, 1, "ProducerIdsRecord", brokerId=1, brokerEpoch=7, nextProducerId=following)
        for offset, following in ((0, 1000), (2, 3000))
    ]
    columns = ("first_producer_id", "last_producer_id", "broker_id", "offset", "exact")
    found = fold_rows(raw, [producer_id_blocks.TABLE])["producer_id_blocks"]
    assert lines_of(found, "ids", *columns) == [
        (0, 999, 1, 0, True),
        (1000, 1999, None, 2, False),
        (2000, 2999, 1, 2, True),
    ]
