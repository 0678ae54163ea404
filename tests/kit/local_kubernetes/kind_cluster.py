"""A cluster of kind: one control plane and some workers, in the Docker of this machine or in one of our own.

In a Docker of our own the node image is ours too (see `node_image`), and pods reach each other by a bridge on each
node and routes between the nodes, since the image that kind takes for this comes from a registry.
"""

import json
import os
import secrets
import shutil
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Literal, Self

import yaml
from kit.local_kubernetes.docker_host import DockerHost
from kit.local_kubernetes.errors import LocalKubernetesError
from kit.local_kubernetes.golang import Progress, programs
from kit.local_kubernetes.node_image import NAME, node_image
from kit.local_kubernetes.processes import run
from kit.waiting import eventually

CREATE_TIMEOUT_S = 300
LOAD_TIMEOUT_S = 300
COMMAND_TIMEOUT_S = 180
READY_TIMEOUT = "120s"
API_SERVER_TIMEOUT_S = 300
_API_SERVER, _AWAY = "/etc/kubernetes/manifests/kube-apiserver.yaml", "/kind/kube-apiserver.yaml"
Family = Literal["ipv4", "ipv6"]
_ANYWHERE: dict[Family, str] = {"ipv4": "0.0.0.0/0", "ipv6": "::/0"}
_TOOLS = ("kind", "kubectl", "helm")
ZONES = ("a", "b", "c")  # a cluster with a worker in each can hold what is spread over three
ZONE_LABEL = "topology.kubernetes.io/zone"
# The Corefile of kubeadm, without forwarding of names outside the cluster: no name server exists for them, and each
# query would wait some seconds. Java resolves names inside its only network thread: a broker that resolves the
# name of a deleted pod would do nothing else meanwhile.
_COREFILE = """\
cluster.local:53 in-addr.arpa:53 ip6.arpa:53 {
    errors
    health {
        lameduck 5s
    }
    ready
    kubernetes cluster.local in-addr.arpa ip6.arpa {
        pods insecure
        ttl 30
    }
    prometheus :9153
    reload
    loadbalance
}
.:53 {
    errors
    template ANY ANY {
        rcode NXDOMAIN
    }
}
"""


