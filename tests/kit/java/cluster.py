"""A cluster of stock Kafka alone: Java controllers and brokers, secured, and formatted by Kafka's own tool. The
controllers may be ours instead, with the same configuration.

Its listeners: PLAINTEXT on brokers and CONTROLLER on controllers, where everyone is User:ANONYMOUS, a super user;
SASL_SSL (CONTROLLER_SASL on controllers) for the users below, who may do what ACLs allow; and on brokers SSL for
the holder of a client certificate.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Self

from kit.cluster import Cluster, environment_for, free_ports, manifests, without_http
from kit.java.tls import Certificates
from kit.java.tools import JavaTools
from kit.membership import quorate, succeeded
from kit.releases import LEVEL
from quorate_operator.planning.cluster import DesiredNode, Implementation, Role
from quorate_operator.properties import render_properties
from quorate_operator.runtime.local import play_session
from quorate_operator.runtime.local.layout import Layout
from quorate_operator.runtime.local.loopback import LOOPBACK
from quorate_protocol.security.jaas import LOGIN_MODULES

CLUSTER_LISTENERS = {Role.BROKER: "PLAINTEXT", Role.CONTROLLER: "CONTROLLER"}
SASL_LISTENERS = {Role.BROKER: "SASL_SSL", Role.CONTROLLER: "CONTROLLER_SASL"}
SSL_LISTENER = "SSL"
# Users of PLAIN; admin is a super user.
PASSWORDS = {"admin": "admin-secret", "alice": "alice-secret", "bob": "bob-secret"}
# The user of SCRAM-SHA-256 that is there from the start, a super user too; tests add others.
SCRAM_USER, SCRAM_PASSWORD = "scram-admin", "scram-secret"
PLAIN, SCRAM = LOGIN_MODULES["PLAIN"], LOGIN_MODULES["SCRAM-SHA-256"]
STORAGE_TOOL = "kafka.tools.StorageTool"


@dataclass(frozen=True, slots=True)
class SecuredLayout(Layout):
    """A layout whose nodes have secured listeners too, at `secured_ports[node id][listener]`."""

    certificates: Certificates
    secured_ports: Mapping[int, Mapping[str, int]]
    extra: Mapping[str, str] = field(default_factory=dict)

    def write_config(self, node: DesiredNode) -> None:
        """Write the node's configuration; of a key that appears twice, Java takes the last."""
        # Of a dataclass with slots, a class of its own without its zero-argument super().
        Layout.write_config(self, node)
        file = self.config_file(node)
        self.directory.write(file, file.read_text() + render_properties(self._security(node), "The test's."))

    def _security(self, node: DesiredNode) -> dict[str, str]:
        own = CLUSTER_LISTENERS[node.role]
        ports = {own: self.identity.nodes[node.node_id].ports[own], **self.secured_ports[node.node_id]}
        listeners = ",".join(f"{name}://{LOOPBACK}:{port}" for name, port in ports.items())
        protocols = {
            **dict.fromkeys(CLUSTER_LISTENERS.values(), "PLAINTEXT"),
            **dict.fromkeys(SASL_LISTENERS.values(), "SASL_SSL"),
            SSL_LISTENER: "SSL",
        }
        sasl = f"listener.name.{SASL_LISTENERS[node.role].lower()}"
        users = " ".join(f'user_{name}="{password}"' for name, password in PASSWORDS.items())
        properties = {
            "listeners": listeners,
            "advertised.listeners": listeners,
            "listener.security.protocol.map": ",".join(
                f"{name}:{protocol}" for name, protocol in protocols.items()
            ),
            "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
            "super.users": f"User:ANONYMOUS;User:admin;User:{SCRAM_USER}",
            "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256,SCRAM-SHA-512",
            f"{sasl}.plain.sasl.jaas.config": f"{PLAIN} required {users};",
            f"{sasl}.scram-sha-256.sasl.jaas.config": f"{SCRAM} required;",
            f"{sasl}.scram-sha-512.sasl.jaas.config": f"{SCRAM} required;",
            "ssl.keystore.type": "PEM",
            "ssl.keystore.location": str(self.certificates.server),
            "ssl.truststore.type": "PEM",
            "ssl.truststore.location": str(self.certificates.authority),
            f"listener.name.{SSL_LISTENER.lower()}.ssl.client.auth": "required",
            "delegation.token.secret.key": "the secret of this test's delegation tokens",
        }
        if node.role is Role.CONTROLLER:
            properties["controller.listener.names"] = ",".join(ports)
        return properties | dict(self.extra)


