"""Clients of the controllers of a secured cluster, and what they are allowed to do."""

import asyncio

from kit.cluster import Cluster
from quorate_admin.client import AdminClient
from quorate_admin.config import INT_MAX
from quorate_admin.security.config import SecurityConfig
from quorate_admin.types.acls import AccessControlEntry, AclBinding, ResourcePattern
from quorate_protocol.kafka.enums import AclOperation, ResourceType


def controllers_of(
    cluster: Cluster, security: SecurityConfig, node_id: int | None = None, retries: int = INT_MAX
) -> AdminClient:
    """A client of all controllers, or of one."""
    address = cluster.bootstrap_controllers if node_id is None else cluster.address(node_id)
    return AdminClient(
        bootstrap_controllers=address.split(","),
        security=security,
        request_timeout_ms=10_000,
        retries=retries,
    )


def allow(cluster: Cluster, security: SecurityConfig, principal: str, operation: AclOperation) -> None:
    """Allow a principal an operation on the cluster and all topics."""

    async def create() -> None:
        async with controllers_of(cluster, security) as admin:
            entry = AccessControlEntry(principal=principal, operation=operation)
            resources = ((ResourceType.CLUSTER, "kafka-cluster"), (ResourceType.TOPIC, "*"))
            bindings = [
                AclBinding(pattern=ResourcePattern(resource_type=kind, name=name), entry=entry)
                for kind, name in resources
            ]
            assert not (await admin.create_acls(bindings)).errors

    asyncio.run(create())
