"""Moves between the log directories of a broker: they even out, and end."""

from collections.abc import Mapping
from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st
from quorate_operator.placement.cluster import ObservedDirectory, PartitionId
from quorate_operator.placement.directories import DirectoryMove, even_directories, incoming_replicas
from quorate_operator.placement.goals import Goals, Mode

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
        source = next(path for path, directory in after.items() if move.partition in directory.replicas)
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
    usable = [
        directory for directory in found.values() if directory.error is None and not directory.is_cordoned
    ]
    held = [sum(directory.replicas.values()) for directory in usable]
    if any(directory.room_bytes is None for directory in usable):
        return sum(size_bytes**2 for size_bytes in held)
    return sum(
        used**2 / max(1, used + (directory.room_bytes or 0))
        for used, directory in zip(held, usable, strict=True)
    )


@given(directories(), st.integers(1, 5))
def test_each_slice_makes_directories_more_even_until_none_is_left(
    before: Directories, at_a_time: int
) -> None:
    for _ in range(ROUNDS_MAX):
        moves = even_directories(Goals(), {7: before})
        if not moves:
            return
        assert moves == even_directories(Goals(), {7: before}), "the same directories give the same plan"
        assert len({move.partition for move in moves}) == len(moves), "a replica moves once"
        after = moved(before, moves[:at_a_time])
        assert unevenness(after) < unevenness(before)
        for path, directory in after.items():
            if before[path].error is not None or before[path].is_cordoned:
                assert directory == before[path]
            assert directory.room_bytes is None or directory.room_bytes >= 0
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
        for plan_directory in even_directories(goals, {1: own})
    ] == [(PartitionId("t", 0), "/2")]
    assert incoming_replicas({1: own}) == 1
    for mode in (Mode.ADD_BROKERS, Mode.REMOVE_BROKERS):
        assert even_directories(Goals(mode=mode, brokers=frozenset({1})), {1: own}) == ()


def test_larger_directories_get_more() -> None:
    """A large volume beside a small one is used."""
    ten = {PartitionId("t", number): 10 for number in range(10)}
    own = {
        "/small": ObservedDirectory(replicas=ten, room_bytes=0),
        "/large": ObservedDirectory(room_bytes=900),
    }
    moves = even_directories(Goals(), {1: own})
    assert {move.target for move in moves} == {"/large"}
    assert len(moves) == 9
