"""A cluster that a real operator process manages, on a real API server, and what tests do with it."""

import base64
import json
import os
import random
import signal
import subprocess
import sys
import threading
import urllib.error
import urllib.request
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from http import HTTPStatus
from pathlib import Path
from typing import Any

import kubernetes.client
import kubernetes.watch
from kit.asking import Asking
from kit.cluster import DIE_WITH_PARENT, free_ports
from kit.local_kubernetes.api_server import ApiServer
from kit.loop_thread import LoopThread
from kit.operators.local_pods import Object
from kit.operators.node_agent import NodeAgent
from kit.waiting import HANG_S, eventually
from kubernetes.client import ApiException
from prometheus_client.parser import text_string_to_metric_families
from quorate_operator.models.secrets import FOR_LISTENERS, FOR_SERVERS, FOR_USERS
from quorate_operator.models.tenant_policy import DEFAULT_POLICY
from quorate_operator.planning.cluster import Address
from quorate_operator.runtime.local.forwarders import Forwarder
from quorate_protocol.kafka.releases import DEFAULT_RELEASE

GROUP, VERSION = "quorate.dev", "v1alpha1"
QUORUM = "quorum"
BROKERS = "brokers"
CONTROLLERS_FIRST = 3000
BROKER_PORT = 9092
SETTLE_TIMEOUT_S = 120
STOP_TIMEOUT_S = 40
HEALTH_TIMEOUT_S = 10
LOG_LINES_SHOWN = 30
THREAD_TIMEOUT_S = 10
SMALL_FILES = {"log.index.size.max.bytes": "16384"}
_ERRORS = ("ERROR", "CRITICAL")


EVERYTHING_ALLOWED = json.dumps(
    {
        **{name: ["*"] for name in DEFAULT_POLICY.model_dump(by_alias=True)},
        "podSecurity": "any",
        "addresses": ["0.0.0.0/0", "::/0"],
    }
)
"""The policy of an administrator who trusts the owners of resources."""


class OperatorProcess:
    """`quorate operator run` for one namespace, by default with EVERYTHING_ALLOWED."""

    def __init__(
        self, server: ApiServer, namespace: str, log: Path, *options: str, **environment: str
    ) -> None:
        self.port = free_ports(1)
        self.log = log
        log.touch()
        self._offset = log.stat().st_size
        command = [
            *DIE_WITH_PARENT,
            *(f"{Path(sys.executable).with_name('quorate')}", "operator", "run"),
            *(f"--namespace={namespace}", f"--lease-namespace={namespace}"),
            *(f"--listen=127.0.0.1:{self.port}", "--image=quorate:test", "--lease-duration=5", *options),
        ]
        fixed = {"KUBECONFIG": f"{server.kubeconfig}", "QUORATE_POLICY": EVERYTHING_ALLOWED}
        variables = {**os.environ, **fixed, **environment}
        self.process = subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, env=variables
        )
        self._watching: Callable[[str], object] | None = None
        self._copier = threading.Thread(target=self._copy_lines, daemon=True)
        self._copier.start()

    def events(self) -> list[str]:
        """The events that it has logged so far."""
        return [event for _, event in self._logged()]

    def errors(self) -> list[str]:
        """The errors that it has logged so far."""
        return [event for level, event in self._logged() if level in _ERRORS]

    def _logged(self) -> list[tuple[str, str]]:
        with self.log.open("rb") as file:
            file.seek(self._offset)
            lines = file.read().splitlines()
        return [logged for line in lines for logged in _event(line)]

    def serves(self, path: str) -> tuple[int, str]:
        """The status and the text that it serves at a path of its health server; status 0 if it does not answer."""
        try:
            with urllib.request.urlopen(
                f"http://127.0.0.1:{self.port}{path}", timeout=HEALTH_TIMEOUT_S
            ) as response:
                return response.status, response.read().decode()
        except urllib.error.HTTPError as error:
            with error:
                return error.code, error.read().decode()
        except OSError:
            return 0, ""

    def metric(self, name: str, **labels: str) -> float:
        """The sum of a metric's samples with these labels. Raises ConnectionError without a response."""
        status, text = self.serves("/metrics")
        if status != HTTPStatus.OK:
            raise ConnectionError(f"/metrics: status {status}")
        families = [family for family in text_string_to_metric_families(text) if name.startswith(family.name)]
        assert families, f"{name} is no metric of the operator"
        return sum(
            sample.value
            for family in families
            for sample in family.samples
            if sample.name == name and labels.items() <= sample.labels.items()
        )

    def kill_at(self, is_moment: Callable[[str], bool]) -> threading.Event:
        """Kill it as soon as it logs an event for which `is_moment` is true. Call this before it has started up.

        Returns:
            what is set when it was killed.
        """
        killed = threading.Event()

        def kill(event: str) -> None:
            if is_moment(event) and not killed.is_set():
                self.process.kill()
                killed.set()

        self._watching = kill
        return killed

    def kill(self) -> None:
        """End it at once."""
        self.process.kill()
        self._wait()

    def terminate(self) -> int:
        """Ask it to leave; its exit status."""
        self.process.send_signal(signal.SIGTERM)
        return self._wait()

    def _wait(self) -> int:
        status = self.process.wait(STOP_TIMEOUT_S)
        self._copier.join(THREAD_TIMEOUT_S)
        return status

    def _copy_lines(self) -> None:
        """Copy its output to the file, line by line: who waits for a line learns of it at once."""
        assert self.process.stdout is not None
        with self.process.stdout as lines, self.log.open("ab", buffering=0) as file:
            for line in lines:
                file.write(line)
                for _, event in _event(line):
                    if self._watching is not None:
                        self._watching(event)


