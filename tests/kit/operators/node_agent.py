"""Stands in for the machines of a Kubernetes that has only a control plane: runs pods as local processes.

Of scheduler, kubelet, volume controllers and DNS it does what Quorate's pods need: binds pods to a machine unless it
lacks their volumes, gives each an address of its own in 127.0.0.0/8, writes ConfigMaps and Secrets to files, has a
directory for each claim, runs init containers, the container and its side cars, probes readiness, reports states and
termination messages, observes grace periods, restarts containers that ended, and releases claims that no scheduled
pod uses. A name of a pod in a text is replaced by its address, as DNS would.
"""

import base64
import json
import os
import re
import shutil
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

import kubernetes.client
from kit.cluster import HEAP
from kit.java.class_archive import archive_options
from kit.operators.local_pods import LOOK_EVERY_S, UNAVAILABLE, LocalPod, Object
from kit.releases import RELEASE
from kubernetes.client import ApiException
from quorate_operator.runtime.local.stock_kafka import find_kafka
from urllib3.exceptions import HTTPError

CLUSTER_LABEL = "quorate.dev/cluster"
ADVERTISED = "advertised.listeners="


class NodeAgent:
    """Runs the pods of one namespace below `directory`; addresses begin with `network`, `127.60.1`."""

    def __init__(
        self, client: kubernetes.client.ApiClient, namespace: str, directory: Path, network: str
    ) -> None:
        self.directory = directory
        self.machine = f"machine-of-{namespace}"
        self.machine_address = f"{network}.250"
        self._client = client
        self._core = kubernetes.client.CoreV1Api(client)
        self._namespace = namespace
        self._network = network
        self.environment: Mapping[str, str] = os.environ
        """In which stock Kafka is found."""
        self._pods: dict[str, LocalPod] = {}
        self._claims: dict[str, str] = {}
        self._lost: dict[str, str] = {}
        """The machine that is gone, by claim, as the uid, whose local volume it had."""
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="node agent", daemon=True)

    @contextmanager
    def running(self) -> Iterator["NodeAgent"]:
        """Run pods for a while; none is left afterwards."""
        machine = {"metadata": {"name": self.machine}}
        self._core.create_node(machine)
        condition = {"type": "Ready", "status": "True", "reason": "KubeletReady", "message": ""}
        address = {"type": "InternalIP", "address": self.machine_address}
        status = {"conditions": [condition], "addresses": [address]}
        self._core.patch_node_status(self.machine, {"status": status})
        self._thread.start()
        try:
            yield self
        finally:
            self._stop.set()
            self._thread.join()
            for pod in self._pods.values():
                pod.deletion = {"metadata": {"deletionGracePeriodSeconds": 0}}
                pod._leaving.set()
                pod.kill()
            for pod in self._pods.values():
                pod.join()
            self._core.delete_node(self.machine)

    def label_machine(self, **labels: str) -> None:
        """Put labels on the machine; `__` stands for `/`, and `_` for `.`."""
        named = {name.replace("__", "/").replace("_", "."): value for name, value in labels.items()}
        self._core.patch_node(self.machine, {"metadata": {"labels": named}})

    def pid_of(self, pod: str) -> int | None:
        """The process of a pod's container, if it runs."""
        found = self._pods.get(pod)
        return found.pid if found is not None else None

    def pid_beside(self, pod: str) -> int | None:
        """The process of the controller in a broker's pod, if it runs."""
        found = self._pods.get(pod)
        return found.pid_beside if found is not None else None

    def evict(self, pod: str) -> None:
        """What a machine does that has too little memory: the process ends, the pod stays as one that failed."""
        self._pods[pod].evict()

    def lose_machine_of(self, pod: str) -> str:
        """Remove the machine of a pod, as if it was another one than that of the others, with its local volumes.

        The pod's object goes as well. Returns the name of that machine.
        """
        found = self._core.read_namespaced_pod(pod, self._namespace)
        machine = f"gone-{found.metadata.uid[:8]}"
        selector = {"key": "kubernetes.io/hostname", "operator": "In", "values": [machine]}
        for volume in found.spec.volumes:
            if volume.persistent_volume_claim is not None:
                self._bind_claim(volume.persistent_volume_claim.claim_name, machine, selector)
        self.remove(pod, found.metadata.uid)
        return machine

    def regain_machine(self, machine: str) -> None:
        """A machine is back with its volumes, as another name of the one that runs all pods."""
        self.label_machine(kubernetes_io__hostname=machine)
        self._lost = {uid: lost for uid, lost in self._lost.items() if lost != machine}

    def _bind_claim(self, claim: str, machine: str, selector: Object) -> None:
        uid = self._core.read_namespaced_persistent_volume_claim(claim, self._namespace).metadata.uid
        name = f"pvc-{uid}"
        self._core.create_persistent_volume(
            {
                "metadata": {"name": name},
                "spec": {
                    "capacity": {"storage": "10Gi"},
                    "accessModes": ["ReadWriteOnce"],
                    "local": {"path": "/disk"},
                    "nodeAffinity": {"required": {"nodeSelectorTerms": [{"matchExpressions": [selector]}]}},
                },
            }
        )
        self._core.patch_namespaced_persistent_volume_claim(
            claim, self._namespace, {"spec": {"volumeName": name}}
        )
        self._lost[uid] = machine

    def conflict_of(self, body: Object) -> str | None:
        """What the scheduler says of a pod with a local volume of another machine; None if the pod fits."""
        uids = [
            self._claims.get(source["persistentVolumeClaim"]["claimName"])
            for source in body["spec"].get("volumes", ())
            if "persistentVolumeClaim" in source
        ]
        if self._lost.keys().isdisjoint(uids):
            return None
        return "0/1 nodes are available: 1 node(s) didn't match PersistentVolume's node affinity."

    def log_of(self, pod: str) -> str:
        """What the container of every pod of this name has written."""
        return "".join(path.read_text() for path in sorted(self.directory.glob(f"{pod}-????????/node.log")))

    def address_of(self, pod: str) -> str:
        """The address of a pod: by its node id, so that it comes back to it."""
        node_id = int(pod.split("-")[1])
        return f"{self._network}.{node_id % 100 + (10 if node_id >= 1000 else 110)}"

    def localized(self, text: str, address: str, places: Mapping[str, str]) -> str:
        """A text of a pod as it is for a process of this machine; addresses for clients stay."""
        reported = [line for line in text.splitlines() if line.startswith(ADVERTISED)]
        text = "".join(line for line in text.splitlines(keepends=True) if not line.startswith(ADVERTISED))
        name = re.compile(rf"([a-z0-9-]+)\.[a-z0-9-]+\.{self._namespace}\.svc")
        text = name.sub(lambda found: self.address_of(found[1]), text)
        text = text.replace("://:", f"://{address}:").replace("0.0.0.0:", f"{address}:")
        for place, there in places.items():
            text = text.replace(place, there)
        return "\n".join((text, *reported))

    def volume_of(self, claim: str) -> Path | None:
        """The directory of a claim; None while it is missing or is being deleted."""
        uid = self._claims.get(claim)
        if uid is None:
            return None
        path = self.directory / "volumes" / uid
        path.mkdir(parents=True, exist_ok=True)
        return path

    def config_of(self, name: str) -> Mapping[str, str] | None:
        """The data of a ConfigMap."""
        with suppress(*UNAVAILABLE):
            return dict(self._core.read_namespaced_config_map(name, self._namespace).data)
        return None

    def secret_of(self, name: str) -> Mapping[str, bytes] | None:
        """The data of a Secret."""
        with suppress(*UNAVAILABLE):
            data = self._core.read_namespaced_secret(name, self._namespace).data or {}
            return {key: base64.b64decode(value) for key, value in data.items()}
        return None

    def kafka_command(self, config: str, options: Sequence[str] = ()) -> list[str]:
        """What runs a stock broker with this configuration. Raises KafkaUnavailableError."""
        kafka = find_kafka(RELEASE, self.environment, lambda _: None)
        archive_options(kafka.libs)  # makes the cache that `kafka` uses
        log4j = f"-Dlog4j2.configurationFile={Path(config).with_name('log4j2.properties')}"
        heap = self.environment.get("KAFKA_HEAP_OPTS", " ".join(HEAP)).split()
        jvm = (*heap, *options, "-XX:+UseSerialGC", "-XX:-UsePerfData", log4j)
        return kafka.command("kafka.Kafka", config, jvm=jvm)

    def bind(self, body: Object) -> None:
        """Put a pod on the machine."""
        name = body["metadata"]["name"]
        target = {"apiVersion": "v1", "kind": "Node", "name": self.machine}
        path = f"/api/v1/namespaces/{self._namespace}/pods/{name}/binding"
        binding = {"apiVersion": "v1", "kind": "Binding", "metadata": {"name": name}, "target": target}
        self._insist(lambda: self._request("POST", path, binding))

    def report(self, name: str, status: Object) -> bool:
        """Write the status of a pod. Returns whether it was written."""
        with suppress(*UNAVAILABLE):
            self._core.patch_namespaced_pod_status(name, self._namespace, {"status": status})
            return True
        return False

    def remove(self, name: str, uid: str) -> None:
        """A pod has ended: its object goes."""
        options = kubernetes.client.V1DeleteOptions(
            grace_period_seconds=0, preconditions=kubernetes.client.V1Preconditions(uid=uid)
        )
        self._insist(lambda: self._core.delete_namespaced_pod(name, self._namespace, body=options))

    def _insist(self, request: Callable[[], object]) -> None:
        """Send a request until the API server answers it, if only with a refusal."""
        while True:
            try:
                request()
            except (HTTPError, ApiException) as error:
                if _is_refusal(error) or self._stop.wait(LOOK_EVERY_S):
                    return
            else:
                return

    def _run(self) -> None:
        while not self._stop.wait(LOOK_EVERY_S):
            with suppress(*UNAVAILABLE):
                self._sync_volumes()

    def _sync_volumes(self) -> None:
        claims = self._list("persistentvolumeclaims")
        pods = {
            pod["metadata"]["name"]: pod
            for pod in self._list("pods")
            if CLUSTER_LABEL in pod["metadata"].get("labels", {})
        }
        used = {
            source["persistentVolumeClaim"]["claimName"]
            for pod in pods.values()
            for source in pod["spec"].get("volumes", ())
            if "persistentVolumeClaim" in source and pod["spec"].get("nodeName")
        }
        self._keep_claims(claims, used)
        for name, running in list(self._pods.items()):
            found = pods.get(name)
            if found is None or found["metadata"]["uid"] != running.uid:
                # It was removed by force: nothing waits for its process.
                running.leave({"metadata": {"deletionGracePeriodSeconds": 0}})
                running.gone.wait()
                del self._pods[name]
            elif found["metadata"].get("deletionTimestamp"):
                running.leave(found)
            else:
                running.known = found
        for name, found in pods.items():
            if name not in self._pods and not found["metadata"].get("deletionTimestamp"):
                self._pods[name] = LocalPod(self, found)
                self._pods[name].start()

    def _keep_claims(self, claims: list[Object], used: set[str]) -> None:
        there: dict[str, str] = {}
        for claim in claims:
            metadata = claim["metadata"]
            if not metadata.get("deletionTimestamp"):
                there[metadata["name"]] = metadata["uid"]
            elif metadata["name"] not in used:
                path = f"/api/v1/namespaces/{self._namespace}/persistentvolumeclaims/{metadata['name']}"
                self._request("PATCH", path, {"metadata": {"finalizers": None}})
                shutil.rmtree(self.directory / "volumes" / metadata["uid"], ignore_errors=True)
            else:
                there[metadata["name"]] = metadata["uid"]
        self._claims = there

    def _list(self, plural: str) -> list[Object]:
        found = self._request("GET", f"/api/v1/namespaces/{self._namespace}/{plural}")
        return list(found["items"])

    def _request(self, method: str, path: str, body: object = None) -> Object:
        content = "application/merge-patch+json" if method == "PATCH" else "application/json"
        result = self._client.call_api(
            *self._client.param_serialize(
                method,
                path,
                header_params={"Content-Type": content, "Accept": "application/json"},
                body=body,
                auth_settings=["BearerToken"],
            )
        )
        result.read()
        if result.status >= 400:
            raise ApiException(status=result.status, reason=result.reason)
        return dict(json.loads(result.data))


def _is_refusal(error: Exception) -> bool:
    """Whether the request would fail again. The status is 0 where TLS broke."""
    return isinstance(error, ApiException) and 400 <= error.status < 500 and error.status != 429
