"""The controller's state machine behind one facade: requests and time in, records and responses out."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from quorate_protocol import features
from quorate_protocol.errors import ErrorCode
from quorate_protocol.kafka.generated.allocate_producer_ids_request import AllocateProducerIdsRequest
from quorate_protocol.kafka.generated.alter_client_quotas_request import AlterClientQuotasRequest
from quorate_protocol.kafka.generated.alter_configs_request import AlterConfigsRequest
from quorate_protocol.kafka.generated.alter_partition_reassignments_request import (
    AlterPartitionReassignmentsRequest,
)
from quorate_protocol.kafka.generated.alter_partition_request import AlterPartitionRequest
from quorate_protocol.kafka.generated.alter_user_scram_credentials_request import (
    AlterUserScramCredentialsRequest,
)
from quorate_protocol.kafka.generated.assign_replicas_to_dirs_request import AssignReplicasToDirsRequest
from quorate_protocol.kafka.generated.broker_heartbeat_request import BrokerHeartbeatRequest
from quorate_protocol.kafka.generated.broker_registration_request import BrokerRegistrationRequest
from quorate_protocol.kafka.generated.controller_registration_request import ControllerRegistrationRequest
from quorate_protocol.kafka.generated.create_acls_request import CreateAclsRequest
from quorate_protocol.kafka.generated.create_delegation_token_request import CreateDelegationTokenRequest
from quorate_protocol.kafka.generated.create_partitions_request import CreatePartitionsRequest
from quorate_protocol.kafka.generated.create_topics_request import CreateTopicsRequest
from quorate_protocol.kafka.generated.delete_acls_request import DeleteAclsRequest
from quorate_protocol.kafka.generated.delete_topics_request import DeleteTopicsRequest
from quorate_protocol.kafka.generated.describe_acls_request import DescribeAclsRequest
from quorate_protocol.kafka.generated.describe_client_quotas_request import DescribeClientQuotasRequest
from quorate_protocol.kafka.generated.describe_cluster_request import DescribeClusterRequest
from quorate_protocol.kafka.generated.describe_configs_request import DescribeConfigsRequest
from quorate_protocol.kafka.generated.describe_delegation_token_request import DescribeDelegationTokenRequest
from quorate_protocol.kafka.generated.describe_topic_partitions_request import DescribeTopicPartitionsRequest
from quorate_protocol.kafka.generated.describe_user_scram_credentials_request import (
    DescribeUserScramCredentialsRequest,
)
from quorate_protocol.kafka.generated.elect_leaders_request import ElectLeadersRequest
from quorate_protocol.kafka.generated.expire_delegation_token_request import ExpireDelegationTokenRequest
from quorate_protocol.kafka.generated.incremental_alter_configs_request import IncrementalAlterConfigsRequest
from quorate_protocol.kafka.generated.list_partition_reassignments_request import (
    ListPartitionReassignmentsRequest,
)
from quorate_protocol.kafka.generated.renew_delegation_token_request import RenewDelegationTokenRequest
from quorate_protocol.kafka.generated.unregister_broker_request import UnregisterBrokerRequest
from quorate_protocol.kafka.generated.unregister_controller_request import UnregisterControllerRequest
from quorate_protocol.kafka.generated.update_features_request import UpdateFeaturesRequest
from quorate_protocol.plain_data import dataclass
from quorate_protocol.records.generated import (
    AbortTransactionRecord,
    BeginTransactionRecord,
    EndTransactionRecord,
    FeatureLevelRecord,
    NoOpRecord,
)

from quorate_controller.control.acls import AclManager
from quorate_controller.control.api import (
    STEP_PAUSE_MS,
    BootstrapMetadata,
    ControlConfig,
    ControlError,
    ControlResult,
    QuorumPort,
    RequestContext,
)
from quorate_controller.control.broker_loggers import NO_LOGGERS, LoggerManager, are_all_loggers
from quorate_controller.control.broker_transitions import PartitionTransitions
from quorate_controller.control.client_quotas import ClientQuotaManager
from quorate_controller.control.config_changes import ConfigManager, topics_with_new_min_insync_replicas
from quorate_controller.control.delegation_tokens import DelegationTokenManager
from quorate_controller.control.describe import ClusterDescriber, ConfigDescriber
from quorate_controller.control.describe_security import SecurityDescriber
from quorate_controller.control.describe_topics import TopicDescriber
from quorate_controller.control.effective_configs import EffectiveConfigs
from quorate_controller.control.elections import Elections
from quorate_controller.control.features import FeatureManager, changes_elr_level
from quorate_controller.control.heartbeats import HeartbeatManager
from quorate_controller.control.node_registrations import ClusterManager, ControllerManager
from quorate_controller.control.partitions import PartitionManager
from quorate_controller.control.policies import NO_POLICIES, Policies
from quorate_controller.control.producer_ids import ProducerIdManager
from quorate_controller.control.reassignments import ReassignmentManager
from quorate_controller.control.scram_credentials import ScramManager
from quorate_controller.control.steps import Steps
from quorate_controller.control.topics import TopicManager

if TYPE_CHECKING:
    from random import Random

    from quorate_protocol.image import MetadataImage
    from quorate_protocol.records.framing import MetadataRecord

    from quorate_controller.control.broker_loggers import Loggers
    from quorate_controller.security.authorizer import Authorizer

Decide = Callable[[Any, RequestContext], ControlResult]


Step = Callable[[int], tuple[ControlResult, bool]]
"""Does a bounded part of a task, given the time; True when it has more to do."""

NO_OP: Final = (ControlResult(records=(NoOpRecord(),)), False)


@dataclass(slots=True)
class _Task:
    interval_ms: int
    step: Step
    due_ms: int = 0


class Schedule:
    """Periodic tasks, each due one interval after it was last done.

    The NoOpRecords advance the high watermark, which shows that the cluster is alive (KIP-835).
    """

    def __init__(self, config: ControlConfig, elections: Elections, tokens: DelegationTokenManager) -> None:
        self._tasks = [
            _Task(config.unclean_election_check_interval_ms, lambda _: elections.elect_unclean_leaders())
        ]
        if config.max_idle_interval_ms > 0:
            self._tasks.append(_Task(config.max_idle_interval_ms, lambda _: NO_OP))
        if config.leader_imbalance_check_enable:
            self._tasks.append(
                _Task(config.leader_imbalance_check_interval_ms, lambda _: elections.balance_leaders())
            )
        if config.delegation_token_secret is not None:
            self._tasks.append(_Task(config.delegation_token_expiry_check_interval_ms, tokens.sweep))

    def start(self, now_ms: int) -> None:
        """Begin the first interval of each task."""
        for task in self._tasks:
            task.due_ms = now_ms + task.interval_ms

    @property
    def deadline_ms(self) -> int:
        """When the next task is due."""
        return min(task.due_ms for task in self._tasks)

    def run_due(self, now_ms: int) -> ControlResult | None:
        """Run the task that has been due longest, or a step of it. Returns None without records."""
        task = min(self._tasks, key=lambda task: task.due_ms)
        if task.due_ms > now_ms:
            return None
        result, has_more = task.step(now_ms)
        task.due_ms = now_ms + (STEP_PAUSE_MS if has_more else task.interval_ms)
        return result if result.records else None


class QuorumController:
    """Decides on the records and responses of the active controller; on standby it serves reads only.

    It reads `image` and never changes it. The node calls `observe` with every record that it replayed
    and `tick` whenever `deadline_ms` has come, until that is in the future.
    """

    def __init__(
        self,
        config: ControlConfig,
        image: "MetadataImage",
        rng: "Random",
        quorum: QuorumPort,
        loggers: "Loggers" = NO_LOGGERS,
        *,
        authorizer: "Authorizer | None" = None,
        policies: Policies = NO_POLICIES,
        placing_rng: "Random | None" = None,
    ) -> None:
        self._config = config
        self._image = image
        self._effective = EffectiveConfigs(config.node_id, image, config.static_configs)
        self._loggers = LoggerManager(config.node_id, loggers)
        self._configs = ConfigManager(image, self._effective, quorum, self._loggers, policies)
        self._elections = Elections(image, self._configs)
        self._transitions = PartitionTransitions(image, self._configs)
        self._heartbeats = HeartbeatManager(image, self._transitions, config.broker_session_timeout_ms)
        self._tokens = DelegationTokenManager(config, image, rng)
        self._schedule = Schedule(config, self._elections, self._tokens)
        self._acls = AclManager(image, authorizer, rng)
        self._is_active = False
        self._writes = self._write_handlers(quorum, rng, placing_rng, policies)
        self._reads = self._read_handlers(quorum)

    def _write_handlers(
        self, quorum: QuorumPort, rng: "Random", placing_rng: "Random | None", policies: Policies
    ) -> dict[type, Decide]:
        """Request class -> the function that decides on it, on the active controller only."""
        config, image, configs = self._config, self._image, self._configs
        cluster = ClusterManager(config.cluster_id, image, self._heartbeats, self._transitions, quorum)
        controllers = ControllerManager(config, image, quorum)
        feature_levels = FeatureManager(config.node_id, image, configs, quorum)
        producer_ids = ProducerIdManager(image)
        topics = TopicManager(config, image, configs, rng, policies=policies, placing_rng=placing_rng)
        partitions = PartitionManager(image, configs)
        reassignments = ReassignmentManager(image, configs)
        return {
            BrokerHeartbeatRequest: self._heartbeats.heartbeat,
            BrokerRegistrationRequest: cluster.register_broker,
            UnregisterBrokerRequest: _without_context(cluster.unregister_broker),
            ControllerRegistrationRequest: _without_context(controllers.register_controller),
            UnregisterControllerRequest: _without_context(controllers.unregister_controller),
            AllocateProducerIdsRequest: _without_context(producer_ids.allocate_producer_ids),
            UpdateFeaturesRequest: self._and_clear_elr(feature_levels.update_features),
            AlterConfigsRequest: self._and_clear_elr(configs.alter_configs),
            IncrementalAlterConfigsRequest: self._and_clear_elr(configs.incremental_alter_configs),
            CreateTopicsRequest: topics.create_topics,
            CreatePartitionsRequest: topics.create_partitions,
            DeleteTopicsRequest: topics.delete_topics,
            AlterPartitionRequest: partitions.alter_partition,
            AssignReplicasToDirsRequest: partitions.assign_replicas_to_dirs,
            AlterPartitionReassignmentsRequest: _without_context(reassignments.alter),
            ListPartitionReassignmentsRequest: _without_context(reassignments.list),
            ElectLeadersRequest: self._elections.elect_leaders,
            AlterClientQuotasRequest: ClientQuotaManager(image).alter_client_quotas,
            AlterUserScramCredentialsRequest: _without_context(
                ScramManager(image).alter_user_scram_credentials
            ),
            CreateDelegationTokenRequest: self._tokens.create,
            RenewDelegationTokenRequest: self._tokens.renew,
            ExpireDelegationTokenRequest: self._tokens.expire,
            CreateAclsRequest: self._acls.create_acls,
            DeleteAclsRequest: self._acls.delete_acls,
        }

    def _read_handlers(self, quorum: QuorumPort) -> dict[type, Decide]:
        """Request class -> the function that serves it, on any controller."""
        cluster = ClusterDescriber(self._config.cluster_id, self._image, quorum)
        configs = ConfigDescriber(self._config.node_id, self._image, self._effective, self._loggers)
        security = SecurityDescriber(self._image, self._config.delegation_token_secret)
        return {
            DescribeClusterRequest: cluster.describe_cluster,
            DescribeConfigsRequest: configs.describe_configs,
            DescribeAclsRequest: self._acls.describe_acls,
            DescribeTopicPartitionsRequest: TopicDescriber(self._image).describe_topic_partitions,
            DescribeClientQuotasRequest: security.describe_client_quotas,
            DescribeUserScramCredentialsRequest: security.describe_user_scram_credentials,
            DescribeDelegationTokenRequest: security.describe_delegation_token,
        }

    @property
    def is_active(self) -> bool:
        """Between `activate` and `deactivate`."""
        return self._is_active

    @property
    def deadline_ms(self) -> int | None:
        """When `tick` is due; None on standby."""
        if not self._is_active:
            return None
        deadlines = (
            self._heartbeats.deadline_ms,
            self._transitions.deadline_ms,
            self._schedule.deadline_ms,
        )
        return min(deadline for deadline in deadlines if deadline is not None)

    def excuse_silence(self, duration_ms: int) -> None:
        """Extend all sessions by the time for which this process was suspended and read no heartbeats."""
        self._heartbeats.extend_sessions(duration_ms)

    def activate(self, now_ms: int) -> ControlResult:
        """Start deciding, the image having been replayed to the end of the log.

        Returns:
            records to append before anything else: the bootstrap metadata for an empty log, the abort of a
            metadata transaction that the previous leader left open; possibly none.
        """
        assert not self._is_active
        self._is_active = True
        self._start_soft_state(now_ms)
        self._schedule.start(now_ms)
        return activation(self._image, self._config.bootstrap, self._configs)

    def _start_soft_state(self, now_ms: int) -> None:
        """Derive sessions and transitions from the image."""
        self._heartbeats.activate(now_ms)
        self._transitions.activate()

    def _forget_soft_state(self) -> None:
        self._heartbeats.deactivate()
        self._transitions.deactivate()

    def deactivate(self) -> None:
        """Stop deciding and drop the soft state: leadership is lost, and the image is being reverted."""
        self._is_active = False
        self._forget_soft_state()
        self._elections.drop_passes()

    def decide(self, request: Any, context: RequestContext) -> ControlResult:
        """Decide on one request in its canonical class.

        Raises:
            ControlError: the request is refused as a whole; NOT_CONTROLLER for a write on standby.
        """
        read = self._reads.get(type(request))
        if read is not None:
            return read(request, context)
        if not self._is_active and not _needs_no_leader(request, context):
            raise ControlError(ErrorCode.not_controller, "This controller is on standby.")
        write = self._writes.get(type(request))
        if write is None:
            raise ControlError(
                ErrorCode.unsupported_version, f"{type(request).__name__} is not for controllers."
            )
        return write(request, context)

    def tick(self, now_ms: int) -> ControlResult | None:
        """Run one due task: fence one expired broker, move partitions away from inactive brokers, write a
        NoOpRecord, elect leaders, or remove delegation tokens.

        Returns:
            None without records.
        """
        assert self._is_active
        expiry_ms = self._heartbeats.deadline_ms
        if expiry_ms is not None and expiry_ms <= now_ms:
            return self._heartbeats.fence_stale_broker(now_ms)
        slice_ms = self._transitions.deadline_ms
        if slice_ms is not None and slice_ms <= now_ms:
            return self._transitions.run_slice(now_ms)
        return self._schedule.run_due(now_ms)

    def observe(
        self,
        records: "Sequence[MetadataRecord]",
        base_offset: int,
        now_ms: int,
    ) -> None:
        """Observe records that were just replayed into the image, on active and standby alike."""
        if self._is_active:
            if any(isinstance(record, AbortTransactionRecord) for record in records):
                # The image had the changes of the aborted transaction, for instance brokers that it fenced.
                self._forget_soft_state()
                self._start_soft_state(now_ms)
            for offset, record in enumerate(records, base_offset):
                self._heartbeats.observe(record, offset)

    def _and_clear_elr(self, alter: Decide) -> Decide:
        """Another `min.insync.replicas` makes the eligible leader replicas of a topic unreliable, another level of
        the feature those of all topics (KIP-966).
        """

        def clear(part: ControlResult) -> ControlResult:
            if changes_elr_level(part.records):
                cleared = self._transitions.on_elr_level_changed()
            elif names := topics_with_new_min_insync_replicas(part.records):
                cleared = self._transitions.on_min_insync_replicas_changed(names)
            else:
                return part
            return replace(part, records=(*part.records, *cleared))

        def clearing(steps: Steps) -> Steps:
            while True:
                try:
                    part = next(steps)
                except StopIteration as ended:
                    return clear(ended.value)
                yield clear(part) if part else None

        def alter_and_clear(request: Any, context: RequestContext) -> ControlResult:
            result = clear(alter(request, context))
            return replace(result, steps=clearing(result.steps)) if result.steps else result

        return alter_and_clear


TRANSACTION_NAME: Final = "Bootstrap records"
ABORT_REASON: Final = "Controller failover"


def default_bootstrap(
    metadata_version: int = features.METADATA_VERSION_OF_NEW_CLUSTERS,
) -> BootstrapMetadata:
    """The records of `kafka-storage format` for a release: metadata.version and the levels that belong to it."""
    levels = {features.METADATA_VERSION: metadata_version, **features.default_levels(metadata_version)}
    return BootstrapMetadata(
        records=tuple(FeatureLevelRecord(name=name, feature_level=level) for name, level in levels.items())
    )


def activation(image: "MetadataImage", bootstrap: BootstrapMetadata, configs: ConfigManager) -> ControlResult:
    """Return the records to write before any decision; empty if the log needs none.

    A transaction left open by the previous leader is aborted. A log without metadata.version gets the
    bootstrap metadata, in a transaction if its metadata.version has transactions, which need not be one batch.
    """
    aborts = image.transaction is not None
    # The image has the records of an open transaction, which the abort will revert.
    metadata_version = image.committed_copy().metadata_version if aborts else image.metadata_version
    records: list[MetadataRecord] = [AbortTransactionRecord(reason=ABORT_REASON)] if aborts else []
    if metadata_version:
        return ControlResult(records=tuple(records))
    bootstrap = bootstrap if bootstrap.records else default_bootstrap()
    levels = {
        record.name: record.feature_level
        for record in bootstrap.records
        if isinstance(record, FeatureLevelRecord)
    }
    has_transactions = levels[features.METADATA_VERSION] >= features.TRANSACTIONS_SINCE
    if has_transactions:
        records.append(BeginTransactionRecord(name=TRANSACTION_NAME))
    records += bootstrap.records
    if levels.get(features.ELIGIBLE_LEADER_REPLICAS, 0) > 0:
        records += configs.eligible_leader_replicas_records()
    if has_transactions:
        records.append(EndTransactionRecord())
    return ControlResult(records=tuple(records), atomic=not has_transactions)


def _needs_no_leader(request: Any, context: RequestContext) -> bool:
    """Whether a standby may do a write: levels of its own loggers, requested directly."""
    return (
        isinstance(request, IncrementalAlterConfigsRequest)
        and not context.forwarded
        and are_all_loggers(request)
    )


def _without_context(decide: Callable[[Any], ControlResult]) -> Decide:
    return lambda request, _context: decide(request)
