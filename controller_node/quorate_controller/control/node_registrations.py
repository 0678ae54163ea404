"""Registrations of brokers (KIP-631) and controllers (KIP-919, KIP-1312)."""

from datetime import timedelta
from typing import TYPE_CHECKING, Final

from quorate_protocol import features
from quorate_protocol.errors import ErrorCode
from quorate_protocol.kafka.enums import SecurityProtocol
from quorate_protocol.kafka.generated.broker_registration_request import BrokerRegistrationRequest, Feature
from quorate_protocol.kafka.generated.broker_registration_response import BrokerRegistrationResponse
from quorate_protocol.kafka.generated.controller_registration_request import ControllerRegistrationRequest
from quorate_protocol.kafka.generated.controller_registration_response import ControllerRegistrationResponse
from quorate_protocol.kafka.generated.unregister_broker_request import UnregisterBrokerRequest
from quorate_protocol.kafka.generated.unregister_broker_response import UnregisterBrokerResponse
from quorate_protocol.kafka.generated.unregister_controller_request import UnregisterControllerRequest
from quorate_protocol.kafka.generated.unregister_controller_response import UnregisterControllerResponse
from quorate_protocol.records.generated import (
    BrokerEndpoint,
    BrokerFeature,
    ControllerEndpoint,
    ControllerFeature,
    RegisterBrokerRecord,
    RegisterControllerRecord,
    UnregisterBrokerRecord,
    UnregisterControllerRecord,
)

from quorate_controller.control.api import (
    ControlConfig,
    ControlError,
    ControlResult,
    QuorumPort,
    RequestContext,
)
from quorate_controller.control.heartbeats import HeartbeatManager

if TYPE_CHECKING:
    from uuid import UUID

    from quorate_protocol.image import BrokerRegistration, MetadataImage
    from quorate_protocol.records.framing import MetadataRecord

    from quorate_controller.control.broker_transitions import PartitionTransitions

RESERVED_DIRECTORY_IDS: Final = 100
"""The ids 0 to 99 are reserved: they do not name a directory (DirectoryId)."""

PREVIOUS_EPOCH_SINCE: Final = 3
"""First version of BrokerRegistration whose previous_broker_epoch proves a clean shutdown (KIP-966)."""


