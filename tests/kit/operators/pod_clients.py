"""Clients in pods that work without pause while a cluster is changed, and report what was acknowledged."""

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from kit.ledger import Pauses
from kit.local_kubernetes.images import BROKER, QUORATE
from kit.operators.installation import HEAP, RESTRICTED, TIMEOUT_S, TOPIC, Installation
from kit.waiting import eventually
from quorate_protocol.properties import format_properties

PRODUCER, CREATOR = "producer", "creator"
RECORDS_PER_S = 20  # a line for each in the pod's log, of which the kubelet keeps 10 MiB
MADE = "made"
START_TIMEOUT_S = 120
STOP_TIMEOUT_S = 90
LINES_SHOWN = 20
_SCRIPT = Path(__file__).with_name("steady_topics.py")
_CONFIG = "clients"
_DIRECTORY = "/clients"
_PRODUCER_PROPERTIES = {
    # The tool's own default gives up at once.
    "retries": f"{2**31 - 1}",
    "delivery.timeout.ms": "120000",
    "max.block.ms": "120000",
}
_SECURITY = {"runAsNonRoot": True, "runAsUser": 1000, "runAsGroup": 1000}


@dataclass(slots=True)
class Acknowledged:
    """The acknowledgements that one client got."""

    names: list[str] = field(default_factory=list)
    """Numbers of records, or names of topics."""
    failures: list[str] = field(default_factory=list)
    pauses: Pauses = field(default_factory=Pauses)


class PodClients:
    """A stock producer with acks=all and a creator of topics: start and stop them once."""

    def __init__(self, installation: Installation, copies: int) -> None:
        self._installation = installation
        self._copies = copies

    def start(self) -> None:
        """Return when both have been answered."""
        config = {
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": {"name": _CONFIG},
            "data": {_SCRIPT.name: _SCRIPT.read_text(), "producer.properties": steady_properties()},
        }
        bootstrap = self._installation.bootstrap
        produce = [
            *("/opt/kafka/bin/kafka-run-class.sh", "org.apache.kafka.tools.VerifiableProducer"),
            *(f"--bootstrap-server={bootstrap}", f"--topic={TOPIC}", "--acks=-1"),
            *(f"--throughput={RECORDS_PER_S}", f"--command-config={_DIRECTORY}/producer.properties"),
        ]
        create = ["python", f"{_DIRECTORY}/{_SCRIPT.name}", bootstrap, MADE, f"{self._copies}"]
        volume = {"name": "clients", "configMap": {"name": _CONFIG}}
        commands = ((PRODUCER, BROKER, produce), (CREATOR, QUORATE, create))
        pods = [client_pod(name, image, command, volume, _DIRECTORY) for name, image, command in commands]
        self._installation.apply(config, *pods)
        names = (f"pod/{PRODUCER}", f"pod/{CREATOR}")
        self._installation.kubectl("wait", *names, "--for=condition=Ready", f"--timeout={START_TIMEOUT_S}s")
        eventually(lambda: self._records().names, TIMEOUT_S, "an acknowledged record", self._logs)
        eventually(lambda: self._topics().names, TIMEOUT_S, "an acknowledged topic", self._logs)

    def stop(self) -> tuple[Acknowledged, Acknowledged]:
        """End both, and return what was acknowledged: records, topics."""
        for name in (PRODUCER, CREATOR):
            self._installation.kubectl("exec", name, "--", "sh", "-c", "kill -TERM 1")
        for name in (PRODUCER, CREATOR):
            ended = "jsonpath={.status.containerStatuses[*].state.terminated}"
            wait = ("wait", f"pod/{name}", f"--for={ended}", f"--timeout={STOP_TIMEOUT_S}s")
            self._installation.kubectl(*wait)
        return self._records(), self._topics()

    def stop_without_loss(self) -> tuple[Acknowledged, Acknowledged]:
        """End both, and check that nothing failed and that what was acknowledged is there: records, topics."""
        records, topics = self.stop()
        assert records.failures == []
        assert records.names
        assert {*map(int, records.names)} - {*self._installation.read()} == set()
        bootstrap = f"--bootstrap-server={self._installation.bootstrap}"
        listed = self._installation.tool("kafka-topics.sh", "--list", bootstrap).split()
        assert topics.names
        assert {*topics.names} - {*listed} == set()
        return records, topics

    def _logs(self) -> str:
        kubectl = self._installation.kubectl
        return "\n".join(kubectl("logs", name, f"--tail={LINES_SHOWN}") for name in (PRODUCER, CREATOR))

    def _records(self) -> Acknowledged:
        return records_of(self._installation.kubectl("logs", PRODUCER))

    def _topics(self) -> Acknowledged:
        return topics_of(self._installation.kubectl("logs", CREATOR))


def records_of(log: str) -> Acknowledged:
    """The acknowledgements in the output of Kafka's VerifiableProducer."""
    found = Acknowledged()
    for line in lines_of(log):
        match line.get("name"):
            case "producer_send_success":
                _acknowledge(found, line["value"], line["timestamp"])
            case "producer_send_error":
                found.failures.append(f"{line['value']}: {line.get('message')}")
    return found


def topics_of(log: str) -> Acknowledged:
    """The acknowledgements in the output of `steady_topics`."""
    found = Acknowledged()
    for line in lines_of(log):
        if line["error"] is None:
            _acknowledge(found, line["topic"], line["timestamp"])
        else:
            found.failures.append(f"{line['topic']}: {line['error']}")
    return found


def _acknowledge(found: Acknowledged, name: str, timestamp_ms: int) -> None:
    found.names.append(name)
    found.pauses.acknowledge(timestamp_ms / 1000)


def lines_of(log: str) -> list[dict[str, Any]]:
    """The lines of JSON; both clients also warn, and the last line may be under way."""
    found = []
    for line in log.splitlines():
        if line.startswith("{") and line.endswith("}"):
            content: dict[str, Any] = json.loads(line)
            found.append(content)
    return found


def steady_properties() -> str:
    """The properties of a producer that tries until it succeeds."""
    return format_properties(_PRODUCER_PROPERTIES, is_plain=True)


def client_pod(
    name: str, image: str, command: list[str], volume: dict[str, Any], directory: str
) -> dict[str, Any]:
    """A pod that runs a command and ends with it, with the files of a volume in a directory."""
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name},
        "spec": {
            "restartPolicy": "Never",
            "terminationGracePeriodSeconds": 0,
            "securityContext": _SECURITY,
            "containers": [
                {
                    "name": name,
                    "image": image,
                    "command": command,
                    "env": [{"name": "KAFKA_HEAP_OPTS", "value": HEAP}, {"name": "HOME", "value": "/tmp"}],
                    "securityContext": RESTRICTED,
                    "volumeMounts": [{"name": volume["name"], "mountPath": directory}],
                }
            ],
            "volumes": [volume],
        },
    }
