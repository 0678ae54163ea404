"""Moves between the log directories of a broker: they even out, and end."""

from collections.abc import Mapping
from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st
from quorate_operator.planning.cluster import ObservedDirectory, PartitionId
from quorate_operator.rebalancing.cluster import Goals, Mode
from quorate_operator.rebalancing.directories import DirectoryMove, incoming_replicas, plan_directories

ROUNDS_MAX = 50
Directories = Mapping[str, ObservedDirectory]


@st.composite
def directories(draw: st.DrawFn) -> Directories:
    """Directories of a broker with replicas of any size, some of them cordoned or failed."""
    is_room_known = draw(st.booleans())
    found = {}
    for number in range(draw(st.integers(1, 4))):
        sizes = draw(st.lists(st.integers(0, 1000), max_size=12))
        found[f"/{number}"] = ObservedDirectory(
            replicas={PartitionId(f"t{number}", place): size for place, size in enumerate(sizes)},
            room_bytes=draw(st.integers(0, 5000)) if is_room_known else None,
            is_cordoned=draw(st.sampled_from((False, False, False, True))),
            error=draw(st.sampled_from((None, None, None, "KAFKA_STORAGE_ERROR"))),
        )
    return found


def moved(before: Directories, moves: tuple[DirectoryMove, ...]) -> Directories:
    """The directories after the moves."""
    after = dict(before)
    for move in moves:
        source = next(path for path, one in after.items() if move.partition in one.replicas)
        left = {key: size for key, size in after[source].replicas.items() if key != move.partition}
        after[source] = replace(
            after[source], replicas=left, room_bytes=_plus(after[source], move.size_bytes)
        )
        target = after[move.target]
        after[move.target] = replace(
            target,
            replicas={**target.replicas, move.partition: move.size_bytes},
            room_bytes=_plus(target, -move.size_bytes),
        )
    return after


def _plus(directory: ObservedDirectory, size_bytes: int) -> int | None:
    return None if directory.room_bytes is None else directory.room_bytes + size_bytes


def unevenness(found: Directories) -> float:
    """The sum of the squares of what usable directories hold, by their capacities."""
    usable = [one for one in found.values() if one.error is None and not one.is_cordoned]
    held = [sum(one.replicas.values()) for one in usable]
    if any(one.room_bytes is None for one in usable):
        return sum(one**2 for one in held)
    return sum(used**2 / max(1, used + (one.room_bytes or 0)) for used, one in zip(held, usable, strict=True))


@given(directories(), st.integers(1, 5))
def test_each_slice_makes_directories_more_even_until_none_is_left(
    before: Directories, at_a_time: int
) -> None:
    for _ in range(ROUNDS_MAX):
        moves = plan_directories(Goals(), {7: before})
        if not moves:
            return
        assert moves == plan_directories(Goals(), {7: before}), "the same directories give the same plan"
        assert len({move.partition for move in moves}) == len(moves), "a replica moves once"
        after = moved(before, moves[:at_a_time])
        assert unevenness(after) < unevenness(before)
        for path, one in after.items():
            if before[path].error is not None or before[path].is_cordoned:
                assert one == before[path]
            assert one.room_bytes is None or one.room_bytes >= 0
        before = after
    raise AssertionError("the moves don't end")


def test_only_what_the_goals_cover_moves() -> None:
    """Excluded topics and replicas that move already stay; other modes move none."""
    full = {PartitionId("kept", 0): 8, PartitionId("t", 0): 9, PartitionId("t", 1): 10}
    own = {
        "/1": ObservedDirectory(replicas=full),
        "/2": ObservedDirectory(incoming=frozenset({PartitionId("t", 1)})),
    }
    goals = Goals(exclude=("kept",))
    assert [
        (plan_directory.partition, plan_directory.target)
        for plan_directory in plan_directories(goals, {1: own})
    ] == [(PartitionId("t", 0), "/2")]
    assert incoming_replicas({1: own}) == 1
    for mode in (Mode.ADD_BROKERS, Mode.REMOVE_BROKERS):
        assert plan_directories(Goals(mode=mode, brokers=frozenset({1})), {1: own}) == ()


def test_larger_directories_get_more() -> None:
    """A large volume beside a small one is used."""
    ten = {PartitionId("t", number): 10 for number in range(10)}
    own = {
        "/small": ObservedDirectory(replicas=ten, room_bytes=0),
        "/large": ObservedDirectory(room_bytes=900),
    }
    moves = plan_directories(Goals(), {1: own})
    assert {move.target for move in moves} == {"/large"}
    assert len(moves) == 9
