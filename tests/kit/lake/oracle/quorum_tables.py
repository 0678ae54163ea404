"""The tables of the quorum itself."""

from collections import defaultdict
from collections.abc import Iterable
from datetime import datetime, timedelta
from typing import Any

from kit.lake.oracle.intervals import Book, Interval, Key, State
from kit.lake.oracle.quorums import Entry, Quorum, snapshot_lines, valid_moments
from quorate_protocol.features import METADATA_VERSION, metadata_version_name


def states_of(entry: Entry, role: str) -> Iterable[tuple[Key, State | None]]:
    """Keys that a record describes, with their states; None: it removes them."""
    payload = entry.payload
    match role, entry.type:
        case "controller", "RegisterControllerRecord":
            yield (payload["controllerId"],), (*_registration(payload), False)
        case "controller", "UnregisterControllerRecord":
            yield (payload["controllerId"],), None
        case "broker", "RegisterBrokerRecord":
            yield (payload["brokerId"],), (*_registration(payload), None)
        case "broker", "UnregisterBrokerRecord":
            yield (payload["brokerId"],), None
        case "feature", "FeatureLevelRecord" if payload["name"] != "kraft.version":
            yield (payload["name"],), _level(payload["name"], payload["featureLevel"])
        case "feature", "KRaftVersionRecord":
            yield ("kraft.version",), _level("kraft.version", payload["kRaftVersion"])
        case "voter", "VotersRecord":
            for voter in payload["voters"]:
                endpoints = tuple((each["name"], each["host"], each["port"]) for each in voter["endpoints"])
                yield (voter["voterId"], voter["voterDirectoryId"]), (endpoints, 0, 1)


def _level(name: str, level: int) -> State | None:
    return (level, _level_name(name, level)) if level else None


def _level_name(name: str, level: int) -> str:
    return metadata_version_name(level) if name == METADATA_VERSION else str(level)


def _registration(payload: dict[str, Any]) -> State:
    endpoints = sorted((each["name"], each["host"], each["port"], "SSL") for each in payload["endPoints"])
    features = sorted((each["name"], 1, each["maxSupportedVersion"]) for each in payload["features"])
    return (payload["incarnationId"], tuple(endpoints), tuple(features))


def intervals(quorum: Quorum, role: str) -> list[Interval]:
    """The intervals of controllers, brokers, features or voters."""
    book = Book()
    for _, moment in valid_moments(quorum):
        if moment.is_snapshot:
            states = {
                key: state
                for entry in snapshot_lines(quorum, moment.offset)
                for key, state in states_of(entry, role)
                if state is not None
            }
            book.restate(states, quorum.time_of(moment), moment.offset)
        elif moment.entry is None:
            book.gap(moment.offset)
        else:
            _replay(book, moment.entry, role)
    return book.finish()


def _replay(book: Book, entry: Entry, role: str) -> None:
    reported = dict(states_of(entry, role))
    if entry.type == "VotersRecord" and role == "voter":
        for key in set(book.seen) - set(reported):
            book.set_state(key, None, entry.time, entry.offset)
    for key, state in reported.items():
        book.set_state(key, state, entry.time, entry.offset)
    if entry.type == "VotersRecord" and role == "voter":
        book.base = len(book.gaps)  # it had all voters: no other node was one


def leaderships(quorum: Quorum) -> list[Interval]:
    """The intervals of leaders, which snapshots lack."""
    book, epoch = Book(), None
    for _, moment in valid_moments(quorum):
        entry = moment.entry
        if entry is None:
            if moment.is_gap:
                book.gap(moment.offset)
        elif entry.epoch != epoch:
            epoch = entry.epoch
            state: State = (epoch, None, None, None)
            if entry.type == "LeaderChangeMessage":
                voters, granting = (
                    tuple(sorted(voter["voterId"] for voter in entry.payload[name]))
                    for name in ("voters", "grantingVoters")
                )
                state = (epoch, entry.payload["leaderId"], voters, granting)
            book.set_state((), state, entry.time, entry.offset)
    found = book.finish()
    return [_with_exact_election(interval) for interval in found]


def _with_exact_election(interval: Interval) -> Interval:
    exact = interval.from_exact or interval.state[1] is not None
    return Interval(
        interval.key, interval.state, *interval.line[4:8], exact, interval.to_exact, interval.through_gap
    )


# What follows from these, offset by offset


