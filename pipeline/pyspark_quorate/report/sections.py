"""The sections of a report: each has a finding, a chart and a table. Pure."""

from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any, Final

from pyspark_quorate.report.charts import Bar, Period, Series
from pyspark_quorate.report.history import History, Row, counted, in_words

ROWS_SHOWN: Final = 200
"""The maximum number of rows of a section's table."""
NAMES_SHOWN: Final = 3


@dataclass(frozen=True, slots=True)
class Section:
    """One section. Without bars and lines it has no chart, and the finding gives the reason."""

    title: str
    finding: str
    is_bad: bool = False
    bars: Sequence[Bar] = ()
    lines: Sequence[Series] = ()
    legend: Sequence[tuple[str, str]] = ()
    headers: Sequence[str] = ()
    rows: Sequence[Sequence[Any]] = field(default=())


def sections_of(history: History) -> list[Section]:
    """All sections of a report, in order. Tables that the lake lacks have no section."""
    return [make(history) for table, make in _MAKERS.items() if table in history.tables]


def period_of(history: History) -> Period:
    """The period that every chart of a report shows."""
    return Period(history.since, history.until)


def membership(history: History) -> Section:
    """Voters over time."""
    rows = history.intervals("membership")
    title = "Voters of the quorum"
    if not rows:
        return Section(title, "The log has no voter set: the quorum is static, or the record is missing.")
    first_directories: dict[int, str] = {}
    bars = []
    for row in rows:
        is_first = first_directories.setdefault(row["voter_id"], row["directory_id"]) == row["directory_id"]
        bars.append(
            _bar(
                history,
                row,
                f"voter {row['voter_id']}",
                "good" if is_first else "other",
                f"voter {row['voter_id']}, directory {row['directory_id']}",
            )
        )
    now = sorted({row["voter_id"] for row in rows if history.end(row) >= history.until})
    came = sorted({row["voter_id"] for row in _begun(history, rows)})
    went = sorted(
        {row["voter_id"] for row in rows if row["valid_to"] is not None and row["voter_id"] not in now}
    )
    replaced = sorted(voter for voter, count in _directories(rows).items() if count > 1)
    parts = [
        f"At the end {_listed(now)} {'is' if len(now) == 1 else 'are'} voters"
        if now
        else "There are no voters at the end"
    ]
    if went:
        parts.append(f"{_listed(went)} left")
    if replaced:
        parts.append(f"{_listed(replaced)} returned with another directory")
    if not came and not went:
        parts.append("no voter joined or left")
    return Section(
        title,
        "; ".join(parts) + ".",
        bars=sorted(bars, key=lambda bar: bar.lane),
        legend=[("good", "voter"), ("other", "voter with another directory")],
        headers=("Voter", "Directory id", "From", "To"),
        rows=[(row["voter_id"], row["directory_id"], *_times(row)) for row in rows],
    )


def leadership(history: History) -> Section:
    """Active controllers over time."""
    rows = history.intervals("leadership")
    title = "Active controller"
    if not rows:
        return Section(title, "No election was recorded.")
    bars = [
        _bar(
            history,
            row,
            "unknown" if row["leader_id"] is None else f"controller {row['leader_id']}",
            "unknown" if row["leader_id"] is None else "calm",
            f"epoch {row['epoch']}: {row['leader_id']}",
        )
        for row in rows
    ]
    led: defaultdict[int | None, timedelta] = defaultdict(timedelta)
    for row in rows:
        led[row["leader_id"]] += history.length(row)
    longest = max(led, key=lambda leader: led[leader])
    whole = sum(led.values(), timedelta(0))
    share = f" ({led[longest] / whole:.0%} of the time)" if whole else ""
    changes = len(rows) - 1
    finding = (
        f"{counted(changes, 'change')} of the active controller; longest led {longest}{share}."
        if changes
        else f"{longest} led all the time."
    )
    return Section(
        title,
        finding,
        bars=sorted(bars, key=lambda bar: bar.lane),
        legend=[("calm", "leads an epoch")],
        headers=("Epoch", "Leader", "Voted for it", "From", "To"),
        rows=[
            (row["epoch"], row["leader_id"], _joined(row["granting_voters"]), *_times(row)) for row in rows
        ],
    )


