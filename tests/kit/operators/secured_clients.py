"""Clients of a cluster of examples/production.yaml, in pods that are not moved while its machines are drained."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kit.local_kubernetes.errors import LocalKubernetesError
from kit.local_kubernetes.images import BROKER, QUORATE
from kit.operators.installation import BROKERS, READ_TIMEOUT_MS, TOPIC, Installation
from kit.operators.pod_clients import (
    PRODUCER,
    RECORDS_PER_S,
    START_TIMEOUT_S,
    STOP_TIMEOUT_S,
    TIMEOUT_S,
    Acknowledged,
    client_pod,
    lines_of,
    records_of,
    steady_properties,
)
from kit.waiting import eventually
from quorate_protocol.properties import format_properties
from quorate_protocol.security.jaas import format_jaas

SAMPLER, TOOLS = "sampler", "tools"
ADMIN = "admin"
MECHANISM = "SCRAM-SHA-512"
_SCRIPT = Path(__file__).with_name("isr_samples.py")
_FILES = "client-files"
_DIRECTORY = "/clients"
_AUTHORITIES = "ca.pem"


@dataclass(frozen=True, slots=True)
class Sample:
    """Partitions at one time: how many, and of those with fewer replicas in sync than allowed, how many."""

    partitions: int
    under: dict[str, int]
    thin: int
    """Number of partitions that can't spare another replica."""


class SecuredClients:
    """Kafka's tools, a producer with acks=all and a sampler of ISRs, with SASL_SSL as the user admin.

    `authorities` are the certificates that they trust, `password` is that of the user.
    """

    def __init__(self, installation: Installation, authorities: Sequence[str], password: str) -> None:
        self._installation = installation
        self._node = installation.cluster.nodes[0]  # the control plane's, which is never drained
        self.bootstrap = f"{BROKERS}-bootstrap.{installation.namespace}.svc:9092"
        files = {
            _AUTHORITIES: "".join(authorities),
            _SCRIPT.name: _SCRIPT.read_text(),
            f"{ADMIN}.properties": _security(jaas(ADMIN, password)),
            f"{PRODUCER}.properties": _security(jaas(ADMIN, password)) + steady_properties(),
        }
        secret = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": _FILES}, "stringData": files}
        self._apply(secret, TOOLS, BROKER, ["sleep", "infinity"])

    # Kafka's own tools

    def tool(self, *command: str, user: str = ADMIN, stdin: str | None = None) -> str:
        """Run one of Kafka's tools at the brokers. Raises LocalKubernetesError with what it says when it fails."""
        where = (f"--bootstrap-server={self.bootstrap}", f"--command-config={_file_of(user)}")
        interactive = ["-i"] if stdin is not None else []
        return self._installation.kubectl("exec", *interactive, TOOLS, "--", *command, *where, stdin=stdin)

    def log_in(self, user: str, login: str) -> None:
        """Have `tool` know another user, by the `sasl.jaas.config` of its Secret."""
        self._write(_file_of(user), _security(login))

    def trust(self, user: str, password: str, authority: str) -> None:
        """Have `tool` know a user who trusts this authority and no other."""
        truststore = f"/tmp/{user}.pem"
        self._write(truststore, authority)
        text = _security(jaas(ADMIN, password)).replace(f"{_DIRECTORY}/{_AUTHORITIES}", truststore)
        self._write(_file_of(user), text)

    def produce(self, topic: str, *values: str, user: str) -> str:
        """What the stock producer says when it writes values; empty when all are acknowledged."""
        lines = "".join(f"{value}\n" for value in values)
        options = ("--sync", "--timeout=0", "--command-property=acks=all", f"--topic={topic}")
        try:
            return self.tool("kafka-console-producer.sh", *options, user=user, stdin=lines).strip(">\n ")
        except LocalKubernetesError as error:
            return f"{error}"

    def read(self, topic: str) -> list[str]:
        """All values of a topic."""
        options = ("--from-beginning", f"--timeout-ms={READ_TIMEOUT_MS}", f"--topic={topic}")
        return self.tool("kafka-console-consumer.sh", *options).split()

    # While the cluster is changed

    def start_producing(self) -> None:
        """Return when the first record is acknowledged."""
        produce = [
            *("/opt/kafka/bin/kafka-run-class.sh", "org.apache.kafka.tools.VerifiableProducer"),
            *(f"--bootstrap-server={self.bootstrap}", f"--topic={TOPIC}", "--acks=-1"),
            *(f"--throughput={RECORDS_PER_S}", f"--command-config={_DIRECTORY}/{PRODUCER}.properties"),
        ]
        self._apply(None, PRODUCER, BROKER, produce)
        eventually(
            lambda: self.produced().names, TIMEOUT_S, "an acknowledged record", lambda: self._log(PRODUCER)
        )

    def produced(self) -> Acknowledged:
        """What was acknowledged to the producer so far."""
        return records_of(self._log(PRODUCER))

    def start_sampling(self, in_sync_min: int) -> None:
        """Return when the first sample is taken."""
        look = ["python", f"{_DIRECTORY}/{_SCRIPT.name}", self.bootstrap, _file_of(ADMIN), f"{in_sync_min}"]
        self._apply(None, SAMPLER, QUORATE, look)
        eventually(self.samples, TIMEOUT_S, "a sample", lambda: self._log(SAMPLER))

    def samples(self) -> list[Sample]:
        """What was seen so far; looks that no broker answered are left out."""
        return [
            Sample(line["partitions"], line["under"], line["thin"])
            for line in lines_of(self._log(SAMPLER))
            if "error" not in line
        ]

    def stop(self, name: str) -> None:
        """End the producer or the sampler; what it said can still be read."""
        self._installation.kubectl("exec", name, "--", "sh", "-c", "kill -TERM 1")
        ended = "jsonpath={.status.containerStatuses[*].state.terminated}"
        self._installation.kubectl("wait", f"pod/{name}", f"--for={ended}", f"--timeout={STOP_TIMEOUT_S}s")

    def _apply(self, files: dict[str, Any] | None, name: str, image: str, command: list[str]) -> None:
        volume = {"name": "clients", "secret": {"secretName": _FILES}}
        pod = client_pod(name, image, command, volume, _DIRECTORY)
        pod["spec"]["nodeName"] = self._node
        self._installation.apply(*([files] if files else []), pod)
        ready = (f"pod/{name}", "--for=condition=Ready", f"--timeout={START_TIMEOUT_S}s")
        self._installation.kubectl("wait", *ready)

    def _write(self, file: str, text: str) -> None:
        self._installation.kubectl("exec", "-i", TOOLS, "--", "tee", file, stdin=text)

    def _log(self, name: str) -> str:
        return self._installation.kubectl("logs", name)


def jaas(user: str, password: str) -> str:
    """The value of sasl.jaas.config."""
    return format_jaas(MECHANISM, {"username": user, "password": password})


def _security(login: str) -> str:
    """The client properties for the listener CLIENTS."""
    return format_properties(
        {
            "security.protocol": "SASL_SSL",
            "sasl.mechanism": MECHANISM,
            "sasl.jaas.config": login,
            "ssl.truststore.type": "PEM",
            "ssl.truststore.location": f"{_DIRECTORY}/{_AUTHORITIES}",
        },
        is_plain=True,
    )


def _file_of(user: str) -> str:
    return f"{_DIRECTORY}/{ADMIN}.properties" if user == ADMIN else f"/tmp/{user}.properties"
