"""The faults of a soak as data: drawn from a seed, and which nodes they may hit as things are. Pure.

A deck has each kind as often as it is wanted; decks are shuffled one after the other, so that each kind happens even
in a run of five minutes. What a fault hits is chosen when it is due, because leaders move: `choose` keeps the limits.
"""

import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum, StrEnum
from typing import Final

GAP_S: Final = (3.0, 8.0)
"""Between two faults; some have to be left out because of others that last."""
PATIENCE_S: Final = 6.0
CALM_PATIENCE_S: Final = 25.0
LEADER_SHARE: Final = 0.4
CLOCK_JUMPS_S: Final = (-86_400, -3_600, -30, 15, 600, 86_400, 10 * 365 * 86_400)
LOST_SHARE: Final = (0.05, 0.4)
DELAY_MS: Final = (50, 800)
SYNC_DELAY_MS: Final = (50, 1_500)


class Kind(StrEnum):
    """A kind of fault, named as in the summary."""

    KILL = "controller killed"
    KILL_TWO = "two controllers killed"
    KILL_ALL = "all controllers killed"
    HANDOVER = "controller terminated"
    ROLL = "controllers rolled"
    PAUSE = "controller suspended"
    PAUSE_TWO = "two controllers suspended"
    ISOLATE = "controller cut off"
    DEAF = "controller hears nothing"
    MUTE = "controller is not heard"
    SPLIT = "two controllers split from three"
    LINK = "link cut one way"
    LOSS = "packets lost"
    DELAY = "packets delayed"
    CLOCK = "clock set"
    FULL_DISK = "disk full"
    SLOW_SYNC = "fsync slow"
    FAILING_SYNC = "fsync fails"
    LOST_DISK = "disk lost"
    FLIPPED_BIT = "bit flipped"
    VOTER_CHANGE = "voter removed and added"
    BROKER_KILL = "broker killed"
    BROKER_PAUSE = "broker suspended"
    BROKER_ISOLATE = "broker cut off"


class Hits(Enum):
    """What a kind of fault hits."""

    ANY = "controllers of either kind"
    PYTHON = "controllers of ours, which have a file system and system calls that can be made to fail"
    BROKER = "a broker"
    NOBODY = "nodes one by one, which it reserves itself"


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """What a kind hits, how often it is in a deck and how long it lasts. `loses_data`: what the node has is gone.

    One that is `alone` begins when no controller is in trouble, and no other fault hits a controller meanwhile.
    """

    times: int
    lasts_s: tuple[float, float]
    hits: Hits = Hits.ANY
    victims: int = 1
    alone: bool = False
    loses_data: bool = False


