"""The steps a plan is made of. Each says what is done, to which node, and why.

There are steps that a runtime does (`RuntimeAction`) and steps that Kafka's RPCs do (`KafkaAction`, by the gateway).
Each can be done again after it was done, or half done, with the same result: an operator may be killed in it.
`node_id` is None for those that concern the cluster.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import takewhile
from typing import NamedTuple

from quorate_operator.planning.cluster import Address, PartitionId


class StepError(Exception):
    """A step of a plan failed. The message names the node or the object, and the reason."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FormCluster:
    """Settle the cluster id and the directory ids of the first voters, and write them down before anything else."""

    node_ids: tuple[int, ...]
    cluster_id: str | None
    """The one that the manifest asks for; None for a new one."""
    reason: str

    @property
    def node_id(self) -> None:
        """It concerns the cluster."""
        return


@dataclass(frozen=True, slots=True, kw_only=True)
class CreateNode:
    """Give the node its volume, its configuration and its formatted storage. It is not started by this.

    `is_initial`: formatted as one of the first voters (`Formation.initial_voters`); otherwise it joins as an
    observer with a new directory id.
    """

    node_id: int
    reason: str
    is_initial: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class StartNode:
    """Start the process of a node that has its storage, as it is desired now, with these advertised addresses."""

    node_id: int
    reason: str
    advertised: Mapping[str, Address] = field(default_factory=dict)
    """By listener name; a listener that is not named advertises what is desired."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StopNode:
    """Ask the node's process to leave, and end it when it is still there after `grace_ms`."""

    node_id: int
    reason: str
    grace_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class DeleteVolume:
    """Delete the volume, or directory, of a node that runs no more."""

    node_id: int
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ForgetNode:
    """Remove what is left of a node that has gone, its volume apart: Services, configuration, its record."""

    node_id: int
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class RebuildQuorum:
    """Make a stopped controller the only voter, from its own disk: what only it has is kept, the others' is lost.

    Only by the explicit annotation that names the survivor. Written down as the cluster's `Formation`.
    """

    node_id: int
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class PublishAddress:
    """Point an address at a node's listener. It is refused while it points at another node."""

    address: Address
    node_id: int
    listener: str
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class RetireAddress:
    """Write down that no node advertises the address any more. It goes on pointing at its node."""

    address: Address
    node_id: int
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class WithdrawAddress:
    """Withdraw the address: it points at no node from then on."""

    address: Address
    node_id: int
    reason: str


RuntimeAction = (
    FormCluster
    | CreateNode
    | StartNode
    | StopNode
    | DeleteVolume
    | ForgetNode
    | RebuildQuorum
    | PublishAddress
    | RetireAddress
    | WithdrawAddress
)


@dataclass(frozen=True, slots=True, kw_only=True)
class AddVoter:
    """Make a caught-up observer a voter (KIP-853, AddRaftVoter)."""

    node_id: int
    directory_id: str
    endpoints: Mapping[str, Address]
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class RemoveVoter:
    """Take a voter out of the voter set (KIP-853, RemoveRaftVoter). A leader resigns once that is committed."""

    node_id: int
    directory_id: str
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class UnregisterController:
    """Remove the registration of a controller that is gone (KIP-1312; from metadata.version 33)."""

    node_id: int
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class RefreshRegistration:
    """Re-register a controller that is gone with the cluster's feature ranges and no endpoints.

    A ghost then blocks no upgrade; see ADR 9. Refused while the node is alive.
    """

    node_id: int
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class UnregisterBroker:
    """Remove the registration of a broker that is gone and holds no replica."""

    node_id: int
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class FinalizeFeature:
    """Set the finalized level of a feature (UpdateFeatures); a lower one is a safe downgrade or is refused."""

    feature: str
    level: int
    reason: str
    is_downgrade: bool = False

    @property
    def node_id(self) -> None:
        """It concerns the cluster."""
        return


@dataclass(frozen=True, slots=True, kw_only=True)
class ReassignPartitions:
    """Give partitions new replicas (KIP-455); an empty tuple cancels what is under way for the partition."""

    node_id: int
    """The broker that is drained, or -1."""
    targets: Mapping[PartitionId, tuple[int, ...]]
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ElectPreferredLeaders:
    """Have preferred replicas lead again after a roll (ElectLeaders); all partitions."""

    reason: str

    @property
    def node_id(self) -> None:
        """It concerns the cluster."""
        return


KafkaAction = (
    AddVoter
    | RemoveVoter
    | UnregisterController
    | RefreshRegistration
    | UnregisterBroker
    | FinalizeFeature
    | ReassignPartitions
    | ElectPreferredLeaders
)


@dataclass(frozen=True, slots=True, kw_only=True)
class WaitFor:
    """Nothing after this may be done before `reason` holds; time alone changes that at `until_ms`, if set."""

    reason: str
    node_ids: tuple[int, ...] = ()
    until_ms: int | None = None


class Refusal(NamedTuple):
    """Something that was asked for and is not done: why, and the way out. The rest of the plan goes on."""

    code: str
    """For programs and conditions: `UnsafeDowngrade`, `TooFewBrokers`, `UpgradeBlocked`, `QuorumLost` ..."""
    message: str


Action = RuntimeAction | KafkaAction
Step = Action | WaitFor


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """What is left to do, in order. Nothing of it is stored: it is computed again from what is observed."""

    steps: tuple[Step, ...]
    refusals: tuple[Refusal, ...] = ()

    @property
    def due(self) -> tuple[Action, ...]:
        """The actions in front of the first wait. Those of different nodes may be done at the same time."""
        front = takewhile(lambda step: not isinstance(step, WaitFor), self.steps)
        return tuple(step for step in front if not isinstance(step, WaitFor))

    @property
    def waits(self) -> tuple[WaitFor, ...]:
        """What is waited for."""
        return tuple(step for step in self.steps if isinstance(step, WaitFor))

    @property
    def look_again_at_ms(self) -> int | None:
        """When time alone changes the plan, or None."""
        return min((wait.until_ms for wait in self.waits if wait.until_ms is not None), default=None)
