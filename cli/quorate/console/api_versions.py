"""The APIs of each node, as kafka-broker-api-versions and kafka-cluster api-versions list them."""

from collections.abc import Collection
from typing import TYPE_CHECKING, Any

import typer
from quorate_admin.errors import AdminError
from quorate_protocol.kafka.apis import APIS, ListenerType
from quorate_protocol.kafka.releases import NEWEST_RELEASE

from quorate.console.client import run
from quorate.console.command import show
from quorate.console.output import CommandError

if TYPE_CHECKING:
    from quorate_admin.client import AdminClient
    from quorate_admin.types.cluster import NodeApiVersions, NodeDescription

NODE_TIMEOUT_MS = 5_000
"""The timeout for each node, as in Kafka's tool: a node that is down does not delay the others."""


def list_api_versions(context: typer.Context, expected_of: ListenerType) -> None:
    """Print the APIs of each node, and as UNSUPPORTED the APIs of a kind of listener that a node lacks."""
    found = run(_ask_all, context)
    expected = {
        key
        for key, api in APIS.items()
        if expected_of in api.listeners and api.version_max_in(NEWEST_RELEASE) is not None
    }
    show(
        context,
        lambda: "".join(node_text(node, versions, expected) for node, versions in found),
        lambda: [node_json(node, versions) for node, versions in found],
    )
    silent = [str(node.node_id) for node, versions in found if isinstance(versions, AdminError)]
    if silent:
        raise CommandError(f"no response from {', '.join(silent)}")


async def _ask_all(admin: "AdminClient") -> "list[tuple[NodeDescription, NodeApiVersions | AdminError]]":
    """All nodes in the order of their ids, with their versions or the reason why those are unknown."""
    import asyncio

    async def ask(node: "NodeDescription") -> "NodeApiVersions | AdminError":
        try:
            return await admin.node_api_versions(node.node_id, timeout_ms=NODE_TIMEOUT_MS)
        except AdminError as error:
            return error

    nodes = sorted((await admin.describe_cluster()).nodes, key=lambda node: node.node_id)
    return list(zip(nodes, await asyncio.gather(*(ask(node) for node in nodes)), strict=True))


def node_text(
    node: "NodeDescription", versions: "NodeApiVersions | AdminError", expected: Collection[int]
) -> str:
    """What Kafka's tool prints for a node; `expected` are the keys of the APIs that it should support."""
    rack = "null" if node.rack is None else node.rack
    fenced = "true" if node.fenced else "false"
    title = f"{node.host}:{node.port} (id: {node.node_id} rack: {rack} isFenced: {fenced}) -> "
    if isinstance(versions, AdminError):
        return f"{title}ERROR: {versions}\n"
    has = versions.api_versions
    lines = [
        _api_text(key, *has[key]) if key in has else f"{_name(key)}({key}): UNSUPPORTED"
        for key in sorted({*has, *expected})
    ]
    return title + "(\n\t" + ",\n\t".join(lines) + "\n)\n"


def node_json(node: "NodeDescription", versions: "NodeApiVersions | AdminError") -> dict[str, Any]:
    """The same as JSON; `usableVersion` may be null."""
    failed = isinstance(versions, AdminError)
    return {
        "id": node.node_id,
        "host": node.host,
        "port": node.port,
        "rack": node.rack,
        "error": str(versions) if failed else None,
        "apis": []
        if isinstance(versions, AdminError)
        else [
            {
                "apiKey": key,
                "name": _name(key),
                "minVersion": lowest,
                "maxVersion": highest,
                "usableVersion": _usable(key, lowest, highest),
            }
            for key, (lowest, highest) in sorted(versions.api_versions.items())
        ],
    }


def _api_text(key: int, lowest: int, highest: int) -> str:
    versions = str(lowest) if lowest == highest else f"{lowest} to {highest}"
    text = f"{_name(key)}({key}): {versions}"
    api = APIS.get(key)
    if api is None:
        return text
    usable = _usable(key, lowest, highest)
    if usable is not None:
        return f"{text} [usable: {usable}]"
    return f"{text} [unusable: node too {'new' if api.version_max < lowest else 'old'}]"


def _usable(key: int, lowest: int, highest: int) -> int | None:
    """The highest version that both the node and this client support."""
    api = APIS.get(key)
    return None if api is None else api.common_version(lowest, highest)


def _name(key: int) -> str:
    """The name of an API in Kafka's tool: that of its schema."""
    api = APIS.get(key)
    return "UNKNOWN" if api is None else api.name
