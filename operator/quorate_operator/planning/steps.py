"""The steps that a plan consists of, each with its reason.

A runtime applies a `RuntimeAction`; the gateway applies a `KafkaAction` by an RPC. Each can be applied again, also
after an interrupted attempt, with the same result: an operator may be killed at any time. `node_id` is None for
steps of the whole cluster.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from itertools import takewhile
from typing import NamedTuple

from quorate_operator.models.base import listed_texts
from quorate_operator.placement.cluster import PartitionId
from quorate_operator.planning.cluster import Address, Role

NAMED_MAX = 5
"""How many names a message has."""


class StepError(Exception):
    """A step of a plan failed. The message names the node or the object, and the reason."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _NodeStep:
    node_id: int
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class _ClusterStep:
    reason: str

    @property
    def node_id(self) -> None:
        """Is None: the step concerns the cluster."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FormCluster(_ClusterStep):
    """Settle the cluster id and the first voters' directory ids, and store them before any disk exists."""

    node_ids: tuple[int, ...]
    cluster_id: str | None
    """The one that the manifest asks for; None for a new one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CreateNode(_NodeStep):
    """Create the node's volume, configuration and formatted storage. The node is not started.

    `is_initial`: formatted as one of the first voters (`Formation.initial_voters`); otherwise it joins as an
    observer with a new directory id.
    """

    is_initial: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class StartNode(_NodeStep):
    """Start the process of a node that has its storage, with the desired revision and these advertised addresses."""

    advertised: Mapping[str, Address] = field(default_factory=dict)
    """By listener name; a listener that is not named advertises what is desired."""
    beside: int | None = None
    """Of a broker, the controller that runs in its pod; a StartNode of that one comes before."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StopNode(_NodeStep):
    """Ask the node's process to end, and kill it after `grace_ms`."""

    grace_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class _VolumeStep(_NodeStep):
    volume_id: int


@dataclass(frozen=True, slots=True, kw_only=True)
class CreateVolume(_VolumeStep):
    """Create another volume for a node that has its first one. The node uses it from its next start on."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GrowVolume(_VolumeStep):
    """Request the desired size for a node's volume. The node may run meanwhile."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReleaseVolume(_VolumeStep):
    """Store that the node's next start is without this volume, which is empty. The volume stays."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DeleteVolume(_NodeStep):
    """Delete the volumes, or directories, of a stopped node; or one that the node does not use any more."""

    volume_id: int | None = None
    """The volume; None for all of the node."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplaceVolumes(_NodeStep):
    """Delete the volumes of a node, also while it runs: they go when it stops, and its next start has new ones."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ForgetNode(_NodeStep):
    """Remove what is left of a node that has left, except for its volume: Services, configuration, its record."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RebuildQuorum(_NodeStep):
    """Make a stopped controller the only voter, from its own disk. What other disks have beyond it is lost.

    Requires `spec.recovery`, which names the survivor. The result is stored as the cluster's `Formation`.
    """

    above_epoch: int = 0
    """The highest leader epoch that was seen: that of the rebuilt quorum is above it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PublishAddress(_NodeStep):
    """Point an address at a node's listener. Refused while it points at another node."""

    address: Address
    listener: str


@dataclass(frozen=True, slots=True, kw_only=True)
class RetireAddress(_NodeStep):
    """Store that no node advertises the address any more. It keeps pointing at its node."""

    address: Address


@dataclass(frozen=True, slots=True, kw_only=True)
class WithdrawAddress(_NodeStep):
    """Withdraw the address: it points at no node any more."""

    address: Address


RuntimeAction = (
    FormCluster
    | CreateNode
    | StartNode
    | StopNode
    | CreateVolume
    | GrowVolume
    | ReleaseVolume
    | DeleteVolume
    | ReplaceVolumes
    | ForgetNode
    | RebuildQuorum
    | PublishAddress
    | RetireAddress
    | WithdrawAddress
)


@dataclass(frozen=True, slots=True, kw_only=True)
class AddVoter(_NodeStep):
    """Make a caught-up observer a voter (KIP-853, AddRaftVoter)."""

    directory_id: str
    endpoints: Mapping[str, Address]


@dataclass(frozen=True, slots=True, kw_only=True)
class RemoveVoter(_NodeStep):
    """Take a voter out of the voter set (KIP-853, RemoveRaftVoter). A leader resigns once that is committed."""

    directory_id: str


@dataclass(frozen=True, slots=True, kw_only=True)
class UnregisterController(_NodeStep):
    """Remove the registration of a controller that is gone (KIP-1312; from metadata.version 33)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RefreshRegistration(_NodeStep):
    """Re-register a controller that is gone with the cluster's feature ranges and no endpoints.

    A ghost then blocks no upgrade; see ADR 9. Refused while the node is alive.
    """


@dataclass(frozen=True, slots=True, kw_only=True)
class UnregisterBroker(_NodeStep):
    """Remove the registration of a broker that is gone and holds no replica."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FinalizeFeature(_ClusterStep):
    """Set the finalized level of a feature (UpdateFeatures); a lower one is a safe downgrade or is refused."""

    feature: str
    level: int
    is_downgrade: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class ReassignPartitions(_NodeStep):
    """Give partitions new replicas (KIP-455); an empty tuple cancels what is under way for the partition."""

    node_id: int
    """The broker that is drained, or -1."""
    targets: Mapping[PartitionId, tuple[int, ...]]


