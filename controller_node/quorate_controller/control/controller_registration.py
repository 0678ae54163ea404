"""Registrations of controllers: ControllerRegistration (KIP-919), UnregisterController (KIP-1312)."""

from datetime import timedelta
from typing import TYPE_CHECKING

from quorate_protocol import features
from quorate_protocol.errors import ErrorCode
from quorate_protocol.kafka.enums import SecurityProtocol
from quorate_protocol.kafka.generated.controller_registration_request import ControllerRegistrationRequest
from quorate_protocol.kafka.generated.controller_registration_response import ControllerRegistrationResponse
from quorate_protocol.kafka.generated.unregister_controller_request import UnregisterControllerRequest
from quorate_protocol.kafka.generated.unregister_controller_response import UnregisterControllerResponse
from quorate_protocol.records.generated import (
    ControllerEndpoint,
    ControllerFeature,
    RegisterControllerRecord,
    UnregisterControllerRecord,
)

from quorate_controller.control.api import ControlConfig, ControlError, ControlResult, QuorumView

if TYPE_CHECKING:
    from quorate_protocol.image import MetadataImage


class ControllerManager:
    """Decides on registrations of controllers, voters and observers alike. Stateless."""

    def __init__(self, config: ControlConfig, image: "MetadataImage", quorum: QuorumView) -> None:
        self._node_id = config.node_id
        self._incarnation_id = config.incarnation_id
        self._image = image
        self._quorum = quorum

    def register_controller(self, request: ControllerRegistrationRequest) -> ControlResult:
        """ControllerRegistration 0. The newest registration of an id replaces the previous one.

        Only for its own id does a controller know whether the registered controller is alive.

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
        # The last voter set counts, committed or not: its record stands before ours in the log.
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
    """What is in the way, and the two ways on: a newer level, or a registration that blocks no level."""
    needed = features.CONTROLLER_UNREGISTRATION_SINCE
    return (
        "The current MetadataVersion is too old to support controller unregistration: metadata.version is "
        f"{level} ({features.metadata_version_name(level)}), it must be at least {needed} "
        f"({features.metadata_version_name(needed)}). Finalize that level first; if the registration of "
        f"controller {controller_id} stands in the way, refresh it with a ControllerRegistration request "
        "that has the feature levels of the other controllers."
    )