class KindCluster:
    """A running cluster whose system pods are ready. Close it. Raises LocalKubernetesError.

    It has a worker for each of the `zones`, which is labelled so unless that is None. Nodes, pods and Services have
    addresses of one `family`.
    """

    def __init__(
        self,
        docker: DockerHost,
        directory: Path,
        environment: Mapping[str, str],
        progress: Progress,
        zones: Sequence[str | None] = (None, None),
        *,
        family: Family = "ipv4",
    ) -> None:
        self.docker = docker
        self._family = family
        self.name = f"quorate-{secrets.token_hex(3)}"
        self._zones = zones
        self.directory = directory
        self.kubeconfig = directory / "kubeconfig"
        self._environment = {**docker.environment, "KUBECONFIG": f"{self.kubeconfig}"}
        self._tools = _tools(docker, environment, progress)
        try:
            self._create(environment, progress)
        except BaseException:
            self.close()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def nodes(self) -> tuple[str, ...]:
        """The names of its nodes, which are those of their containers too; the control plane's is the first."""
        workers = ("worker", *(f"worker{number}" for number in range(2, len(self._zones) + 1)))
        return tuple(f"{self.name}-{role}" for role in ("control-plane", *workers))

    @property
    def workers(self) -> tuple[str, ...]:
        """The names of its nodes without the control plane."""
        return self.nodes[1:]

    def kubectl(self, *arguments: str, stdin: str | None = None, timeout_s: float = COMMAND_TIMEOUT_S) -> str:
        """What kubectl prints. Raises LocalKubernetesError with what it says when it fails."""
        return self._reach("kubectl", arguments, stdin, timeout_s)

    def command(self, tool: str, *arguments: str) -> list[str]:
        """A command of kubectl or helm that reaches the API server, given the file `kubeconfig`."""
        return self.docker.inside([self._tools[tool], *arguments])

    def helm(self, *arguments: str, timeout_s: float = COMMAND_TIMEOUT_S) -> str:
        """What helm prints. Raises LocalKubernetesError with what it says when it fails."""
        return self._reach("helm", arguments, None, timeout_s)

    def load(self, *images: str, nodes: Sequence[str] = ()) -> None:
        """Copy images of this Docker into nodes: every worker, where pods without tolerations run, by default."""
        command = [self._tools["kind"], "load", "docker-image", f"--name={self.name}"]
        self._run([*command, f"--nodes={','.join(nodes or self.workers)}", *images], timeout_s=LOAD_TIMEOUT_S)

    def load_archive(self, path: Path) -> None:
        """Copy the image in an archive into every worker."""
        command = [self._tools["kind"], "load", "image-archive", f"--name={self.name}"]
        self._run([*command, f"--nodes={','.join(self.workers)}", f"{path}"], timeout_s=LOAD_TIMEOUT_S)

    def stop_node(self, node: str) -> None:
        """Stop a node like a power failure: its processes are killed."""
        self._run(["docker", "kill", node])

    def start_node(self, node: str) -> None:
        """Boot a node that was stopped."""
        self._run(["docker", "start", node])
        if self.docker.is_ours:
            self._connect_pods()

    def on_node(self, node: str, *command: str) -> str:
        """What a command prints on a node. Raises LocalKubernetesError with what it says when it fails."""
        return self._run(["docker", "exec", node, *command])

    @contextmanager
    def without_api_server(self) -> Iterator[None]:
        """No API server answers in this context; kubelets, pods and etcd run on."""
        control_plane = self.nodes[0]
        self.on_node(control_plane, "mv", _API_SERVER, _AWAY)
        try:
            eventually(lambda: not self._has_api_server(), API_SERVER_TIMEOUT_S, "the API server to be away")
            yield
        finally:
            self.on_node(control_plane, "mv", _AWAY, _API_SERVER)
            eventually(self._has_api_server, API_SERVER_TIMEOUT_S, "the API server to be back")

    def _has_api_server(self) -> bool:
        try:
            return self.kubectl("get", "--raw=/readyz", "--request-timeout=5s") == "ok"
        except LocalKubernetesError:
            return False

    def close(self) -> None:
        """Remove the cluster."""
        self._run([self._tools["kind"], "delete", "cluster", f"--name={self.name}"])

    def _create(self, environment: Mapping[str, str], progress: Progress) -> None:
        image: list[str] = []
        networking: dict[str, object] = {"ipFamily": self._family}
        if self._family == "ipv4":
            networking["apiServerAddress"] = "127.0.0.1"
        if self.docker.is_ours:
            self._import(node_image(environment, progress))
            image, networking = [f"--image={NAME}"], {**networking, "disableDefaultCNI": True}
        config = {
            "kind": "Cluster",
            "apiVersion": "kind.x-k8s.io/v1alpha4",
            "networking": networking,
            "nodes": [{"role": "control-plane"}, *map(_worker, self._zones)],
        }
        path = self.directory / "kind.yaml"
        path.write_text(yaml.safe_dump(config))
        progress(f"creating the cluster {self.name} of {len(self.nodes)} nodes")
        started = time.monotonic()
        command = [self._tools["kind"], "create", "cluster", f"--name={self.name}", f"--config={path}"]
        self._run([*command, f"--kubeconfig={self.kubeconfig}", *image], timeout_s=CREATE_TIMEOUT_S)
        if self.docker.is_ours:
            # Before pods can start, so that the name server starts with it.
            names = json.dumps({"data": {"Corefile": _COREFILE}})
            patch = ("--type=merge", f"--patch={names}")
            self.kubectl("patch", "configmap", "coredns", "--namespace=kube-system", *patch)
            self._connect_pods()
        self.kubectl("wait", "nodes", "--all", "--for=condition=Ready", f"--timeout={READY_TIMEOUT}")
        for namespace in ("kube-system", "local-path-storage"):
            for kind in ("deployment", "daemonset"):
                for name in self.kubectl("get", kind, f"--namespace={namespace}", "--output=name").split():
                    self.kubectl("rollout", "status", name, f"-n={namespace}", f"--timeout={READY_TIMEOUT}")
        progress(f"created the cluster {self.name} in {time.monotonic() - started:.0f} s")

    def _import(self, tar: Path) -> None:
        changes = ('ENTRYPOINT ["/usr/local/bin/entrypoint","/sbin/init"]', "ENV container=docker")
        self._run(["docker", "import", *(f"--change={each}" for each in changes), f"{tar}", NAME])

    def _connect_pods(self) -> None:
        """Give each node a bridge for its pods, and routes to the pods of the others: what kindnetd does."""
        pods = {}  # by node: the range of its pods, and the address that leads to them
        for node in json.loads(self.kubectl("get", "nodes", "--output=json"))["items"]:
            addresses = {each["type"]: each["address"] for each in node["status"]["addresses"]}
            pods[node["metadata"]["name"]] = (node["spec"]["podCIDR"], addresses["InternalIP"])
        for name in self._run(["docker", "ps", "--format={{.Names}}"]).split():
            if name not in pods:
                continue
            config = json.dumps(_bridge(pods[name][0], _ANYWHERE[self._family]))
            self._run(["docker", "exec", "-i", name, "tee", "/etc/cni/net.d/10-bridge.conflist"], config)
            for other, (pod_range, address) in pods.items():
                if other != name:
                    self._run(["docker", "exec", name, "ip", "route", "replace", pod_range, "via", address])

    def _reach(self, tool: str, arguments: Sequence[str], stdin: str | None, timeout_s: float) -> str:
        return self._run(self.command(tool, *arguments), stdin, timeout_s)

    def _run(
        self, command: Sequence[str], stdin: str | None = None, timeout_s: float = COMMAND_TIMEOUT_S
    ) -> str:
        return run(command, timeout_s, environment=self._environment, stdin=stdin or "")


