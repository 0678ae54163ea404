"""AdminClient: asks a cluster for its state and for changes, through brokers or its controllers."""

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
    """A client of one cluster; its connections are opened when they are first needed and kept.

    Give `bootstrap_servers` to go through brokers, or `bootstrap_controllers` to go straight to the
    controllers, which works when no broker does; or a whole configuration, such as
    `AdminConfig.from_properties` makes. `overrides` are fields of AdminConfig. Several tasks of one event
    loop may use one client.

    Methods have the names of Kafka's Admin. Those about one thing return its value or raise; those about
    several return `Results`.
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
        """Close every connection; what is under way fails."""
        await self._transport.close()

    @property
    def cluster_id(self) -> str | None:
        """The cluster that this client has found; None before its first answer, and while it begins again."""
        return self._transport.routing.cluster_id

    @property
    def misrouted_connections(self) -> int:
        """How many connections turned out to lead to another node or cluster (KIP-1242); each is logged."""
        return self._transport.routing.misrouted_connections

    @property
    def rebootstraps(self) -> int:
        """How often this client gave up all that it knew, and began again from the bootstrap addresses."""
        return self._transport.routing.rebootstraps
