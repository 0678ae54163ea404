"""A stock broker whose registration is removed while it runs: it registers at its start alone."""

import asyncio
from typing import Any

import pytest
from kit.cluster import free_ports
from kit.player import Player
from quorate_admin.client import AdminClient

pytestmark = [pytest.mark.integration, pytest.mark.timeout(600)]

BROKER = 1
BACK_WITHIN_S = 240
"""A minute of uptime before the restart, and the start of a JVM."""
MANIFEST = """\
apiVersion: quorate.dev/v1alpha1
kind: KafkaController
metadata: {{name: quorum}}
spec: {{replicas: 1, listeners: [{{name: CONTROLLER, port: {port}}}]}}
---
apiVersion: quorate.dev/v1alpha1
kind: KafkaBroker
metadata: {{name: brokers}}
spec: {{controllers: quorum, replicas: 2, listeners: [{{name: PLAINTEXT, port: {broker_port}}}]}}
"""


def pid_of_broker(status: dict[str, Any]) -> int | None:
    """The process of the broker, if it is in service."""
    (broker,) = (node for node in status["nodes"] if node["nodeId"] == BROKER)
    return broker["pid"] if broker["state"] == "ready" else None


def test_a_broker_that_was_unregistered_comes_back(player: Player) -> None:
    port = free_ports(3)
    player.write(MANIFEST.format(port=port, broker_port=port + 1))
    player.play()
    status = player.until_ready()
    before = pid_of_broker(status)

    async def unregister() -> None:
        controllers = status["bootstrapControllers"].split(",")
        async with AdminClient(bootstrap_controllers=controllers) as client:
            await client.unregister_broker(BROKER)

    asyncio.run(unregister())
    back = player.until(
        lambda seen: pid_of_broker(seen) not in (None, before), BACK_WITHIN_S, "another process in service"
    )
    assert back["ready"]
