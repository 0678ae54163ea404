"""The past of findings, from the tables of a lake. Pure: it turns rows into texts.

A lake is read by `quorate lake show LAKE TABLE… --cluster-id ID -o json`, in a process of its own: this package
starts without Spark and Arrow. It prints one object,

    {"lake": "/lake", "tables": {"upgrade_blockers": [{"node_id": 99, "valid_from": "2026-01-31T12:00:00.000Z", …}]}}

with the rows of the cluster. The keys of a row are the columns in docs/lake-tables.md. Times are in UTC as above;
unknown values are null. A table that the lake lacks is left out. Errors are lines on stderr that begin with
`error: `, with exit code 1.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

from quorate_protocol.plain_data import dataclass

from quorate_admin.diagnosis.facts import NodeKind
from quorate_admin.diagnosis.findings import Finding

TABLES: Final = (
    "upgrade_blockers",
    "controller_registrations",
    "membership",
    "broker_sessions",
    "advertised_addresses",
)
"""The tables that the past of a blocker is read from."""

Row = Mapping[str, Any]


class HistoryError(ValueError):
    """The output is not that of `quorate lake show`; the message says where it differs."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Since:
    """An instant from a lake, as UTC text. It is not exact if a gap in the log hides the exact time."""

    time: str
    is_exact: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class Heir:
    """The node that has taken over an address (`host:port`) of another node."""

    address: str
    node_kind: str
    node_id: int
    since: Since


@dataclass(frozen=True, slots=True, kw_only=True)
class Past:
    """What a lake has about a node that blocks feature levels. None: it is not in the lake.

    `blocks_since` has each feature, its first blocked level, and since when it is blocked. `registrations` is the
    number of registrations of the node in the lake, and `registered_at` the time of the last one. If `voter_since` is
    set and `voter_until` is None, the node is still a voter. `has_voters` is false for a static quorum, whose voters
    are not in the log.
    """

    blocks_since: Mapping[str, tuple[int, Since]]
    registered_at: Since | None = None
    registrations: int = 0
    fenced_since: Since | None = None
    has_voters: bool = False
    voter_since: Since | None = None
    voter_until: Since | None = None
    directory_id: str | None = None
    heirs: tuple[Heir, ...] = ()


def show_arguments(lake: str, cluster_id: str) -> tuple[str, ...]:
    """The arguments of `quorate` for the tables of one cluster as JSON."""
    return ("lake", "show", lake, *TABLES, "--cluster-id", cluster_id, "-o", "json")


def parse_tables(document: object) -> Mapping[str, Sequence[Row]]:
    """Parse the output of `quorate lake show`. Returns the rows by table. Raises HistoryError."""
    tables = document.get("tables") if isinstance(document, dict) else None
    if not isinstance(tables, dict):
        raise HistoryError("it has no object `tables`")
    for name, rows in tables.items():
        if not isinstance(rows, list) or not all(isinstance(row, dict) for row in rows):
            raise HistoryError(f"tables.{name} is no list of objects")
    return tables


def past_of(finding: Finding, tables: Mapping[str, Sequence[Row]]) -> Past | None:
    """The past of the node of a finding that blocks something; None for other findings. Raises HistoryError."""
    if finding.node_id is None or finding.node_kind is None or not finding.blocks:
        return None
    try:
        return _past_of(finding, finding.node_kind, finding.node_id, tables)
    except (KeyError, TypeError) as error:
        raise HistoryError(f"a row lacks the column {error}, or has another type in it") from error


def past_lines(finding: Finding, past: Past) -> Iterator[str]:
    """The past in sentences."""
    kept: dict[str, list[str]] = {}
    for feature, (level, since) in past.blocks_since.items():
        kept.setdefault(_text(since), []).append(f"{feature} from level {level}")
    for instant, levels in kept.items():
        yield f"It keeps {_listed(levels)} since {instant}."
    unknown = [
        f"{feature} from level {first}"
        for feature, (first, _) in finding.blocks.items()
        if feature not in past.blocks_since
    ]
    if unknown:
        yield f"The lake does not yet show that it keeps {_listed(unknown)}: ingest what is new."
    if past.registered_at is not None:
        count = past.registrations
        times = (
            f"once, {_text(past.registered_at)}"
            if count == 1
            else (f"{count} times, last {_text(past.registered_at)}")
        )
        yield f"It registered {times}."
    if past.fenced_since is not None:
        yield f"It is fenced since {_text(past.fenced_since)}."
    if finding.node_kind is NodeKind.CONTROLLER:
        yield _voter_line(past, is_behind=bool(unknown))
    for heir in past.heirs:
        yield (
            f"Its address {heir.address} is that of {heir.node_kind} {heir.node_id} since {_text(heir.since)}: "
            "clients that still use it reach the wrong node."
        )


