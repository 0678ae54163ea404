"""AdminClient: describes and changes a cluster, through its brokers or its controllers."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Self

from quorate_admin.config import Address, AdminConfig, addresses_of
from quorate_admin.network.transport import Transport
from quorate_admin.operations.acls import AclOperations
from quorate_admin.operations.configs import ConfigOperations
from quorate_admin.operations.controllers import ControllerOperations
from quorate_admin.operations.credentials import CredentialOperations
from quorate_admin.operations.partitions import PartitionOperations
from quorate_admin.operations.quotas import QuotaOperations
from quorate_admin.operations.topics import TopicOperations


class AdminClient(
    AclOperations,
    ConfigOperations,
    ControllerOperations,  # a ClusterOperations too
    CredentialOperations,
    PartitionOperations,
    QuotaOperations,
    TopicOperations,
):
    """A client of one cluster. Connections are opened on first use and kept.

    Pass `bootstrap_servers` to connect through brokers, or `bootstrap_controllers` to connect to the controllers,
    which works without any broker; or pass a configuration, for instance from `AdminConfig.from_properties`.
    `overrides` are fields of AdminConfig. Tasks of one event loop may share a client.

    Methods have the names of Kafka's Admin. A method for one object returns its value or raises; a method for several
    objects returns `Results`. `timeout_ms` defaults to `default_api_timeout_ms` of the configuration.

    Raises:
        UnreachableError, RequestTimeoutError: by every method, if no node answers in time.
        ServerError: the whole request was refused; it has Kafka's error code.
        UnsupportedEndpointError: a method that is for brokers only is called with bootstrap controllers.
        UnsupportedByServerError: the server has no version of the request that can express the arguments.
        AuthenticationError: TLS or SASL failed.
    """

    def __init__(
        self,
        config: AdminConfig | None = None,
        *,
        bootstrap_servers: Sequence[str | Address] = (),
        bootstrap_controllers: Sequence[str | Address] = (),
        **overrides: Any,
    ) -> None:
        if bootstrap_servers or bootstrap_controllers or config is None:
            overrides["bootstrap_servers"] = addresses_of("bootstrap.servers", bootstrap_servers)
            overrides["bootstrap_controllers"] = addresses_of("bootstrap.controllers", bootstrap_controllers)
        if config is None:
            config = AdminConfig(**overrides)
        elif overrides:
            config = replace(config, **overrides)
        self._config = config
        self._transport = Transport(config)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        """Close all connections. Requests in flight fail."""
        await self._transport.close()

    @property
    def cluster_id(self) -> str | None:
        """The id of the cluster; None before the first answer, and after a rebootstrap until the next one."""
        return self._transport.routing.cluster_id

    @property
    def misrouted_connections(self) -> int:
        """The number of connections that led to another node or cluster than expected (KIP-1242). Each is logged."""
        return self._transport.routing.misrouted_connections

    @property
    def rebootstraps(self) -> int:
        """How often the client forgot the cluster and started again from the bootstrap addresses (KIP-899)."""
        return self._transport.routing.rebootstraps
