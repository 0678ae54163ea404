"""What the tables of the quorum itself should say, made by replaying record after record."""

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

from kit.lake.oracle import Entry, Moment, Quorum, history, moments
from quorate_protocol.features import METADATA_VERSION, metadata_version_name

Key = tuple[Any, ...]
State = tuple[Any, ...]


@dataclass(frozen=True, slots=True)
class Life:
    """An interval."""

    key: Key
    state: State
    valid_from: datetime
    valid_to: datetime | None
    from_offset: int
    to_offset: int | None
    from_exact: bool
    to_exact: bool | None
    through_gap: bool

    @property
    def line(self) -> tuple[Any, ...]:
        """The line of the table."""
        instants = (self.valid_from, self.valid_to, self.from_offset, self.to_offset)
        return (*self.key, *self.state, *instants, self.from_exact, self.to_exact, self.through_gap)

    def holds(self, offset: int) -> bool:
        """Whether the state held after the record at an offset."""
        return self.from_offset <= offset and (self.to_offset is None or offset < self.to_offset)


@dataclass(slots=True)
class Book:
    """Keeps the lives of keys, one event after the other."""

    gaps: list[int] = field(default_factory=list)
    lives: list[Life] = field(default_factory=list)
    open: dict[Key, tuple[State, datetime, int, bool]] = field(default_factory=dict)
    seen: dict[Key, int] = field(default_factory=dict)
    """How many gaps there were when a record or snapshot last described a key."""
    base: int = 0
    """The same for keys that were never described."""

    def gap(self, offset: int) -> None:
        """Offsets are missing before this one."""
        self.gaps.append(offset)

    def tell(
        self, key: Key, state: State | None, time: datetime, offset: int, *, is_snapshot: bool = False
    ) -> None:
        """A key has this state now; None: it is gone. Of a snapshot, `offset` is that of the last record in it."""
        exact = not is_snapshot and self.seen.get(key, self.base) == len(self.gaps)
        self.seen[key] = len(self.gaps)
        now = self.open.get(key)
        if state == (now[0] if now else None):
            return
        if (
            now and now[2] == offset
        ):  # a record told a part of it, and the snapshot right behind that all of it
            _, time, _, exact = self.open.pop(key)
        elif now:
            self._close(key, time, offset, exact)
        if state is not None:
            self.open[key] = (state, time, offset, exact)

    def restate(self, states: dict[Key, State], time: datetime, end: int) -> None:
        """A snapshot of the state before `end` has these keys and no others."""
        offset = end - 1
        if self.gaps and self.gaps[-1] == end:
            self.gaps[-1] = offset
        for key in {*self.open, *self.seen} - set(states):
            self.tell(key, None, time, offset, is_snapshot=True)
        for key, state in states.items():
            self.tell(key, state, time, offset, is_snapshot=True)
        self.base = len(self.gaps)

    def _close(self, key: Key, time: datetime | None, offset: int | None, exact: bool | None) -> None:
        state, since, first, from_exact = self.open.pop(key)
        through = any(first < gap and (offset is None or gap <= offset) for gap in self.gaps)
        self.lives.append(Life(key, state, since, time, first, offset, from_exact, exact, through))

    def finish(self) -> list[Life]:
        """All lives; those that are open have no end."""
        for key in tuple(self.open):
            self._close(key, None, None, None)
        return self.lives


def told_by(entry: Entry, role: str) -> Iterable[tuple[Key, State | None]]:
    """Keys that a record tells of, with their states; None: it removes them."""
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
                endpoints = tuple((one["name"], one["host"], one["port"]) for one in voter["endpoints"])
                yield (voter["voterId"], voter["voterDirectoryId"]), (endpoints, 0, 1)


def _level(name: str, level: int) -> State | None:
    shown = metadata_version_name(level) if name == METADATA_VERSION else str(level)
    return (level, shown) if level else None


def _registration(payload: dict[str, Any]) -> State:
    endpoints = sorted((one["name"], one["host"], one["port"], "SSL") for one in payload["endPoints"])
    features = sorted((one["name"], 1, one["maxSupportedVersion"]) for one in payload["features"])
    return (payload["incarnationId"], tuple(endpoints), tuple(features))


def lives(quorum: Quorum, role: str) -> list[Life]:
    """The intervals of controllers, brokers, features or voters."""
    book = Book()
    for _, moment in history(quorum):
        if moment.snapshot is not None:
            states = {
                key: state
                for one in moment.snapshot
                for key, state in told_by(one, role)
                if state is not None
            }
            book.restate(states, quorum.log[moment.offset - 1].time, moment.offset)
        elif moment.entry is None:
            book.gap(moment.offset)
        else:
            _replay(book, moment.entry, role)
    return book.finish()