def delete_cluster(name: str, docker: DockerHost, environment: Mapping[str, str], progress: Progress) -> None:
    """Remove the cluster of this name, if there is one. Raises LocalKubernetesError."""
    kind = _tools(docker, environment, progress)["kind"]
    run([kind, "delete", "cluster", f"--name={name}"], COMMAND_TIMEOUT_S, environment=docker.environment)


def _worker(zone: str | None) -> dict[str, object]:
    """A worker in the configuration of kind."""
    return {"role": "worker", "labels": {} if zone is None else {ZONE_LABEL: zone}}


def _tools(docker: DockerHost, environment: Mapping[str, str], progress: Progress) -> dict[str, str]:
    """The user's own tools beside the user's own Docker, else those of our cache."""
    search = environment.get("PATH", os.defpath)
    found = {} if docker.is_ours else {name: shutil.which(name, path=search) for name in _TOOLS}
    absent = [name for name in _TOOLS if not found.get(name)]
    built = programs(absent, environment, progress) if absent else {}
    return {**{name: path for name, path in found.items() if path}, **{k: f"{v}" for k, v in built.items()}}


def _bridge(pods: str, anywhere: str) -> dict[str, object]:
    """The network configuration of a node with this range of pod addresses."""
    bridge = {
        "type": "bridge",
        "bridge": "cni0",
        "isGateway": True,
        "ipMasq": False,  # pods see each other's addresses, on other nodes too
        "hairpinMode": True,
        "ipam": {"type": "host-local", "ranges": [[{"subnet": pods}]], "routes": [{"dst": anywhere}]},
    }
    ports = {"type": "portmap", "capabilities": {"portMappings": True}}
    return {"cniVersion": "0.4.0", "name": "bridge", "plugins": [bridge, ports]}
