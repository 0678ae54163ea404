"""Which controllers there are: ControllerRegistration (KIP-919)."""

from datetime import timedelta
from typing import TYPE_CHECKING

from kio.schema.controller_registration.v0.request import ControllerRegistrationRequest
from kio.schema.controller_registration.v0.response import ControllerRegistrationResponse
from kio.schema.errors import ErrorCode
from quorate_protocol import features
from quorate_protocol.image import SecurityProtocol
from quorate_protocol.records.generated import ControllerEndpoint, ControllerFeature, RegisterControllerRecord

from quorate_controller.control.api import ControlError, ControlResult

if TYPE_CHECKING:
    from quorate_protocol.image import MetadataImage


class ControllerManager:
    """Takes the registrations of controllers, voters and observers alike. Holds no state of its own."""

    def __init__(self, image: "MetadataImage") -> None:
        self._image = image

    def register_controller(self, request: ControllerRegistrationRequest) -> ControlResult:
        """ControllerRegistration 0. The newest registration of an id replaces the previous one.

        :raises ControlError: UNSUPPORTED_VERSION below metadata.version 15; INVALID_REQUEST without an
            incarnation id or with an unknown security protocol, which no controller could replay.
        """
        if self._image.metadata_version < features.CONTROLLER_REGISTRATION_SINCE:
            raise ControlError(
                ErrorCode.unsupported_version,
                "The current MetadataVersion is too old to support controller registrations.",
            )
        if request.incarnation_id is None:
            raise ControlError(ErrorCode.invalid_request, "No incarnation ID specified in request")
        known_protocols = {int(protocol) for protocol in SecurityProtocol}
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
