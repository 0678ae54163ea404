"""Where each node of a played cluster listens and keeps its data, and how it is started."""

import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from quorate_protocol.properties import parse_properties

from quorate_operator.models.manifests import Manifests
from quorate_operator.models.secrets import secret_uses
from quorate_operator.planning.cluster import Address, DesiredCluster, DesiredNode, Implementation, Role
from quorate_operator.planning.features import initial_metadata_version
from quorate_operator.planning.steps import StepError
from quorate_operator.properties import LOG4J2, initial_controllers, render_properties
from quorate_operator.runtime.local.aot_cache import COLLECTOR
from quorate_operator.runtime.local.directory import PlayDirectory
from quorate_operator.runtime.local.identity import ClusterIdentity, quorum_facts
from quorate_operator.runtime.local.own_certificates import OwnCertificates, write_certificates
from quorate_operator.runtime.local.server_properties import (
    COMMENT,
    broker_properties,
    controller_properties,
    fault_in,
)
from quorate_operator.runtime.local.stock_kafka import Kafka
from quorate_operator.security import SecretFiles, add_scram_arguments, java_options

# -P: nothing is imported from the directory of the node.
QUORATE = (sys.executable, "-P", "-m", "quorate")
HEAP_DEFAULT = "-Xmx512m"
LOG4J2_FILE = "log4j2.properties"


