"""What a history must not have. Pure: events in, violations out.

Linearizable are, by the protocol, operations whose success proves a commit: CreateTopics and DeleteTopics of one
name, which succeed in one state of the name only, and changes of configs. A read only counts if the controller that
answered it committed a write before and another one after it in the same epoch: it was active, and no other had
led meanwhile. A leader that is not active yet answers from what it knew as a follower. A refusal proves nothing: a
deposed leader that does not know its successor may refuse, and a broker may have tried before.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from kit.linearizability import (
    READ,
    UNKNOWN_TOPIC_OR_PARTITION,
    Model,
    Operation,
    SearchTooLargeError,
    TopicModel,
    ValueModel,
    first_violation,
)
from kit.soak.history import Event, What, numbers_of, of

TOPIC, CONFIG = "topic", "config"
PAGE, QUORUM = "page", "quorum"
"""Where a status is from: a node's own page, or DescribeQuorum, which leaders answer."""
CPU_SHARE_MAX: Final = 0.25
"""The maximum share of one core that an idle controller may use at the end."""
MEMORY_MB_MAX: Final = 400
SHOWN_MAX = 5


@dataclass(frozen=True, slots=True)
class Violation:
    """A promise that was broken."""

    rule: str
    text: str

    def __str__(self) -> str:
        return f"{self.rule}: {self.text}"


def check(events: Sequence[Event]) -> list[Violation]:
    """All violations of a history."""
    rules = (broken, one_leader, nothing_back, lost_records, linearizable, voters_as_asked, bounded)
    return [violation for rule in rules for violation in rule(events)]


def broken(events: Iterable[Event]) -> Iterator[Violation]:
    """What the runner saw at once: a node that ended without a reason or did not come back, images that differ."""
    for event in of(events, What.BROKEN):
        yield Violation(event.facts["rule"], f"at {event.at_s:.1f} s: {event.facts['text']}")


def one_leader(events: Iterable[Event]) -> Iterator[Violation]:
    """No two leaders in an epoch, by what every node says about itself and others, and by the nodes' logs."""
    leaders: dict[int, tuple[int, float]] = {}
    for event in of(events, What.STATUS, What.LEADER):
        epoch, leader = event.facts["epoch"], event.facts["leader"]
        if leader < 0:
            continue
        known, since_s = leaders.setdefault(epoch, (leader, event.at_s))
        if known != leader:
            yield Violation(
                "two leaders",
                f"epoch {epoch}: {known} at {since_s:.1f} s, and {leader} at {event.at_s:.1f} s, as {event.facts}",
            )


def nothing_back(events: Iterable[Event]) -> Iterator[Violation]:
    """A node's epoch and, while its process lives, its high watermark never go back; nor do those of leaders.

    A disk that was lost takes the epoch along: `disk` numbers the disks of a node, `process` its processes. The page
    of a new leader has the high watermark that it knew as a follower; DescribeQuorum has none until it has committed.
    """
    epochs: dict[tuple[int, int], int] = {}
    watermarks: dict[tuple[int, int], int] = {}
    of_leaders: dict[int, int] = {}
    for event in of(events, What.STATUS):
        facts = event.facts
        node, epoch, watermark = facts["node"], facts["epoch"], facts["high_watermark"]
        yield from _advance(epochs, (node, facts["disk"]), epoch, "epoch went back", event)
        if watermark < 0:
            continue
        yield from _advance(
            watermarks, (node, facts["process"]), watermark, "high watermark went back", event
        )
        if facts["source"] == QUORUM:
            before = max((seen for earlier, seen in of_leaders.items() if earlier < epoch), default=-1)
            if watermark < before:
                yield Violation(
                    "high watermark went back",
                    f"at {event.at_s:.1f} s the leader {node} of epoch {epoch} has {watermark} after {before}",
                )
            of_leaders[epoch] = max(of_leaders.get(epoch, -1), watermark)


