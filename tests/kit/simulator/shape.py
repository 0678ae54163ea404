"""What kind of cluster a seed makes, and how its machines differ from each other."""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import Enum
from functools import partial
from random import Random
from typing import TYPE_CHECKING, Final

from kit.simulator.wire import DYNAMIC_RELEASES, RELEASES, Release
from quorate_protocol.features import (
    FEATURES,
    KRAFT_VERSION,
    METADATA_VERSION_MAX,
    METADATA_VERSION_MIN,
    METADATA_VERSION_OF_NEW_CLUSTERS,
)

if TYPE_CHECKING:
    from collections.abc import Callable

ELECTION_TIMEOUT_MS: Final = 1000
SHORT_ELECTION_TIMEOUT_MS: Final = 300
ELECTION_BACKOFF_MS_MAX: Final = 1000
DIRECTED: Final = 0.1
"""How many of all clusters are broken by a directed schedule."""
MIXED: Final = 0.1
"""How many of the rest have controllers that keep time as Java's."""
SLOW: Final = 0.2
"""How many of all have slow processors."""
SLOWNESS: Final = (10, 100)
"""At 100, a row that is written takes 2 ms, as a thousandth of a large topic does elsewhere."""
OF_PARTITIONS: Final = 0.15
"""How many of the others have brokers that work on partitions."""
OTHER_LEVEL: Final = 0.3
"""How many have another metadata.version at first than new clusters."""
FETCH_BYTES_MAX: Final = (1000, 1 << 20, 1 << 20)
ONE_BATCH_BYTES_MAX: Final = 200
"""A follower gets batch after batch, and stands between two of them for a while."""
MACHINES: Final = 5
"""The number of machines of a quorum that an operator runs."""
DRIFT_PPM_MAX: Final = 20_000
"""Clocks run apart by up to two percent: far more than quartz does, and timeouts still have to be right."""


class Schedule(Enum):
    """The directed schedules of faults; `schedules` says what each does."""

    OLD_EPOCH = "old-epoch"
    RIVAL_CHANGES = "rival-changes"
    DOUBLE_CHANGE = "double-change"