RULES: Final[Mapping[Kind, Rule]] = {
    Kind.KILL: Rule(times=5, lasts_s=(0, 8)),
    Kind.KILL_TWO: Rule(times=2, lasts_s=(0, 6), victims=2),
    Kind.KILL_ALL: Rule(times=1, lasts_s=(0, 3), victims=5, alone=True),
    Kind.HANDOVER: Rule(times=3, lasts_s=(0, 5)),
    Kind.ROLL: Rule(times=1, lasts_s=(0, 2), hits=Hits.NOBODY),
    Kind.PAUSE: Rule(times=5, lasts_s=(1, 12)),
    Kind.PAUSE_TWO: Rule(times=2, lasts_s=(1, 8), victims=2),
    Kind.ISOLATE: Rule(times=4, lasts_s=(2, 12)),
    Kind.DEAF: Rule(times=2, lasts_s=(2, 10)),
    Kind.MUTE: Rule(times=2, lasts_s=(2, 10)),
    Kind.SPLIT: Rule(times=2, lasts_s=(3, 10), victims=2),
    Kind.LINK: Rule(times=3, lasts_s=(3, 12)),
    Kind.LOSS: Rule(times=3, lasts_s=(4, 12)),
    Kind.DELAY: Rule(times=2, lasts_s=(4, 12)),
    Kind.CLOCK: Rule(times=3, lasts_s=(3, 12), hits=Hits.PYTHON),
    Kind.FULL_DISK: Rule(times=2, lasts_s=(2, 8), hits=Hits.PYTHON),
    Kind.SLOW_SYNC: Rule(times=2, lasts_s=(3, 10), hits=Hits.PYTHON),
    Kind.FAILING_SYNC: Rule(times=2, lasts_s=(2, 5), hits=Hits.PYTHON),
    Kind.LOST_DISK: Rule(times=1, lasts_s=(0, 2), loses_data=True),
    Kind.FLIPPED_BIT: Rule(times=1, lasts_s=(0, 0), hits=Hits.PYTHON, loses_data=True),
    Kind.VOTER_CHANGE: Rule(times=2, lasts_s=(0, 3)),
    Kind.BROKER_KILL: Rule(times=1, lasts_s=(0, 4), hits=Hits.BROKER),
    Kind.BROKER_PAUSE: Rule(times=1, lasts_s=(1, 12), hits=Hits.BROKER),
    Kind.BROKER_ISOLATE: Rule(times=1, lasts_s=(2, 12), hits=Hits.BROKER),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """A fault that is due. It hits the first of `order` that it may, the leader before them if `prefers_leader`."""

    number: int
    kind: Kind
    due_s: float
    lasts_s: float
    order: tuple[int, ...]
    prefers_leader: bool
    options: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class State:
    """The cluster as faults find it. `in_trouble` has the nodes that a fault holds; it lasts until they are well.

    `is_well`: every controller is a voter and has what is committed. `data_at_risk`: a node is without its data.
    """

    controllers: tuple[int, ...]
    python: frozenset[int]
    brokers: tuple[int, ...]
    leader: int | None
    in_trouble: frozenset[int]
    is_well: bool
    data_at_risk: bool = False
    is_alone: bool = False
    """A fault of all controllers lasts."""


def draw(seed: int, duration_s: float, controllers: Sequence[int], brokers: Sequence[int]) -> Iterator[Fault]:
    """The faults of a run, in the order in which they are due; the same for the same seed."""
    source = random.Random(seed)
    deck: list[Kind] = []
    due_s = 0.0
    number = 0
    while (due_s := due_s + source.uniform(*GAP_S)) < duration_s:
        if not deck:
            deck = [kind for kind, rule in RULES.items() for _ in range(rule.times)]
            source.shuffle(deck)
        kind = deck.pop()
        rule = RULES[kind]
        number += 1
        nodes = list(brokers if rule.hits is Hits.BROKER else controllers)
        source.shuffle(nodes)
        yield Fault(
            number=number,
            kind=kind,
            due_s=round(due_s, 2),
            lasts_s=round(source.uniform(*rule.lasts_s), 2),
            order=tuple(nodes),
            prefers_leader=source.random() < LEADER_SHARE,
            options=_options(kind, source),
        )


def _options(kind: Kind, source: random.Random) -> Mapping[str, float]:
    match kind:
        case Kind.LOSS:
            return {"share": round(source.uniform(*LOST_SHARE), 3)}
        case Kind.DELAY:
            return {"delay_ms": round(source.uniform(*DELAY_MS))}
        case Kind.SLOW_SYNC:
            return {"delay_ms": round(source.uniform(*SYNC_DELAY_MS))}
        case Kind.CLOCK:
            return {"offset_s": source.choice(CLOCK_JUMPS_S), "restarts": source.randrange(2)}
        case Kind.FLIPPED_BIT:
            return {"file": source.random(), "place": source.random(), "bit": source.randrange(8)}
    return {}


def patience_s(kind: Kind) -> float:
    """How long a fault that is due waits until it may hit nodes: one that needs calm, until others are over."""
    rule = RULES[kind]
    return CALM_PATIENCE_S if rule.alone or rule.loses_data else PATIENCE_S


def trouble_max(controllers: Sequence[int]) -> int:
    """How many controllers may be in trouble at the same time, so that the others are a majority."""
    return (len(controllers) - 1) // 2


def choose(fault: Fault, state: State) -> tuple[int, ...] | str:
    """The nodes that a fault may hit now, or why it may hit none."""
    rule = RULES[fault.kind]
    if rule.hits is Hits.NOBODY:
        return ()
    if rule.hits is Hits.BROKER:
        if state.in_trouble.intersection(state.brokers):
            return "a broker is in trouble"
        return fault.order[:1]
    troubled = state.in_trouble.intersection(state.controllers)
    reason = _refusal(rule, state, troubled)
    if reason:
        return reason
    order = fault.order
    if fault.prefers_leader and state.leader in order:
        order = (state.leader, *(node for node in order if node != state.leader))
    able = state.python if rule.hits is Hits.PYTHON else frozenset(state.controllers)
    chosen = [node for node in order if node in able and node not in troubled][: rule.victims]
    return tuple(chosen) if len(chosen) == rule.victims else "no node is left that it could hit"


def _refusal(rule: Rule, state: State, troubled: frozenset[int]) -> str:
    if state.is_alone:
        return "a fault of all controllers lasts"
    if rule.alone and troubled:
        return "controllers are in trouble"
    if rule.alone and state.data_at_risk:
        return "a node is without its data"
    if rule.loses_data and (troubled or state.data_at_risk or not state.is_well):
        return "not every controller has what is committed"
    if not rule.alone and len(troubled) + rule.victims > trouble_max(state.controllers):
        return "as many controllers are in trouble as may be"
    return ""
