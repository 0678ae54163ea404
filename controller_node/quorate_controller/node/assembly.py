"""Builds a `ControllerNode` from a configuration and the content of its disk."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final

from quorate_protocol.errors import ProtocolError
from quorate_protocol.features import SUPPORTED_FEATURES
from quorate_protocol.image import MetadataImage
from quorate_protocol.uuids import uuid_from

from quorate_controller.control.api import BootstrapMetadata, ControlConfig, ControlError
from quorate_controller.control.broker_loggers import NO_LOGGERS
from quorate_controller.control.controller import QuorumController
from quorate_controller.control.policies import NO_POLICIES
from quorate_controller.node.consistency import BrokerWaits, FirstCatchUp
from quorate_controller.node.metadata import MetadataState
from quorate_controller.node.own_requests import ControllerIdentity, OwnRequests, RegistrationKeeper
from quorate_controller.node.snapshot_turns import HeartbeatKeeper, SnapshotTurns
from quorate_controller.node.snapshotter import SnapshotLoader, Snapshotter
from quorate_controller.node.turn import ControllerNode
from quorate_controller.raft.model import Endpoint, ReplicaKey, VersionRange, Voter
from quorate_controller.raft.node import RaftNode
from quorate_controller.raft.startup import (
    KRAFT_VERSION_STATIC,
    BootstrapServer,
    RaftConfig,
)
from quorate_controller.raft.voters import VoterSet
from quorate_controller.security.authorizer import Authorizer
from quorate_controller.storage.controller_storage import ControllerStorage
from quorate_controller.unix_time import unchanged

if TYPE_CHECKING:
    from collections.abc import Callable
    from random import Random
    from uuid import UUID

    from quorate_controller.config import ControllerConfig
    from quorate_controller.control.broker_loggers import Loggers
    from quorate_controller.control.policies import Policies
    from quorate_controller.storage.filesystem import FileSystem
    from quorate_controller.unix_time import UnixTime

STATIC_VOTER_KRAFT_VERSIONS: Final = VersionRange(lowest=KRAFT_VERSION_STATIC, highest=KRAFT_VERSION_STATIC)
"""Assumed of a voter of controller.quorum.voters until its UpdateRaftVoter reports its versions."""


def open_node(
    config: ControllerConfig,
    *,
    file_system: FileSystem,
    rng: Random,
    clock: Callable[[], int],
    loggers: Loggers = NO_LOGGERS,
    policies: Policies = NO_POLICIES,
    placing_rng: Random | None = None,
    unix_ms_of: UnixTime = unchanged,
) -> ControllerNode:
    """Open the directories of `config` and build the node on them; `start` it next.

    `clock` returns what turns get as `now_ms`. Only slices of long work read it, to measure themselves. `loggers` are
    those that administrators may change, `policies` those of the configuration. `rng` has to be one for secrets;
    replicas are placed by `placing_rng` if it is given. `unix_ms_of` returns the Unix time of a `now_ms`.

    Raises:
        StorageError: the directories cannot be used. Nothing stays open.
    """
    storage = ControllerStorage.open(file_system, config.storage)
    try:
        return _build(
            config,
            storage,
            rng=rng,
            placing_rng=placing_rng,
            clock=clock,
            loggers=loggers,
            policies=policies,
            unix_ms_of=unix_ms_of,
        )
    except BaseException:
        storage.close()
        raise


def _build(
    config: ControllerConfig,
    storage: ControllerStorage,
    *,
    rng: Random,
    placing_rng: Random | None,
    clock: Callable[[], int],
    loggers: Loggers,
    policies: Policies,
    unix_ms_of: UnixTime,
) -> ControllerNode:
    log_state = storage.log_state()
    raft = RaftNode(
        config=replace(raft_config(config, storage), unix_ms_of=unix_ms_of),
        hard_state=storage.hard_state,
        log=log_state,
        rng=rng,
    )
    image = MetadataImage()
    identity = ControllerIdentity(
        node_id=config.node_id,
        incarnation_id=uuid_from(rng),
        listeners=config.advertised_listeners,
        protocols={name: security.protocol for name, security in config.listener_security.items()},
        features=SUPPORTED_FEATURES,
    )

    authorizer = None
    if config.authorizer is not None:
        authorizer = Authorizer(
            image,
            super_users=config.authorizer.super_users,
            allow_everyone_if_no_acl_found=config.authorizer.allow_everyone_if_no_acl_found,
            is_loaded=lambda: first_catch_up.is_over,
        )
    control = QuorumController(
        replace(control_config(config, storage, identity.incarnation_id), unix_ms_of=unix_ms_of),
        image,
        rng,
        _QuorumOf(raft),
        loggers,
        authorizer=authorizer,
        policies=policies,
        placing_rng=placing_rng,
    )
    metadata = MetadataState(image, control, clock=clock)
    first_catch_up = FirstCatchUp(raft=raft, metadata=metadata, now_ms=clock())
    if log_state.snapshot_id is not None:
        try:
            metadata.load(storage.snapshots.chunks(log_state.snapshot_id), log_state.snapshot_id)
        except ProtocolError as error:
            raise storage.snapshots.unreadable(log_state.snapshot_id, error) from error
    snapshotter = Snapshotter(
        storage=storage,
        raft=raft,
        node_id=config.node_id,
        bytes_max=config.snapshot_bytes_max,
        interval_ms=config.snapshot_interval_ms,
        clock=clock,
        unix_ms_of=unix_ms_of,
    )
    own_requests = OwnRequests(
        raft=raft,
        metadata=metadata,
        snapshotter=snapshotter,
        registration=RegistrationKeeper(identity, rng),
        heartbeats=HeartbeatKeeper(raft, config.node_id),
        listener=config.controller_listener_names[0],
    )
    return ControllerNode(
        raft=raft,
        storage=storage,
        metadata=metadata,
        snapshotter=snapshotter,
        own_requests=own_requests,
        snapshot_turns=SnapshotTurns(raft, node_id=config.node_id, hands_over=config.snapshot_handover),
        loader=SnapshotLoader(storage=storage, metadata=metadata, clock=clock),
        broker_waits=BrokerWaits(config.response_policy),
        clock=clock,
        first_catch_up=first_catch_up,
        now_ms=clock(),
        unix_ms_of=unix_ms_of,
        authorizer=authorizer,
        token_secret=_text(config.values["delegation.token.secret.key"]),
    )


def raft_config(config: ControllerConfig, storage: ControllerStorage) -> RaftConfig:
    """Return raft's part of a controller's configuration."""
    listener = config.controller_listener_names[0]
    voters = tuple(
        Voter(
            key=ReplicaKey(node_id=voter.node_id),
            endpoints=(Endpoint(listener=listener, host=voter.host, port=voter.port),),
            kraft_versions=STATIC_VOTER_KRAFT_VERSIONS,
        )
        for voter in sorted(config.static_voters, key=lambda voter: voter.node_id)
    )
    quorum = config.quorum
    return RaftConfig(
        cluster_id=storage.cluster_id,
        key=ReplicaKey(node_id=config.node_id, directory_id=storage.directory_id),
        listener=listener,
        endpoints=tuple(
            Endpoint(listener=advertised.name, host=advertised.host, port=advertised.port)
            for advertised in config.advertised_listeners
        ),
        static_voters=VoterSet(voters=voters),
        bootstrap_servers=tuple(
            BootstrapServer(host=host, port=port) for host, port in config.bootstrap_servers
        ),
        auto_join=config.auto_join,
        election_timeout_ms=quorum.election_timeout_ms,
        fetch_timeout_ms=quorum.fetch_timeout_ms,
        election_backoff_ms_max=quorum.election_backoff_max_ms,
        request_timeout_ms=quorum.request_timeout_ms,
        retry_backoff_ms=quorum.retry_backoff_ms,
        fetch_size_bytes_max=quorum.fetch_max_bytes,
        snapshot_fetch_size_bytes_max=quorum.fetch_snapshot_max_bytes,
    )


def control_config(
    config: ControllerConfig, storage: ControllerStorage, incarnation_id: UUID
) -> ControlConfig:
    """Return the state machine's part of a controller's configuration."""
    values = config.values
    return ControlConfig(
        node_id=config.node_id,
        cluster_id=storage.cluster_id,
        incarnation_id=incarnation_id,
        bootstrap=BootstrapMetadata(records=storage.bootstrap_records()),
        broker_session_timeout_ms=config.broker_session_timeout_ms,
        default_replication_factor=_number(values["default.replication.factor"]),
        num_partitions=_number(values["num.partitions"]),
        leader_imbalance_check_enable=bool(values["auto.leader.rebalance.enable"]),
        leader_imbalance_check_interval_ms=_number(values["leader.imbalance.check.interval.seconds"]) * 1000,
        unclean_election_check_interval_ms=_number(values["unclean.leader.election.interval.ms"]),
        max_idle_interval_ms=config.max_idle_interval_ms,
        delegation_token_secret=_text(values["delegation.token.secret.key"]),
        delegation_token_max_lifetime_ms=_number(values["delegation.token.max.lifetime.ms"]),
        delegation_token_expiry_time_ms=_number(values["delegation.token.expiry.time.ms"]),
        delegation_token_expiry_check_interval_ms=_number(
            values["delegation.token.expiry.check.interval.ms"]
        ),
        controller_quota_window_num=_number(values["controller.quota.window.num"]),
        controller_quota_window_size_seconds=_number(values["controller.quota.window.size.seconds"]),
        static_configs=config.explicit,
    )


def _text(value: object) -> str | None:
    """A text that is set; an empty one is not."""
    return value if isinstance(value, str) and value else None


def _number(value: object) -> int:
    assert isinstance(value, int), value
    return value


class _QuorumOf:
    """Raft as the control package sees it."""

    def __init__(self, raft: RaftNode) -> None:
        self._raft = raft

    @property
    def kraft_version(self) -> int:
        return self._raft.kraft_version

    @property
    def leader_id(self) -> int:
        return self._raft.leader_id

    @property
    def voter_ids(self) -> frozenset[int]:
        return frozenset(voter.node_id for voter in self._raft.voters.voters)

    def check_kraft_upgrade(self, level: int) -> None:
        try:
            self._raft.check_kraft_version_upgrade(level)
        except ProtocolError as error:
            raise ControlError(error.error_code, error.message) from error
