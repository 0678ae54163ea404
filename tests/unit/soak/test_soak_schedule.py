"""The faults of a soak: drawn from a seed, and kept within limits."""

from dataclasses import replace

import pytest
from kit.soak.schedule import RULES, Fault, Hits, Kind, State, choose, draw, trouble_max

CONTROLLERS, PYTHON, BROKERS = (3000, 3001, 3002, 3003, 3004), frozenset({3000, 3001, 3002, 3003}), (0, 1, 2)
WELL = State(
    controllers=CONTROLLERS,
    python=PYTHON,
    brokers=BROKERS,
    leader=3001,
    in_trouble=frozenset(),
    is_well=True,
)
SEEDS = range(20)


def faults(seed: int, minutes: float = 60) -> list[Fault]:
    """The faults of a run."""
    return list(draw(seed, minutes * 60, CONTROLLERS, BROKERS))


def fault(kind: Kind, *, prefers_leader: bool = False) -> Fault:
    """A fault of a kind, which hits nodes in the order of their ids."""
    order = BROKERS if RULES[kind].hits is Hits.BROKER else CONTROLLERS
    return Fault(number=1, kind=kind, due_s=0, lasts_s=5, order=order, prefers_leader=prefers_leader)


def test_the_same_seed_draws_the_same_faults() -> None:
    assert faults(4711) == faults(4711) != faults(4712)


@pytest.mark.parametrize("seed", SEEDS)
def test_an_hour_has_more_than_300_faults(seed: int) -> None:
    """A soak of an hour breaks something every ten seconds."""
    drawn = faults(seed)
    assert len(drawn) > 400
    assert [fault.due_s for fault in drawn] == sorted(fault.due_s for fault in drawn)
    assert drawn[-1].due_s < 3600


@pytest.mark.parametrize("seed", SEEDS)
def test_five_minutes_have_nearly_every_kind(seed: int) -> None:
    assert len({fault.kind for fault in faults(seed, 5)}) >= len(Kind) - 3
    assert {fault.kind for fault in faults(seed, 6)} == set(Kind)


@pytest.mark.parametrize("seed", SEEDS)
def test_a_majority_is_never_in_trouble_unless_all_are_meant(seed: int) -> None:
    held: dict[int, tuple[float, Fault]] = {}
    begun = 0
    for fault in faults(seed):
        held = {node: (end_s, by) for node, (end_s, by) in held.items() if end_s > fault.due_s}
        state = replace(
            WELL,
            in_trouble=frozenset(held),
            is_well=not held,
            data_at_risk=any(RULES[by.kind].loses_data for _, by in held.values()),
            is_alone=any(RULES[by.kind].alone for _, by in held.values()),
        )
        chosen = choose(fault, state)
        if isinstance(chosen, str):
            continue
        begun += 1
        assert not held.keys() & set(chosen)
        if RULES[fault.kind].loses_data:
            assert not held.keys() & set(CONTROLLERS)
        held |= dict.fromkeys(chosen, (fault.due_s + fault.lasts_s + 10, fault))
        troubled = held.keys() & set(CONTROLLERS)
        is_alone = any(RULES[by.kind].alone for _, by in held.values())
        assert len(troubled) <= trouble_max(CONTROLLERS) or is_alone
        assert len(held.keys() & set(BROKERS)) <= 1
        assert len({by.number for _, by in held.values() if RULES[by.kind].loses_data}) <= 1
    assert begun > 250


def test_the_leader_is_hit_first_by_a_fault_that_prefers_it() -> None:
    assert choose(fault(Kind.KILL, prefers_leader=True), WELL) == (3001,)
    assert choose(fault(Kind.KILL), WELL) == (3000,)
    assert choose(fault(Kind.KILL_TWO, prefers_leader=True), WELL) == (3001, 3000)


def test_a_fault_passes_over_nodes_in_trouble_and_those_that_it_cannot_hit() -> None:
    state = replace(WELL, in_trouble=frozenset({3000}))
    assert choose(fault(Kind.PAUSE), state) == (3001,)
    on_java = replace(fault(Kind.SLOW_SYNC), order=(3004, 3003))
    assert choose(on_java, state) == (3003,)


@pytest.mark.parametrize("kind", [kind for kind, rule in RULES.items() if rule.loses_data])
@pytest.mark.parametrize(
    "state",
    [
        replace(WELL, is_well=False),
        replace(WELL, in_trouble=frozenset({3002})),
        replace(WELL, data_at_risk=True),
        replace(WELL, is_alone=True),
    ],
)
def test_data_is_lost_only_while_all_others_have_it(kind: Kind, state: State) -> None:
    assert isinstance(choose(fault(kind), state), str)
    assert choose(fault(kind), WELL) == (3000,)


def test_a_fault_of_all_controllers_waits_for_the_others() -> None:
    assert choose(fault(Kind.KILL_ALL), WELL) == CONTROLLERS
    assert (
        choose(fault(Kind.KILL_ALL), replace(WELL, in_trouble=frozenset({3000})))
        == "controllers are in trouble"
    )
    assert choose(fault(Kind.PAUSE), replace(WELL, is_alone=True)) == "a fault of all controllers lasts"


def test_one_broker_is_in_trouble_at_a_time() -> None:
    """Two of three replicas stay in sync."""
    assert (
        choose(fault(Kind.BROKER_KILL), replace(WELL, in_trouble=frozenset({1}))) == "a broker is in trouble"
    )
    assert choose(fault(Kind.BROKER_KILL), replace(WELL, in_trouble=frozenset({3000, 3001}))) == (0,)
