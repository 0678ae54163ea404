"""The models of `status`, which the operator writes: conditions, observations, plan and refusals.

Everything here can be computed again, except for `clusterId` and `formation`: the identity of the cluster, which is
settled before its first node. Lists are bounded, as objects of the API server are. Times are RFC 3339.
"""

from typing import Annotated, Literal

from pydantic import ConfigDict, Field, WithJsonSchema

from quorate_operator.models.base import AnyObject, ClusterId, Model, NodeId, rules
from quorate_operator.models.exposures import ExposureType
from quorate_operator.models.listeners import LISTENERS_MAX
from quorate_operator.models.security import Protocol

PLAN_STEPS_MAX = 50
REFUSALS_MAX = 20
NODES_MAX = 1000
MESSAGE_LENGTH_MAX = 32_768
"""The longest message of a condition that the API server accepts."""
AUTHORITIES_LENGTH_MAX = MESSAGE_LENGTH_MAX
INVALID_MANIFEST = "InvalidManifest"
"""The reason in conditions and Events of an invalid resource."""
NODE_PROBLEM = "NodeProblem"
"""The reason of Ready while Kubernetes or a process reports why a node does not serve."""
NODES_FAILED = "NodesFailed"
"""The reason of Ready while nodes have crashed or are no longer ready."""
STEP_FAILED = "StepFailed"
"""The reason of Reconciling after an observation or a step that failed, and is tried again."""

