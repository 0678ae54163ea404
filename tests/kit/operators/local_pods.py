"""The pods of a node agent, as processes of this machine."""

import re
import signal
import socket
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Mapping
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kit.cluster import DIE_WITH_PARENT
from kit.jmx_exporter import agent_jar
from kubernetes.client import ApiException
from urllib3.exceptions import HTTPError

if TYPE_CHECKING:
    from kit.operators.node_agent import NodeAgent

UNAVAILABLE = (ApiException, HTTPError, OSError)
"""What requests raise while the API server refuses them, or is away."""
LOOK_EVERY_S = 0.2
PROBE_EVERY_S = 0.2
FOLLOW_EVERY_S = 2.0
RESTART_PAUSE_S = 1.0
VOLUME_ROOT = "/var/lib/quorate"
CONFIG_ROOT = "/etc/quorate"
RACK_ROOT = "/etc/quorate-rack"
SECRET_ROOTS = ("/etc/quorate-secrets", "/etc/quorate-scram-users")
HISTORY_ROOT = "/history"
SIDE_CAR_GRACE_S = 5
BESIDE = "controller"
"""The container of a controller in the pod of a broker; names of its volumes and containers begin with it."""
KAFKA_START = "/opt/kafka/bin/kafka-server-start.sh"
PROBE_TIMEOUT_S = 1
TERMINATION_LOG = "/dev/termination-log"
METRICS_ROOT, METRICS_JAR = "/opt/quorate-agent", "/opt/quorate/share/jmx_prometheus_javaagent.jar"
METRICS_AGENT = re.compile(r"-javaagent:[^\s\"]+")

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