def past_json(past: Past) -> dict[str, Any]:
    """The past for programs."""
    return {
        "blocksSince": {
            feature: {"level": level, **_since_json(since)}
            for feature, (level, since) in past.blocks_since.items()
        },
        "registrations": past.registrations,
        "registeredAt": _since_json(past.registered_at),
        "fencedSince": _since_json(past.fenced_since),
        "voterSince": _since_json(past.voter_since),
        "voterUntil": _since_json(past.voter_until),
        "directoryId": past.directory_id,
        "addressesNowOf": [
            {
                "address": heir.address,
                "nodeKind": heir.node_kind,
                "nodeId": heir.node_id,
                **_since_json(heir.since),
            }
            for heir in past.heirs
        ],
    }


def _past_of(finding: Finding, kind: NodeKind, node_id: int, tables: Mapping[str, Sequence[Row]]) -> Past:
    blockers = [
        row
        for row in tables.get("upgrade_blockers", ())
        if row["role"] == kind.value and row["node_id"] == node_id and _is_current(row)
    ]
    voters = tables.get("membership", ())
    stays = [row for row in voters if row["voter_id"] == node_id]
    last_stay = max(stays, key=_from_offset, default=None)
    sessions = [
        row
        for row in tables.get("broker_sessions", ())
        if kind is NodeKind.BROKER and row["broker_id"] == node_id
    ]
    if kind is NodeKind.CONTROLLER:
        registrations = [
            row for row in tables.get("controller_registrations", ()) if row["controller_id"] == node_id
        ]
    else:
        registrations = _first_of_each(sessions, "broker_epoch")
    last = max(registrations, key=_from_offset, default=None)
    fenced = [row for row in sessions if row["state"] == "fenced" and _is_current(row)]
    return Past(
        blocks_since=_blocks_since(finding, blockers),
        registered_at=_since(last) if last else None,
        registrations=len(registrations),
        fenced_since=_since(fenced[-1]) if fenced else None,
        has_voters=bool(voters),
        voter_since=_since(last_stay) if last_stay else None,
        voter_until=_since(last_stay, "to") if last_stay and not _is_current(last_stay) else None,
        directory_id=last_stay["directory_id"] if last_stay else None,
        heirs=tuple(_heirs(node_id, tables.get("advertised_addresses", ()))),
    )


def _blocks_since(finding: Finding, blockers: Sequence[Row]) -> Mapping[str, tuple[int, Since]]:
    """The lowest blocked level in the lake, by feature."""
    found = {}
    for feature, (first, last) in finding.blocks.items():
        rows = [row for row in blockers if row["feature"] == feature and first <= row["level"] <= last]
        lowest = min(rows, key=lambda row: int(row["level"]), default=None)
        if lowest is not None:
            found[feature] = (int(lowest["level"]), _since(lowest))
    return found


def _heirs(node_id: int, addresses: Sequence[Row]) -> Iterator[Heir]:
    """Nodes that took over an address of this node, and still have it."""
    own: dict[tuple[str, int], int] = {}
    for row in addresses:
        if row["node_id"] == node_id:
            place = (row["host"], row["port"])
            own[place] = max(own.get(place, -1), _from_offset(row))
    found: set[tuple[str, int, int]] = set()
    for row in sorted(addresses, key=_from_offset):
        place, other = (row["host"], row["port"]), row["node_id"]
        came_later = place in own and other != node_id and _from_offset(row) > own[place]
        if came_later and _is_current(row) and (*place, other) not in found:
            found.add((*place, other))
            address = f"{place[0]}:{place[1]}"
            yield Heir(address=address, node_kind=row["role"], node_id=other, since=_since(row))


def _first_of_each(rows: Iterable[Row], column: str) -> list[Row]:
    """The earliest row for each value of a column."""
    first: dict[object, Row] = {}
    for row in sorted(rows, key=_from_offset):
        first.setdefault(row[column], row)
    return list(first.values())


def _listed(words: Sequence[str]) -> str:
    return " and ".join([", ".join(words[:-1]), words[-1]] if len(words) > 1 else words)


def _voter_line(past: Past, *, is_behind: bool) -> str:
    """`is_behind`: the lake is older than the finding, so that the node may have left the voters."""
    if past.voter_until is not None:
        return f"It was a voter until {_text(past.voter_until)}, with the directory {past.directory_id}."
    if past.voter_since is not None:
        is_voter = "In the lake it is still a voter, " if is_behind else "It is a voter "
        return f"{is_voter}since {_text(past.voter_since)}, with the directory {past.directory_id}."
    if past.has_voters:
        return "The lake has no record of it as a voter."
    return "The lake has no voters of this cluster: those of a static quorum are not in the log."


def _from_offset(row: Row) -> int:
    return int(row["from_offset"])


def _is_current(row: Row) -> bool:
    return row["valid_to"] is None


def _since(row: Row, end: str = "from") -> Since:
    return Since(time=str(row[f"valid_{end}"]), is_exact=row[f"{end}_exact"] is not False)


def _text(since: Since) -> str:
    """`2026-01-31 12:00:00 UTC`."""
    instant = since.time.replace("T", " ").removesuffix("Z").partition(".")[0] + " UTC"
    return instant if since.is_exact else f"{instant} or earlier"


def _since_json(since: Since | None) -> dict[str, Any]:
    return {"time": since.time if since else None, "exact": since.is_exact if since else None}
