"""The vocabulary of the control package: input and result of a decision, and the ports between its parts.

A manager *decides*: it reads the metadata image, its soft state and one request, and returns a
`ControlResult`. It never changes the image. The node appends the records, replays them into the image
at once (so that the next decision sees them), and sends the response when they are committed. What was
replayed reaches the managers through `observe`.
"""

from collections.abc import Generator, Iterable, Mapping, Sequence
from dataclasses import field
from typing import TYPE_CHECKING, Any, Final, Protocol
from uuid import UUID

from quorate_protocol.errors import ErrorCode
from quorate_protocol.kafka.enums import SecurityProtocol
from quorate_protocol.plain_data import dataclass

from quorate_controller.security.access import UNRESTRICTED, Access
from quorate_controller.unix_time import UnixTime, unchanged

if TYPE_CHECKING:
    from quorate_protocol.kafka.generated.create_topics_response import CreatableTopicConfigs
    from quorate_protocol.records.framing import MetadataRecord

RECORDS_PER_BATCH_MAX: Final = 10_000
"""Kafka's QuorumController.MAX_RECORDS_PER_BATCH: an atomic result may not have more records than this."""

ANONYMOUS: Final = "User:ANONYMOUS"
"""The principal of a connection that has not authenticated."""

STEP_PAUSE_MS: Final = 1
"""From one step of a long task to the next: it belongs to a later turn, after others' events and their answers."""


class ControlError(Exception):
    """A request, or one item of it, that is refused: the error code and text that go into the response."""

    def __init__(self, error_code: ErrorCode, message: str = "") -> None:
        self.error_code = error_code
        self.message = message or error_code.name
        super().__init__(self.message)


def invalid_request(message: str) -> ControlError:
    """Return the error of a request, or of one item of it, with INVALID_REQUEST."""
    return ControlError(ErrorCode.invalid_request, message)


def check_number_of_records(number: int) -> None:
    """Check that one batch can hold the records of a request.

    Raises:
        ControlError: POLICY_VIOLATION for more than 10,000.
    """
    if number > RECORDS_PER_BATCH_MAX:
        raise ControlError(ErrorCode.policy_violation, "Unable to perform excessively large batch operation.")


def may_exceed_batch(number: int) -> bool:
    """Return whether a request with this many possible records has to be counted before any is written."""
    return number > RECORDS_PER_BATCH_MAX


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestContext:
    """The context of a request: everything that a decision needs besides the body."""

    now_ms: int
    """Unix time; never decreases between two decisions."""
    next_offset: int
    """Offset that the first record of the result will get: a broker's epoch is that of its registration."""
    api_version: int
    """Version in which the client sent the request; the body is in the canonical (highest) one."""
    principal: str = ANONYMOUS
    client_id: str | None = None
    client_host: str = ""
    listener: str = ""
    request_timeout_ms: int = 30_000
    forwarded: bool = False
    """Came in an Envelope: a broker has already checked what only brokers know."""
    token_authenticated: bool = False
    """The client has logged in with a delegation token."""
    security_protocol: SecurityProtocol = SecurityProtocol.PLAINTEXT
    """How the listener is secured on which the request, or its envelope, came in."""
    unresolved_hosts: frozenset[str] = frozenset()
    """Host names in the request that do not resolve."""
    access: Access = UNRESTRICTED
    """The sender's permissions on the resources that the request names."""


@dataclass(frozen=True, slots=True, kw_only=True)
class KRaftVersionUpgrade:
    """Asks raft to write KRaftVersionRecord and VotersRecord: an update of `kraft.version` (KIP-853)."""

    level: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ControlResult:
    """A decision: records to append, and the response to give once they are committed.

    `response` is a canonical response, or None when nobody asked (ticks, activation). A result without
    records is a read, answered once everything that it saw is committed.
    """

    records: "tuple[MetadataRecord, ...]" = ()
    response: Any = None
    steps: "Generator[ControlResult | None, None, Any] | None" = None
    """What is left to do, see `control/steps.py`: `records` are the first part of the decision, and there is no
    response yet. Others' decisions come between the steps, so that each has to look at the image anew."""
    has_begun: bool = False
    """The first of `steps` was taken: the decision has used up the work of a step."""
    atomic: bool = True
    """The records must share one batch; otherwise they may be split between batches."""
    kraft_version: KRaftVersionUpgrade | None = None
    """Set when raft has to write control records before the response may leave."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BootstrapMetadata:
    """What the very first active controller writes: what formatting gave it, or the defaults."""

    records: "tuple[MetadataRecord, ...]" = ()
    """FeatureLevelRecords, then what else the formatter put there (SCRAM credentials). Empty: defaults."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ControlConfig:
    """The controller's own settings, named and defaulted as in Kafka's server properties."""

    node_id: int
    cluster_id: str
    bootstrap: BootstrapMetadata = field(default_factory=BootstrapMetadata)
    broker_session_timeout_ms: int = 9_000
    default_replication_factor: int = 1
    num_partitions: int = 1
    leader_imbalance_check_enable: bool = True
    """Kafka's `auto.leader.rebalance.enable`."""
    leader_imbalance_check_interval_ms: int = 300_000
    unclean_election_check_interval_ms: int = 300_000
    incarnation_id: UUID | None = None
    """The incarnation of this process. With None, registrations with our id are not checked."""
    max_idle_interval_ms: int = 500
    """Kafka's `metadata.max.idle.interval.ms`: a NoOpRecord is due after this silence; 0 means never."""
    delegation_token_secret: str | None = field(default=None, repr=False)
    """Kafka's `delegation.token.secret.key`; with None there are no tokens."""
    delegation_token_max_lifetime_ms: int = 604_800_000
    delegation_token_expiry_time_ms: int = 86_400_000
    delegation_token_expiry_check_interval_ms: int = 3_600_000
    unix_ms_of: UnixTime = unchanged
    """For the times of delegation tokens, which clients compare with their clocks."""
    controller_quota_window_num: int = 11
    controller_quota_window_size_seconds: int = 1
    static_configs: Mapping[str, str] = field(default_factory=dict, repr=False)
    """The properties of this controller's own file: below dynamic configs, above defaults."""