class JavaCluster(Cluster):
    """Stock Kafka's controllers and brokers, formatted and not started. Close it."""

    layout: SecuredLayout

    def __init__(self, layout: SecuredLayout, environment: Mapping[str, str], tools: JavaTools) -> None:
        super().__init__(layout, environment)
        self._tools = tools

    @classmethod
    def prepared(
        cls,
        directory: Path,
        jars: Path,
        tools: JavaTools,
        *,
        controllers: int = 1,
        brokers: int = 1,
        quorum: str = "dynamic",
        metadata_version: str | None = LEVEL,
        properties: Mapping[str, str] | None = None,
        java_controllers: bool = True,
    ) -> Self:
        """Settle ids, ports and certificates, and format every node; `properties` are for every node."""
        environment = environment_for(jars, directory.parent)
        first = 3000
        manifest = manifests(
            controllers=controllers,
            java=range(first, first + controllers) if java_controllers else (),
            brokers=brokers,
            quorum=quorum,
            metadata_version=metadata_version,
        )
        plain = play_session.prepare(manifest, "test", directory, environment, lambda _: None).layout
        layout = SecuredLayout(
            directory=plain.directory,
            manifests=plain.manifests,
            desired=plain.desired,
            identity=without_http(plain.identity),
            kafka=plain.kafka,
            certificates=Certificates.create(directory.with_name(f"{directory.name}-tls")),
            secured_ports=_secured_ports(plain.desired.nodes),
            extra=dict(properties or {}),
        )
        cluster = cls(layout, environment, tools)
        cluster.format(*cluster.controllers, *cluster.brokers)
        return cluster

    def format(self, *node_ids: int) -> None:
        """Format nodes with kafka-storage, controllers of ours with our own."""
        for node_id in node_ids:
            node = self._nodes[node_id]
            self.data(node_id).mkdir(parents=True, exist_ok=True)
            self.layout.write_config(node)
            command = self.layout.format_command(node)
            arguments = command[command.index("format") :]
            if node.role is Role.CONTROLLER:
                credential = f"[name={SCRAM_USER},password={SCRAM_PASSWORD}]"
                arguments += ["--add-scram", f"SCRAM-SHA-256={credential}"]
            if node.implementation is Implementation.PYTHON:
                succeeded(quorate("controller", *arguments))
            else:
                self._tools(STORAGE_TOOL, *arguments).succeeded()

    @property
    def certificates(self) -> Certificates:
        """What the SSL listeners show and trust."""
        return self.layout.certificates

    @property
    def sasl_servers(self) -> str:
        """The addresses of the brokers' SASL_SSL listeners."""
        return self._secured(self.brokers, SASL_LISTENERS[Role.BROKER])

    @property
    def sasl_controllers(self) -> str:
        """The addresses of the controllers' SASL_SSL listeners."""
        return self._secured(self.controllers, SASL_LISTENERS[Role.CONTROLLER])

    @property
    def ssl_servers(self) -> str:
        """The addresses of the brokers' SSL listeners, which require a client certificate."""
        return self._secured(self.brokers, SSL_LISTENER)

    def sasl_properties(
        self, user: str = "admin", password: str | None = None, mechanism: str = "PLAIN", options: str = ""
    ) -> dict[str, str]:
        """A client's configuration for the SASL_SSL listeners; `options` go into the JAAS configuration."""
        known = {**PASSWORDS, SCRAM_USER: SCRAM_PASSWORD}
        secret = password if password is not None else known[user]
        login = f'username="{user}" password="{secret}" {options}'.strip()
        return {
            "security.protocol": "SASL_SSL",
            "sasl.mechanism": mechanism,
            "sasl.jaas.config": f"{LOGIN_MODULES[mechanism]} required {login};",
            "ssl.truststore.type": "PEM",
            "ssl.truststore.location": str(self.certificates.authority),
        }

    def ssl_properties(self) -> dict[str, str]:
        """A client's configuration for the SSL listeners, with the client certificate."""
        return {
            "security.protocol": "SSL",
            "ssl.keystore.type": "PEM",
            "ssl.keystore.location": str(self.certificates.client),
            "ssl.truststore.type": "PEM",
            "ssl.truststore.location": str(self.certificates.authority),
        }

    def client_config(self, name: str, properties: Mapping[str, str]) -> Path:
        """A file for `--command-config` with these properties."""
        file = self.layout.directory.path / f"{name}.properties"
        file.write_text(render_properties(properties, "The test's."))
        return file

    def _secured(self, node_ids: Sequence[int], listener: str) -> str:
        ports = (self.layout.secured_ports[node_id][listener] for node_id in node_ids)
        return ",".join(f"{LOOPBACK}:{port}" for port in ports)


def _secured_ports(nodes: Sequence[DesiredNode]) -> dict[int, dict[str, int]]:
    names = {
        Role.BROKER: (SASL_LISTENERS[Role.BROKER], SSL_LISTENER),
        Role.CONTROLLER: (SASL_LISTENERS[Role.CONTROLLER],),
    }
    ports = iter(range(first := free_ports(2 * len(nodes)), first + 2 * len(nodes)))
    return {node.node_id: {name: next(ports) for name in names[node.role]} for node in nodes}
