"""The vocabulary of the control package: input and result of a decision, and the ports between its parts.

A manager *decides*: it reads the metadata image, its soft state and one request, and returns a
`ControlResult`. It never changes the image. The node appends the records, replays them into the image
at once (so that the next decision sees them), and sends the response when they are committed. What was
replayed reaches the managers through `observe`.
"""

from collections.abc import Generator, Mapping
from dataclasses import field
from typing import TYPE_CHECKING, Any, Final, Protocol
from uuid import UUID

from quorate_protocol.errors import ErrorCode
from quorate_protocol.kafka.enums import SecurityProtocol
from quorate_protocol.plain_data import dataclass

from quorate_controller.security.access import UNRESTRICTED, Access
from quorate_controller.unix_time import UnixTime, unchanged

if TYPE_CHECKING:
    from quorate_protocol.records.framing import MetadataRecord

RECORDS_PER_BATCH_MAX: Final = 10_000
"""Kafka's QuorumController.MAX_RECORDS_PER_BATCH: an atomic result may not have more records than this."""

ANONYMOUS: Final = "User:ANONYMOUS"
"""The principal of a connection that has not authenticated."""

STEP_PAUSE_MS: Final = 1
"""The pause between two steps of a long task: the next one runs in a later turn, after other events."""


class ControlError(Exception):
    """A request, or one item of it, that is refused: the error code and text that go into the response."""

    def __init__(self, error_code: ErrorCode, message: str | None = None) -> None:
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
    """Return whether the records of a request have to be counted before the first is written."""
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
    """Came in an Envelope: a broker has done the checks that need a broker's state."""
    token_authenticated: bool = False
    """The client has logged in with a delegation token."""
    security_protocol: SecurityProtocol = SecurityProtocol.PLAINTEXT
    """The protocol of the listener on which the request, or its envelope, came in."""
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

    `response` is a canonical response, or None without a request (ticks, activation). The response of a read,
    a result without records, is sent once everything that it read is committed.
    """

    records: "tuple[MetadataRecord, ...]" = ()
    response: Any = None
    steps: "Generator[ControlResult | None, None, Any] | None" = None
    """The remaining steps, see `control/steps.py`: `records` are the first part of the decision, and there is no
    response yet. Other decisions come between the steps, so that each step reads the image again."""
    has_begun: bool = False
    """The first of `steps` has run: the decision has used up the work of a step."""
    atomic: bool = True
    """The records must share one batch; otherwise they may be split between batches."""
    kraft_version: KRaftVersionUpgrade | None = None
    """Set when raft has to write control records before the response may leave."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BootstrapMetadata:
    """The records of the very first active controller: those of formatting, or the defaults."""

    records: "tuple[MetadataRecord, ...]" = ()
    """FeatureLevelRecords, then other records of formatting (SCRAM credentials). Empty: defaults."""


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


class QuorumPort(Protocol):
    """The part of raft that control needs."""

    @property
    def kraft_version(self) -> int:
        """The finalized level of `kraft.version`, 0 or 1."""

    @property
    def leader_id(self) -> int:
        """The active controller, -1 if this node knows no leader."""

    @property
    def voter_ids(self) -> frozenset[int]:
        """Ids of the current voters."""

    def check_kraft_upgrade(self, level: int) -> None:
        """Refuse a `kraft.version` that the voters do not support: each must have sent UpdateRaftVoter.

        Raises:
            ControlError: INVALID_UPDATE_VERSION with the reason (KIP-853).
        """