class ClusterManager:
    """Decides on registrations of brokers. Stateless but for the sessions in `heartbeats`."""

    def __init__(
        self,
        cluster_id: str,
        image: "MetadataImage",
        heartbeats: HeartbeatManager,
        transitions: "PartitionTransitions",
        quorum: QuorumPort,
    ) -> None:
        self._cluster_id = cluster_id
        self._image = image
        self._heartbeats = heartbeats
        self._transitions = transitions
        self._quorum = quorum

    def register_broker(self, request: BrokerRegistrationRequest, context: RequestContext) -> ControlResult:
        """BrokerRegistration 0-4. The epoch of a new incarnation is the offset of its RegisterBrokerRecord.

        An incarnation that registers again keeps its epoch, and stays fenced or unfenced.

        Raises:
            ControlError: INCONSISTENT_CLUSTER_ID; DUPLICATE_BROKER_REGISTRATION (another incarnation has a
                live session, or is still in many ISRs); BROKER_ID_NOT_REGISTERED (a broker in migration from
                ZooKeeper); INVALID_REGISTRATION (log directories, listeners, no metadata.version);
                UNSUPPORTED_VERSION (a finalized level is out of the broker's range).
        """
        if request.cluster_id != self._cluster_id:
            raise ControlError(
                ErrorCode.inconsistent_cluster_id,
                f"Expected cluster ID {self._cluster_id}, but got cluster ID {request.cluster_id}",
            )
        existing = self._image.cluster.brokers.get(request.broker_id)
        is_same_incarnation = existing is not None and existing.incarnation_id == request.incarnation_id
        if not is_same_incarnation and self._heartbeats.has_valid_session(request.broker_id, context.now_ms):
            raise ControlError(
                ErrorCode.duplicate_broker_registration,
                "Another broker is registered with that broker id. If the broker was recently restarted this "
                "should self-resolve once the heartbeat manager expires the broker's session.",
            )
        if request.is_migrating_zk_broker:
            raise ControlError(
                ErrorCode.broker_id_not_registered, "Controller does not support registering ZK brokers."
            )
        self._check_identity(request)
        self._check_features(request)
        if existing is not None and is_same_incarnation:
            record = self._record(request, existing.epoch, existing)
            records: tuple[MetadataRecord, ...] = (record,)
        else:
            cleanup = self._clean_up_previous(request, existing, context)
            record = self._record(request, context.next_offset + len(cleanup), None)
            records = (*cleanup, record)
        response = BrokerRegistrationResponse(
            throttle_time=timedelta(0), error_code=ErrorCode.none, broker_epoch=record.broker_epoch
        )
        return ControlResult(records=records, response=response, atomic=False)

    def unregister_broker(self, request: UnregisterBrokerRequest) -> ControlResult:
        """UnregisterBroker 0 (KIP-631): removes a broker from all ISRs and from the cluster.

        Raises:
            ControlError: BROKER_ID_NOT_REGISTERED.
        """
        broker = self._image.cluster.brokers.get(request.broker_id)
        if broker is None:
            raise ControlError(
                ErrorCode.broker_id_not_registered,
                f"Broker ID {request.broker_id} is not currently registered",
            )
        records = (
            *self._transitions.on_broker_unregistered(broker.broker_id),
            UnregisterBrokerRecord(broker_id=broker.broker_id, broker_epoch=broker.epoch),
        )
        response = UnregisterBrokerResponse(
            throttle_time=timedelta(0), error_code=ErrorCode.none, error_message=""
        )
        return ControlResult(records=records, response=response, atomic=False)

    def _check_identity(self, request: BrokerRegistrationRequest) -> None:
        """Incarnation, listeners and, if the cluster assigns them, log directories."""
        if request.incarnation_id is None:
            raise ControlError(ErrorCode.invalid_registration, "No incarnation ID specified in request")
        known_protocols = frozenset(SecurityProtocol)
        for listener in request.listeners:
            if listener.security_protocol not in known_protocols:
                raise ControlError(
                    ErrorCode.invalid_registration,
                    f"Listener {listener.name} has unknown security protocol {listener.security_protocol}",
                )
        if self._image.metadata_version < features.DIRECTORY_ASSIGNMENT_SINCE:
            return
        if not request.log_dirs:
            raise ControlError(ErrorCode.invalid_registration, "No directories specified in request")
        if any(directory is None or directory.int < RESERVED_DIRECTORY_IDS for directory in request.log_dirs):
            raise ControlError(ErrorCode.invalid_registration, "Reserved directory ID in request")
        if len(set(request.log_dirs)) != len(request.log_dirs):
            raise ControlError(ErrorCode.invalid_registration, "Duplicate directory ID in request")
        self._check_directories_unused(request.broker_id, set(request.log_dirs))

    def _check_directories_unused(self, broker_id: int, directories: "set[UUID | None]") -> None:
        for other in self._image.cluster.brokers.values():
            for directory in other.directories:
                if directory in directories and other.broker_id != broker_id:
                    raise ControlError(
                        ErrorCode.invalid_registration,
                        f"Broker {other.broker_id} is already registered with directory {directory}",
                    )

    def _check_features(self, request: BrokerRegistrationRequest) -> None:
        """Each finalized level must be in the broker's range; a feature without a range has only level 0."""
        finalized = {**self._image.features, features.KRAFT_VERSION: self._quorum.kraft_version}
        named = {feature.name for feature in request.features}
        if features.METADATA_VERSION not in named:
            raise ControlError(
                ErrorCode.invalid_registration, "Request features do not contain 'metadata.version'"
            )
        unnamed = (
            Feature(name=name, min_supported_version=0, max_supported_version=0)
            for name in finalized
            if name not in named
        )
        for feature in (*request.features, *unnamed):
            level = finalized.get(feature.name, 0)
            if not feature.min_supported_version <= level <= feature.max_supported_version:
                raise ControlError(
                    ErrorCode.unsupported_version,
                    f"Unable to register because the broker does not support finalized version {level} of "
                    f"{feature.name}. The broker wants a version between {feature.min_supported_version} and "
                    f"{feature.max_supported_version}, inclusive.",
                )

    def _clean_up_previous(
        self,
        request: BrokerRegistrationRequest,
        existing: "BrokerRegistration | None",
        context: RequestContext,
    ) -> "tuple[MetadataRecord, ...]":
        """The records that remove the previous incarnation from every ISR.

        Raises:
            ControlError: DUPLICATE_BROKER_REGISTRATION while it is in too many of them.
        """
        is_clean_shutdown = (
            context.api_version >= PREVIOUS_EPOCH_SINCE
            and existing is not None
            and existing.epoch == request.previous_broker_epoch
        )
        leave = (
            self._transitions.on_broker_fenced if is_clean_shutdown else self._transitions.on_unclean_restart
        )
        records = tuple(leave(request.broker_id))
        if self._transitions.is_departing(request.broker_id):
            # A new registration would hide that its copies may have lost records. The broker retries.
            raise ControlError(
                ErrorCode.duplicate_broker_registration,
                "The previous incarnation of that broker id is still being taken out of its partitions.",
            )
        return records

    def _record(
        self, request: BrokerRegistrationRequest, epoch: int, same: "BrokerRegistration | None"
    ) -> RegisterBrokerRecord:
        """`same`: the registration of the same incarnation."""
        has_directories = self._image.metadata_version >= features.DIRECTORY_ASSIGNMENT_SINCE
        return RegisterBrokerRecord(
            broker_id=request.broker_id,
            incarnation_id=request.incarnation_id,
            broker_epoch=epoch,
            end_points=tuple(
                BrokerEndpoint(
                    name=listener.name,
                    host=listener.host,
                    port=listener.port,
                    security_protocol=listener.security_protocol,
                )
                for listener in request.listeners
            ),
            features=tuple(
                BrokerFeature(
                    name=feature.name,
                    min_supported_version=feature.min_supported_version,
                    max_supported_version=feature.max_supported_version,
                )
                for feature in request.features
            ),
            rack=request.rack,
            fenced=same.fenced if same else True,
            in_controlled_shutdown=same.in_controlled_shutdown if same else False,
            log_dirs=request.log_dirs if has_directories else (),
        )


