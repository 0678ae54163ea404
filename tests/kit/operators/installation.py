"""A release of the chart in a cluster of kind, and the Kafka cluster that it manages, both controlled by a test."""

import json
import subprocess
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import yaml
from kit.local_kubernetes.errors import LocalKubernetesError
from kit.local_kubernetes.images import BROKER, QUORATE
from kit.local_kubernetes.images import BROKERS as BROKERS_IMAGE
from kit.local_kubernetes.kind_cluster import KindCluster
from kit.waiting import eventually
from quorate_protocol.kafka.releases import DEFAULT_RELEASE

CHART = Path(__file__).parents[3] / "charts" / "quorate"
RELEASE = "quorate"
SYSTEM = "quorate-system"
NAMESPACE = "kafka"
QUORUM = "quorum"
BROKERS = "brokers"
TOPIC = "numbers"
TIMEOUT_S = 600  # what takes a minute takes several on a machine that does other things as well
GRACE_S = 30  # beyond what kubectl itself waits
READ_TIMEOUT_MS = 15_000
HTTP_PORT = 8080  # of the operator, in the chart
ANSWER_S = 5
HEAP = "-Xmx128m -XX:TieredStopAtLevel=1"

CONTROLLERS: dict[str, Any] = {
    "replicas": 3,
    "version": DEFAULT_RELEASE,
    "nodeIds": {"first": 3000},
    "metadataVersion": "4.3",
    "listeners": [{"name": "CONTROLLER", "port": 9093}],
    "storage": {"size": "100Mi", "onDecommission": "Delete", "onDeletion": "Delete"},
    "rollout": {"overlap": "5s"},
    "template": {"resources": {"requests": {"cpu": "10m", "memory": "64Mi"}}},
}
POOL: dict[str, Any] = {
    "controllers": QUORUM,
    "replicas": 3,
    "version": DEFAULT_RELEASE,
    "nodeIds": {"first": 0},
    "image": BROKER,
    "listeners": [{"name": "PLAINTEXT", "port": 9092, "protocol": "PLAINTEXT"}],
    "storage": {"size": "100Mi"},
    # The index files of a new log are written to their full size, 10 MiB each by default.
    "config": {"log.index.size.max.bytes": 16_384, "offsets.topic.num.partitions": 3},
    "rollout": {"overlap": "5s"},
    "template": {"resources": {"requests": {"cpu": "10m", "memory": "256Mi"}, "limits": {"memory": "512Mi"}}},
}
RESTRICTED: dict[str, Any] = {
    "allowPrivilegeEscalation": False,
    "capabilities": {"drop": ["ALL"]},
    "runAsNonRoot": True,
    "seccompProfile": {"type": "RuntimeDefault"},
}
# It moves away from a lost node at once.
_TOLERATIONS = [
    {"key": f"node.kubernetes.io/{what}", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 1}
    for what in ("unreachable", "not-ready")
]
TOOLS = {
    "apiVersion": "apps/v1",
    "kind": "Deployment",
    "metadata": {"name": "tools"},
    "spec": {
        "replicas": 1,
        "selector": {"matchLabels": {"app": "tools"}},
        "template": {
            "metadata": {"labels": {"app": "tools"}},
            "spec": {
                "terminationGracePeriodSeconds": 0,
                "tolerations": _TOLERATIONS,
                "containers": [
                    {
                        "name": "tools",
                        "image": BROKER,
                        "command": ["sleep", "infinity"],
                        "env": [{"name": "KAFKA_HEAP_OPTS", "value": HEAP}],
                        "securityContext": RESTRICTED,
                    }
                ],
            },
        },
    },
}


