"""Random quorums, and a slow and obvious reader of what their nodes left behind.

A :class:`Quorum` has the log that the quorum kept, and the rows of its nodes' directories: copies, lost ranges,
checkpoints (whole and torn), aborted transactions, leaders whose records no other node had.
"""

import json
import random
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any, Final

from kit.lake.oracle.history import History, Moment
from pyspark_quorate import rows

START: Final = datetime(2026, 1, 31, 23, 50, tzinfo=UTC)
NODES: Final = (1, 2, 3)
HOSTS: Final = ("h1", "h2", "h3")
BRACKETS: Final = ("BeginTransactionRecord", "EndTransactionRecord", "AbortTransactionRecord")
CONTROL: Final = ("LeaderChangeMessage", "KRaftVersionRecord", "VotersRecord")
GAP_ORDINAL: Final = -(2**31)
Payload = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Entry:
    """One record of a log."""

    offset: int
    epoch: int
    time: datetime
    type: str
    payload: Payload


@dataclass(slots=True)
class Quorum(History):
    """The history of several nodes, some of which lead and lose."""

    dead: dict[int, tuple[int, int]] = field(default_factory=dict)
    """Epoch that lost -> its first and end offset."""
    rows: list[tuple[Any, ...]] = field(default_factory=list)


# What happens


def make_quorum(seed: int, length: int) -> Quorum:
    """The cluster of a seed."""
    random_ = random.Random(seed)
    quorum = Quorum(cluster_id=f"cluster-{seed}-{length}")
    forks = _append(quorum, random_, length)
    _leave_behind(quorum, random_, forks)
    return quorum


def _append(quorum: Quorum, random_: random.Random, length: int) -> list[tuple[int, int, int]]:
    """Fill the log. Returns (epoch that lost, where it forked, where the next epoch begins) of leaders that lost."""
    epoch, time, is_open = 1, START, False
    forks = []

    def append(kind: str, payload: Payload) -> None:
        nonlocal time
        time += timedelta(milliseconds=random_.choice((0, 1, 1000, 60_000, 500_000, -5)))
        quorum.log.append(Entry(len(quorum.log), epoch, time, kind, payload))

    append("LeaderChangeMessage", _leader_change(random_))
    for _ in range(length):
        roll = random_.random()
        if roll < 0.08:
            former, start = epoch, len(quorum.log)
            epoch += random_.choice((1, 2))
            if epoch == former + 2:
                first_of_former = min(entry.offset for entry in quorum.log if entry.epoch == former)
                forks.append((former + 1, random_.randint(first_of_former + 1, start), start))
            append("LeaderChangeMessage", _leader_change(random_))
            if is_open:
                append("AbortTransactionRecord", {"reason": "a new leader"})
                is_open = False
        elif roll < 0.16:
            is_open, kind = (False, random_.choice(BRACKETS[1:])) if is_open else (True, BRACKETS[0])
            append(kind, {})
        else:
            append(*_record(random_))
    return forks


def _leader_change(random_: random.Random) -> Payload:
    granting = [{"voterId": node, "voterDirectoryId": "d"} for node in random_.sample(NODES, 2)]
    voters = [{"voterId": node, "voterDirectoryId": "d"} for node in NODES]
    return {"leaderId": random_.choice(NODES), "voters": voters, "grantingVoters": granting}


_BROKER: Final = {"brokerEpoch": 1, "rack": None, "fenced": True, "logDirs": []}
"""The other fields of a registration of a broker."""


def _record(random_: random.Random) -> tuple[str, Payload]:
    node = random_.choice(NODES)
    makers: tuple[tuple[str, Payload], ...] = (
        ("NoOpRecord", {}),
        ("ConfigRecord", {"resourceType": 4, "resourceName": "1", "name": "n", "value": "v"}),
        ("KRaftVersionRecord", {"version": 0, "kRaftVersion": random_.choice((0, 1))}),
        ("VotersRecord", {"version": 0, "voters": [_voter(voter, random_) for voter in _some(random_)]}),
        (
            "RegisterControllerRecord",
            {"controllerId": node, "zkMigrationReady": False, **_registration(random_)},
        ),
        (
            "RegisterControllerRecord",
            {"controllerId": node, "zkMigrationReady": False, **_registration(random_)},
        ),
        ("UnregisterControllerRecord", {"controllerId": node}),
        ("RegisterBrokerRecord", {"brokerId": 10 + node, **_BROKER, **_registration(random_)}),
        ("UnregisterBrokerRecord", {"brokerId": 10 + node, "brokerEpoch": 1}),
        ("FeatureLevelRecord", {"name": "metadata.version", "featureLevel": random_.randint(24, 30)}),
        ("FeatureLevelRecord", {"name": "group.version", "featureLevel": random_.choice((0, 1))}),
        ("FeatureLevelRecord", {"name": "kraft.version", "featureLevel": 1}),
    )
    return random_.choice(makers)


