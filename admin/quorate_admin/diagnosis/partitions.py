"""Finds partitions in trouble, and brokers that partitions need and that are not registered."""

from collections.abc import Iterator, Mapping
from typing import Final

from quorate_admin.diagnosis.commands import Commands
from quorate_admin.diagnosis.facts import Examination, NodeKind, TroubledPartitions
from quorate_admin.diagnosis.findings import Code, Finding, Severity
from quorate_admin.diagnosis.judgement import ClusterFacts

BROKERS_MAX: Final = 10
"""The number of brokers that have a finding of their own, or are named in one."""


def find_in_partitions(facts: Examination, judged: ClusterFacts, commands: Commands) -> Iterator[Finding]:
    """Yield findings about partitions, and about brokers without a registration that have replicas of them."""
    if facts.partitions is None:
        return
    yield from _unregistered(facts.partitions.unregistered, judged, commands)  # a cause of what follows
    if facts.partitions.offline.count:
        yield _offline(facts, judged, facts.partitions.offline, commands)
    if facts.partitions.under_min_isr.count:
        yield _under_min_isr(facts, judged, facts.partitions.under_min_isr, commands)


def _offline(
    facts: Examination, judged: ClusterFacts, offline: TroubledPartitions, commands: Commands
) -> Finding:
    states = _States(facts, judged)
    return Finding(
        severity=Severity.DANGER,
        code=Code.PARTITIONS_OFFLINE,
        message=f"{_counted(offline.count, 'partition')} without a leader: clients can neither read nor write there",
        evidence=f"{_examples(offline)} {states.text(offline.brokers, 'Replicas are on')}",
        advice=states.advice(
            offline.brokers,
            otherwise="All of these brokers run. Look for log directories that are offline in their logs, and bring "
            "back the disks. Only if the disks are lost: an unclean election (`quorate leader-election "
            "--election-type unclean`) makes a replica leader that lacks records, which are lost then.",
        ),
        commands=(*_described(facts, commands, "--unavailable-partitions"), commands.doctor()),
        count=offline.count,
        examples=offline.examples,
    )


def _under_min_isr(
    facts: Examination, judged: ClusterFacts, troubled: TroubledPartitions, commands: Commands
) -> Finding:
    states = _States(facts, judged)
    return Finding(
        severity=Severity.BLOCKED,
        code=Code.PARTITIONS_UNDER_MIN_ISR,
        message=f"{_counted(troubled.count, 'partition')} with fewer replicas in sync than min.insync.replicas: "
        "producers with acks=all can't write there",
        evidence=f"{_examples(troubled)} {states.text(troubled.brokers, 'Not in sync are replicas on')}",
        advice=states.advice(
            troubled.brokers,
            otherwise="All of these brokers run. Wait until their replicas have caught up; if they do not, the "
            "brokers' logs have the reason.",
        ),
        commands=(*_described(facts, commands, "--under-min-isr-partitions"), commands.doctor()),
        count=troubled.count,
        examples=troubled.examples,
    )


def _described(facts: Examination, commands: Commands, which: str) -> tuple[str, ...]:
    """The command that lists the partitions, if a broker can answer it."""
    has_broker = any(not broker.fenced for broker in (facts.brokers or {}).values())
    return (commands.describe_partitions(which),) if has_broker else ()


def _unregistered(
    unregistered: Mapping[int, TroubledPartitions], judged: ClusterFacts, commands: Commands
) -> Iterator[Finding]:
    """The brokers with most partitions have findings of their own, all others one together."""
    ordered = sorted(unregistered, key=lambda node_id: (-unregistered[node_id].count, node_id))
    for node_id in sorted(ordered[:BROKERS_MAX]):
        if judged.follows(node_id):
            yield _runs_unregistered(node_id, unregistered[node_id], commands)
        else:
            yield _gone(node_id, unregistered[node_id], judged.follows(node_id), commands)
    rest = sorted(ordered[BROKERS_MAX:])
    if rest:
        yield Finding(
            severity=Severity.WARNING,
            code=Code.REPLICAS_WITHOUT_BROKER,
            message=f"{_counted(len(rest), 'more broker')} with replicas and without a registration",
            evidence=f"The ids: {_ids(rest)}.",
            advice="Start the brokers: a broker registers itself when it starts. Then:",
            commands=(commands.doctor(),),
            count=sum(unregistered[node_id].count for node_id in rest),
        )