class ControllerManager:
    """Decides on registrations of controllers, voters and observers alike. Stateless."""

    def __init__(self, config: ControlConfig, image: "MetadataImage", quorum: QuorumPort) -> None:
        self._node_id = config.node_id
        self._incarnation_id = config.incarnation_id
        self._image = image
        self._quorum = quorum

    def register_controller(self, request: ControllerRegistrationRequest) -> ControlResult:
        """ControllerRegistration 0. The newest registration of an id replaces the previous one.

        A controller can only verify registrations with its own id: it runs itself.

        Raises:
            ControlError: UNSUPPORTED_VERSION below metadata.version 15; INVALID_REQUEST without an
                incarnation id or with an unknown security protocol, which no controller could replay, and for
                another process that registers with the id of the active controller.
        """
        if self._image.metadata_version < features.CONTROLLER_REGISTRATION_SINCE:
            raise ControlError(
                ErrorCode.unsupported_version,
                "The current MetadataVersion is too old to support controller registrations.",
            )
        if request.incarnation_id is None:
            raise ControlError(ErrorCode.invalid_request, "No incarnation ID specified in request")
        is_own_id = request.controller_id == self._node_id and self._incarnation_id is not None
        if is_own_id and request.incarnation_id != self._incarnation_id:
            raise ControlError(
                ErrorCode.invalid_request,
                f"Controller {request.controller_id} is the active controller: no other process can register "
                "with its id.",
            )
        known_protocols = frozenset(SecurityProtocol)
        for listener in request.listeners:
            if listener.security_protocol not in known_protocols:
                raise ControlError(
                    ErrorCode.invalid_request,
                    f"Listener {listener.name} has unknown security protocol {listener.security_protocol}",
                )
        record = RegisterControllerRecord(
            controller_id=request.controller_id,
            incarnation_id=request.incarnation_id,
            zk_migration_ready=False,
            end_points=tuple(
                ControllerEndpoint(
                    name=listener.name,
                    host=listener.host,
                    port=listener.port,
                    security_protocol=listener.security_protocol,
                )
                for listener in request.listeners
            ),
            features=tuple(
                ControllerFeature(
                    name=feature.name,
                    min_supported_version=feature.min_supported_version,
                    max_supported_version=feature.max_supported_version,
                )
                for feature in request.features
            ),
        )
        response = ControllerRegistrationResponse(
            throttle_time=timedelta(0), error_code=ErrorCode.none, error_message=""
        )
        return ControlResult(records=(record,), response=response)

    def unregister_controller(self, request: UnregisterControllerRequest) -> ControlResult:
        """UnregisterController 0 (KIP-1312): the registration no longer counts, nor do its feature levels.

        A controller that is still running registers again by itself.

        Raises:
            ControlError: INVALID_REQUEST for a voter, static or dynamic; UNSUPPORTED_VERSION below
                metadata.version 33; CONTROLLER_ID_NOT_REGISTERED. In this order, as in Kafka 4.4, whose 4.4.0 refuses
                no voter but the active controller.
        """
        controller_id = request.controller_id
        # The last voter set counts, committed or not: its record precedes ours in the log.
        if controller_id in self._quorum.voter_ids:
            raise ControlError(
                ErrorCode.invalid_request,
                f"Cannot unregister controller {controller_id} because it is part of the voter set. "
                "Stop it and remove it from the voters first.",
            )
        level = self._image.metadata_version
        if level < features.CONTROLLER_UNREGISTRATION_SINCE:
            raise ControlError(ErrorCode.unsupported_version, _too_old_to_unregister(level, controller_id))
        if controller_id not in self._image.cluster.controllers:
            raise ControlError(
                ErrorCode.controller_id_not_registered,
                f"Controller ID {controller_id} is not currently registered.",
            )
        response = UnregisterControllerResponse(
            throttle_time=timedelta(0), error_code=ErrorCode.none, error_message=""
        )
        record = UnregisterControllerRecord(controller_id=controller_id)
        return ControlResult(records=(record,), response=response)


def _too_old_to_unregister(level: int, controller_id: int) -> str:
    """The reason, and both remedies: a newer level, or a registration that blocks no level."""
    needed = features.CONTROLLER_UNREGISTRATION_SINCE
    return (
        "The current MetadataVersion is too old to support controller unregistration: metadata.version is "
        f"{level} ({features.metadata_version_name(level)}), it must be at least {needed} "
        f"({features.metadata_version_name(needed)}). Finalize that level first; if the registration of "
        f"controller {controller_id} stands in the way, refresh it with a ControllerRegistration request "
        "that has the feature levels of the other controllers."
    )
