"""The kind of each attribute of a node. A test fails on attributes without rows, and on rows without attributes."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Mapping


class Kind(Enum):
    """The kind of an attribute, and its end."""

    PART = "a part, with rows of its own"
    SET = "set at the start, never changed"
    LOG = "replayed from the log, or a picture of the disk"
    ENDS = "ends with the leadership"
    RESTARTS = "starts again with the next leadership"
    ROLE = "ends with the role"
    TURN = "ends with the turn or the step"
    STAYS = "outlives a leadership on purpose"


@dataclass(frozen=True, slots=True)
class Row:
    """One attribute. `note` says what it holds or why it stays."""

    kind: Kind
    note: str = ""


def _rows(kind: Kind, *names: str, **noted: str) -> dict[str, Row]:
    return {name: Row(kind) for name in names} | {name: Row(kind, note) for name, note in noted.items()}


def _parts(*names: str) -> dict[str, Row]:
    return _rows(Kind.PART, *names)


def _set(*names: str) -> dict[str, Row]:
    return _rows(Kind.SET, *names)


def _log(*names: str, **noted: str) -> dict[str, Row]:
    return _rows(Kind.LOG, *names, **noted)


def _ends(**noted: str) -> dict[str, Row]:
    return _rows(Kind.ENDS, **noted)


def _restarts(**noted: str) -> dict[str, Row]:
    return _rows(Kind.RESTARTS, **noted)


def _turn(*names: str, **noted: str) -> dict[str, Row]:
    return _rows(Kind.TURN, *names, **noted)


def _stays(**noted: str) -> dict[str, Row]:
    return _rows(Kind.STAYS, **noted)


_CONTROL: Final[Mapping[str, Mapping[str, Row]]] = {
    "control.acls.AclManager": _parts("_authorizer") | _log("_image") | _set("_rng"),
    "control.assignments.Placing": _log("_image")
    | _set("_rng")
    | _stays(_placer="a cache", _read="the brokers that it was made of: a revert changes them, too"),
    "control.broker_loggers.LoggerManager": _set("_loggers", "_node_id"),
    "control.broker_transitions.PartitionTransitions": _parts("_configs")
    | _log("_image")
    | _ends(
        _departures="cursors of brokers that leave their ISRs",
        _departed="brokers that have left all ISRs, and the offset where that ended",
        _losses="cursors of log directories that are offline",
        _leaderless="the pass over leaderless partitions",
        _seek_again="whether another pass over leaderless partitions follows",
        _due_ms="when the next slice is due",
    ),
    "control.client_quotas.ClientQuotaManager": _log("_image"),
    "control.node_registrations.ClusterManager": _parts("_heartbeats", "_quorum", "_transitions")
    | _log("_image")
    | _set("_cluster_id"),
    "control.config_changes.ConfigManager": _parts(
        "_check_plain_topic", "_effective", "_loggers", "_plain_topic", "_quorum"
    )
    | _log("_image")
    | _set("_policies"),
    "control.config_validation.AppliedConfigs": _log("image")
    | _set("_node_resource", "node_id", "static_configs")
    | _stays(_filtered="a cache: computed again once the image has another mapping, also by a revert"),
    "control.controller.QuorumController": _parts(
        "_acls",
        "_configs",
        "_effective",
        "_elections",
        "_heartbeats",
        "_loggers",
        "_reads",
        "_schedule",
        "_tokens",
        "_transitions",
        "_writes",
    )
    | _log("_image")
    | _set("_config")
    | _ends(_is_active="whether this controller decides"),
    "control.node_registrations.ControllerManager": _parts("_quorum")
    | _log("_image")
    | _set("_incarnation_id", "_node_id"),
    "control.delegation_tokens.DelegationTokenManager": _parts("_by_hmac")
    | _log("_image")
    | _set("_lifetime_ms_max", "_renewal_ms_max", "_rng", "_secret", "_unix_ms_of"),
    "control.delegation_tokens._TokensByHmac": _log(
        "_image",
        "_token_ids",
        _table="reports each change, also those of a revert",
    )
    | _set("_hmac_of"),
    "control.describe.ClusterDescriber": _parts("_quorum") | _log("_image") | _set("_cluster_id"),
    "control.describe.ConfigDescriber": _parts("_effective", "_loggers", "_plain_topic", "_written")
    | _log("_image")
    | _set("_node_id"),
    "control.describe_security.SecurityDescriber": _log("_image") | _set("_secret"),
    "control.describe_topics.TopicDescriber": _log("_image"),
    "control.effective_configs.EffectiveConfigs": _log("image")
    | _set("_node_resource", "node_id", "static_configs"),
    "control.effective_configs.OfBrokerConfigs": _parts("_effective")
    | _set("_compute")
    | _stays(
        _levels="the mappings that `_value` was computed from: the image has others after a change or a revert",
        _value="a cache",
    ),
    "control.elections.Elections": _parts("_configs")
    | _log("_image")
    | _ends(_passes="the rest of each pass that has begun"),
    "control.features.FeatureManager": _parts("_configs", "_quorum") | _log("_image") | _set("_node_id"),
    "control.heartbeats.HeartbeatManager": _parts("_transitions")
    | _log("_image")
    | _set("_session_timeout_ms")
    | _ends(
        _leases="what each registered broker has read, and its controlled shutdown",
        _contacts="the last heartbeat of each broker that has a session",
    ),
    "control.mutation_quotas.MutationQuotas": _log("_image")
    | _set("_seconds")
    | _stays(_buckets="belong to the process, as in Kafka; they refill by time, whichever node leads"),
    "control.partitions.PartitionManager": _parts("_configs") | _log("_image"),
    "control.producer_ids.ProducerIdManager": _log("_image"),
    "control.reassignments.ReassignmentManager": _parts("_configs") | _log("_image"),
    "control.controller.Schedule": _parts("_tasks"),
    "control.controller._Task": _set("interval_ms", "step") | _restarts(due_ms="when a periodic task is due"),
    "control.scram_credentials.ScramManager": _log("_image"),
    "control.topics.TopicManager": _parts("_configs", "_placing", "_quotas")
    | _log("_image")
    | _set("_config", "_policies", "_rng"),
}

_NODE: Final[Mapping[str, Mapping[str, Row]]] = {
    "node.assembly._QuorumOf": _parts("_raft"),
    "node.consistency.BrokerWaits": _set("_policy")
    | _ends(_held="committed responses that wait until brokers know the records")
    | _stays(overdue_count="a metric of the process"),
    "node.credentials.ImageCredentials": _log("_image")
    | _set("_token_secret")
    | _stays(_of_tokens="a cache: an id has one credential for all time; the image says which tokens exist"),
    "node.measurements.ElectionCounts": _stays(
        elections="a metric of the process",
        leaders="a metric of the process",
        _last_role="what the metrics counted last",
        _last_leader="what the metrics counted last",
    ),
    "node.consistency.FirstCatchUp": _parts("_metadata", "_raft")
    | _set("_wait_ends_ms")
    | _stays(
        _is_over="once in a process: the image never falls behind what it has shown",
        _held="requests that wait for the first catch-up, whichever node leads",
    ),
    "node.snapshot_turns.HeartbeatKeeper": _parts("_raft")
    | _set("_node_id")
    | _stays(
        _in_flight_until_ms="of a standby: one heartbeat at a time, to whichever node; ends by its timeout",
        _recipient="of a standby: the leader and epoch that the last heartbeat was sent to",
        _last_state="of a standby: the state in its last heartbeat",
        _last_sent_ms="of a standby: paces the heartbeats",
        _last_response_ms="of a standby: patience begins with the last response of any leader",
        _silent_leader="of a standby: has the epoch in it, and counts for that one alone",
        _turn_of="of a standby: the leader and epoch that gave the turn, and counts under that one alone",
    ),
    "node.measurements.LatencyHistogram": _stays(
        counts="a metric of the process", count="a metric of the process", sum_ms="a metric of the process"
    ),
    "node.snapshotter.SnapshotLoader": _parts("_metadata")
    | _set("_clock", "_storage")
    | _stays(
        _snapshot_id="of a follower: the fetched snapshot is loaded to its end, whichever node leads by then",
        _steps="the same",
    ),
    "node.request_processor.LongReads": _set("_clock")
    | _ends(_waiting="reads under way, which may have seen what is abandoned"),
    "node.metadata.MetadataState": _parts("control")
    | _log(
        "image",
        "applied_offset",
        "applied_timestamp_ms",
        "finalized_levels",
        "has_records",
        _replaying="the rest of committed log that was read",
    )
    | _set("_clock")
    | _ends(
        _features_change_at="the offset of an uncommitted change of levels",
        _pending="decided records that raft has not got yet",
        _pending_size_bytes="their size",
        _waiters="responses that wait for a commit",
    )
    | _stays(_pending_base_offset="has no meaning without `_pending`"),
    "node.own_requests.OwnRequests": _parts(
        "_heartbeats", "_metadata", "_raft", "_registration", "_snapshotter"
    )
    | _set("_listener", "node_id"),
    "node.metadata.Proposals": _parts("_applied", "_metadata", "_perform", "_raft", "commit_latency")
    | _set("_unix_ms_of")
    | _ends(_proposed="the times of proposals that are not committed"),
    "node.own_requests.RegistrationKeeper": _set("_rng", "identity")
    | _stays(
        _judged="a cache: judged again once the image has another registration, also by a revert",
        _difference="the same",
        _failures="paces the attempts of this process, whichever node leads; ends with a success",
        _in_flight_until_ms="one attempt at a time, whichever node it goes to; ends by its timeout",
        _not_before_ms="the same",
    ),
    "node.request_processor.RequestProcessor": _parts(
        "_deliver", "_long_reads", "_metadata", "_note", "_proposals"
    )
    | _set("_clock")
    | _ends(
        _of_nodes="large requests of nodes that wait for a turn with time for them",
        _of_clients="requests of clients that wait for a turn with time for them",
    ),
    "node.snapshot_turns.SnapshotTurns": _parts("_raft")
    | _set("_hands_over", "_node_id")
    | _restarts(
        _epoch="the epoch that the others are of",
        _states="the last heartbeat of each other controller",
        _holder="the controller that may write a checkpoint",
        _own="the state and the last checkpoint of the active controller",
    )
    | _stays(_handed_over_ms="no leadership is handed over again within a minute, nor by the next one"),
    "node.snapshotter.Snapshotter": _parts("_raft")
    | _set("_bytes_max", "_clock", "_interval_ms", "_storage", "_unix_ms_of")
    | _stays(
        _bytes_since="counts towards the next checkpoint of this node; abandoned bytes make it a little early",
        _due_since_ms="a checkpoint of committed metadata, whichever node leads",
        _not_before_ms="the same",
        _since_ms="the same",
        _slice_due_ms="the same",
        _steps="the same",
        _wait_ends_ms="the same",
        _writer="the same",
        latest_timestamp_ms="the same",
    ),
    "node.turn.ControllerNode": _parts(
        "authorizer",
        "_first_catch_up",
        "_own_requests",
        "_proposals",
        "_requests",
        "_snapshot_turns",
        "broker_waits",
        "credentials",
        "election_counts",
        "loader",
        "metadata",
        "raft",
        "snapshotter",
    )
    | _set("_unix_ms_of")
    | _log(storage="files, and pictures of them")
    | _turn("_effects", "_is_behind", "_needs_flush", "_outgoing", now_ms="the time of the turn")
    | _stays(_activation_due_ms="the pause after a fault of this node, also if it is elected again at once"),
}

_SECURITY: Final[Mapping[str, Mapping[str, Row]]] = {
    "security.authorizer.AclIndex": _log(
        "_by_pattern",
        "_changes",
        "_image",
        "_prefix_lengths",
        _table="reports each change, also those of a revert",
    ),
    "security.authorizer.Authorizer": _parts("acls")
    | _set("_default", "_is_loaded", "_super_users")
    | _stays(
        _known="a cache: emptied by the first decision after an ACL has changed, also by a revert",
        _known_of="the number of changes that the cache is of",
        _was_loaded="once in a process",
    ),
}

_RAFT: Final[Mapping[str, Mapping[str, Row]]] = {
    "raft.effects.Effects": _turn(
        "_appends",
        "_notes",
        "_responses",
        "_sends",
        "hard_state",
        "high_watermark",
        "restore",
        "role",
        "snapshot_chunk",
        "truncate_to",
        "voters",
    ),
    "raft.node.RaftNode": _parts("_outsider_watch", "_replica")
    | _turn("_deadline_ms")
    | _stays(
        _reported_role="the last role that was reported",
        _reported_state="the same",
        _leaves_at_ms="the process shuts down",
    ),
    "raft.lookup.VoterLookup": _set("_listener")
    | _stays(
        _asked="ends with a round of questions to a bootstrap server, and when there is a leader",
        _is_reported="whether the lookup was logged, until there is a leader",
        _found="an address that was found, until it fails or the voter set has another one",
        _silent="voters that did not answer in the last election, until there is a leader",
    ),
    "raft.node.OutsiderWatch": _stays(
        _is_reported="whether the warning was logged, until this replica is a voter",
        _since_ms="since when this replica is no voter",
    ),
    "raft.peers.Peers": _set("_backoff_ms_max", "_request_timeout_ms", "_retry_backoff_ms", "_rng")
    | _rows(
        Kind.ROLE,
        _backoff_until_ms="pauses after failed requests",
        _in_flight="requests that wait for their responses",
    )
    | _stays(
        _failures="failures in a row, so that a node that refuses everything is not asked in a loop",
        _next_request_id="no id is used twice, so that late responses find nothing",
    ),
    "raft.transitions.ElectingReplica": _parts("effects", "lookup", "peers")
    | _log("_hard_state", "high_watermark", "history", "log")
    | _set("config", "rng")
    | _rows(
        Kind.ROLE,
        state="the role with all that belongs to it: votes, progress of the others, held requests, voter changes",
        next_discovery_ms="paces the search for a leader",
    )
    | _turn("now_ms")
    | _stays(
        downloads_refused="of a follower: the pause after damaged snapshots grows, whichever node sent them",
        elections_lost="the pause before the next election grows until one is won or a leader is found",
        has_caught_up="once in a process",
        next_download_ms="of a follower: the pause after a damaged snapshot",
        restoring="of a follower: a fetched snapshot is loaded to its end, whichever node leads by then",
        shutdown_deadline_ms="the process shuts down",
    ),
}

TABLE: Final[Mapping[tuple[str, str], Row]] = {
    (owner, name): row
    for owner, rows in (_CONTROL | _NODE | _SECURITY | _RAFT).items()
    for name, row in rows.items()
}