class LocalPod(threading.Thread):
    """The life of one pod, in a thread of its own."""

    def __init__(self, agent: "NodeAgent", body: Object) -> None:
        super().__init__(name=body["metadata"]["name"], daemon=True)
        self.agent = agent
        self.body = body
        self.known = body
        """The pod as the API server had it last."""
        self.uid = body["metadata"]["uid"]
        self._created_at = body["metadata"]["creationTimestamp"]
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
        self._beside: _Container | None = None
        """The controller in the pod, a side car among the init containers, which is restarted alone."""
        self._beside_spec: Object = {}
        self._beside_volume: Path | None = None
        self._beside_restarts = 0
        self._beside_ended_at: float | None = None
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
        for container in (self._current, self._beside):
            if container is not None:
                container.process.kill()

    def evict(self) -> None:
        """End its process and don't start it again: the pod has failed."""
        self._evicted.set()
        self.kill()

    @property
    def pid(self) -> int | None:
        """The process id of the container that runs."""
        return _pid(self._current)

    @property
    def pid_beside(self) -> int | None:
        """The process id of the controller in the pod, if it runs."""
        return _pid(self._beside)

    def run(self) -> None:
        try:
            self._live()
        finally:
            self.kill()
            for container in (self._current, self._beside):
                if container is not None:
                    container.process.wait()
            for side_car in self._side_cars.values():
                side_car.process.terminate()
                with suppress(subprocess.TimeoutExpired):
                    side_car.process.wait(SIDE_CAR_GRACE_S)
                side_car.process.kill()
                side_car.process.wait()
            self.gone.set()

    def _live(self) -> None:
        self.directory.mkdir(parents=True)
        volume = self._scheduled()
        initial = self.body["spec"].get("initContainers", ())
        if volume is None or not all(self._initialize(spec, volume) for spec in initial):
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
                self._keep_beside(volume)
                ready = self._probe(spec, "readinessProbe")
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
            self._keep_beside(volume)
        self._report_gone()

    def _initialize(self, spec: Object, volume: Path) -> bool:
        """Run an init container to its end, or start one that stays. False when the pod was deleted meanwhile."""
        if spec.get("restartPolicy") != "Always":
            return self._run_to_end(spec, volume)
        self._beside_spec = spec
        self._beside = self._made(spec, volume)
        while not self._probe(spec, "startupProbe"):
            if self._leaving.wait(PROBE_EVERY_S):
                return False
            self._keep_beside(volume)
            self._report("Pending", [], ready=False)
        return True

    def _keep_beside(self, volume: Path) -> None:
        """Start the controller in the pod again, a while after it ended."""
        if self._beside is None or self._beside.process.poll() is None or self._evicted.is_set():
            return
        if self._beside_ended_at is None:
            self._beside_ended_at = time.monotonic()
        if time.monotonic() - self._beside_ended_at >= RESTART_PAUSE_S:
            self._beside_ended_at = None
            self._beside_restarts += 1
            self._beside = self._made(self._beside_spec, volume)

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
        if spec["name"].startswith(BESIDE):
            places |= {VOLUME_ROOT: f"{self._beside_volume}", CONFIG_ROOT: f"{self.directory}/etc-{BESIDE}"}
        command = [self.agent.localized(part, self.address, places) for part in spec["command"]]
        if command[0] == "quorate":
            command[0] = f"{Path(sys.executable).with_name('quorate')}"
        elif KAFKA_START in command:
            place = command.index(KAFKA_START)
            # Pods share this machine: each has its metrics at its own address.
            agents = METRICS_AGENT.findall(" ".join(command[:place]))
            options = [option.replace("=", f"={self.address}:") for option in agents]
            command = self.agent.kafka_command(command[place + 1], options)
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
        configs: dict[str, Mapping[str, str] | None] = {}
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
                configs[source["name"]] = self.agent.config_of(configured["name"])
        volume = volumes.get("data")
        # A pod without a configuration only keeps a claim in use, and mounts nothing.
        if volume is None or not configs or None in (*configs.values(), *volumes.values(), *secrets.values()):
            return None
        self._project()
        self._beside_volume = volumes.get(f"{BESIDE}-data")
        self._history = volumes.get("history")
        self._further = {
            mounts[name]: f"{path}"
            for name, path in volumes.items()
            if mounts[name].startswith(f"{VOLUME_ROOT}-")
        }
        places = self._places(volume)
        for volume_name, config in configs.items():
            is_beside = volume_name.startswith(BESIDE)
            root = Path(f"{self.directory}/etc-{BESIDE}" if is_beside else places[CONFIG_ROOT])
            of_node = {**places, VOLUME_ROOT: f"{self._beside_volume}"} if is_beside else places
            for name, text in (config or {}).items():
                self._write(root / name, self.agent.localized(text, self.address, of_node).encode())
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
                path = mounts[source["name"]]
                known = secrets.get(path, {})  # both nodes of a pod may have keys of one Secret
                read = {key: (found or {})[key] for key in keys} if is_whole else None
                secrets[path] = None if known is None or read is None else {**known, **read}
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

    def _places_of_metrics(self) -> Mapping[str, str]:
        """Where the image has the JMX exporter, and where a pod that runs it gets a copy."""
        has_agent = any(source["name"] == "metrics-agent" for source in self.body["spec"]["volumes"])
        jar = agent_jar() if has_agent else None
        if jar is None:
            return {}
        directory = self.directory / "metrics-agent"
        directory.mkdir(exist_ok=True)
        return {METRICS_JAR: f"{jar}", METRICS_ROOT: f"{directory}"}

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
            **self._places_of_metrics(),
            **self._places_of_secrets(),
            RACK_ROOT: f"{self._rack_directory}",
            CONFIG_ROOT: f"{self.directory}/etc",
        }

    @staticmethod
    def _write(path: Path, content: bytes) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)

    def _probe(self, spec: Object, kind: str) -> bool:
        probe = spec.get(kind, {})
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
        started = self._inits if inits is None else inits
        if self._beside is not None:
            is_up = self._probe(self._beside_spec, "readinessProbe")
            started = [*started, self._beside.status(ready=is_up, restarts=self._beside_restarts)]
            ready = ready and is_up
        status = {
            "phase": phase,
            "podIP": self.address,
            "podIPs": [{"ip": self.address}],
            "hostIP": self.agent.machine_address,
            "initContainerStatuses": started,
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

    def _scheduled(self) -> Path | None:
        """Wait for a machine and for what the pod mounts; returns its volume, or None if it was deleted before."""
        while (conflict := self.agent.conflict_of(self.body)) is not None:
            self._report_unschedulable(conflict)
            if self._leaving.wait(LOOK_EVERY_S):
                return None
        self.agent.bind(self.body)
        while (volume := self._prepare()) is None:
            if self._leaving.wait(LOOK_EVERY_S):
                return None
        return volume

    def _report_unschedulable(self, message: str) -> None:
        condition = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": message}
        status = {"phase": "Pending", "conditions": [{**condition, "lastTransitionTime": self._created_at}]}
        if status != self._written and self.agent.report(self.name, status):
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
        if self._beside is not None and self._current is not None and self._leaving.is_set():
            self._current.process.wait()  # it ends after the broker
            self._end(self._beside)
        self.kill()
        self.agent.remove(self.name, self.uid)


def _pid(container: _Container | None) -> int | None:
    return container.process.pid if container is not None and container.process.poll() is None else None


def _now() -> str:
    """The time as Kubernetes writes it."""
    return datetime.fromtimestamp(time.time(), UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