@dataclass(frozen=True, slots=True)
class Layout:
    """A desired cluster in its directory, with the identity that was settled for it.

    Nodes without `advertised` addresses advertise their own.
    """

    directory: PlayDirectory
    manifests: Manifests
    desired: DesiredCluster
    identity: ClusterIdentity
    kafka: Mapping[str, Kafka]
    """The Kafka that was found on this machine, by the version in the manifest."""
    own_certificates: OwnCertificates = field(default_factory=OwnCertificates, kw_only=True)
    """What was issued for listeners that name no Secret; their Secrets are among those of the manifests, too."""

    def node(self, node_id: int) -> DesiredNode:
        return next(node for node in self.desired.nodes if node.node_id == node_id)

    def address(self, node: DesiredNode) -> str:
        """Return `host:port` of the node's first listener for clients."""
        name = node.listeners[0].name
        return str(node.advertised.get(name, self.own_address(node.node_id, name)))

    def directory_id_of(self, label: str) -> str | None:
        """Return the directory id on a node's disk, None if it is not formatted. Raises PlayError."""
        return self.directory.directory_id_of(label, self.identity.cluster_id)

    def log_directories(self, node: DesiredNode) -> list[Path]:
        """Return the log directories that the node's next start uses, first that of the metadata log."""
        ids = sorted(self.identity.nodes[node.node_id].volumes)
        return [self.directory.node_data(node.label, volume_id) for volume_id in ids]

    def own_address(self, node_id: int, listener: str) -> Address:
        """Return where a node itself listens. Raises KeyError."""
        return self.identity.nodes[node_id].own_address(listener)

    def addresses(self, role: Role) -> dict[int, str]:
        return {node.node_id: self.address(node) for node in self.desired.of_role(role)}

    def bootstrap(self, role: Role) -> str:
        """Return the addresses of a role as a bootstrap list."""
        return ",".join(self.addresses(role).values())

    def config_file(self, node: DesiredNode) -> Path:
        return self.directory.node(node.label) / "server.properties"

    def write_config(self, node: DesiredNode) -> None:
        """Write the node's configuration, so that a changed manifest takes effect. Raises PlayError."""
        build = controller_properties if node.role is Role.CONTROLLER else broker_properties
        ports = self.identity.nodes[node.node_id].ports
        facts = quorum_facts(self.desired, self.identity, node)
        properties = build(node, ports, facts, self.log_directories(node), self.secret_files)
        self.directory.write(self.config_file(node), render_properties(properties, COMMENT))
        if node.implementation is Implementation.JAVA:
            self.directory.write(self._log4j_file(node), LOG4J2)

    @property
    def secret_files(self) -> SecretFiles:
        return SecretFiles(root=str(self.directory.secrets), secrets=self.manifests.secrets)

    def write_secrets(self) -> None:
        """Write the Secrets that the manifest names as nodes read them. Raises PlayError."""
        manifests = self.manifests
        write_certificates(self.own_certificates, self.directory)
        for name in {use.name for use in secret_uses(manifests.controllers, manifests.brokers)}:
            for key, value in manifests.secrets[name].values.items():
                self.directory.write(self.directory.secrets / name / key, value)
        users = manifests.controllers.spec.scram_users
        controllers = self.desired.of_role(Role.CONTROLLER)
        if users is not None and any(
            controller.implementation is Implementation.JAVA for controller in controllers
        ):
            arguments = add_scram_arguments(users.mechanism, manifests.secrets[users.secret_name])
            self.directory.write(self._scram_arguments, "".join(f"{argument}\n" for argument in arguments))

    @property
    def _scram_arguments(self) -> Path:
        return self.directory.secrets / "add-scram.args"

    def _scram_options(self, node: DesiredNode) -> list[str]:
        """Return the options by which a new cluster gets its SCRAM users. No password is among them."""
        users = self.manifests.controllers.spec.scram_users
        if users is None:
            return []
        if node.implementation is Implementation.JAVA:
            return [f"@{self._scram_arguments}"]
        return ["--add-scram-from", f"{users.mechanism}={self.secret_files.directory(users.secret_name)}"]

    def format_command(self, node: DesiredNode, *, is_initial: bool = True) -> list[str]:
        """Return the command that formats the node's storage, as a first voter's or a joining node's."""
        arguments = [
            "format",
            "--config",
            str(self.config_file(node)),
            "--cluster-id",
            self.identity.cluster_id,
        ]
        if node.role is Role.CONTROLLER:
            if self.identity.dynamic_quorum and is_initial:
                voters = quorum_facts(self.desired, self.identity, node).voters
                formation = self.identity.formation
                founders = [
                    voter
                    for voter in voters
                    if formation is None or voter.node_id in formation.initial_voters
                ]
                arguments += ["--initial-controllers", initial_controllers(founders)]
            elif self.identity.dynamic_quorum:
                arguments.append("--no-initial-controllers")
            if is_initial:
                arguments += self._scram_options(node)
            arguments += ["--release-version", initial_metadata_version(self.desired)]
            if node.implementation is Implementation.JAVA:
                return self._kafka(node.kafka_version).command(
                    "kafka.tools.StorageTool", *arguments, jvm=("-XX:TieredStopAtLevel=1", COLLECTOR)
                )
        else:
            # A broker gets further directories, and an interrupted attempt has formatted some.
            arguments.append("--ignore-formatted")
        return [*QUORATE, "controller", *arguments]

    def rebuild_command(self, node: DesiredNode, above_epoch: int) -> list[str]:
        config = ("--config", str(self.config_file(node)))
        return [*QUORATE, "controller", "rebuild-quorum", *config, "--above-epoch", str(above_epoch)]

    def run_command(self, node: DesiredNode, environment: Mapping[str, str]) -> list[str]:
        return self.kept_run_command(
            node.label, node.implementation, node.kafka_version, environment=environment
        )

    def kept_config(self, label: str) -> str:
        """Return the last written configuration of a node. Raises StepError if it can't be used."""
        file = self.directory.node(label) / "server.properties"
        text = file.read_text()
        fault = fault_in(text, self.directory.node(label))
        if fault is not None:
            raise StepError(f"{file}: {fault}; `quorate play` has not written that")
        # Written again: appenders of log4j write any file.
        self.directory.write(self.directory.node(label) / LOG4J2_FILE, LOG4J2)
        return text

    def kept_run_command(
        self,
        label: str,
        implementation: Implementation,
        kafka_version: str,
        *,
        environment: Mapping[str, str],
    ) -> list[str]:
        """Return the command that runs a node with its last written configuration."""
        config = self.directory.node(label) / "server.properties"
        if implementation is Implementation.PYTHON:
            return [*QUORATE, "controller", "run", "--config", str(config)]
        heap = environment.get("KAFKA_HEAP_OPTS", HEAP_DEFAULT).split()
        jvm = (*heap, COLLECTOR, "-XX:-UsePerfData", "-Djava.awt.headless=true")
        log4j = f"-Dlog4j2.configurationFile={self.directory.node(label) / LOG4J2_FILE}"
        options = (log4j, *java_options(parse_properties(config.read_text())))
        return self._kafka(kafka_version).command("kafka.Kafka", str(config), jvm=(*jvm, *options))

    def _kafka(self, version: str) -> Kafka:
        found = self.kafka.get(version)
        if found is None:
            raise StepError(
                f"Kafka {version} was not found on this machine: play again, where Java is installed"
            )
        return found

    def _log4j_file(self, node: DesiredNode) -> Path:
        return self.directory.node(node.label) / LOG4J2_FILE