@dataclass(frozen=True, slots=True, kw_only=True)
class Shape:
    """Voters and observers are controllers; `releases` and `drifts_ppm` have one entry for each of them."""

    voters: int
    observers: int = 0
    brokers: int
    is_dynamic: bool
    is_stormy: bool = False
    """Elections hardly end before the next fault: slow messages, quick reboots, voters that die as they vote."""
    election_timeout_ms: int = ELECTION_TIMEOUT_MS
    election_backoff_ms_max: int = ELECTION_BACKOFF_MS_MAX
    """The longest random pause before candidates stand again after a split vote."""
    fetch_bytes_max: int
    """What one response carries of a log or a snapshot: little, so that it takes several, or all of it."""
    auto_join: bool = False
    is_wired: bool
    """Whether messages between controllers pass through the codec, in the versions both ends speak."""
    releases: tuple[Release, ...]
    drifts_ppm: tuple[int, ...]
    sizes: tuple[int, ...] = ()
    """How many voters an operator makes of them, one size after the other; none: no operator, chance alone."""
    works_on_partitions: bool = False
    """Whether brokers lead partitions of several replicas and report their ISRs, and an operator reassigns them."""
    is_sliced: bool = False
    """Whether long work is cut into slices so small that everything else comes in between."""
    java_like: frozenset[int] = frozenset()
    """Which of the machines keep time as Java's controllers do."""
    slow: frozenset[int] = frozenset()
    """Which of the machines take `slowness` times as long for their turns."""
    slowness: int = 1
    giant_partitions: int = 0
    """The size of a topic that comes and goes, in a cluster whose brokers live longer; 0: no such topic."""
    rots: bool = False
    """Whether bits of files turn all the time."""
    schedule: Schedule | None = None
    """The order in which things break; None: chance alone."""
    metadata_version: int = METADATA_VERSION_OF_NEW_CLUSTERS
    """The level of metadata.version that the disks are formatted with."""

    @classmethod
    def of(cls, seed: int) -> Shape:
        """Draw a cluster. Apart from the world's chance, so that a shape can be set while the rest stays."""
        schedules = Random(f"schedule of {seed}")
        if schedules.random() < DIRECTED:
            return cls.directed(seed, schedules.choice(list(Schedule)))
        if schedules.random() < OF_PARTITIONS:
            return cls.partitions(seed, is_sliced=schedules.random() < 0.5)
        rng = Random(f"shape of {seed}")
        is_dynamic = rng.random() < 0.7
        voters = rng.choice((1, 2, 3, 3, 3, 4, 5))
        # A controller of a static quorum is one of its voters, or it does not start.
        observers = rng.choice((0, 0, 0, 1, 1, 2, 3, 4, 5)) if is_dynamic else 0
        is_stormy = rng.random() < 0.25
        releases = _releases(rng, voters + observers, is_dynamic=is_dynamic)
        shape = cls(
            voters=voters,
            observers=observers,
            brokers=rng.randint(0, 2),
            is_dynamic=is_dynamic,
            is_stormy=is_stormy,
            election_timeout_ms=SHORT_ELECTION_TIMEOUT_MS if is_stormy else ELECTION_TIMEOUT_MS,
            election_backoff_ms_max=rng.choice((50, 1000)) if is_stormy else ELECTION_BACKOFF_MS_MAX,
            auto_join=is_dynamic and rng.random() < 0.3,
            is_wired=min(releases) < max(RELEASES) or rng.random() < 0.1,
            releases=releases,
            drifts_ppm=_drifts(rng, voters + observers),
            fetch_bytes_max=rng.choice(FETCH_BYTES_MAX),
        )
        shape = shape._mixed(rng) if schedules.random() < MIXED else shape
        shape = shape._slowed(schedules) if schedules.random() < SLOW else shape
        return shape._of_another_level(seed)

    def _of_another_level(self, seed: int) -> Shape:
        """The same or, for some seeds, a cluster of another level of metadata.version."""
        rng = Random(f"level of {seed}")
        if rng.random() >= OTHER_LEVEL:
            return self
        lowest = FEATURES[KRAFT_VERSION].default_since[1] if self.is_dynamic else METADATA_VERSION_MIN
        return replace(self, metadata_version=rng.randint(lowest, METADATA_VERSION_MAX))

    def _slowed(self, rng: Random) -> Shape:
        """The same with slow processors in some machines, or in all."""
        machines = self.voters + self.observers
        slow = rng.sample(range(machines), rng.randint(1, machines))
        return replace(self, slow=frozenset(slow), slowness=rng.choice(SLOWNESS))

    @classmethod
    def mixed(cls, seed: int) -> Shape:
        """Three to five voters, some of which keep time as Java's; of some an operator changes the voters."""
        rng = Random(f"mixed of {seed}")
        if rng.random() < 0.3:
            return cls.membership(seed)._mixed(rng)
        voters = rng.choice((3, 3, 4, 5))
        is_dynamic = rng.random() < 0.7
        return cls(
            voters=voters,
            brokers=rng.randint(0, 2),
            is_dynamic=is_dynamic,
            fetch_bytes_max=rng.choice(FETCH_BYTES_MAX),
            is_wired=True,
            releases=_releases(rng, voters, is_dynamic=is_dynamic),
            drifts_ppm=_drifts(rng, voters),
        )._mixed(rng)

    def _mixed(self, rng: Random) -> Shape:
        """The same with some machines of the other kind, which speak through the codec; not all of several."""
        machines = self.voters + self.observers
        java_like = rng.sample(range(machines), rng.randint(1, max(1, machines - 1)))
        return replace(self, java_like=frozenset(java_like), is_wired=True)

    @classmethod
    def partitions(cls, seed: int, *, is_sliced: bool = False) -> Shape:
        """A usual quorum, and brokers that keep their partitions busy."""
        rng = Random(f"{'slices' if is_sliced else 'partitions'} of {seed}")
        voters = rng.choice((1, 3, 3, 5))
        return cls(
            voters=voters,
            brokers=rng.randint(3, 4),
            is_dynamic=rng.random() < 0.7,
            fetch_bytes_max=rng.choice(FETCH_BYTES_MAX),
            is_wired=rng.random() < 0.1,
            releases=(max(RELEASES),) * voters,
            drifts_ppm=_drifts(rng, voters),
            works_on_partitions=True,
            is_sliced=is_sliced,
        )._of_another_level(seed)

    @classmethod
    def membership(cls, seed: int) -> Shape:
        """Five controllers, of which an operator makes more and fewer voters while things break. Some begin as a
        static quorum of three, which has to become a dynamic one first.
        """
        rng = Random(f"membership of {seed}")
        is_dynamic = rng.random() < 0.6
        voters = rng.choice((1, 3)) if is_dynamic else 3
        sizes = {1: ((3, 5, 3),), 3: ((5, 3), (1, 3), (5, 1, 3))}[voters]
        # Directory ids, which distinguish a replaced disk from the lost one, came with KIP-853.
        releases = _releases(rng, MACHINES, is_dynamic=True)
        return cls(
            voters=voters,
            observers=MACHINES - voters,
            brokers=rng.randint(0, 1),
            is_dynamic=is_dynamic,
            fetch_bytes_max=rng.choice(FETCH_BYTES_MAX),
            is_wired=min(releases) < max(RELEASES) or rng.random() < 0.1,
            releases=releases,
            drifts_ppm=_drifts(rng, MACHINES),
            sizes=rng.choice(sizes),
        )

    @classmethod
    def directed(cls, seed: int, schedule: Schedule) -> Shape:
        """As many voters as the schedule needs, and little that could come between its steps."""
        rng = Random(f"{schedule.value} of {seed}")
        is_dynamic = schedule is not Schedule.OLD_EPOCH or rng.random() < 0.5
        voters = 4 if schedule is Schedule.RIVAL_CHANGES else rng.choice((3, 3, 5))
        return cls(
            voters=voters,
            brokers=rng.randint(0, 1),
            is_dynamic=is_dynamic,
            election_timeout_ms=SHORT_ELECTION_TIMEOUT_MS,
            election_backoff_ms_max=50,
            fetch_bytes_max=ONE_BATCH_BYTES_MAX,
            is_wired=rng.random() < 0.1,
            releases=(max(RELEASES),) * voters,
            drifts_ppm=_drifts(rng, voters),
            schedule=schedule,
        )

    @classmethod
    def rotten(cls, seed: int) -> Shape:
        """Three or five voters, whose files rot while they are down."""
        rng = Random(f"rot of {seed}")
        voters = rng.choice((3, 3, 5))
        return cls(
            voters=voters,
            brokers=1,
            is_dynamic=rng.random() < 0.5,
            fetch_bytes_max=rng.choice(FETCH_BYTES_MAX),
            is_wired=False,
            releases=(max(RELEASES),) * voters,
            drifts_ppm=_drifts(rng, voters),
            rots=True,
        )

    @classmethod
    def large(cls, seed: int) -> Shape:
        """Three voters, hundreds of brokers, and a topic of tens of thousands of partitions."""
        rng = Random(f"large of {seed}")
        voters = 3
        return cls(
            voters=voters,
            brokers=300,
            is_dynamic=rng.random() < 0.5,
            fetch_bytes_max=max(FETCH_BYTES_MAX),
            is_wired=False,
            releases=(max(RELEASES),) * voters,
            drifts_ppm=_drifts(rng, voters),
            giant_partitions=20_000,
        )

    @classmethod
    def storm(cls, seed: int) -> Shape:
        """Three static voters of a release that knows no pre-vote, so that rivals stand often, and stand for the
        vote of the third: what a vote that is given twice needs to do harm.
        """
        rng = Random(f"storm of {seed}")
        voters = 3
        return cls(
            voters=voters,
            brokers=0,
            is_dynamic=False,
            is_stormy=True,
            election_timeout_ms=SHORT_ELECTION_TIMEOUT_MS,
            election_backoff_ms_max=50,
            fetch_bytes_max=max(FETCH_BYTES_MAX),
            is_wired=True,
            releases=(Release.KAFKA_3_9,) * voters,
            drifts_ppm=_drifts(rng, voters),
        )