def fencing(history: History) -> Section:
    """Brokers in and out of service over time."""
    rows = history.intervals("broker_sessions")
    title = "Brokers in and out of service"
    if not rows:
        return Section(title, "No broker was registered.")
    colours = {"unfenced": "good", "fenced": "bad", "controlled-shutdown": "warn"}
    bars = [
        _bar(
            history,
            row,
            f"broker {row['broker_id']}",
            colours.get(row["state"], "unknown"),
            f"broker {row['broker_id']}: {row['state'] or 'unknown'}",
        )
        for row in rows
    ]
    fenced: defaultdict[int, timedelta] = defaultdict(timedelta)
    for row in rows:
        if row["state"] == "fenced":
            fenced[row["broker_id"]] += history.length(row)
    flaps = _flaps(rows)
    if not flaps:
        finding = f"None of {counted(len({row['broker_id'] for row in rows}), 'broker')} went out of service."
    else:
        worst = [broker for broker, _ in flaps.most_common(NAMES_SHOWN)]
        named = [
            f"broker {broker} ({_times_word(flaps[broker])}, {in_words(fenced[broker])} fenced)"
            for broker in worst
        ]
        more = len(flaps) - len(named)
        finding = f"Went out of service: {', '.join(named)}{f' and {more} more' if more else ''}."
    return Section(
        title,
        finding,
        is_bad=bool(flaps),
        bars=sorted(bars, key=lambda bar: int(bar.lane.split()[1])),
        legend=[("good", "in service"), ("warn", "shutting down"), ("bad", "fenced")],
        headers=("Broker", "State", "From", "To"),
        rows=[(row["broker_id"], row["state"], *_times(row)) for row in rows],
    )


def partitions_at_risk(history: History) -> Section:
    """Numbers of partitions that lacked replicas or a leader, over time."""
    rows = history.intervals("under_replicated")
    title = "Partitions at risk"
    if not rows:
        return Section(title, "All partitions had a leader and all replicas in sync, all the time.")
    under = _steps(history, [row for row in rows if row["is_under_replicated"]])
    offline = _steps(history, [row for row in rows if row["is_offline"]])
    worst_time, worst = max(under or offline, key=lambda point: point[1])
    finding = f"At most {counted(worst, 'partition')} lacked replicas at once, at {_clock(worst_time)}"
    if offline:
        most = max(value for _, value in offline)
        spell = _union_length(history, [row for row in rows if row["is_offline"]])
        finding += f"; up to {counted(most, 'partition')} had no leader, {in_words(spell)} in all"
    else:
        finding += "; none was without a leader"
    by_topic = Counter(row["topic"] or row["topic_id"] for row in rows)
    return Section(
        title,
        f"{finding}. Most affected topic: {by_topic.most_common(1)[0][0]}.",
        is_bad=bool(offline),
        lines=[Series("under-replicated", "warn", under), Series("without a leader", "bad", offline)],
        headers=(
            "Topic",
            "Partition",
            "In sync, at least",
            "Replicas",
            "Missing brokers",
            "Leader",
            "From",
            "To",
        ),
        rows=[
            (
                row["topic"] or row["topic_id"],
                row["partition"],
                row["isr_size_min"],
                row["replication_factor"],
                _joined(row["missing"]),
                "none" if row["is_offline"] else "one",
                *_times(row),
            )
            for row in rows
        ],
    )


def addresses(history: History) -> Section:
    """Addresses that moved from one node to another."""
    rows = history.intervals("advertised_addresses")
    title = "Addresses that moved between nodes"
    if not rows:
        return Section(title, "No node advertised an address.")
    places: defaultdict[str, list[Row]] = defaultdict(list)
    for row in rows:
        places[f"{row['host']}:{row['port']}"].append(row)
    shared = {place: found for place, found in places.items() if len({row["node_id"] for row in found}) > 1}
    reused = [row for row in rows if row["reused_from_node_id"] is not None]
    if not shared:
        return Section(title, f"{counted(len(places), 'address')}, each with the same node all the time.")
    first = {place: found[0]["node_id"] for place, found in shared.items()}
    bars = [
        _bar(
            history,
            row,
            place,
            "calm" if row["node_id"] == first[place] else "bad" if row in reused else "other",
            f"{place}: {row['role']} {row['node_id']}",
        )
        for place, found in sorted(shared.items())
        for row in found
    ]
    finding = f"{counted(len(shared), 'address')} of {len(places)} moved from one node to another"
    if reused:
        soonest = min(reused, key=lambda row: row["reused_after_s"])
        finding += (
            f", {_times_word(len(reused))} so soon that clients may still have cached it; the fastest was "
            f"{soonest['host']}:{soonest['port']}, from {soonest['reused_from_node_id']} to {soonest['node_id']} "
            f"after {in_words(timedelta(seconds=soonest['reused_after_s']))}"
        )
    return Section(
        title,
        f"{finding}.",
        is_bad=bool(reused),
        bars=bars,
        legend=[("calm", "first node"), ("other", "another node"), ("bad", "another node, too soon")],
        headers=("Address", "Role", "Node", "Taken from", "After", "From", "To"),
        rows=[
            (
                place,
                row["role"],
                row["node_id"],
                row["reused_from_node_id"],
                None if row["reused_after_s"] is None else in_words(timedelta(seconds=row["reused_after_s"])),
                *_times(row),
            )
            for place, found in sorted(shared.items())
            for row in found
        ],
    )


