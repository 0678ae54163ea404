"""`make kind`: the operator and a cluster of examples/production.yaml on kind, to try, until `make kind-down`.

Everything is in the directory .quorate-kind of the repository: the configuration for kubectl, what was applied, and
commands that reach the cluster, also one in a Docker of our own, whose network is not that of the machine.
"""

import argparse
import json
import os
import shlex
import shutil
import stat
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml
from kit.local_kubernetes.docker_host import DockerHost, OwnDocker, RunningDocker, docker_host
from kit.local_kubernetes.errors import LocalKubernetesError
from kit.local_kubernetes.golang import Progress
from kit.local_kubernetes.images import BROKER, BROKERS, QUORATE, ROOT, build_images
from kit.local_kubernetes.kind_cluster import ZONES, KindCluster, delete_cluster
from kit.local_kubernetes.processes import run
from kit.operators.installation import CHART, NAMESPACE, RELEASE, Installation
from kit.operators.production import production, secrets

DIRECTORY = ROOT / ".quorate-kind"
READY_TIMEOUT_S = 1_200
STATUS_TIMEOUT_S = 60
_STATE = DIRECTORY / "state.json"
_COMMANDS = DIRECTORY / "bin"
_PRODUCTION = DIRECTORY / "production.yaml"
_TOOLS = ("kubectl", "helm")
_PLUGIN = "kubectl-quorate"  # kubectl finds it in PATH


def main() -> int:
    """The exit code."""
    parser = argparse.ArgumentParser(prog="kit.operators.trial", description=__doc__)
    parser.add_argument("what", choices=("up", "down"))
    try:
        if parser.parse_args().what == "up":
            up(os.environ, _progress)
        else:
            down(os.environ, _progress)
    except LocalKubernetesError as error:
        sys.stderr.write(f"{error}\n")
        return 1
    return 0


def up(environment: Mapping[str, str], progress: Progress) -> None:
    """Make the cluster, and print its status and the next commands. Raises LocalKubernetesError."""
    started = time.monotonic()
    if _STATE.exists():
        raise LocalKubernetesError(
            f"{_STATE} tells of a cluster that was made before: run `make kind-down` first"
        )
    docker = docker_host(environment, stays=True)
    try:
        cluster = _create(docker, environment, progress)
    except BaseException:
        docker.close()
        shutil.rmtree(DIRECTORY, ignore_errors=True)
        raise
    try:
        status = _install(cluster, environment, progress)
    except LocalKubernetesError as error:
        raise LocalKubernetesError(f"{error}\n\nThe cluster is left as it is.\n{_how_to_go_on()}") from error
    sys.stdout.write(f"\n{status}\nReady after {_shown(time.monotonic() - started)}. {_how_to_go_on()}")


def down(environment: Mapping[str, str], progress: Progress) -> None:
    """Remove the cluster, and the Docker that was started for it. Raises LocalKubernetesError."""
    if not _STATE.exists():
        progress("there is no cluster of `make kind`")
        return
    state = json.loads(_STATE.read_text())
    docker: DockerHost | None = RunningDocker(environment)
    if state["docker"] is not None:
        docker = OwnDocker.find(Path(state["docker"]), environment)
    if docker is not None:
        delete_cluster(state["cluster"], docker, environment, progress)
        docker.close()
    shutil.rmtree(DIRECTORY)
    progress(f"removed the cluster {state['cluster']}")


def _create(docker: DockerHost, environment: Mapping[str, str], progress: Progress) -> KindCluster:
    """A cluster with our images that is remembered, and can be reached by `_COMMANDS`."""
    build_images(docker, environment, progress)  # before there are machines that take the processor as well
    _COMMANDS.mkdir(parents=True)
    DIRECTORY.chmod(stat.S_IRWXU)  # it has passwords and keys
    cluster = KindCluster(docker, DIRECTORY, environment, progress, ZONES)
    at = f"{docker.directory}" if isinstance(docker, OwnDocker) else None
    _STATE.write_text(json.dumps({"cluster": cluster.name, "docker": at}))
    commands = {tool: cluster.command(tool) for tool in _TOOLS}
    commands[_PLUGIN] = docker.inside([f"{Path(sys.executable).with_name(_PLUGIN)}"])
    for name, command in commands.items():
        path = _COMMANDS / name
        kubeconfig = shlex.quote(f"{cluster.kubeconfig}")
        path.write_text(f'#!/bin/sh\nKUBECONFIG={kubeconfig} exec {shlex.join(command)} "$@"\n')
        path.chmod(0o755)
    cluster.kubectl("config", "set-context", "--current", f"--namespace={NAMESPACE}")
    return cluster


def _install(cluster: KindCluster, environment: Mapping[str, str], progress: Progress) -> str:
    """Chart and example; what `kubectl quorate status` prints when all is ready."""
    progress("loading the images into the machines of kind")
    cluster.load(QUORATE, BROKER)
    progress("installing the chart")
    installation = Installation(cluster)
    values = installation.values(**{"kafka.image.repository": BROKERS})
    installation.helm("install", RELEASE, f"{CHART}", "--create-namespace", "--wait", *values)
    progress("applying examples/production.yaml, with small requests: the machines of kind are this one")
    objects = production()
    _PRODUCTION.write_text(yaml.safe_dump_all(objects, sort_keys=False))
    installation.apply(*secrets(DIRECTORY / "secrets", NAMESPACE, environment), *objects)
    progress("waiting until controllers and brokers are ready")
    _wait_ready(installation, objects)
    command = [f"{_COMMANDS / 'kubectl'}", "quorate", "status"]
    return run(command, STATUS_TIMEOUT_S, environment={**environment, "PATH": _path(environment)})


def _wait_ready(installation: Installation, objects: list[dict[str, Any]]) -> None:
    names = [f"{item['kind'].lower()}/{item['metadata']['name']}" for item in objects]
    wait = (
        f"--namespace={NAMESPACE}",
        "wait",
        *names,
        "--for=condition=Ready",
        f"--timeout={READY_TIMEOUT_S}s",
    )
    try:
        installation.cluster.kubectl(*wait, timeout_s=2 * READY_TIMEOUT_S)
    except LocalKubernetesError as error:
        raise LocalKubernetesError(f"{error}\n{installation.state()}") from error


def _path(environment: Mapping[str, str]) -> str:
    return os.pathsep.join([f"{_COMMANDS}", environment.get("PATH", os.defpath)])


def _how_to_go_on() -> str:
    commands = os.path.relpath(_COMMANDS)
    return f"""\
To go on, in this directory:

  export PATH=$PWD/{commands}:$PATH              # kubectl, helm and kubectl quorate of this cluster
  kubectl get kafkacontrollers,kafkabrokers,pods -o wide
  kubectl apply -f examples/topics-and-users.yaml
  kubectl quorate plan quorum

{os.path.relpath(_PRODUCTION)} is what was applied. To remove everything:

  make kind-down
"""


def _shown(seconds: float) -> str:
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes} min {rest} s"


def _progress(text: str) -> None:
    sys.stderr.write(f"{text}\n")
    sys.stderr.flush()


if __name__ == "__main__":
    sys.exit(main())