def _releases(rng: Random, machines: int, *, is_dynamic: bool) -> tuple[Release, ...]:
    """All of the newest release, or in the middle of a rolling upgrade."""
    if rng.random() < 0.7:
        return (max(RELEASES),) * machines
    choices = sorted(DYNAMIC_RELEASES if is_dynamic else RELEASES)
    pair = rng.sample(choices, 2)
    return tuple(rng.choice(pair) for _ in range(machines))


def _drifts(rng: Random, machines: int) -> tuple[int, ...]:
    if rng.random() < 0.5:
        return (0,) * machines
    return tuple(rng.randint(-DRIFT_PPM_MAX, DRIFT_PPM_MAX) for _ in range(machines))


SHAPES: Final[dict[str, Callable[[int], Shape]]] = {
    "chance": Shape.of,
    "membership": Shape.membership,
    "storm": Shape.storm,
    "rot": Shape.rotten,
    "large": Shape.large,
    "mixed": Shape.mixed,
    "partitions": Shape.partitions,
    "slices": partial(Shape.partitions, is_sliced=True),
    **{schedule.value: partial(Shape.directed, schedule=schedule) for schedule in Schedule},
}
"""All kinds of runs by the names that the command line knows. Those of chance contain some of the others."""


def replay_command(seed: int, shape: Shape) -> str:
    """The command that runs a seed again."""
    name = next((name for name, shape_of in SHAPES.items() if shape_of(seed) == shape), "of its own")
    return f"make simulate SEED={seed}" + ("" if name == "chance" else f" SHAPE={name}")