class Installation:
    """What the tests of a story do and see, in a namespace of its own.

    `release` is that of the chart, and `system` its namespace.
    """

    def __init__(
        self, cluster: KindCluster, namespace: str = NAMESPACE, release: str = RELEASE, system: str = SYSTEM
    ) -> None:
        self.cluster = cluster
        self.namespace = namespace
        self.release = release
        self.system = system
        self.bootstrap = f"{BROKERS}.{namespace}.svc:9092"
        self.written = 0

    # The operator

    def helm(self, *arguments: str) -> str:
        """Run helm in the operator's namespace."""
        return self.cluster.helm(*arguments, f"--namespace={self.system}", timeout_s=TIMEOUT_S)

    @contextmanager
    def released(self, values: Iterable[str], chart: Path = CHART) -> Iterator[None]:
        """The chart with these options, for as long as the context; longer if it was there before."""
        is_installed = self.release in self.helm("list", "--short").split()
        self.upgrade(values, chart)
        yield
        if not is_installed:
            self.helm("uninstall", self.release, "--wait")

    def upgrade(self, values: Iterable[str], chart: Path = CHART) -> None:
        """Install or upgrade the release, and wait until its operators are ready."""
        self.helm("upgrade", "--install", self.release, f"{chart}", "--create-namespace", "--wait", *values)

    def values(self, **more: str) -> list[str]:
        """Options of `helm install` and `upgrade`: our image, and other values by their dotted names.

        The operator manages all namespaces and may read Kubernetes nodes; pools may name an image of Kafka.
        """
        repository, tag = QUORATE.split(":")
        values = {
            "image.repository": repository,
            "image.tag": tag,
            "watchNamespaces": "{*}",
            "rbac.readNodes": "true",
            "policy.images": f"{{{BROKERS_IMAGE}:*}}",
            **more,
        }
        return [f"--set={name}={value}" for name, value in values.items()]

    def operators(self) -> list[str]:
        """The names of its pods."""
        listed = self.cluster.kubectl("get", "pods", f"-n={self.system}", "-o=name")
        return listed.split()

    def operator_addresses(self) -> list[str]:
        """The addresses of its pods."""
        listed = json.loads(self.cluster.kubectl("get", "pods", f"-n={self.system}", "-o=json"))["items"]
        return [pod["status"]["podIP"] for pod in listed if "podIP" in pod["status"]]

    def served_by(self, address: str, path: str) -> tuple[int, str]:
        """The status and the text of the operator at an address, also while no API server leads to it.

        The status is 0 without a response.
        """
        url = (
            f"http://[{address}]:{HTTP_PORT}{path}"
            if ":" in address
            else f"http://{address}:{HTTP_PORT}{path}"
        )
        ask = ("curl", "--silent", "--max-time", f"{ANSWER_S}", "--write-out", "\n%{http_code}", url)
        try:
            text, _, status = self.cluster.on_node(self.cluster.nodes[0], *ask).rpartition("\n")
        except LocalKubernetesError:
            return 0, ""
        return int(status), text

    # The cluster

    def kubectl(self, *arguments: str, stdin: str | None = None) -> str:
        """Run kubectl in the cluster's namespace."""
        return self.cluster.kubectl(f"--namespace={self.namespace}", *arguments, stdin=stdin)

    def get(self, kind: str, name: str = "") -> dict[str, Any]:
        """An object, or the list of all of a kind."""
        found: dict[str, Any] = json.loads(self.kubectl("get", kind, *([name] if name else []), "-o=json"))
        return found

    def create(self) -> None:
        """Apply the cluster, and a pod with Kafka's tools."""
        self.apply(
            resource("KafkaController", QUORUM, CONTROLLERS), resource("KafkaBroker", BROKERS, POOL), TOOLS
        )

    def create_namespace(self) -> None:
        """Create the namespace, which takes pods that are restricted and no others."""
        restricted = {"pod-security.kubernetes.io/enforce": "restricted"}
        metadata = {"name": self.namespace, "labels": restricted}
        namespace = {"apiVersion": "v1", "kind": "Namespace", "metadata": metadata}
        self.cluster.kubectl("apply", "--filename=-", stdin=yaml.safe_dump(namespace))

    def apply(self, *objects: dict[str, Any]) -> None:
        """Apply objects in the namespace."""
        self.create_namespace()
        self.kubectl("apply", "--filename=-", stdin=yaml.safe_dump_all(objects))

    def remove(self) -> None:
        """Delete the cluster, and the namespace with all that is left in it."""
        for kind in ("kafkabroker", "kafkacontroller"):
            self._delete(f"--namespace={self.namespace}", kind, "--all")
        self._delete("namespace", self.namespace)

    def _delete(self, *what: str) -> None:
        self.cluster.kubectl(
            "delete", *what, "--ignore-not-found", f"--timeout={TIMEOUT_S}s", timeout_s=TIMEOUT_S + GRACE_S
        )

    def patch(self, kind: str, name: str, **spec: object) -> None:
        """Merge into the spec of an object."""
        self.kubectl("patch", kind, name, "--type=merge", f"--patch={json.dumps({'spec': spec})}")

    def wait_ready(self, controllers: Iterable[int], brokers: Iterable[int] = (0, 1, 2)) -> None:
        """Until exactly these controllers vote, and everything is as it is wanted."""
        voters, pods = sorted(controllers), sorted(brokers)
        wanted = {f"{QUORUM}-{each}" for each in voters} | {f"{BROKERS}-{each}" for each in pods}

        def is_ready() -> bool:
            return (
                self.voters() == voters
                and self.conditions("kafkacontroller", QUORUM).items() >= _DONE.items()
                and self.conditions("kafkabroker", BROKERS).get("Ready") == "True"
                and self.ready_pods() >= wanted
            )

        eventually(is_ready, TIMEOUT_S, f"voters {voters} and brokers {pods} to be ready", self.state)

    def conditions(self, kind: str, name: str) -> dict[str, str]:
        """The status of each condition, or nothing before the newest spec was looked at."""
        found = self.get(kind, name)
        status = found.get("status", {})
        if status.get("observedGeneration") != found["metadata"]["generation"]:
            return {}
        return {each["type"]: each["status"] for each in status.get("conditions", [])}

    def voters(self) -> list[int]:
        """The ids of the voters, from the quorum's leader."""
        return sorted(each["nodeId"] for each in self.voter_statuses())

    def voter_statuses(self) -> list[dict[str, Any]]:
        """The voters, from the quorum's leader."""
        found: list[dict[str, Any]] = self.get("kafkacontroller", QUORUM).get("status", {}).get("voters", [])
        return found

    def ready_pods(self) -> set[str]:
        """The names of the pods that are ready."""
        return {pod["metadata"]["name"] for pod in self.get("pods")["items"] if _is_ready(pod)}

    def pods_on(self, node: str, prefix: str) -> list[str]:
        """The names of the pods on a node that begin so."""
        return [
            pod["metadata"]["name"]
            for pod in self.get("pods")["items"]
            if pod["spec"].get("nodeName") == node and pod["metadata"]["name"].startswith(f"{prefix}-")
        ]

    def uids(self, prefix: str) -> dict[str, str]:
        """By name, the unique ids of the pods that begin so."""
        return {
            pod["metadata"]["name"]: pod["metadata"]["uid"]
            for pod in self.get("pods")["items"]
            if pod["metadata"]["name"].startswith(f"{prefix}-")
        }

    def pods_so_far(self) -> dict[str, int]:
        """By name, how many pods there have been, by the Events about them: those of the last hour."""
        seen: dict[str, set[str]] = {}
        for event in self.get("events")["items"]:
            about = event["involvedObject"]
            if about["kind"] == "Pod":
                seen.setdefault(about["name"], set()).add(about["uid"])
        return {name: len(uids) for name, uids in seen.items()}

    def state(self) -> str:
        """The state to print when a wait times out."""
        status = self.get("kafkacontroller", QUORUM).get("status", {})
        shown = [
            self.kubectl("get", "pods,pvc", "-o=wide"),
            json.dumps(
                {key: status.get(key) for key in ("conditions", "voters", "plan", "refusals")}, indent=1
            ),
            self.cluster.kubectl(
                "logs", f"-n={self.system}", "-lapp.kubernetes.io/component=operator", "--tail=15"
            ),
        ]
        return "\n".join(shown)

    # Clients

    def tool(self, *command: str, stdin: str | None = None) -> str:
        """Run one of Kafka's own tools in a pod of the cluster."""
        interactive = ["-i"] if stdin is not None else []
        return self.kubectl("exec", *interactive, "deploy/tools", "--", *command, stdin=stdin)

    def create_topic(self, copies: int = 3, in_sync_min: int = 2) -> None:
        """Create the topic that clients write to, as soon as the pod with the tools runs."""
        self.kubectl("rollout", "status", "deployment/tools", f"--timeout={TIMEOUT_S}s")
        self.tool(
            *("kafka-topics.sh", "--create", f"--topic={TOPIC}", "--partitions=3"),
            *(f"--replication-factor={copies}", f"--config=min.insync.replicas={in_sync_min}"),
            f"--bootstrap-server={self.bootstrap}",
        )

    def write(self, count: int = 100) -> None:
        """Write the next numbers to the topic, each acknowledged by all replicas in sync."""
        numbers = "".join(f"{each}\n" for each in range(self.written, self.written + count))
        # One at a time, without the second that this tool waits for more.
        acknowledged = ("--sync", "--timeout=0", "--command-property=acks=all")
        self._retried("kafka-console-producer.sh", *acknowledged, *self._where, stdin=numbers)
        self.written += count

    def read(self) -> list[int]:
        """All numbers of the topic, from its beginning."""
        options = ("--from-beginning", f"--timeout-ms={READ_TIMEOUT_MS}")
        printed = self._retried("kafka-console-consumer.sh", *options, *self._where).splitlines()
        return [int(line) for line in printed if line.isdecimal()]  # it also says that it timed out

    @property
    def _where(self) -> tuple[str, str]:
        return (f"--topic={TOPIC}", f"--bootstrap-server={self.bootstrap}")

    def _retried(self, *command: str, stdin: str | None = None) -> str:
        """A tool, once more when its pod moves meanwhile; numbers that are written twice are no loss."""

        def run() -> list[str]:
            try:
                return [self.tool(*command, stdin=stdin)]
            except (LocalKubernetesError, subprocess.SubprocessError) as error:
                raise ConnectionError(f"{error}") from error

        return eventually(run, TIMEOUT_S, command[0])[0]


_DONE = {"Ready": "True", "Reconciling": "False", "QuorumHealthy": "True"}


def resource(kind: str, name: str, spec: dict[str, Any]) -> dict[str, Any]:
    """An object of ours."""
    return {"apiVersion": "quorate.dev/v1alpha1", "kind": kind, "metadata": {"name": name}, "spec": spec}


def _is_ready(pod: dict[str, Any]) -> bool:
    conditions = {each["type"]: each["status"] for each in pod["status"].get("conditions", [])}
    return conditions.get("Ready") == "True" and "deletionTimestamp" not in pod["metadata"]