def _advance(
    seen: dict[tuple[int, int], int], key: tuple[int, int], value: int, rule: str, event: Event
) -> Iterator[Violation]:
    before = seen.get(key, -1)
    if value < before:
        yield Violation(rule, f"at {event.at_s:.1f} s node {key[0]} has {value} after {before}")
    seen[key] = max(before, value)


def lost_records(events: Sequence[Event]) -> Iterator[Violation]:
    """Each record that was acknowledged to a producer is there, in the order in which it was sent.

    That it is there once is up to the client: after a change of leaders librdkafka may begin a new epoch of its
    producer id, and send again what was not acknowledged. The summary counts those.
    """
    consumed = {event.facts["partition"]: event for event in of(events, What.CONSUMED)}
    for event in of(events, What.PRODUCED):
        partition = event.facts["partition"]
        if partition not in consumed:
            yield Violation("records lost", f"partition {partition} could not be read")
            continue
        found = list(numbers_of(consumed[partition].facts["ranges"]))
        acknowledged = set(numbers_of(event.facts["ranges"]))
        lost = sorted(acknowledged.difference(found))
        if lost:
            yield Violation(
                "records lost", f"partition {partition}: {len(lost)}, the first {lost[:SHOWN_MAX]}"
            )
        kept = [record for record in found if record in acknowledged]
        if kept != sorted(kept):
            yield Violation("records out of order", f"partition {partition}")


def linearizable(events: Sequence[Event]) -> Iterator[Violation]:
    """Some order explains all responses about topics and configs, the last of which is what is there at the end."""
    models: Mapping[str, Model[Any]] = {TOPIC: TopicModel(), CONFIG: ValueModel()}
    for kind, model in models.items():
        operations = [
            operation_of(event) for event in of(events, What.OPERATION) if event.facts["kind"] == kind
        ]
        operations += _final_reads(events, kind, {operation.key for operation in operations})
        try:
            violation = first_violation(operations, model)
        except SearchTooLargeError as error:
            yield Violation("not decided", f"operations on {kind}s: {error}")
            continue
        if violation is not None:
            yield Violation("not linearizable", f"{kind}: {violation}")


def operation_of(event: Event) -> Operation:
    """The operation of an event. Only success proves something."""
    facts = event.facts
    succeeded = facts["result"] == "ok"
    return Operation(
        client=facts["client"],
        key=facts["key"],
        action=facts["action"],
        invoked_at=facts["invoked_s"],
        returned_at=facts["returned_s"] if succeeded else None,
        written=facts.get("written"),
        observed=facts.get("observed") if succeeded else None,
    )


def _final_reads(events: Sequence[Event], kind: str, keys: Iterable[str]) -> Iterator[Operation]:
    for event in of(events, What.FINAL):
        values: Mapping[str, Any] = event.facts[kind]
        for key in sorted(keys):
            value = values.get(key)
            is_gone = kind == TOPIC and value is None
            yield Operation(
                client="the end",
                key=key,
                action=READ,
                invoked_at=event.at_s,
                returned_at=event.at_s,
                observed=value,
                refused=UNKNOWN_TOPIC_OR_PARTITION if is_gone else None,
            )


def voters_as_asked(events: Iterable[Event]) -> Iterator[Violation]:
    """Each change of the voters ended in the voters that were asked for."""
    for event in of(events, What.VOTERS):
        wanted, seen = sorted(event.facts["wanted"]), sorted(event.facts["seen"])
        if wanted != seen:
            yield Violation("voters", f"at {event.at_s:.1f} s {wanted} was asked for, and {seen} are voters")


def bounded(events: Iterable[Event]) -> Iterator[Violation]:
    """At the end controllers of ours use little of the processor and of memory."""
    for event in of(events, What.RESOURCES):
        facts = event.facts
        if facts["cpu_share"] > CPU_SHARE_MAX:
            yield Violation("processor", f"{facts['node']} uses {facts['cpu_share']:.0%} of a core when idle")
        if facts["memory_mb"] > MEMORY_MB_MAX:
            yield Violation("memory", f"{facts['node']} has {facts['memory_mb']:.0f} MB")
