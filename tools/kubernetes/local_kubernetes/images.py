"""Builds the images of this project by its own Dockerfiles, for a Docker that may reach no registry.

In a Docker of our own the base images are made of Debian's packages, and what the builds would fetch is fetched
outside and put into their contexts: wheels, and Kafka's jars.
"""

import hashlib
import shutil
import sys
import tempfile
import time
import tomllib
from collections.abc import Mapping
from pathlib import Path

from quorate_operator.models.v1alpha1 import KAFKA_VERSION
from quorate_operator.runtime.errors import KafkaUnavailableError
from quorate_operator.runtime.kafka import cache_directory, find_kafka

from local_kubernetes.debian import root_file_system
from local_kubernetes.docker_host import DockerHost
from local_kubernetes.errors import LocalKubernetesError
from local_kubernetes.golang import Progress, locked
from local_kubernetes.processes import run

QUORATE = "quorate:test"
BROKER = f"quorate-broker:{KAFKA_VERSION}"
ROOT = Path(__file__).parents[3]
BUILD_TIMEOUT_S = 600
_BASES = {
    "quorate.local/python:bookworm": ("python3", "python3-venv"),
    "quorate.local/java:bookworm": ("openjdk-17-jre-headless",),
}
_PYTHON_BASE, _JAVA_BASE = _BASES
_PYTHON_VERSION = "3.11"  # Debian's
# What a clone of the repository would bring; a work tree has more.
_SOURCES = (
    *(
        "admin",
        "cli",
        "controller_node",
        "operator",
        "pipeline",
        "protocol",
        "docker",
        "examples/quickstart.yaml",
    ),
    *("Dockerfile", ".dockerignore", "LICENSE", "README.md", "constraints.txt", "pyproject.toml"),
)


def build_images(docker: DockerHost, environment: Mapping[str, str], progress: Progress) -> None:
    """Build QUORATE and BROKER. Raises LocalKubernetesError."""
    started = time.monotonic()
    progress(f"building the images {QUORATE} and {BROKER}")
    with tempfile.TemporaryDirectory(prefix="quorate-context-") as scratch:
        context = Path(scratch)
        for name in _SOURCES:
            _copy(ROOT / name, context / name)
        quorate, broker = [f"--tag={QUORATE}"], ["--file=docker/broker/Dockerfile", f"--tag={BROKER}"]
        if docker.is_ours:
            for name, packages in _BASES.items():
                _import(docker, name, root_file_system(name.split("/")[1], packages, environment, progress))
            _copy(_wheels(environment, progress), context / "dist/wheels")
            _copy(_jars(environment, progress), context / "dist/kafka")
            quorate.append(f"--build-arg=BASE={_PYTHON_BASE}")
            broker += [f"--build-arg=BASE={_JAVA_BASE}", f"--build-arg=MAVEN={_JAVA_BASE}"]
        for options in (quorate, broker):
            run(
                ["docker", "build", *options, "."],
                BUILD_TIMEOUT_S,
                environment=docker.environment,
                directory=context,
            )
    progress(f"built the images in {time.monotonic() - started:.0f} s")


def _copy(source: Path, target: Path) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    if source.is_dir():
        shutil.copytree(source, target, ignore=shutil.ignore_patterns("__pycache__", "*.egg-info"))
    else:
        shutil.copy(source, target)


def _import(docker: DockerHost, name: str, tar: Path) -> None:
    run(["docker", "import", f"{tar}", name], BUILD_TIMEOUT_S, environment=docker.environment)


def _jars(environment: Mapping[str, str], progress: Progress) -> Path:
    try:
        return find_kafka(KAFKA_VERSION, environment, progress).libs
    except KafkaUnavailableError as error:
        raise LocalKubernetesError(f"the broker's image needs Kafka: {error}") from error


def _wheels(environment: Mapping[str, str], progress: Progress) -> Path:
    """The wheels that an installation needs, and those that build ours, for the base image's Python."""
    project = ROOT / "pyproject.toml"
    constraints = ROOT / "constraints.txt"
    digest = hashlib.sha256(project.read_bytes() + constraints.read_bytes()).hexdigest()[:12]
    target = cache_directory(environment) / f"wheels-{digest}"
    with locked(target.with_name("wheels.lock")):
        if not target.is_dir():
            progress("fetching the wheels of all dependencies, once")
            described = tomllib.loads(project.read_text())
            wanted = [
                *described["project"]["dependencies"],
                *described["project"]["optional-dependencies"]["operator"],
                *described["build-system"]["requires"],
            ]
            with tempfile.TemporaryDirectory(prefix=".wheels-", dir=target.parent) as scratch:
                fetched = Path(scratch) / "wheels"
                command = [
                    *(sys.executable, "-m", "pip", "download", "--quiet", "--disable-pip-version-check"),
                    *("--only-binary=:all:", "--implementation=cp", f"--python-version={_PYTHON_VERSION}"),
                    *(f"--platform=manylinux{each}_x86_64" for each in ("2014", "_2_17", "_2_28", "_2_34")),
                    *(f"--constraint={constraints}", f"--dest={fetched}", *wanted),
                ]
                run(command, BUILD_TIMEOUT_S, environment=environment, directory=ROOT)
                fetched.rename(target)
    return target
