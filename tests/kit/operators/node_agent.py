"""Stands in for the machines of a Kubernetes that has only a control plane: runs pods as local processes.

Of scheduler, kubelet, volume controllers and DNS it does what Quorate's pods need: binds pods to a machine, gives
each an address of its own in 127.0.0.0/8, writes ConfigMaps and Secrets to files, has a directory for each claim,
runs init containers, the container and its side cars, probes readiness, reports states and termination messages,
observes grace periods, restarts containers that ended, and releases claims that no pod uses. A name of a pod in a
text is replaced by its address, as DNS would.
"""

import base64
import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import kubernetes.client
from kit.cluster import DIE_WITH_PARENT, HEAP
from kit.releases import RELEASE
from kubernetes.client import ApiException
from quorate_operator.runtime.local.stock_kafka import find_kafka
from urllib3.exceptions import HTTPError

UNAVAILABLE = (ApiException, HTTPError, OSError)
"""What requests raise while the API server refuses them, or is away."""
LOOK_EVERY_S = 0.2
PROBE_EVERY_S = 0.2
FOLLOW_EVERY_S = 2.0
RESTART_PAUSE_S = 1.0
VOLUME_ROOT = "/var/lib/quorate"
CONFIG_ROOT = "/etc/quorate"
CLUSTER_LABEL = "quorate.dev/cluster"
RACK_ROOT = "/etc/quorate-rack"
SECRET_ROOTS = ("/etc/quorate-secrets", "/etc/quorate-scram-users")
HISTORY_ROOT = "/history"
SIDE_CAR_GRACE_S = 5
ADVERTISED = "advertised.listeners="
KAFKA_START = "/opt/kafka/bin/kafka-server-start.sh"
PROBE_TIMEOUT_S = 1
TERMINATION_LOG = "/dev/termination-log"

Object = dict[str, Any]


class _Container:
    """A container that was started as a process."""

    def __init__(self, spec: Object, command: list[str], directory: Path, last_words: Path) -> None:
        self.name = str(spec["name"])
        self.image = str(spec["image"])
        self.started_at = _now()
        self._last_words = last_words
        with (directory / f"{self.name}.log").open("ab") as log:
            self.process = subprocess.Popen(
                [*DIE_WITH_PARENT, *command], stdout=log, stderr=log, stdin=subprocess.DEVNULL, cwd=directory
            )

    def status(self, *, ready: bool, restarts: int) -> Object:
        code = self.process.poll()
        if code is None:
            state: Object = {"running": {"startedAt": self.started_at}}
        else:
            words = self._last_words.read_text() if self._last_words.exists() else ""
            exit_code = code if code >= 0 else 128 - code
            state = {
                "terminated": {
                    "exitCode": exit_code,
                    "message": words,
                    "finishedAt": _now(),
                    "startedAt": self.started_at,
                }
            }
        return {
            "name": self.name,
            "image": self.image,
            "imageID": "",
            "ready": ready and code is None,
            "restartCount": restarts,
            "state": state,
        }