def _runs_unregistered(node_id: int, troubled: TroubledPartitions, commands: Commands) -> Finding:
    return Finding(
        severity=Severity.DANGER,
        code=Code.BROKER_NOT_REGISTERED,
        message=f"Broker {node_id} runs and is not registered: it can't lead its {_partitions(troubled.count)}",
        evidence="It follows the metadata log, so its process is alive; its registration was removed, for instance "
        f"by `cluster unregister`. {_on_it(troubled)}",
        advice=f"Restart broker {node_id}: a broker registers itself when it starts, and at no other time. To "
        "stop it may take five minutes: controllers grant no shutdown to a broker that is not registered. Then:",
        commands=(commands.doctor(),),
        node_kind=NodeKind.BROKER,
        node_id=node_id,
        count=troubled.count,
        examples=troubled.examples,
    )


def _gone(node_id: int, troubled: TroubledPartitions, follows: bool | None, commands: Commands) -> Finding:
    presence = (
        "It does not follow the metadata log: no such node runs."
        if follows is False
        else "Whether it runs is unknown."
    )
    return Finding(
        severity=Severity.WARNING,
        code=Code.REPLICAS_WITHOUT_BROKER,
        message=f"Broker {node_id} is needed by {_counted(troubled.count, 'partition')}, and is not registered",
        evidence=f"{presence} {_on_it(troubled)}",
        advice=f"Start broker {node_id}: it registers itself. If it is gone for good, move its replicas: write the "
        'topics into topics.json ({"topics": [{"topic": "NAME"}], "version": 1}), and execute what this proposes:',
        commands=(commands.propose_reassignment(), commands.doctor()),
        node_kind=NodeKind.BROKER,
        node_id=node_id,
        count=troubled.count,
        examples=troubled.examples,
    )


class _States:
    """The brokers of troubled partitions in words."""

    def __init__(self, facts: Examination, judged: ClusterFacts) -> None:
        self._registered = facts.brokers or {}
        self._judged = judged

    def text(self, brokers: Mapping[int, int], beginning: str) -> str:
        """The brokers with most replicas, each with its state."""
        ordered = sorted(brokers, key=lambda node_id: (-brokers[node_id], node_id))
        named = [f"{node_id} ({self._state(node_id)})" for node_id in sorted(ordered[:BROKERS_MAX])]
        if not named:
            return ""
        return f"{beginning} broker{'s' if len(ordered) > 1 else ''} {_and_more(named, len(ordered))}."

    def advice(self, brokers: Mapping[int, int], otherwise: str) -> str:
        """Which brokers to start or restart; `otherwise` if all of them run."""
        states = {node_id: self._state(node_id) for node_id in brokers}
        down = [node_id for node_id, state in states.items() if state in (_DOWN, _FENCED, _UNREGISTERED)]
        restarted = [node_id for node_id, state in states.items() if state == _RUNS_UNREGISTERED]
        steps = []
        if restarted:
            steps.append(f"Restart {_brokers(restarted)}: a broker registers itself only when it starts.")
        if down:
            steps.append(
                f"Start {_brokers(down)}; the log of a broker has the reason why it stopped or is fenced."
            )
        return " ".join(steps) or otherwise

    def _state(self, node_id: int) -> str:
        follows = self._judged.follows(node_id)
        registered = self._registered.get(node_id)
        if registered is None:
            return _RUNS_UNREGISTERED if follows else _UNREGISTERED
        if not registered.fenced:
            return "running"
        return _DOWN if follows is False else _FENCED


_DOWN: Final = "down"
_FENCED: Final = "fenced"
_UNREGISTERED: Final = "not registered"
_RUNS_UNREGISTERED: Final = "running, not registered"


def _examples(troubled: TroubledPartitions) -> str:
    names = ", ".join(troubled.examples)
    if troubled.count > len(troubled.examples):
        return f"The first are {names}."
    return f"{'It is' if troubled.count == 1 else 'They are'} {names}."


def _on_it(troubled: TroubledPartitions) -> str:
    more = ", for instance" if troubled.count > len(troubled.examples) else ":"
    return f"It has replicas of {_counted(troubled.count, 'partition')}{more} {', '.join(troubled.examples)}."


def _partitions(count: int) -> str:
    return "partition" if count == 1 else f"{count} partitions"


def _counted(count: int, what: str) -> str:
    return f"{count} {what}{'' if count == 1 else 's'}"


def _brokers(node_ids: list[int]) -> str:
    return f"broker{'s' if len(node_ids) > 1 else ''} {_ids(sorted(node_ids))}"


def _ids(node_ids: list[int]) -> str:
    return _and_more([str(node_id) for node_id in node_ids[:BROKERS_MAX]], len(node_ids))


def _and_more(named: list[str], count: int) -> str:
    """`1, 2 and 3 more`: the named ones, and how many of `count` are not."""
    more = f" and {count - len(named)} more" if count > len(named) else ""
    return f"{', '.join(named)}{more}"
