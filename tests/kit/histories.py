"""A cluster with many incidents in one day, as rows of a lake's tables, for tests of the report."""

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from typing import Any

from pyspark_quorate.report.history import TABLES, History

START = datetime(2026, 3, 14, 8, tzinfo=UTC)
END = START + timedelta(hours=10)
CLUSTER = "4L6g3nShT-eMCtK--X86sw"


def at(minutes: float) -> datetime:
    """The time that many minutes after the start."""
    return START + timedelta(minutes=minutes)


def interval(begin: float, end: float | None, **columns: Any) -> dict[str, Any]:
    """A row of a table of intervals, in minutes after the start."""
    exact = {"from_exact": True, "to_exact": None if end is None else True, "through_gap": False}
    offsets = {"from_offset": int(begin * 10), "to_offset": None if end is None else int(end * 10)}
    times = {"valid_from": at(begin), "valid_to": None if end is None else at(end)}
    return {"cluster_id": CLUSTER, **times, **offsets, **exact, **columns}


def bad_day() -> History:
    """Voters come and go, a broker flaps, partitions are at risk, an address is taken over, a ghost blocks."""
    return History(CLUSTER, START, END, _tables())


def calm_day() -> History:
    """Nothing happens to a static quorum."""
    tables = {**dict.fromkeys(TABLES, ()), "leadership": [_led(0, None, 3, 3000)]}
    return History("calm-calm-calm-calm-00", START, END, tables)


def _tables() -> Mapping[str, list[dict[str, Any]]]:
    return {
        "membership": [
            _voter(0, None, 3000),
            _voter(0, 200, 3001),
            _voter(0, 330, 3002),
            _voter(190, None, 3003),
            _voter(342, None, 3002, directory="b" * 22),
        ],
        "leadership": [
            _led(0, 120, 4, 3001),
            _led(120, 121.5, 6, 3000),
            _led(121.5, 335, 7, 3001),
            {**_led(335, None, 9, 3003), "from_exact": False},
        ],
        "broker_sessions": [
            *(_session(0, None, broker, "unfenced") for broker in (0, 2, 4)),
            *_flapping(1),
            _session(0, 400, 3, "unfenced"),
            _session(400, 402, 3, "controlled-shutdown"),
            _session(402, 412, 3, "fenced"),
            _session(412, None, 3, "unfenced"),
        ],
        "under_replicated": [
            *(_risk(60, 85, "orders", number, offline=False) for number in range(12)),
            *(_risk(62, 70, "payments", number, offline=True) for number in range(4)),
            *(_risk(402, 414, "orders", number, offline=False) for number in range(7)),
        ],
        "advertised_addresses": [
            _address(0, 200, 3001, "10.0.0.11:9093", "controller"),
            {
                **_address(203, None, 3003, "10.0.0.11:9093", "controller"),
                "reused_from_node_id": 3001,
                "reused_after_s": 180.0,
            },
            _address(0, None, 0, "b0.kafka.example.com:9094", "broker"),
            _address(0, 400, 3, "b3.kafka.example.com:9094", "broker"),
            _address(480, None, 4, "b3.kafka.example.com:9094", "broker"),
        ],
        "upgrade_blockers": [
            _blocker(200, None, "controller", 3001, is_ghost=True),
            _blocker(0, 260, "broker", 3, is_ghost=None),
        ],
        "gaps": [
            _gap("missing-offsets", 0, 400, hides=True, before=None, after=0),
            _gap("truncated-epoch", 1210, 1213, hides=False, before=121, after=122),
            _gap("torn-tail", None, None, hides=None, before=598, after=None),
        ],
    }


def _voter(begin: float, end: float | None, voter_id: int, directory: str = "a" * 22) -> dict[str, Any]:
    return interval(begin, end, voter_id=voter_id, directory_id=directory)


def _led(begin: float, end: float | None, epoch: int, leader_id: int) -> dict[str, Any]:
    return interval(begin, end, epoch=epoch, leader_id=leader_id, granting_voters=[3000, 3001])


def _session(begin: float, end: float | None, broker_id: int, state: str) -> dict[str, Any]:
    return interval(begin, end, broker_id=broker_id, state=state)


def _flapping(broker_id: int) -> list[dict[str, Any]]:
    times = [0, 60, 80, 150, 156, 158, 159, 300, 345]
    states = ["unfenced", "fenced"]
    rows = [
        _session(begin, end, broker_id, states[place % 2])
        for place, (begin, end) in enumerate(pairwise(times))
    ]
    return [*rows, _session(times[-1], None, broker_id, "unfenced")]


def _risk(begin: float, end: float, topic: str, partition: int, *, offline: bool) -> dict[str, Any]:
    return interval(
        begin + partition * 0.4,
        end,
        topic=topic,
        topic_id="t" * 22,
        partition=partition,
        is_under_replicated=True,
        is_offline=offline,
        isr_size_min=0 if offline else 2,
        replication_factor=3,
        missing=[1],
    )


def _address(begin: float, end: float | None, node_id: int, address: str, role: str) -> dict[str, Any]:
    host, _, port = address.partition(":")
    columns = {"reused_from_node_id": None, "reused_after_s": None}
    return interval(begin, end, node_id=node_id, host=host, port=int(port), role=role, **columns)


def _blocker(
    begin: float, end: float | None, role: str, node_id: int, *, is_ghost: bool | None
) -> dict[str, Any]:
    return interval(
        begin,
        end,
        role=role,
        node_id=node_id,
        feature="metadata.version",
        level=30,
        level_name="4.3-IV0",
        supported_max=27,
        is_ghost=is_ghost,
        ghost_since=at(begin) if is_ghost else None,
    )


def _gap(
    reason: str,
    first: int | None,
    end: int | None,
    *,
    hides: bool | None,
    before: float | None,
    after: float | None,
) -> dict[str, Any]:
    not_after = None if after is None else at(after)
    return {
        "cluster_id": CLUSTER,
        "reason": reason,
        "source": "/data/3001/__cluster_metadata-0/00000000000000000000.log",
        "first_offset": first,
        "end_offset": end,
        "detail": "what exactly is told here, at some length",
        "hides_records": hides,
        "not_before": None if before is None else at(before),
        "not_after": not_after,
        "time": not_after,
    }