class _Pod(threading.Thread):
    """The life of one pod, in a thread of its own."""

    def __init__(self, agent: "NodeAgent", body: Object) -> None:
        super().__init__(name=body["metadata"]["name"], daemon=True)
        self.agent = agent
        self.body = body
        self.known = body
        """The pod as the API server had it last."""
        self.uid = body["metadata"]["uid"]
        self.address = agent.address_of(self.name)
        self.directory = agent.directory / f"{self.name}-{self.uid[:8]}"
        self.deletion: Object | None = None
        self.gone = threading.Event()
        self._rack_directory = self.directory / "rack"
        self._inits: list[Object] = []
        self._current: _Container | None = None
        self._written: Object | None = None
        self._leaving = threading.Event()
        self._evicted = threading.Event()
        self._side_cars: dict[str, _Container] = {}
        self._history: Path | None = None
        self._followed_at = 0.0
        self._further: dict[str, str] = {}
        """Where the volumes of the pod besides its first one are on this machine."""

    def leave(self, body: Object) -> None:
        """The pod was deleted: the process gets its grace period."""
        self.deletion = body
        self._leaving.set()

    def kill(self) -> None:
        """End its process at once, as when a machine loses power."""
        container = self._current
        if container is not None:
            container.process.kill()

    def evict(self) -> None:
        """End its process and don't start it again: the pod has failed."""
        self._evicted.set()
        self.kill()

    @property
    def pid(self) -> int | None:
        """The process id of the container that runs."""
        container = self._current
        return container.process.pid if container is not None and container.process.poll() is None else None

    def run(self) -> None:
        try:
            self._live()
        finally:
            self.kill()
            if self._current is not None:
                self._current.process.wait()
            for side_car in self._side_cars.values():
                side_car.process.terminate()
                with suppress(subprocess.TimeoutExpired):
                    side_car.process.wait(SIDE_CAR_GRACE_S)
                side_car.process.kill()
                side_car.process.wait()
            self.gone.set()

    def _live(self) -> None:
        self.directory.mkdir(parents=True)
        self.agent.bind(self.body)
        volume = self._prepare()
        while volume is None:
            if self._leaving.wait(LOOK_EVERY_S):
                self._report_gone()
                return
            volume = self._prepare()
        for spec in self.body["spec"].get("initContainers", ()):
            if not self._run_to_end(spec, volume):
                self._report_gone()
                return
        is_task = self.body["spec"].get("restartPolicy") == "Never"
        spec, *others = self.body["spec"]["containers"]
        restarts = 0
        while not self._leaving.is_set():
            self._prepare()
            for other in others:
                known = self._side_cars.get(other["name"])
                if known is None or known.process.poll() is not None:
                    self._side_cars[other["name"]] = self._made(other, volume)
            container = self._start(spec, volume)
            ready = False
            while container.process.poll() is None and not self._leaving.wait(PROBE_EVERY_S):
                self._follow_secrets()
                ready = self._is_ready(spec)
                self._report("Running", [container.status(ready=ready, restarts=restarts)], ready=ready)
            if container.process.poll() is None:
                self._end(container)
                break
            if is_task or self._evicted.is_set():
                phase = "Succeeded" if container.process.returncode == 0 else "Failed"
                self._report(phase, [container.status(ready=False, restarts=0)], ready=False)
                while not self._leaving.wait(LOOK_EVERY_S):  # unless it was written, which ends the reports
                    self._report(phase, [container.status(ready=False, restarts=0)], ready=False)
                break
            self._report("Running", [container.status(ready=False, restarts=restarts)], ready=False)
            restarts += 1
            self._leaving.wait(RESTART_PAUSE_S)
        self._report_gone()

    def _run_to_end(self, spec: Object, volume: Path) -> bool:
        """Run an init container until it succeeds. False when the pod was deleted meanwhile."""
        restarts = 0
        while not self._leaving.is_set():
            container = self._start(spec, volume)
            while container.process.poll() is None and not self._leaving.wait(LOOK_EVERY_S):
                self._project()
            if container.process.poll() is None:
                self._end(container)
                return False
            status = container.status(ready=container.process.returncode == 0, restarts=restarts)
            if container.process.returncode == 0:
                self._inits.append(status)
                self._report("Pending", [], ready=False)
                return True
            self._report("Pending", [], ready=False, inits=[*self._inits, status])
            restarts += 1
            self._leaving.wait(RESTART_PAUSE_S)
        return False

    def _start(self, spec: Object, volume: Path) -> _Container:
        self._current = self._made(spec, volume)
        return self._current

    def _made(self, spec: Object, volume: Path) -> _Container:
        last_words = self.directory / f"{spec['name']}.last-words"
        last_words.unlink(missing_ok=True)
        places = {**self._places(volume), TERMINATION_LOG: f"{last_words}"}
        command = [self.agent.localized(part, self.address, places) for part in spec["command"]]
        if command[0] == "quorate":
            command[0] = f"{Path(sys.executable).with_name('quorate')}"
        elif command[0] == KAFKA_START:
            command = self.agent.kafka_command(command[1])
        return _Container(spec, command, self.directory, last_words)

    def _end(self, container: _Container) -> None:
        assert self.deletion is not None
        container.process.send_signal(signal.SIGTERM)
        with suppress(subprocess.TimeoutExpired):
            container.process.wait(self.deletion["metadata"].get("deletionGracePeriodSeconds", 30))
        container.process.kill()
        container.process.wait()

    def _prepare(self) -> Path | None:
        """The volume and the configuration on disk; None while a claim, ConfigMap or Secret is missing."""
        volumes: dict[str, Path | None] = {}
        config: Mapping[str, str] | None = None
        secrets = self._secrets()
        spec = self.body["spec"]
        mounts = {
            mount["name"]: mount["mountPath"]
            for container in (*spec.get("initContainers", ()), *spec["containers"])
            for mount in container.get("volumeMounts", ())
        }
        for source in self.body["spec"]["volumes"]:
            if claim := source.get("persistentVolumeClaim"):
                volumes[source["name"]] = self.agent.volume_of(claim["claimName"])
            if configured := source.get("configMap"):
                config = self.agent.config_of(configured["name"])
        volume = volumes.get("data")
        if volume is None or config is None or None in (*volumes.values(), *secrets.values()):
            return None
        self._project()
        self._history = volumes.get("history")
        self._further = {
            mounts[name]: f"{path}"
            for name, path in volumes.items()
            if mounts[name].startswith(f"{VOLUME_ROOT}-")
        }
        places = self._places(volume)
        for name, text in config.items():
            self._write(
                Path(places[CONFIG_ROOT]) / name, self.agent.localized(text, self.address, places).encode()
            )
        self._write_secrets(secrets, places)
        self._followed_at = time.monotonic()
        return volume

    def _secrets(self) -> dict[str, Mapping[str, bytes] | None]:
        """The content of each mounted Secret by its path; None while a key is missing."""
        spec = self.body["spec"]
        mounts = {
            mount["name"]: mount["mountPath"]
            for container in (*spec.get("initContainers", ()), *spec["containers"])
            for mount in container.get("volumeMounts", ())
        }
        secrets: dict[str, Mapping[str, bytes] | None] = {}
        for source in spec["volumes"]:
            if secret := source.get("secret"):
                found = self.agent.secret_of(secret["secretName"])
                keys = [item["key"] for item in secret["items"]] if "items" in secret else list(found or ())
                is_whole = found is not None and all(key in found for key in keys)
                secrets[mounts[source["name"]]] = (
                    {key: (found or {})[key] for key in keys} if is_whole else None
                )
        return secrets

    def _follow_secrets(self) -> None:
        """Write changed Secrets to the files of a running pod, as kubelet does."""
        if time.monotonic() - self._followed_at < FOLLOW_EVERY_S:
            return
        self._followed_at = time.monotonic()
        if not any("secret" in source for source in self.body["spec"]["volumes"]):
            return
        with suppress(*UNAVAILABLE):
            self._write_secrets(self._secrets(), self._places_of_secrets())

    def _places_of_secrets(self) -> Mapping[str, str]:
        return {root: f"{self.directory}{root.removeprefix('/etc')}" for root in SECRET_ROOTS}

    def _write_secrets(
        self, secrets: Mapping[str, Mapping[str, bytes] | None], places: Mapping[str, str]
    ) -> None:
        for path, data in secrets.items():
            root = next(root for root in SECRET_ROOTS if path.startswith(root))
            for name, content in (data or {}).items():
                file = Path(f"{places[root]}{path.removeprefix(root)}") / name
                if not file.exists() or file.read_bytes() != content:
                    self._write(file, content)

    def _project(self) -> None:
        """Write the annotations that the pod has as files; one that is not there yet is empty."""
        annotations = self.known["metadata"].get("annotations") or {}
        for source in self.body["spec"]["volumes"]:
            for item in source.get("downwardAPI", {}).get("items", ()):
                name = item["fieldRef"]["fieldPath"].removeprefix("metadata.annotations['").removesuffix("']")
                self._write(self._rack_directory / item["path"], annotations.get(name, "").encode())

    def _places(self, volume: Path) -> Mapping[str, str]:
        """Where a pod's paths are on this machine; those that begin with others come first."""
        return {
            **({HISTORY_ROOT: f"{self._history}"} if self._history else {}),
            **self._further,
            VOLUME_ROOT: f"{volume}",
            **self._places_of_secrets(),
            RACK_ROOT: f"{self._rack_directory}",
            CONFIG_ROOT: f"{self.directory}/etc",
        }

    @staticmethod
    def _write(path: Path, content: bytes) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)

    def _is_ready(self, spec: Object) -> bool:
        probe = spec.get("readinessProbe", {})
        if asked := probe.get("tcpSocket"):
            try:
                socket.create_connection((self.address, asked["port"]), PROBE_TIMEOUT_S).close()
            except OSError:
                return False
            return True
        if asked := probe.get("httpGet"):
            port = next(port["containerPort"] for port in spec["ports"] if port["name"] == asked["port"])
            url = f"http://{self.address}:{port}{asked['path']}"
            try:
                with urllib.request.urlopen(url, timeout=PROBE_TIMEOUT_S) as response:
                    return bool(response.status == 200)
            except (OSError, urllib.error.URLError):
                return False
        return True

    def _report(
        self, phase: str, containers: list[Object], *, ready: bool, inits: list[Object] | None = None
    ) -> None:
        status = {
            "phase": phase,
            "podIP": self.address,
            "podIPs": [{"ip": self.address}],
            "hostIP": self.agent.machine_address,
            "initContainerStatuses": self._inits if inits is None else inits,
            "containerStatuses": containers
            + [side_car.status(ready=True, restarts=0) for side_car in self._side_cars.values()],
            "conditions": [
                {"type": "ContainersReady", "status": str(ready)},
                {"type": "Ready", "status": str(ready and self._passes_gates())},
            ],
        }
        if status == self._written:
            return
        if self.agent.report(self.name, status):
            self._written = status

    def _passes_gates(self) -> bool:
        """Whether every condition that the pod's readiness waits for holds, as the API server has it."""
        holding = {
            condition["type"]
            for condition in self.known["status"].get("conditions") or ()
            if condition["status"] == "True"
        }
        return all(gate["conditionType"] in holding for gate in self.body["spec"].get("readinessGates", ()))

    def _report_gone(self) -> None:
        self.kill()
        self.agent.remove(self.name, self.uid)


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
        self._pods: dict[str, _Pod] = {}
        self._claims: dict[str, str] = {}
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

    def evict(self, pod: str) -> None:
        """What a machine does that has too little memory: the process ends, the pod stays as one that failed."""
        self._pods[pod].evict()

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

    def kafka_command(self, config: str) -> list[str]:
        """What runs a stock broker with this configuration. Raises KafkaUnavailableError."""
        kafka = find_kafka(RELEASE, self.environment, lambda _: None)
        log4j = f"-Dlog4j2.configurationFile={Path(config).with_name('log4j2.properties')}"
        options = self.environment.get("KAFKA_HEAP_OPTS", " ".join(HEAP)).split()
        jvm = (*options, "-XX:+UseSerialGC", "-XX:-UsePerfData", log4j)
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
            if "persistentVolumeClaim" in source
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
                self._pods[name] = _Pod(self, found)
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


def _now() -> str:
    return datetime.fromtimestamp(time.time(), UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
