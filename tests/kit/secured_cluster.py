"""A cluster whose nodes also have a SASL listener for users."""

from __future__ import annotations

from itertools import count
from typing import TYPE_CHECKING, Final

from kit.cluster import Cluster, free_ports
from quorate_operator.properties import render_properties
from quorate_operator.runtime.local.loopback import LOOPBACK

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

SECURED: Final = "SECURED"
PLAIN: Final = "org.apache.kafka.common.security.plain.PlainLoginModule"
SCRAM: Final = "org.apache.kafka.common.security.scram.ScramLoginModule"


class SecuredCluster(Cluster):
    """Call `open_ports` before the nodes are formatted."""

    def open_ports(self, mechanisms: Mapping[str, str]) -> None:
        """Choose the ports. `mechanisms` is the listener's JAAS configuration by mechanism."""
        nodes = (*self.controllers, *self.brokers)
        self.secured_ports = dict(zip(nodes, count(free_ports(len(nodes))), strict=False))
        self._mechanisms = mechanisms

    def properties(self, node_id: int) -> dict[str, str]:
        """What a node's configuration has in addition."""
        own = "PLAINTEXT" if node_id in self.brokers else "CONTROLLER"
        listeners = f"{own}://{self.address(node_id)},{SECURED}://{self.secured_at(node_id)}"
        protocols = f"PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT,{SECURED}:SASL_PLAINTEXT"
        jaas = {
            f"listener.name.{SECURED.lower()}.{mechanism.lower()}.sasl.jaas.config": text
            for mechanism, text in self._mechanisms.items()
        }
        return {
            "listeners": listeners,
            "advertised.listeners": listeners,
            "listener.security.protocol.map": protocols,
            "controller.listener.names": "CONTROLLER" if node_id in self.brokers else f"CONTROLLER,{SECURED}",
            "sasl.enabled.mechanisms": ",".join(self._mechanisms),
            **jaas,
        }

    def write_config(self, node_id: int) -> None:
        """Of a key that appears twice, the last one counts."""
        super().write_config(node_id)
        file = self.config_file(node_id)
        file.write_text(file.read_text() + render_properties(self.properties(node_id), "The test's."))

    def secured_at(self, node_id: int) -> str:
        """The address of a node's listener for users."""
        return f"{LOOPBACK}:{self.secured_ports[node_id]}"

    def login_file(self, name: str, mechanism: str, jaas: str) -> Path:
        """A file for `--command-config`."""
        properties = {
            "security.protocol": "SASL_PLAINTEXT",
            "sasl.mechanism": mechanism,
            "sasl.jaas.config": jaas,
        }
        file = self.layout.directory.path / f"{name}.properties"
        file.write_text(render_properties(properties, "The test's."))
        return file