def _some(random_: random.Random) -> list[int]:
    return random_.sample(NODES, random_.randint(1, len(NODES)))


def _voter(node: int, random_: random.Random) -> Payload:
    return {
        "voterId": node,
        "voterDirectoryId": f"dir-{node}{random_.choice('ab')}",
        "endpoints": [{"name": "CONTROLLER", "host": random_.choice(HOSTS), "port": 9093}],
        "kRaftVersionFeature": {"minSupportedVersion": 0, "maxSupportedVersion": 1},
    }


def _registration(random_: random.Random) -> Payload:
    names = random_.sample(("TLS", "PLAIN"), random_.randint(1, 2))
    return {
        "incarnationId": random_.choice(("i1", "i2")),
        "endPoints": [
            {"name": name, "host": random_.choice(HOSTS), "port": 9092, "securityProtocol": 1}
            for name in names
        ],
        "features": [
            {"name": name, "minSupportedVersion": 1, "maxSupportedVersion": random_.randint(1, 4)}
            for name in random_.sample(("metadata.version", "group.version"), random_.randint(1, 2))
        ],
    }


# What is left of it


def _leave_behind(quorum: Quorum, random_: random.Random, forks: list[tuple[int, int, int]]) -> None:
    end = len(quorum.log)
    lost: set[int] = set()
    for _ in range(random_.choice((0, 0, 1, 2, 3))):
        first = random_.choice((0, random_.randrange(end)))
        lost |= set(range(first, first + random_.randint(1, max(1, end // 3))))
    # The records that show which epoch lost stay readable: without them, any reader would have to trust the newer
    # epoch.
    for _, _, start in forks:
        lost -= {start - 1, start}
    quorum.readable = set(range(end)) - lost
    if not quorum.readable:
        quorum.readable = {end - 1}
    places = [index for index in range(1, end + 1) if not _is_in_transaction(quorum, index)]
    quorum.snapshots = {place for place in places if random_.random() < (0.3 if place - 1 in lost else 0.04)}
    for copy in range(random_.randint(1, 3)):
        directory = f"{quorum.cluster_id}/node-{copy}"
        first = 0 if copy == 0 else random_.randrange(end)
        for entry in quorum.log[first:]:
            if entry.offset in quorum.readable:
                _write(quorum, f"{directory}/0.log", (entry.offset, 0), entry, entry)
        for place in sorted(quorum.snapshots):
            if copy == 0 or random_.random() < 0.5:
                _write_snapshot(quorum, directory, place, random_, is_whole=copy < 2)
    for place in random_.sample(places, min(2, len(places))):
        if place not in quorum.snapshots:
            _write_snapshot(quorum, f"{quorum.cluster_id}/torn", place, random_, is_whole=False)
    for epoch, fork, start in forks:
        quorum.dead[epoch] = (fork, fork + random_.randint(1, 4 + start - fork))
        _write_dead(quorum, epoch, fork)


def _write_dead(quorum: Quorum, epoch: int, fork: int) -> None:
    """The directory of a leader that lost: the log up to the fork, and what it appended alone."""
    file = f"{quorum.cluster_id}/dead-{epoch}/0.log"
    for entry in quorum.log[:fork]:
        if entry.offset in quorum.readable:
            _write(quorum, file, (entry.offset, 0), entry, entry)
    first, end = quorum.dead[epoch]
    for offset in range(first, end):
        never = Entry(offset, epoch, START, "FeatureLevelRecord", {"name": "never", "featureLevel": 1})
        _write(quorum, file, (offset, 0), never, never)


def _write_snapshot(
    quorum: Quorum, directory: str, place: int, random_: random.Random, *, is_whole: bool
) -> None:
    lines = snapshot_lines(quorum, place)
    if not is_whole:
        lines = lines[: random_.randrange(len(lines))]
    last = quorum.log[place - 1]
    for ordinal, line in enumerate(lines):
        _write(quorum, f"{directory}/{place}.checkpoint", (place, ordinal), last, line)


def _write(quorum: Quorum, source: str, place: tuple[int, int], at: Entry, line: Entry) -> None:
    kind = rows.LOG if source.endswith(".log") else rows.SNAPSHOT
    row = (*place, at.epoch, at.time, line.type, 0, json.dumps(line.payload))
    quorum.rows.append((quorum.cluster_id, source, kind, *row))


def _is_in_transaction(quorum: Quorum, end: int) -> bool:
    brackets = [entry.type for entry in quorum.log[:end] if entry.type in BRACKETS]
    return bool(brackets) and brackets[-1] == BRACKETS[0]


def snapshot_lines(quorum: Quorum, end: int) -> list[Entry]:
    """The state before an offset: the last record of each key, those that removed one left out."""
    state: dict[Any, Entry] = {}
    for entry in effective(quorum.log[:end], is_based=True):
        key, is_removal = _snapshot_key(entry)
        if key is not None:
            state.pop(key, None)
            if not is_removal:
                state[key] = entry
    last = quorum.log[end - 1]
    header, footer = (
        Entry(end, last.epoch, last.time, f"Snapshot{kind}Record", {}) for kind in ("Header", "Footer")
    )
    return [header, *state.values(), footer]


def _snapshot_key(entry: Entry) -> tuple[Any, bool]:
    payload = entry.payload
    match entry.type:
        case "RegisterControllerRecord" | "UnregisterControllerRecord":
            return ("controller", payload["controllerId"]), entry.type.startswith("Un")
        case "RegisterBrokerRecord" | "UnregisterBrokerRecord":
            return ("broker", payload["brokerId"]), entry.type.startswith("Un")
        case "FeatureLevelRecord":
            return ("feature", payload["name"]), payload["featureLevel"] == 0
        case "VotersRecord" | "KRaftVersionRecord":
            return entry.type, False
    return None, False


# The reader


def runs(quorum: Quorum) -> Iterator[list[Moment]]:
    """The moments, cut where a gap ends and where a snapshot stands."""
    run: list[Moment] = []
    for moment in quorum.moments():
        begins = moment.entry is None and not (moment.is_snapshot and run and run[-1].entry is None)
        if begins and run:
            yield run
            run = []
        run.append(moment)
    if run:
        yield run


def effective(entries: list[Entry], *, is_based: bool) -> list[Entry]:
    """The records of a stretch that count: transactions that did not end have no effect."""
    kept: list[Entry] = []
    pending: list[Entry] | None = None if is_based or not _begins_in_transaction(entries) else []
    for entry in entries:
        if entry.type == BRACKETS[0]:
            pending = []
        elif entry.type == BRACKETS[1]:
            kept += pending or []
            pending = None
        elif entry.type == BRACKETS[2]:
            pending = None
        elif pending is not None and entry.type not in CONTROL:
            pending.append(entry)
        else:
            kept.append(entry)
    return sorted(kept, key=lambda entry: entry.offset)


def _begins_in_transaction(entries: list[Entry]) -> bool:
    brackets = [entry.type for entry in entries if entry.type in BRACKETS]
    return bool(brackets) and brackets[0] == BRACKETS[2]


def valid_moments(quorum: Quorum) -> Iterator[tuple[int, Moment]]:
    """The number of the run with its valid history: gaps, snapshots, and records that count."""
    for number, run in enumerate(runs(quorum)):
        is_based = run[0].offset == 0 or any(moment.is_snapshot for moment in run)
        entries = [moment.entry for moment in run if moment.entry]
        counted = {id(entry) for entry in effective(entries, is_based=is_based)}
        for moment in run:
            if moment.entry is None or (id(moment.entry) in counted and moment.entry.type != "NoOpRecord"):
                yield number, moment


def timeline_lines(quorum: Quorum) -> list[tuple[Any, ...]]:
    """(offset, ordinal, epoch, time, type, payload, run, is_snapshot) of each line."""
    lines: list[tuple[Any, ...]] = []
    for run, moment in valid_moments(quorum):
        if moment.entry is not None:
            entry = moment.entry
            lines.append((entry.offset, 0, entry.epoch, entry.time, entry.type, entry.payload, run, False))
        elif moment.is_snapshot:
            snapshot = snapshot_lines(quorum, moment.offset)
            size = len(snapshot)
            last = quorum.log[moment.offset - 1]
            lines += [
                (moment.offset, number - size, last.epoch, last.time, entry.type, entry.payload, run, True)
                for number, entry in enumerate(snapshot)
            ]
        else:
            lines.append((moment.offset, GAP_ORDINAL, None, None, rows.GAP, None, run, False))
    return lines
