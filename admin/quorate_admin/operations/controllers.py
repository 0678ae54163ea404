"""Registrations of controllers (KIP-919, KIP-1312), and what single nodes speak."""

from quorate_admin.network.address import Address
from quorate_admin.operations.base import Operations, To
from quorate_admin.types.controllers import ControllerRegistration, NodeApiVersions


class ControllerOperations(Operations):
    """ControllerRegistration, UnregisterController, and ApiVersions of single nodes."""

    async def register_controller(
        self, registration: ControllerRegistration, *, timeout_ms: int | None = None
    ) -> None:
        """Register a controller in its place (ControllerRegistration, KIP-919). Raises AdminError.

        This is the bare request, which controllers send for themselves; `refresh_controller` has the checks.
        """
        from kio.schema.controller_registration.v0.request import (
            ControllerRegistrationRequest,
            Feature,
            Listener,
        )

        self._controllers_only("registering a controller")
        request = ControllerRegistrationRequest(
            controller_id=registration.controller_id,
            incarnation_id=registration.incarnation_id,
            zk_migration_ready=False,
            listeners=tuple(
                Listener(name=one.name, host=one.host, port=one.port, security_protocol=one.security_protocol)
                for one in registration.listeners
            ),
            features=tuple(
                Feature(name=name, min_supported_version=low, max_supported_version=high)
                for name, (low, high) in sorted(registration.features.items())
            ),
        )
        await self._ask(request, timeout_ms=timeout_ms)

    async def unregister_controller(self, controller_id: int, *, timeout_ms: int | None = None) -> None:
        """Remove the registration of a controller that is stopped for good (KIP-1312). Raises AdminError.

        :raises UnsupportedByServerError: the cluster is older than Kafka 4.4.
        :raises ServerError: UNSUPPORTED_VERSION below metadata.version 4.4-IV2; CONTROLLER_ID_NOT_REGISTERED;
            INVALID_REQUEST for a current voter.
        """
        from quorate_protocol.wire.generated.unregister_controller_request import UnregisterControllerRequest

        await self._ask(UnregisterControllerRequest(controller_id=controller_id), timeout_ms=timeout_ms)

    async def refresh_controller(self, controller_id: int, *, timeout_ms: int | None = None) -> None:
        """Register a dead controller anew with the cluster's feature ranges and no listeners."""
        raise NotImplementedError

    async def node_api_versions(
        self, node: int | Address, *, timeout_ms: int | None = None
    ) -> NodeApiVersions:
        """What one node speaks (ApiVersions), by node id or by address. Raises AdminError."""
        to = To.at(node) if isinstance(node, Address) else To.node(node)
        response = await self._api_versions(to, timeout_ms=timeout_ms)
        return NodeApiVersions(
            api_versions={key.api_key: (key.min_version, key.max_version) for key in response.api_keys},
            supported_features={
                key.name: (key.min_version, key.max_version) for key in response.supported_features
            },
            finalized_features={key.name: key.max_version_level for key in response.finalized_features},
            finalized_features_epoch=response.finalized_features_epoch,
        )