def blockers(history: History) -> Section:
    """Registrations that blocked feature levels."""
    rows = history.intervals("upgrade_blockers")
    title = "What blocked upgrades"
    if not rows:
        return Section(title, "Nothing: every registered node supported the levels of all others.")
    lanes: dict[tuple[str, int], str] = {}
    for row in rows:
        lanes.setdefault((row["role"], row["node_id"]), f"{row['role']} {row['node_id']}")
    ghosts = {key for row in rows if row["is_ghost"] for key in [(row["role"], row["node_id"])]}
    bars = [
        _bar(
            history,
            row,
            lanes[row["role"], row["node_id"]],
            "bad" if row["is_ghost"] else "warn",
            f"{lanes[row['role'], row['node_id']]} blocks {row['feature']} {row['level_name']}"
            + (", and is a ghost" if row["is_ghost"] else ""),
        )
        for row in rows
    ]
    still = [row for row in rows if row["valid_to"] is None]
    worst = max(rows, key=history.length)
    who = lanes[worst["role"], worst["node_id"]]
    now = (
        f"{_listed(sorted({lanes[row['role'], row['node_id']] for row in still}))} still "
        f"{'blocks' if len({row['node_id'] for row in still}) == 1 else 'block'} a level"
        if still
        else "nothing is blocked now"
    )
    finding = (
        f"The longest block was by {who}, of {worst['feature']} {worst['level_name']} for "
        f"{in_words(history.length(worst))}"
        f"{'; it is a ghost: registered, but not a voter' if worst['is_ghost'] else ''}; {now}."
    )
    return Section(
        title,
        finding,
        is_bad=bool(still),
        bars=sorted(bars, key=lambda bar: bar.lane),
        legend=[("warn", "blocks a level"), *([("bad", "is a ghost, and blocks")] if ghosts else [])],
        headers=("Node", "Feature", "Level", "Supports up to", "Ghost since", "From", "To"),
        rows=[
            (
                lanes[row["role"], row["node_id"]],
                row["feature"],
                row["level_name"],
                row["supported_max"],
                _time(row["ghost_since"]),
                *_times(row),
            )
            for row in rows
        ],
    )


def gaps(history: History) -> Section:
    """Missing and unreadable records."""
    title = "Missing records"
    rows = sorted(
        history.tables["gaps"],
        key=lambda row: (row["first_offset"] is not None, row["first_offset"] or 0, row["reason"]),
    )
    if not rows:
        return Section(title, "None: no offset is missing, and every file could be read.")
    hiding = [row for row in rows if row["hides_records"]]
    offsets = sum((row["end_offset"] or row["first_offset"]) - row["first_offset"] for row in hiding)
    kinds = Counter(row["reason"] for row in rows)
    reasons = ", ".join(f"{reason} {_times_word(count)}" for reason, count in kinds.most_common())
    finding = f"{reasons[0].upper()}{reasons[1:]}. " + (
        f"{counted(offsets, 'record')} {'is' if offsets == 1 else 'are'} missing in all files: "
        "intervals that start or end there are drawn pale."
        if hiding
        else "No record that took effect is missing."
    )
    bars = [
        Bar(
            row["reason"],
            "bad" if row["hides_records"] else "unknown",
            max(row["not_before"] or history.since, history.since),
            min(row["not_after"] or history.until, history.until),
            f"{row['reason']}: offsets {row['first_offset']} to {row['end_offset']}",
        )
        for row in rows
        if (row["not_before"] or history.since) < history.until
        and (row["not_after"] or history.until) >= history.since
    ]
    return Section(
        title,
        finding,
        is_bad=bool(hiding),
        bars=sorted(bars, key=lambda bar: bar.lane),
        legend=[("bad", "records are missing"), ("unknown", "none that took effect")],
        headers=("Reason", "From offset", "To offset", "Hides records", "Where", "Details"),
        rows=[
            (
                row["reason"],
                row["first_offset"],
                row["end_offset"],
                {True: "yes", False: "no", None: "unknown"}[row["hides_records"]],
                row["source"],
                row["detail"],
            )
            for row in rows
        ],
    )