ConditionType = Literal[
    "Ready",
    "Reconciling",
    "Stalled",
    "VolumesResizing",
    "VolumesEmptying",
    "ClientsRebootstrap",
    "QuorumHealthy",
    "UpgradeBlocked",
]
"""Reconciling and Stalled are those of kstatus: Flux and others distinguish a change under way from a stalled one."""
_CONDITION_TYPE = {
    "type": "string",
    "maxLength": 316,
    "pattern": "^([a-z0-9]([-a-z0-9.]*[a-z0-9])?/)?[A-Za-z]([A-Za-z0-9_.-]*[A-Za-z0-9])?$",
}
"""As in Kubernetes' own conditions: an operator that is newer than the definitions may write other types."""
Message = Annotated[str, Field(max_length=MESSAGE_LENGTH_MAX)]
_CONDITIONS = {"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["type"]}
_BY_NODE = {"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["nodeId"]}
_BY_NAME = {"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["name"]}
_ATOMIC = {"x-kubernetes-list-type": "atomic"}


class StatusModel(Model):
    """What every part of a status shares: an older operator reads what a newer one wrote."""

    model_config = ConfigDict(extra="ignore", populate_by_name=True)


class Condition(StatusModel):
    """A condition, as Kubernetes' own resources have them."""

    type: Annotated[ConditionType, WithJsonSchema(_CONDITION_TYPE)] = Field(
        description="The type of the condition."
    )
    status: Literal["True", "False", "Unknown"] = Field(description="Whether the condition holds.")
    observed_generation: int | None = Field(
        default=None, description="The metadata.generation that the condition is based on."
    )
    last_transition_time: str = Field(
        description="When the status last changed.", json_schema_extra={"format": "date-time"}
    )
    reason: Annotated[
        str, Field(min_length=1, max_length=1024, pattern=r"^[A-Za-z]([A-Za-z0-9_,:]*[A-Za-z0-9_])?$")
    ] = Field(description="The reason, for programs.")
    message: Message = Field(description="The reason, for people.")


class InitialVoter(StatusModel):
    """A controller whose disk is formatted as one of the first voters."""

    node_id: NodeId = Field(description="The node id of the controller.")
    directory_id: str = Field(description="The directory id of its formatted disk.")


class FormationStatus(StatusModel):
    """The identity that was settled before the first node was created."""

    initial_voters: Annotated[
        tuple[InitialVoter, ...],
        Field(
            strict=False,
            max_length=NODES_MAX,
            json_schema_extra={"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["nodeId"]},
        ),
    ] = Field(default=(), description="The first voters.")
    is_formed: bool = Field(
        default=False,
        description="Whether a leader has been seen. From then on an empty disk joins the quorum.",
    )
    is_static: bool = Field(
        default=False,
        description="Whether it was formed with static voters and has not been seen with dynamic ones.",
    )
    is_rebuilt: bool = Field(
        default=False, description="Whether the quorum was rebuilt from the disk of the only initial voter."
    )
    leader_epoch: int = Field(
        default=0,
        description="The highest leader epoch that was seen, by which spec.recovery names a lost quorum.",
    )


class QuorumStatus(StatusModel):
    """The quorum as its leader describes it."""

    leader_id: int = Field(description="The active controller.")
    epoch: int = Field(description="The leader epoch.")
    high_watermark: int = Field(description="The high watermark of the metadata log.")
    kraft_version: int = Field(description="0: static voters, 1: dynamic voters.")


class VoterStatus(StatusModel):
    """A voter of the metadata quorum."""

    node_id: NodeId = Field(description="The node id of the controller.")
    directory_id: str | None = Field(default=None, description="The directory id of the voter.")
    endpoint: str | None = Field(default=None, description="Its host:port in the voter set.")
    caught_up: bool = Field(default=False, description="Whether it is caught up with the committed log.")
    lag: int | None = Field(
        default=None, description="Its lag behind the leader in records, while it is not caught up."
    )


class RegistrationStatus(StatusModel):
    """A registration of a controller in the metadata log."""

    node_id: NodeId = Field(description="The node id of the controller.")
    ghost: bool = Field(
        default=False, description="Whether the registration is a ghost: its controller no longer exists."
    )
    blocks: str | None = Field(
        default=None, description="The feature and level that it blocks, because it does not support them."
    )


class BrokerStatus(StatusModel):
    """A broker of a pool."""

    node_id: NodeId = Field(description="The node id of the broker.")
    state: str = Field(description="Its state: absent, stopped, starting, ready, unready, crashed.")
    fenced: bool | None = Field(default=None, description="Whether the broker is fenced.")
    replicas: int | None = Field(default=None, description="Number of replicas on the broker.")
    rack: str | None = Field(default=None, description="Its rack.")
    advertised: dict[str, str] = Field(
        default_factory=dict, description="Advertised host:port by listener name."
    )


class ListenerStatus(StatusModel):
    """A listener of a pool of brokers, as clients need it."""

    name: str = Field(description="The name of the listener.")
    protocol: Protocol = Field(description="Its security protocol.")
    type: ExposureType = Field(description="How it is exposed.")
    bootstrap_servers: str | None = Field(
        default=None,
        description=(
            "The bootstrap.servers of clients: a Service in Kubernetes for an Internal listener, else the "
            "addresses of the brokers."
        ),
    )
    addresses: Annotated[
        tuple[str, ...], Field(strict=False, max_length=NODES_MAX, json_schema_extra=_ATOMIC)
    ] = Field(default=(), description="The host:port that each registered broker advertises.")
    authorities: Annotated[str, Field(max_length=AUTHORITIES_LENGTH_MAX)] | None = Field(
        default=None,
        description=(
            "ca.crt of the listener's Secret: the certificates of the authorities that clients have to trust. "
            f"Left out where it has more than {AUTHORITIES_LENGTH_MAX:,} characters."
        ),
    )


class PlanStep(StatusModel):
    """A step that is left to do."""

    step: str = Field(description="The kind of step: AddVoter, StartNode, WaitFor and so on.")
    node_id: int | None = Field(default=None, description="The node; absent for a step of the whole cluster.")
    reason: Message = Field(description="The reason of the step.")
    waits_for: Message | None = Field(
        default=None, description="The condition that must hold before the step is done."
    )


class RefusalStatus(StatusModel):
    """A part of the desired state that is not carried out."""

    code: str = Field(description="The kind of refusal, for programs.")
    message: Message = Field(description="The reason, and what to do.")


class _PoolStatus(StatusModel):
    """What quorums and pools of brokers share."""

    observed_generation: int | None = Field(
        default=None, description="The metadata.generation of the observed spec."
    )
    conditions: Annotated[
        tuple[Condition, ...], Field(strict=False, max_length=16, json_schema_extra=_CONDITIONS)
    ] = Field(
        default=(),
        description="Ready, Reconciling, Stalled, VolumesResizing, VolumesEmptying, "
        "QuorumHealthy, UpgradeBlocked.",
    )
    replicas: int | None = Field(
        default=None, description="Number of nodes that run, for the scale subresource."
    )
    ready_replicas: int | None = Field(default=None, description="Number of ready nodes.")
    selector: str | None = Field(
        default=None, description="The label selector of the pods, for the scale subresource."
    )
    plan: Annotated[
        tuple[PlanStep, ...], Field(strict=False, max_length=PLAN_STEPS_MAX, json_schema_extra=_ATOMIC)
    ] = Field(default=(), description="The remaining steps in order, or the first ones of a long plan.")
    refusals: Annotated[
        tuple[RefusalStatus, ...], Field(strict=False, max_length=REFUSALS_MAX, json_schema_extra=_ATOMIC)
    ] = Field(default=(), description="Parts of the spec that are not carried out.")
    accepted_spec: AnyObject | None = Field(
        default=None,
        description="The last valid spec, while the spec is invalid: it is used in its place.",
    )


class HistoryStatus(StatusModel):
    """What is known of the lake."""

    last_schedule_time: str | None = Field(
        default=None,
        description="When a job last started.",
        json_schema_extra={"format": "date-time"},
    )
    last_ingest_time: str | None = Field(
        default=None,
        description="When everything shipped so far was last in the lake.",
        json_schema_extra={"format": "date-time"},
    )


class KafkaControllerStatus(_PoolStatus):
    """What the operator knows of a quorum."""

    model_config = ConfigDict(
        json_schema_extra=rules(
            {
                "rule": "!has(oldSelf.clusterId) || has(self.clusterId) && self.clusterId == oldSelf.clusterId",
                "message": "clusterId can't be changed or removed once it is set: it is on every disk",
            }
        )
    )

    cluster_id: ClusterId | None = Field(default=None, description="The cluster id, which is on every disk.")
    version: str | None = Field(
        default=None, description="The Kafka version that every node of the quorum runs."
    )
    metadata_version: str | None = Field(default=None, description="The finalized metadata.version.")
    formation: FormationStatus | None = Field(
        default=None, description="The identity of the cluster, stored before the first node starts."
    )
    quorum: QuorumStatus | None = Field(default=None, description="The quorum, while a leader answers.")
    voters: Annotated[
        tuple[VoterStatus, ...], Field(strict=False, max_length=NODES_MAX, json_schema_extra=_BY_NODE)
    ] = Field(default=(), description="The voters, while a leader answers.")
    registrations: Annotated[
        tuple[RegistrationStatus, ...], Field(strict=False, max_length=NODES_MAX, json_schema_extra=_BY_NODE)
    ] = Field(default=(), description="The registered controllers.")
    history: HistoryStatus | None = Field(default=None, description="The history, if the spec has one.")


class KafkaBrokerStatus(_PoolStatus):
    """What the operator knows of a pool of brokers."""

    version: str | None = Field(
        default=None, description="The Kafka version that every broker of the pool runs."
    )
    brokers: Annotated[
        tuple[BrokerStatus, ...], Field(strict=False, max_length=NODES_MAX, json_schema_extra=_BY_NODE)
    ] = Field(default=(), description="The existing and the desired brokers.")
    listeners: Annotated[
        tuple[ListenerStatus, ...],
        Field(strict=False, max_length=LISTENERS_MAX, json_schema_extra=_BY_NAME),
    ] = Field(default=(), description="By which addresses and authorities clients reach the listeners.")