def _replay(book: Book, entry: Entry, role: str) -> None:
    reported = dict(told_by(entry, role))
    if entry.type == "VotersRecord" and role == "voter":
        for key in set(book.seen) - set(reported):
            book.tell(key, None, entry.time, entry.offset)
    for key, state in reported.items():
        book.tell(key, state, entry.time, entry.offset)
    if entry.type == "VotersRecord" and role == "voter":
        book.base = len(book.gaps)  # it had all voters: any other node was none


def leaderships(quorum: Quorum) -> list[Life]:
    """The intervals of leaders; snapshots do not tell of them."""
    book, epoch = Book(), None
    for _, moment in history(quorum):
        entry = moment.entry
        if entry is None:
            if moment.snapshot is None:
                book.gap(moment.offset)
        elif entry.epoch != epoch:
            epoch = entry.epoch
            state: State = (epoch, None, None, None)
            if entry.type == "LeaderChangeMessage":
                voters, granting = (
                    tuple(sorted(one["voterId"] for one in entry.payload[name]))
                    for name in ("voters", "grantingVoters")
                )
                state = (epoch, entry.payload["leaderId"], voters, granting)
            book.tell((), state, entry.time, entry.offset)
    found = book.finish()
    return [_with_exact_election(one) for one in found]


def _with_exact_election(life: Life) -> Life:
    exact = life.from_exact or life.state[1] is not None
    return Life(life.key, life.state, *life.line[4:8], exact, life.to_exact, life.through_gap)


# What follows from these, offset by offset


def blockers(quorum: Quorum) -> set[tuple[Any, ...]]:
    """(feature, level, role, node, supported_max, is_ghost, ghost_since, from_offset, to_offset) of each blocker."""
    nodes = [(role, live) for role in ("broker", "controller") for live in lives(quorum, role)]
    voters = lives(quorum, "voter")
    blocked_at: dict[Key, list[int]] = defaultdict(list)
    for offset in range(len(quorum.log) + 1):
        present = [
            (role, one.key[0], {f[0]: f[2] for f in one.state[2]}) for role, one in nodes if one.holds(offset)
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
            found.add((*key, *_ghost(key, voters, end), first, end))
    return found


def _ghost(key: Key, voters: list[Life], end: int | None) -> tuple[bool | None, datetime | None]:
    _, _, role, node, _ = key
    if role == "broker" or not voters:
        return None, None
    terms = [voter for voter in voters if voter.key[0] == node and (end is None or voter.from_offset < end)]
    if any(term.to_offset is None or (end is not None and term.to_offset >= end) for term in terms):
        return False, None
    last = max(terms, key=lambda one: one.to_offset or 0, default=None)
    return True, last.valid_to if last else None


def addresses(quorum: Quorum, window: timedelta) -> set[tuple[Any, ...]]:
    """(host, port, role, node, listener, reused_from_node_id, reused_after_s, from_offset, to_offset)."""
    owned: dict[Key, dict[int, Life]] = defaultdict(dict)
    for role in ("broker", "controller", "voter"):
        for life in lives(quorum, role):
            for name, host, port, *_ in life.state[0 if role == "voter" else 1]:
                for offset in range(
                    life.from_offset, (len(quorum.log) + 1) if life.to_offset is None else life.to_offset
                ):
                    owned[host, port, role, life.key[0], name][offset] = life
    spans = [
        (key, first, end, held[first].valid_from, held[(end or len(quorum.log) + 1) - 1].valid_to)
        for key, held in owned.items()
        for first, end in stretches(held, len(quorum.log))
    ]
    return {
        (*key, *_reuse(key, first, since, spans, window), first, end) for key, first, end, since, _ in spans
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


# Gaps


def missing(quorum: Quorum) -> set[tuple[Any, ...]]:
    """(first_offset, end_offset, bridged_at, not_before, not_after) of what nobody has."""
    found, end, before = set(), 0, None
    reported = [one for one in moments(quorum) if one.entry is not None or one.snapshot is not None]
    for moment in reported:
        if moment.offset > end:
            time = _time(quorum, moment)
            found.add((end, moment.offset, _bridge(quorum, reported, moment.offset), before, time))
        end = moment.offset + (moment.entry is not None)
        before = _time(quorum, moment)
    return found


def _time(quorum: Quorum, moment: Moment) -> datetime:
    return moment.entry.time if moment.entry else quorum.log[moment.offset - 1].time


def _bridge(quorum: Quorum, told: list[Moment], behind: int) -> int | None:
    for moment in told:
        if moment.snapshot is not None and moment.offset >= behind:
            is_reached = all(index in quorum.readable for index in range(behind, moment.offset))
            return moment.offset if is_reached else None
    return None