def blockers(quorum: Quorum) -> set[tuple[Any, ...]]:
    """The columns of the table but cluster_id, from_exact and to_exact, of each registration that blocks a level."""
    nodes = [(role, interval) for role in ("broker", "controller") for interval in intervals(quorum, role)]
    voters = intervals(quorum, "voter")
    blocked_at: dict[Key, list[int]] = defaultdict(list)
    for offset in range(len(quorum.log) + 1):
        present = [
            (role, node.key[0], {f[0]: f[2] for f in node.state[2]})
            for role, node in nodes
            if node.holds(offset)
        ]
        known = {
            (name, level)
            for _, _, maxima in present
            for name, top in maxima.items()
            for level in range(1, top + 1)
        }
        for role, node, maxima in present:
            for name, level in known:
                if maxima.get(name, 0) < level:
                    blocked_at[name, level, role, node, maxima.get(name, 0)].append(offset)
    found = set()
    for key, offsets in blocked_at.items():
        for first, end in stretches(offsets, len(quorum.log)):
            name, level, *others = key
            ghost = _ghost(key, voters, end)
            found.add((name, level, _level_name(name, level), *others, *ghost, *_span(quorum, first, end)))
    return found


def _span(quorum: Quorum, first: int, end: int | None) -> tuple[Any, ...]:
    """The columns of an interval but from_exact and to_exact."""
    gaps = _gap_ends(quorum)
    through = any(first < gap and (end is None or gap <= end) for gap in gaps)
    return (quorum.log[first].time, None if end is None else quorum.log[end].time, first, end, through)


def _gap_ends(quorum: Quorum) -> list[int]:
    """The offsets at which gaps end; of a gap that a snapshot bridges, that of the last record in the snapshot."""
    ends: list[int] = []
    for _, moment in valid_moments(quorum):
        if moment.is_snapshot and ends and ends[-1] == moment.offset:
            ends[-1] -= 1
        elif moment.is_gap:
            ends.append(moment.offset)
    return ends


def _ghost(key: Key, voters: list[Interval], end: int | None) -> tuple[bool | None, datetime | None]:
    _, _, role, node, _ = key
    if role == "broker" or not voters:
        return None, None
    terms = [voter for voter in voters if voter.key[0] == node and (end is None or voter.from_offset < end)]
    if any(term.to_offset is None or (end is not None and term.to_offset >= end) for term in terms):
        return False, None
    last = max(terms, key=lambda term: term.to_offset or 0, default=None)
    return True, last.valid_to if last else None


def addresses(quorum: Quorum, window: timedelta) -> set[tuple[Any, ...]]:
    """The columns of the table but cluster_id, from_exact and to_exact, of each address."""
    owned: dict[Key, dict[int, Interval]] = defaultdict(dict)
    for role in ("broker", "controller", "voter"):
        for interval in intervals(quorum, role):
            for name, host, port, *_ in interval.state[0 if role == "voter" else 1]:
                for offset in range(
                    interval.from_offset,
                    (len(quorum.log) + 1) if interval.to_offset is None else interval.to_offset,
                ):
                    owned[host, port, role, interval.key[0], name][offset] = interval
    spans = [
        (key, first, end, held[first].valid_from, held[(end or len(quorum.log) + 1) - 1].valid_to)
        for key, held in owned.items()
        for first, end in stretches(held, len(quorum.log))
    ]
    return {
        (*key, *_reuse(key, first, since, spans, window), *_span(quorum, first, end))
        for key, first, end, since, _ in spans
    }


def _reuse(key: Key, first: int, since: datetime, spans: list[Any], window: timedelta) -> tuple[Any, Any]:
    found = []
    for other, start, end, _, until in spans:
        if other[:2] == key[:2] and other[3] != key[3] and start < first:
            pause = timedelta(0) if end is None or end > first else max(since - until, timedelta(0))
            if pause <= window:
                found.append((pause.total_seconds(), -start, other[3]))
    return (min(found)[2], min(found)[0]) if found else (None, None)


def stretches(offsets: Iterable[int], last: int) -> Iterable[tuple[int, int | None]]:
    """First and end of each run of numbers; no end where it reaches the last."""
    ordered = sorted(offsets)
    first = None
    for number, offset in enumerate(ordered):
        first = offset if first is None else first
        if number + 1 == len(ordered) or ordered[number + 1] != offset + 1:
            yield first, None if offset == last else offset + 1
            first = None