_MAKERS: Final[dict[str, Callable[[History], Section]]] = {
    "membership": membership,
    "leadership": leadership,
    "broker_sessions": fencing,
    "under_replicated": partitions_at_risk,
    "advertised_addresses": addresses,
    "upgrade_blockers": blockers,
    "gaps": gaps,
}


def _bar(history: History, row: Row, lane: str, colour: str, text: str) -> Bar:
    label = f"{text}; {_clock(row['valid_from'])} to {'now' if row['valid_to'] is None else _clock(row['valid_to'])}"
    label += f", {in_words(history.length(row))}"
    is_exact = bool(row["from_exact"]) and row["to_exact"] is not False and not row["through_gap"]
    return Bar(lane, colour, history.begin(row), history.end(row), label, is_exact)


def _begun(history: History, rows: Sequence[Row]) -> list[Row]:
    first = min(row["valid_from"] for row in rows)
    return [row for row in rows if max(first, history.since) < row["valid_from"]]


def _directories(rows: Sequence[Row]) -> dict[int, int]:
    found: defaultdict[int, set[str]] = defaultdict(set)
    for row in rows:
        found[row["voter_id"]].add(row["directory_id"])
    return {voter: len(directories) for voter, directories in found.items()}


def _flaps(rows: Sequence[Row]) -> Counter[int]:
    """How often each broker went out of service: from unfenced to another state."""
    last: dict[int, str | None] = {}
    flaps: Counter[int] = Counter()
    for row in rows:
        if last.get(row["broker_id"]) == "unfenced" and row["state"] != "unfenced":
            flaps[row["broker_id"]] += 1
        last[row["broker_id"]] = row["state"]
    return flaps


def _steps(history: History, rows: Sequence[Row]) -> list[tuple[datetime, int]]:
    """The number of overlapping intervals, at each time at which it changes."""
    if not rows:
        return []
    changes: Counter[datetime] = Counter()
    for row in rows:
        changes[history.begin(row)] += 1
        if history.end(row) < history.until:
            changes[history.end(row)] -= 1
    points, value = [(history.since, 0)], 0
    for time in sorted(changes):
        value += changes[time]
        points.append((time, value))
    return points


def _union_length(history: History, rows: Sequence[Row]) -> timedelta:
    """The total time covered by at least one interval."""
    whole, reached = timedelta(0), history.since
    for row in rows:
        begin = max(history.begin(row), reached)
        if history.end(row) > begin:
            whole += history.end(row) - begin
            reached = history.end(row)
    return whole


def _times(row: Row) -> tuple[str, str]:
    begin = _time(row["valid_from"]) or ""
    end = _time(row["valid_to"]) or "now"
    return (begin if row["from_exact"] else f"≤ {begin}", end if row["to_exact"] is not False else f"≤ {end}")


def _time(time: datetime | None) -> str | None:
    return None if time is None else time.isoformat(sep=" ", timespec="milliseconds")[:23]


def _clock(time: datetime) -> str:
    return time.isoformat(sep=" ", timespec="seconds")[:19]


def _joined(values: Sequence[Any] | None) -> str | None:
    return None if values is None else ", ".join(map(str, values))


def _listed(values: Sequence[Any]) -> str:
    shown = [str(value) for value in values[: 2 * NAMES_SHOWN]]
    if len(values) > len(shown):
        shown = [*shown, f"{len(values) - len(shown)} more"]
    return shown[0] if len(shown) == 1 else f"{', '.join(shown[:-1])} and {shown[-1]}"


def _times_word(number: int) -> str:
    return {1: "once", 2: "twice"}.get(number, f"{number} times")