class TopicConfigs(Protocol):
    """What the topic and partition managers ask of the config manager (`config_changes.py`)."""

    def validate_new_topic(self, name: str, configs: Mapping[str, str | None]) -> "Sequence[MetadataRecord]":
        """Checks the configs of a topic to be created; gives its ConfigRecords, in the order of the request.

        Raises:
            ControlError: INVALID_CONFIG for an unknown name, a null value, a value that its type refuses.
        """

    def describe_new_topic(self, configs: Mapping[str, str | None]) -> "tuple[CreatableTopicConfigs, ...]":
        """All effective configs of a topic with these overrides, ordered by name."""

    def min_insync_replicas(self, topic_name: str) -> int:
        """Effective `min.insync.replicas`: topic, cluster default, static, then default."""

    def unclean_leader_election(self, topic_name: str) -> bool:
        """Effective `unclean.leader.election.enable` of the topic."""


class BrokerTransitions(Protocol):
    """What the broker life cycle asks of the partitions (`broker_transitions.py`). Each method only decides.

    The caller adds the record about the broker itself. The partitions' records are computed as if that had
    taken effect, whatever the image still says: a broker being fenced counts as inactive, one being unfenced
    as active. Where they are too many for one decision there are none: slices follow, see `is_departing`.
    """

    def on_broker_fenced(self, broker_id: int) -> "Sequence[MetadataRecord]":
        """Removes `broker_id` from every ISR and leadership (Kafka: handleBrokerFenced)."""

    def on_broker_unfenced(self, broker_id: int) -> "Sequence[MetadataRecord]":
        """Elects `broker_id` for leaderless partitions that it may lead (handleBrokerUnfenced)."""

    def on_controlled_shutdown(self, broker_id: int) -> "Sequence[MetadataRecord]":
        """Moves leaderships and ISR memberships away (handleBrokerInControlledShutdown)."""

    def on_broker_unregistered(self, broker_id: int) -> "Sequence[MetadataRecord]":
        """Like `on_broker_fenced`, for a broker that leaves the cluster (handleBrokerUnregistered)."""

    def on_unclean_restart(self, broker_id: int) -> "Sequence[MetadataRecord]":
        """Drops a broker whose last incarnation shut down uncleanly from ISR and ELR (handleBrokerShutdown).

        As fenced while eligible.leader.replicas.version is 0.
        """

    def on_directories_offline(
        self, broker_id: int, directories: Iterable[UUID]
    ) -> "Sequence[MetadataRecord]":
        """Takes `broker_id` out of its partitions in lost directories, and unregisters these (KIP-858)."""

    def on_min_insync_replicas_changed(self, topic_names: Iterable[str | None]) -> "Sequence[MetadataRecord]":
        """ClearElrRecords for these topics, None meaning all of them (KIP-966); nothing while ELR is off.

        Raises ControlError if too many partitions have nothing but their ELR.
        """

    def on_elr_level_changed(self) -> "Sequence[MetadataRecord]":
        """The records that clear the ELR of every partition, when `eligible.leader.replicas.version` changes.

        Raises ControlError if too many partitions have nothing but their ELR.
        """

    def leads_any_partition(self, broker_id: int) -> bool:
        """True while `broker_id` leads a partition: it may not shut down yet. Must be cheap."""

    def is_departing(self, broker_id: int) -> bool:
        """True while slices have yet to take `broker_id` out of its partitions: it may not return yet."""

    def departed_offset(self, broker_id: int) -> int:
        """The last offset of the slices that took `broker_id` out of its partitions; -1 if there were none."""


class QuorumView(Protocol):
    """The part of raft that control needs."""

    @property
    def kraft_version(self) -> int:
        """The finalized level of `kraft.version`, 0 or 1."""

    @property
    def leader_id(self) -> int:
        """The active controller that this node knows, -1 for none."""

    @property
    def voter_ids(self) -> frozenset[int]:
        """Ids of the current voters."""

    def check_kraft_upgrade(self, level: int) -> None:
        """Refuses a `kraft.version` that the voters can't go to now: each must have sent UpdateRaftVoter.

        Raises:
            ControlError: INVALID_UPDATE_VERSION with the reason (KIP-853).
        """
