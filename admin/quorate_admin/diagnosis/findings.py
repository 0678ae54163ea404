"""The result of a diagnosis: findings, each with its evidence and what to do next."""

from collections.abc import Mapping
from dataclasses import field
from enum import StrEnum

from quorate_protocol.plain_data import dataclass

from quorate_admin.diagnosis.facts import FeatureOutlook, NodeKind


class Severity(StrEnum):
    """The severity of a finding. A cluster with more than NOTEs is unhealthy."""

    DANGER = "danger"
    """Data is unavailable, the quorum is lost, or the next failure loses it."""
    BLOCKED = "blocked"
    """An operation is blocked."""
    WARNING = "warning"
    """A node or partition is impaired."""
    NOTE = "note"
    """A possible improvement, or information."""


class Code(StrEnum):
    """The kind of a finding. The names are stable, for programs."""

    NO_LEADER = "no-leader"
    NOTHING_COMMITTED = "nothing-committed"
    ONE_FAILURE_FROM_LOSS = "one-failure-from-loss"
    SINGLE_VOTER = "single-voter"
    EVEN_VOTERS = "even-voters"
    VOTER_SILENT = "voter-silent"
    VOTER_LAGGING = "voter-lagging"
    VOTER_NOT_REGISTERED = "voter-not-registered"
    VOTER_ENDPOINTS_DIFFER = "voter-endpoints-differ"
    ADDRESS_LEADS_ELSEWHERE = "address-leads-elsewhere"
    OBSERVER_LAGGING = "observer-lagging"
    OBSERVER_NOT_REGISTERED = "observer-not-registered"
    CONTROLLER_COULD_VOTE = "controller-could-vote"
    CONTROLLER_NOT_FOLLOWING = "controller-not-following"
    GHOST_CONTROLLER = "ghost-controller"
    BROKER_FENCED = "broker-fenced"
    BROKER_NOT_REGISTERED = "broker-not-registered"
    REPLICAS_WITHOUT_BROKER = "replicas-without-broker"
    PARTITIONS_OFFLINE = "partitions-offline"
    PARTITIONS_UNDER_MIN_ISR = "partitions-under-min-isr"
    FEATURE_BLOCKED = "feature-blocked"
    FEATURE_UNKNOWN = "feature-unknown"
    METADATA_VERSION_BEHIND = "metadata-version-behind"
    QUORUM_STATIC = "quorum-static"
    QUORUM_NOT_EXAMINED = "quorum-not-examined"
    REGISTRATIONS_NOT_EXAMINED = "registrations-not-examined"
    PARTITIONS_NOT_EXAMINED = "partitions-not-examined"
    MIN_ISR_NOT_EXAMINED = "min-isr-not-examined"
    ADDRESSES_NOT_EXAMINED = "addresses-not-examined"
    CLIENTS_DO_NOT_REBOOTSTRAP = "clients-do-not-rebootstrap"
    CLIENTS_UNKNOWN = "clients-unknown"
    CLIENTS_MISROUTED = "clients-misrouted"
    CLIENTS_NOT_EXAMINED = "clients-not-examined"


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One problem or note.

    `evidence` is what was observed. `advice` is what has to be done by hand first, or None;
    `commands` are to be run then, in this order. `blocks` has the first and last level of each feature
    that the node keeps from the cluster. A finding about partitions has their `count` and a few `examples`, as
    topic-partition; one about clients has the `count` of their connections, and `examples` of clients.
    """

    severity: Severity
    code: Code
    message: str
    evidence: str
    advice: str | None = None
    commands: tuple[str, ...] = ()
    node_kind: NodeKind | None = None
    node_id: int | None = None
    blocks: Mapping[str, tuple[int, int]] = field(default_factory=dict)
    count: int | None = None
    examples: tuple[str, ...] = ()

    @property
    def finding_id(self) -> str:
        """Stable across diagnoses, and unique in each."""
        if self.node_id is None:
            return str(self.code)
        return f"{self.code}/{self.node_kind or 'node'}-{self.node_id}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Diagnosis:
    """All findings, the worst first, and the levels that each feature could have."""

    findings: tuple[Finding, ...]
    outlooks: tuple[FeatureOutlook, ...]

    @property
    def is_healthy(self) -> bool:
        """Whether all findings are mere notes."""
        return all(finding.severity is Severity.NOTE for finding in self.findings)
