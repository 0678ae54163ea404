"""Probes of addresses: which node of which cluster answers there."""

import asyncio
import socket
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

from quorate_admin.errors import (
    AdminError,
    RebootstrapRequiredError,
    ServerError,
    TlsExpectedError,
)
from quorate_admin.network.connection import Connection, Identity
from quorate_admin.network.transport import describe_cluster_request
from quorate_admin.security.config import SecurityConfig
from quorate_protocol.errors import ErrorCode
from quorate_protocol.kafka.enums import ConfigResourceType, SecurityProtocol
from quorate_protocol.kafka.generated.describe_configs_request import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
)

from quorate_operator import clock
from quorate_operator.gateway.node_clients import CLIENT_ID, SecurityOf, admin_address
from quorate_operator.planning.cluster import Address, Reached

PROBE_TIMEOUT_MS = 3_000
PROBES_AT_ONCE_MAX = 32


async def probe(
    addresses: Iterable[Address], node_ids: frozenset[int], security_of: SecurityOf
) -> Mapping[Address, Reached]:
    """Return the node that answers at each address. Only node ids in `node_ids` are recognized.

    An unknown listener is probed in plain text, and over TLS if it expects that. A certificate is checked before a
    login is sent; without a login the node's response identifies it. Where clients log in with tokens alone, only the
    certificate is checked: the result is anonymous.
    Each address takes at most PROBE_TIMEOUT_MS; PROBES_AT_ONCE_MAX addresses are probed at the same time.
    """
    room = asyncio.Semaphore(PROBES_AT_ONCE_MAX)

    async def probe_one(address: Address) -> Reached:
        async with room:
            return await _reached(address, node_ids, security_of(address))

    asked = list(addresses)
    return dict(zip(asked, await asyncio.gather(*map(probe_one, asked)), strict=True))


async def resolve(addresses: Iterable[Address]) -> Mapping[Address, Reached]:
    """Return for each address whether its name resolves. Nothing is connected to."""
    room = asyncio.Semaphore(PROBES_AT_ONCE_MAX)

    async def resolve_one(address: Address) -> Reached:
        async with room:
            return await _resolved(address)

    asked = list(addresses)
    return dict(zip(asked, await asyncio.gather(*map(resolve_one, asked)), strict=True))


async def _resolved(address: Address) -> Reached:
    try:
        async with asyncio.timeout(PROBE_TIMEOUT_MS / 1000):
            await asyncio.get_running_loop().getaddrinfo(address.host, address.port, type=socket.SOCK_STREAM)
    except TimeoutError:
        error = f"no response of DNS for {address.host} in {PROBE_TIMEOUT_MS} ms"
        return Reached(at_ms=clock.now_ms(), error=error)
    except (OSError, ValueError) as failure:  # ValueError: a name that can't be one
        return Reached(at_ms=clock.now_ms(), error=str(failure))
    return Reached(at_ms=clock.now_ms(), is_resolved=True)


async def _reached(address: Address, node_ids: frozenset[int], security: SecurityConfig | None) -> Reached:
    try:
        async with asyncio.timeout(PROBE_TIMEOUT_MS / 1000):
            cluster_id, node_id = await _ask(address, node_ids, security or SecurityConfig())
    except TimeoutError:
        return Reached(at_ms=clock.now_ms(), error=f"no response from {address} in {PROBE_TIMEOUT_MS} ms")
    except (AdminError, OSError, ValueError) as error:  # ValueError: a name that can't be one
        return Reached(at_ms=clock.now_ms(), error=str(error))
    return Reached(at_ms=clock.now_ms(), cluster_id=cluster_id, node_id=node_id)


async def _ask(
    address: Address, node_ids: frozenset[int], security: SecurityConfig
) -> tuple[str | None, int | None]:
    trusting = replace(security.tls, is_checking_certificate=False)
    if security.protocol is SecurityProtocol.SSL:
        return await _ask_over(address, node_ids, replace(security, tls=trusting))
    try:
        return await _ask_over(address, node_ids, security)
    except TlsExpectedError:
        secured = replace(security, protocol=SecurityProtocol.SSL, sasl=None, tls=trusting)
        return await _ask_over(address, node_ids, secured)


async def _ask_over(
    address: Address, node_ids: frozenset[int], security: SecurityConfig
) -> tuple[str | None, int | None]:
    """Return cluster id and node id; (None, None) for a SASL listener without a login."""
    connection = await Connection.open(
        admin_address(address), client_id=CLIENT_ID, timeout_ms=PROBE_TIMEOUT_MS, security=security
    )
    try:
        if security.protocol.is_sasl and security.sasl is None:
            return None, None
        cluster_id = await _cluster_id(connection)
        node_id = await _node_id(connection, node_ids)
        if node_id is not None:
            await _confirm(connection, Identity(cluster_id, node_id))
        return cluster_id, node_id
    finally:
        await connection.close()


async def _cluster_id(connection: Connection) -> str:
    """Return the id from DescribeCluster. Raises ServerError for a controller below metadata.version 3.7-IV0."""
    for is_to_controllers in (False, True):
        response = await connection.request(
            describe_cluster_request(is_to_controllers=is_to_controllers), PROBE_TIMEOUT_MS
        )
        if response.error_code is ErrorCode.none:
            return str(response.cluster_id)
        if response.error_code is not ErrorCode.mismatched_endpoint_type:
            break
    raise ServerError(response.error_code, response.error_message)


async def _node_id(connection: Connection, node_ids: frozenset[int]) -> int | None:
    """Return which of these node ids the node has: it describes its own configuration and refuses others.

    Its list of nodes is no evidence: a node that answers at another node's address lists that other node there.
    """
    request = DescribeConfigsRequest(
        resources=tuple(
            DescribeConfigsResource(
                # The resource type BROKER is used for controllers, too.
                resource_type=ConfigResourceType.BROKER,
                resource_name=str(node_id),
                configuration_keys=("node.id",),
            )
            for node_id in sorted(node_ids)
        )
    )
    response = await connection.request(request, PROBE_TIMEOUT_MS)
    _raise_if_forbidden(response)
    return next(
        (int(result.resource_name) for result in response.results if result.error_code is ErrorCode.none),
        None,
    )


def _raise_if_forbidden(response: Any) -> None:
    for result in response.results:
        if result.error_code is ErrorCode.cluster_authorization_failed:
            raise ServerError(result.error_code, "identifying a node needs DESCRIBE_CONFIGS on the cluster")


async def _confirm(connection: Connection, identity: Identity) -> None:
    """Let a node with ApiVersions v5 check its identity (KIP-1242). Raises AdminError."""
    try:
        await connection.verify(identity, PROBE_TIMEOUT_MS)
    except RebootstrapRequiredError:
        raise ServerError(
            ErrorCode.rebootstrap_required,
            f"it reports the configuration of node {identity.node_id}, but is another node",
        ) from None