@dataclass(frozen=True, slots=True, kw_only=True)
class SetThrottles(_ClusterStep):
    """Set or remove the throttles of replicas that move."""

    rates: Mapping[int, int | None]
    """Bytes per second by broker, for what it sends and for what it receives; None removes them."""
    topics: Mapping[str, tuple[str, str]]
    """The replicas that send and those that receive, by topic; an empty text removes the config."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ElectPreferredLeaders(_ClusterStep):
    """Have preferred replicas lead again after a roll (ElectLeaders); all partitions."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SetLogLevels(_NodeStep):
    """Set levels of a running node's loggers (KIP-412, KIP-919), by name; no restart."""

    levels: Mapping[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class CordonDirectories(_NodeStep):
    """Have a running broker put no new replicas into these log directories, and into all others (KIP-1066)."""

    directories: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class MoveBetweenDirectories(_NodeStep):
    """Move replicas of a running broker to other log directories of it (KIP-113), by path."""

    targets: Mapping[PartitionId, str]


KafkaAction = (
    AddVoter
    | RemoveVoter
    | UnregisterController
    | RefreshRegistration
    | UnregisterBroker
    | FinalizeFeature
    | ReassignPartitions
    | SetThrottles
    | ElectPreferredLeaders
    | SetLogLevels
    | CordonDirectories
    | MoveBetweenDirectories
)


@dataclass(frozen=True, slots=True, kw_only=True)
class WaitFor:
    """No later step may be applied before `reason` holds. Time alone changes that at `until_ms`, if set."""

    reason: str
    node_ids: tuple[int, ...] = ()
    until_ms: int | None = None
    code: str = ""
    """The reason in conditions of a wait that is not usual; empty for others."""
    is_stalled: bool = False
    """Whether it waits for a change by the user, and has waited for a while. It has a code."""


STARTS_LONG = "StartTakesLong"
"""The code of a wait for a process that began long ago and has not served yet."""
ROLLOUT_BLOCKED = "RolloutBlocked"
"""The code of a wait that ends only if a user does something."""


def wait_for(reason: str, *node_ids: int, until_ms: int | None = None, code: str = "") -> WaitFor:
    """Return a wait of these nodes, or of the whole cluster."""
    return WaitFor(reason=reason, node_ids=node_ids, until_ms=until_ms, code=code)


class Refusal(NamedTuple):
    """A request that is not carried out: why, and what to do. The rest of the plan continues."""

    code: str
    """For programs and conditions: `UnsafeDowngrade`, `TooFewBrokers`, `UpgradeBlocked`, `QuorumLost` ..."""
    message: str
    pool: str | None = None
    """The quorum or pool that it is about; None if it is about the cluster."""


class Postponed(NamedTuple):
    """A restart that waits for a maintenance window. It is no step: until then, the cluster counts as reconciled."""

    node_id: int
    reason: str
    until_ms: int


Action = RuntimeAction | KafkaAction
Step = Action | WaitFor


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """The remaining steps in order. It is not stored, but computed from each observation."""

    steps: tuple[Step, ...]
    refusals: tuple[Refusal, ...] = ()
    postponed: tuple[Postponed, ...] = ()

    @property
    def due(self) -> tuple[Action, ...]:
        """The actions before the first wait. Those of different nodes may be applied at the same time."""
        front = takewhile(lambda step: not isinstance(step, WaitFor), self.steps)
        return tuple(step for step in front if not isinstance(step, WaitFor))

    @property
    def waits(self) -> tuple[WaitFor, ...]:
        return tuple(step for step in self.steps if isinstance(step, WaitFor))

    @property
    def is_stalled(self) -> bool:
        """Whether there are steps, and all of them wait for the user."""
        return bool(self.steps) and all(isinstance(step, WaitFor) and step.is_stalled for step in self.steps)

    @property
    def look_again_at_ms(self) -> int | None:
        """The earliest time at which time alone changes the plan, or None."""
        times = [wait.until_ms for wait in self.waits if wait.until_ms is not None]
        return min((*times, *(restart.until_ms for restart in self.postponed)), default=None)


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """`due` may be done now. `rest` begins with a wait; the steps after it are those known so far."""

    due: tuple[Action, ...] = ()
    rest: tuple[Step, ...] = ()
    refusals: tuple[Refusal, ...] = ()
    postponed: tuple[Postponed, ...] = ()


def merge(parts: Iterable[Part]) -> Part:
    """Return several parts as one, in their order."""
    parts = tuple(parts)
    return Part(
        due=tuple(action for part in parts for action in part.due),
        rest=tuple(step for part in parts for step in part.rest),
        refusals=tuple(refusal for part in parts for refusal in part.refusals),
        postponed=tuple(restart for part in parts for restart in part.postponed),
    )


def labels(role: Role, node_ids: Iterable[int]) -> str:
    """Return `controller-3000, controller-3001`."""
    return ", ".join(role.label(node_id) for node_id in node_ids)


def listed(node_ids: Iterable[int]) -> str:
    """Return `3000, 3001 and 3002`, or `none`."""
    return listed_texts([str(node_id) for node_id in node_ids])


def some_of(names: Sequence[str], count: int | None = None) -> str:
    """Return `a, b and 3 more`: the first NAMED_MAX names, and how many others `count`, or all names, has."""
    more = (len(names) if count is None else count) - len(names[:NAMED_MAX])
    return ", ".join(names[:NAMED_MAX]) + (f" and {more} more" if more > 0 else "")


def utc_text(time_ms: int) -> str:
    """Return `2026-11-28 22:00 UTC` of Unix milliseconds."""
    return f"{datetime.fromtimestamp(time_ms / 1000, UTC):%Y-%m-%d %H:%M} UTC"


def format_bytes(size_bytes: int) -> str:
    """`3.1 GiB`."""
    size = float(size_bytes)
    for unit in ("B", "KiB", "MiB", "GiB"):
        if size < 1024:
            return f"{size:.0f} {unit}" if unit == "B" else f"{size:.1f} {unit}"
        size /= 1024
    return f"{size:.1f} TiB"