def _event(line: bytes) -> Iterator[tuple[str, str]]:
    """The level and the event of a line of a log, unless it has none."""
    with suppress(ValueError, LookupError, TypeError):
        logged = json.loads(line.decode(errors="replace"))
        yield logged["level"], str(logged["event"])


class Operated:
    """One namespace with at most one cluster: its resources, the machine below it, and operators."""

    def __init__(
        self, server: ApiServer, client: kubernetes.client.ApiClient, namespace: str, directory: Path
    ) -> None:
        self.server = server
        self.namespace = namespace
        self.directory = directory
        self.network = f"127.{random.randrange(20, 120)}.{random.randrange(1, 250)}"
        self.agent = NodeAgent(client, namespace, directory / "machine", self.network)
        self.core = kubernetes.client.CoreV1Api(client)
        self.custom = kubernetes.client.CustomObjectsApi(client)
        self.operators: list[OperatorProcess] = []
        self.port = free_ports(1)

    # The operator

    def start_operator(self, *options: str, **environment: str) -> OperatorProcess:
        """A new operator process; alone without leader election, unless `options` say otherwise."""
        log = self.directory / f"operator-{len(self.operators)}.log"
        chosen = options or ("--no-leader-election",)
        self.operators.append(OperatorProcess(self.server, self.namespace, log, *chosen, **environment))
        return self.operators[-1]

    @contextmanager
    def running(self) -> Iterator["Operated"]:
        """With the machine, and without operators or pods afterwards."""
        with self.agent.running():
            try:
                yield self
            finally:
                for operator in self.operators:
                    operator.kill()

    # Resources

    def create(
        self,
        annotations: Mapping[str, str] | None = None,
        labels: Mapping[str, str] | None = None,
        **spec: Any,
    ) -> Object:
        """A KafkaController whose controllers advertise their pods' addresses."""
        body = {
            "apiVersion": f"{GROUP}/{VERSION}",
            "kind": "KafkaController",
            "metadata": {
                "name": QUORUM,
                "annotations": dict(annotations or {}),
                "labels": dict(labels or {}),
            },
            "spec": {
                "replicas": 3,
                "version": DEFAULT_RELEASE,
                "nodeIds": {"first": CONTROLLERS_FIRST},
                "metadataVersion": "4.3",
                "advertisedHost": f"{self.network}.1{{offset}}",
                "listeners": [{"name": "CONTROLLER", "port": self.port}],
                "config": SMALL_FILES,
                "rollout": {"overlap": "1s"},
                **spec,
            },
        }
        return dict(
            self.custom.create_namespaced_custom_object(
                GROUP, VERSION, self.namespace, "kafkacontrollers", body
            )
        )

    def create_brokers(
        self, name: str = BROKERS, labels: Mapping[str, str] | None = None, **spec: Any
    ) -> None:
        """A KafkaBroker of this quorum, whose brokers advertise their pods' addresses."""
        body = {
            "apiVersion": f"{GROUP}/{VERSION}",
            "kind": "KafkaBroker",
            "metadata": {"name": name, "labels": dict(labels or {})},
            "spec": {
                "controllers": QUORUM,
                "replicas": 1,
                "version": DEFAULT_RELEASE,
                "listeners": [self.internal_listener()],
                "config": SMALL_FILES,
                "rollout": {"overlap": "1s"},
                **spec,
            },
        }
        self.custom.create_namespaced_custom_object(GROUP, VERSION, self.namespace, "kafkabrokers", body)

    def internal_listener(self) -> Object:
        """The listener by which brokers with ids from 0 to 9 know each other."""
        return {"name": "PLAINTEXT", "port": BROKER_PORT, "advertisedHost": f"{self.network}.11{{nodeId}}"}

    def put_secret(
        self, name: str, texts: Mapping[str, str], annotations: Mapping[str, str] | None = None
    ) -> None:
        """Create or replace a Secret that everything may use."""
        data = {key: base64.b64encode(text.encode()).decode() for key, text in texts.items()}
        labels = dict.fromkeys((FOR_LISTENERS, FOR_SERVERS, FOR_USERS), "true")
        metadata = {"name": name, "annotations": dict(annotations or {}), "labels": labels}
        body = {"metadata": metadata, "data": data}
        try:
            self.core.create_namespaced_secret(self.namespace, body)
        except ApiException as error:
            if error.status != 409:
                raise
            self.core.replace_namespaced_secret(name, self.namespace, body)

    def delete_brokers(self, name: str = BROKERS) -> None:
        """Ask for the deletion of a KafkaBroker."""
        self.custom.delete_namespaced_custom_object(GROUP, VERSION, self.namespace, "kafkabrokers", name)

    def patch_brokers(self, name: str = BROKERS, **spec: Any) -> None:
        """Change fields of a KafkaBroker's spec."""
        self.custom.patch_namespaced_custom_object(
            GROUP, VERSION, self.namespace, "kafkabrokers", name, {"spec": spec}
        )

    def brokers(self, name: str = BROKERS) -> Object | None:
        """A KafkaBroker."""
        return self._read("kafkabrokers", name)

    def patch(self, **spec: Any) -> None:
        """Change fields of its spec."""
        self._patch({"spec": spec})

    def annotate(self, **annotations: str | None) -> None:
        """Set or remove annotations of quorate.dev; `_` stands for `-`."""
        named = {f"{GROUP}/{name.replace('_', '-')}": value for name, value in annotations.items()}
        self._patch({"metadata": {"annotations": named}})

    def label(self, plural: str, name: str, **labels: str | None) -> None:
        """Set or remove labels of quorate.dev of any resource."""
        named = {f"{GROUP}/{label}": value for label, value in labels.items()}
        self.custom.patch_namespaced_custom_object(
            GROUP, VERSION, self.namespace, plural, name, {"metadata": {"labels": named}}
        )

    def delete(self) -> None:
        """Ask for the deletion of the KafkaController."""
        self.custom.delete_namespaced_custom_object(
            GROUP, VERSION, self.namespace, "kafkacontrollers", QUORUM
        )

    def resource(self) -> Object | None:
        """The KafkaController."""
        return self._read("kafkacontrollers", QUORUM)

    def status(self) -> Object:
        """Its status; empty until it is written."""
        return dict((self.resource() or {}).get("status") or {})

    def condition(self, kind: str) -> Object:
        """A condition of the KafkaController; empty until it is written."""
        return condition_of(self.resource(), kind)

    def brokers_condition(self, kind: str, name: str = BROKERS) -> Object:
        """A condition of a KafkaBroker; empty until it is written."""
        return condition_of(self.brokers(name), kind)

    # Looking

    def led_to(self, network: str, node_ids: Iterable[int]) -> list[tuple[Address, Address]]:
        """The address of each node in another network, and its pod's own, for `forwarded`."""
        return [
            (
                Address(f"{network}.1{node_id - CONTROLLERS_FIRST}", self.port),
                Address(self.agent.address_of(f"{QUORUM}-{node_id}"), self.port),
            )
            for node_id in node_ids
        ]

    def pods(self) -> list[str]:
        """The names of the pods that are there."""
        return sorted(pod.metadata.name for pod in self.core.list_namespaced_pod(self.namespace).items)

    def pod_uids(self) -> set[str]:
        """The uids of the pods that are there."""
        return {str(pod.metadata.uid) for pod in self.core.list_namespaced_pod(self.namespace).items}

    def asking(self, broker_id: int, pool: str = BROKERS) -> Asking:
        """Ask a broker at the address of its pod."""
        return Asking(servers=f"{self.agent.address_of(f'{pool}-{broker_id}')}:{BROKER_PORT}")

    def fewest_since(self, listed: kubernetes.client.V1PodList) -> int:
        """How few pods there were at a time between this list and now, when all of them are other pods."""
        names = {pod.metadata.name for pod in listed.items}
        fewest = len(names)
        missing = self.pod_uids()
        happened = kubernetes.watch.Watch().stream(
            self.core.list_namespaced_pod,
            self.namespace,
            resource_version=listed.metadata.resource_version,
            timeout_seconds=HANG_S,
        )
        for event in happened:
            metadata = event["object"].metadata
            if event["type"] == "DELETED":
                names.discard(metadata.name)
            else:
                names.add(metadata.name)
                missing.discard(metadata.uid)
            fewest = min(fewest, len(names))
            if not missing:
                return fewest
        raise AssertionError(f"the watch ended without {missing}")

    def refusals(self) -> list[dict[str, str]]:
        """The refusals in the status of the KafkaController."""
        return list(self.status().get("refusals") or ())

    def claims(self) -> list[str]:
        """The names of the claims that are there."""
        claims = self.core.list_namespaced_persistent_volume_claim(self.namespace).items
        return sorted(claim.metadata.name for claim in claims)

    def events(self, reason: str) -> list[str]:
        """The notes of the Events with this reason, in order."""
        api = kubernetes.client.EventsV1Api(self.core.api_client)
        found = [event for event in api.list_namespaced_event(self.namespace).items if event.reason == reason]
        return [event.note for event in sorted(found, key=lambda event: event.event_time)]

    def voters(self) -> dict[int, str]:
        """The directory ids of the voters by node id; empty for those of a static quorum."""
        return {voter["nodeId"]: voter.get("directoryId", "") for voter in self.status().get("voters", ())}

    def brokers_settled(self, *node_ids: int, name: str = BROKERS) -> bool:
        """Whether these brokers of a pool are ready, and nothing is left to do for them as the spec is."""
        resource = self.brokers(name) or {}
        status = resource.get("status") or {}
        return (
            status.get("observedGeneration") == resource["metadata"]["generation"]
            and not status.get("plan")
            and condition_of(resource, "Ready").get("status") == "True"
            and [broker["nodeId"] for broker in status["brokers"]] == list(node_ids)
        )

    def settled(self, *node_ids: int, voters: bool = True) -> bool:
        """Whether these controllers run, are the voters, and nothing is left to do for the spec as it is."""
        resource = self.resource() or {}
        status = resource.get("status") or {}
        return (
            status.get("observedGeneration") == resource["metadata"]["generation"]
            and not status.get("plan")
            and condition_of(resource, "Ready").get("status") == "True"
            and (not voters or sorted(self.voters()) == sorted(node_ids))
            and [pod for pod in self.pods() if pod.startswith(f"{QUORUM}-")]
            == sorted(f"{QUORUM}-{node_id}" for node_id in node_ids)
        )

    def wait_settled(self, *node_ids: int, timeout_s: float = SETTLE_TIMEOUT_S) -> None:
        """Wait until `settled`."""
        self.wait(lambda: self.settled(*node_ids), f"voters {node_ids} and nothing left to do", timeout_s)

    def wait(self, look: Callable[[], object], what: str, timeout_s: float = SETTLE_TIMEOUT_S) -> None:
        """Wait for a state; a timeout reports status, pods and the operator's last lines."""
        eventually(look, timeout_s, what, self._seen)

    def _read(self, plural: str, name: str) -> Object | None:
        try:
            return dict(
                self.custom.get_namespaced_custom_object(GROUP, VERSION, self.namespace, plural, name)
            )
        except ApiException as error:
            if error.status == 404:
                return None
            raise

    def _seen(self) -> str:
        status = {key: value for key, value in self.status().items() if key != "registrations"}
        lines = self.operators[-1].log.read_text().splitlines()[-LOG_LINES_SHOWN:] if self.operators else []
        return f"{json.dumps(status, indent=1)}\npods {self.pods()}\n" + "\n".join(lines)

    def _patch(self, patch: Object) -> None:
        self.custom.patch_namespaced_custom_object(
            GROUP, VERSION, self.namespace, "kafkacontrollers", QUORUM, patch
        )


def condition_of(resource: Object | None, kind: str) -> Object:
    """A condition of a resource; empty until it is written."""
    conditions = ((resource or {}).get("status") or {}).get("conditions", ())
    return next((condition for condition in conditions if condition["type"] == kind), {})


@contextmanager
def forwarded(pairs: Sequence[tuple[Address, Address]]) -> Iterator[None]:
    """The first address of each pair leads to the second, as an external load balancer does."""
    loop = LoopThread("forwarders of addresses")
    forwarders = [Forwarder(address, target) for address, target in pairs]
    try:
        for forwarder in forwarders:
            loop.do(forwarder.open())
        yield
    finally:
        for forwarder in forwarders:
            loop.do(forwarder.close())
        loop.close()
