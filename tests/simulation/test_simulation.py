"""Seeds of the simulation, each a cluster of its own kind and its own bad luck."""

from __future__ import annotations

import os
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest
from kit.simulator.__main__ import attempts
from kit.simulator.coverage import OF_AN_OPERATOR, OF_PARTITIONS, OF_ROT, OF_SLICES, Happening
from kit.simulator.scenario import run_seed
from kit.simulator.shape import SHAPES, Schedule, replay_command

SEEDS = range(1, 201)
SLICED_SEEDS = range(1, 21)
LARGE_SEEDS = range(1, 5)
RARE = {
    Happening.REMOVED_REPLICA_ELECTED: 1,
    Happening.KRAFT_VERSION_RAISED: 3,
    Happening.REMOVED_LEADER_LEFT: 5,
    Happening.BROKER_FENCED: 10,
    Happening.QUORUM_LOST: 10,
    Happening.SCHEDULE_DONE: 10,
    **dict.fromkeys(OF_PARTITIONS | OF_SLICES, 3),
    Happening.DIED_WHILE_LOADING: 1,
    Happening.ROT: 10,
    Happening.DIRECTORY_OFFLINE: 5,
    Happening.TOKEN_RENEWED: 10,
    Happening.TOKEN_REMOVED: 10,
    Happening.CREDENTIAL_DELETED: 10,
    Happening.BROKER_UNREGISTERED: 10,
    Happening.METADATA_VERSION_CHANGED: 10,
    Happening.GIANT_TOPIC: 2,
    Happening.JAVA_LIKE_LEADER: 10,
}
"""What has to come together from several chances happens less often than the rest."""
TIMES_MIN = 30
RUNS_WITHOUT_QUORUM_MAX = 10

HISTORY = """
from kit.simulator.scenario import run_seed
scenario = run_seed(7)
world = scenario.world
print(scenario.faults.history, world.steps, world.now_ms, scenario.administrator.promises())
print([(happening.name, world.coverage.counts[happening]) for happening in type(next(iter(world.coverage.counts)))])
print([(node.node_id, node.raft.epoch, node.raft.log_end_offset) for node in world.alive])
"""


@pytest.mark.parametrize("first", range(1, 41, 5))
def test_seeds_keep_all_promises(first: int) -> None:
    """No seed breaks an invariant or loses an acknowledged change."""
    failures = [result.failure for result in attempts(range(first, first + 5), 1) if result.failure]
    assert not failures, "\n".join(failures)


@pytest.mark.parametrize("name", ["partitions", "slices", "mixed"])
def test_seeds_of_other_shapes_keep_all_promises(name: str) -> None:
    """Partitions that are kept busy, long work in small slices and peers with other timings break nothing."""
    failures = [result.failure for result in attempts(range(1, 5), 1, SHAPES[name]) if result.failure]
    assert not failures, "\n".join(failures)


@pytest.mark.parametrize("schedule", Schedule)
def test_a_directed_schedule_does_no_harm(schedule: Schedule) -> None:
    """The seeds that find planted mistakes find nothing without them, and do not go stale."""
    scenarios = [run_seed(seed, SHAPES[schedule.value](seed)) for seed in (1, 2)]
    assert all(scenario.world.coverage.counts[Happening.SCHEDULE_DONE] for scenario in scenarios)


def test_each_run_has_the_command_that_replays_it() -> None:
    commands = {name: replay_command(1, shape_of(1)) for name, shape_of in SHAPES.items()}
    assert commands.pop("chance") == "make simulate SEED=1"
    assert commands == {name: f"make simulate SEED=1 SHAPE={name}" for name in commands}


@pytest.mark.timeout(900)
def test_seeds_keep_all_promises_and_try_everything() -> None:
    """No seed breaks an invariant or loses an acknowledged change, and what was tried is not little."""
    cores = os.cpu_count() or 1
    results = [
        *attempts(SEEDS, cores),
        *attempts(SLICED_SEEDS, cores, SHAPES["slices"]),
        *attempts(LARGE_SEEDS, cores, SHAPES["large"]),
    ]
    failures = [result.failure for result in results if result.failure]
    assert not failures, "\n".join(failures[:3])
    counts: Counter[Happening] = Counter()
    for result in results:
        counts.update(result.counts)
    assert counts.pop(Happening.RUN_WITHOUT_QUORUM, 0) <= RUNS_WITHOUT_QUORUM_MAX
    wanted = {
        happening: RARE.get(happening, TIMES_MIN)
        for happening in Happening
        if happening not in OF_AN_OPERATOR | OF_ROT
    }
    del wanted[Happening.RUN_WITHOUT_QUORUM], wanted[Happening.APPENDS_LOST_UNCLEANLY]
    missed = {
        happening.value: counts[happening] for happening in wanted if counts[happening] < wanted[happening]
    }
    assert not missed, f"hardly happened: {missed}"


def test_a_seed_repeats_itself_in_another_process() -> None:
    def history(hash_seed: str) -> str:
        environment = os.environ | {"PYTHONHASHSEED": hash_seed, "PYTHONPATH": str(Path(__file__).parents[1])}
        return subprocess.run(
            (sys.executable, "-c", HISTORY), env=environment, capture_output=True, text=True, check=True
        ).stdout

    assert history("1") == history("2")
