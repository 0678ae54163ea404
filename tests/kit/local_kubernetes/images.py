"""Builds the images of this project by its own Dockerfiles, for a Docker that may reach no registry.

In a Docker of our own the base images are made of Debian's packages, and what the builds would fetch is fetched
outside and put into their contexts: wheels, and Kafka's jars. The wheel of the compiled codec is built outside for
any Docker, where cargo is installed.
"""

import hashlib
import os
import shutil
import sys
import tempfile
import time
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from kit.jmx_exporter import agent_jar
from kit.local_kubernetes.debian import root_file_system
from kit.local_kubernetes.docker_host import DockerHost
from kit.local_kubernetes.errors import LocalKubernetesError
from kit.local_kubernetes.golang import Progress, locked
from kit.local_kubernetes.processes import run
from quorate_operator.models.v1alpha1 import KAFKA_VERSION
from quorate_operator.runtime.local.errors import KafkaUnavailableError
from quorate_operator.runtime.local.stock_kafka import Kafka, find_kafka
from quorate_protocol.files import cache_directory

QUORATE = "quorate:test"
BROKERS = "quorate-broker"  # with the release as its tag
BROKER = f"{BROKERS}:{KAFKA_VERSION}"
LAKE = "quorate-lake:test"
ROOT = Path(__file__).parents[3]
BUILD_TIMEOUT_S = 600
_CODEC_WHEELS = "dist/native"
_PYTHON_BASE = "quorate.local/python:bookworm"
_JAVA_BASE = "quorate.local/java:bookworm"
_BASES = {
    _PYTHON_BASE: ("python3", "python3-venv"),
    # Of the broker and of the lake, which needs more: a base of its own takes longer to install than this to copy.
    _JAVA_BASE: ("python3", "python3-venv", "openjdk-17-jre-headless", "tini", "procps"),
}
_PYTHON_VERSION = "3.11"  # Debian's
_QUORATE_EXTRAS = ("operator", "oauthbearer")
_LAKE_EXTRA = "lake"
_ONLY_SOURCES = ("pyspark",)  # what is published without a wheel, and runs with any Python
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
    with _context(QUORATE, progress) as context:
        codec = codec_options(context, environment, progress)
        _build_quorate(QUORATE, context, docker, environment, progress, codec=codec)
    build_broker_image(KAFKA_VERSION, docker, environment, progress)


def build_former_image(
    name: str, sources: Path, docker: DockerHost, environment: Mapping[str, str], progress: Progress
) -> None:
    """Build the image of a former commit, whose files are in `sources`, with the codec in Python.

    Raises LocalKubernetesError.
    """
    with _context(name, progress, sources) as context:
        _build_quorate(name, context, docker, environment, progress)


def _build_quorate(
    name: str,
    context: Path,
    docker: DockerHost,
    environment: Mapping[str, str],
    progress: Progress,
    *,
    codec: Sequence[str] = (),
) -> None:
    options = [f"--tag={name}", *codec]
    if docker.is_ours:
        _import(docker, _PYTHON_BASE, environment, progress)
        _copy(_wheels(_QUORATE_EXTRAS, environment, progress), context / "dist/wheels")
        options += [f"--build-arg=BASE={_PYTHON_BASE}", f"--build-arg=MAVEN={_PYTHON_BASE}"]
        agent = agent_jar()
        if agent is None:
            raise LocalKubernetesError("Prometheus' JMX exporter can't be fetched with Maven")
        _copy(agent, context / "dist/jmx-exporter" / agent.name)
    _build(docker, context, options)


def build_broker_image(
    version: str, docker: DockerHost, environment: Mapping[str, str], progress: Progress
) -> str:
    """Build the image of a release of Kafka; images of two releases differ in their jars. Returns its name.

    Raises LocalKubernetesError.
    """
    name = f"{BROKERS}:{version}"
    with _context(name, progress) as context:
        releases = {"KAFKA_VERSION": version}
        if docker.is_ours:
            _import(docker, _JAVA_BASE, environment, progress)
            _copy(_kafka(version, environment, progress).libs, context / "dist/kafka")
            releases |= {"BASE": _JAVA_BASE, "MAVEN": _JAVA_BASE}
        arguments = [f"--build-arg={argument}={value}" for argument, value in releases.items()]
        _build(docker, context, ["--file=docker/broker/Dockerfile", f"--tag={name}", *arguments])
    return name


def build_lake_image(docker: DockerHost, environment: Mapping[str, str], progress: Progress) -> None:
    """Build LAKE, which has more than a gigabyte; without Delta. Raises LocalKubernetesError."""
    with _context(LAKE, progress) as context:
        options = ["--file=docker/lake/Dockerfile", f"--tag={LAKE}", f"--build-arg=EXTRAS={_LAKE_EXTRA}"]
        options += codec_options(context, environment, progress)
        if docker.is_ours:
            _import(docker, _JAVA_BASE, environment, progress)
            _copy(_wheels((_LAKE_EXTRA,), environment, progress), context / "dist/wheels")
            options.append(f"--build-arg=BASE={_JAVA_BASE}")
        _build(docker, context, options)


def codec_options(context: Path, environment: Mapping[str, str], progress: Progress) -> list[str]:
    """Put the wheel of the compiled codec into a context, built if need be. Returns the build argument for it.

    Without cargo, or where it would build for another system, the image runs the codec in Python. Raises
    LocalKubernetesError.
    """
    if sys.platform != "linux" or shutil.which("cargo", path=environment.get("PATH", os.defpath)) is None:
        progress("no cargo for Linux here: the image runs the codec in Python")
        return []
    built = f"{_CODEC_WHEELS}/.built"
    run(["make", f"VENV={sys.prefix}", built], BUILD_TIMEOUT_S, environment=environment, directory=ROOT)
    for wheel in (ROOT / _CODEC_WHEELS).glob("*.whl"):
        _copy(wheel, context / _CODEC_WHEELS / wheel.name)
    return ["--build-arg=NATIVE=required"]


@contextmanager
def _context(image: str, progress: Progress, sources: Path = ROOT) -> Iterator[Path]:
    """A directory with what a clone has that images are built from."""
    started = time.monotonic()
    progress(f"building {image}")
    with tempfile.TemporaryDirectory(prefix="quorate-context-") as scratch:
        for name in _SOURCES:
            _copy(sources / name, Path(scratch) / name)
        yield Path(scratch)
    progress(f"built {image} in {time.monotonic() - started:.0f} s")


def _build(docker: DockerHost, context: Path, options: Sequence[str]) -> None:
    command = ["docker", "build", *options, "."]
    run(command, BUILD_TIMEOUT_S, environment=docker.environment, directory=context)


def _copy(source: Path, target: Path) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    if source.is_dir():
        shutil.copytree(source, target, ignore=shutil.ignore_patterns("__pycache__", "*.egg-info"))
    else:
        shutil.copy(source, target)


def _import(docker: DockerHost, base: str, environment: Mapping[str, str], progress: Progress) -> None:
    if run(["docker", "images", "--quiet", base], BUILD_TIMEOUT_S, environment=docker.environment):
        return
    tar = root_file_system(base.split("/")[1], _BASES[base], environment, progress)
    run(["docker", "import", f"{tar}", base], BUILD_TIMEOUT_S, environment=docker.environment)


def _kafka(version: str, environment: Mapping[str, str], progress: Progress) -> Kafka:
    """The jars of this release: those of KAFKA_HOME may be another's."""
    environment = {name: value for name, value in environment.items() if name != "KAFKA_HOME"}
    try:
        return find_kafka(version, environment, progress)
    except KafkaUnavailableError as error:
        raise LocalKubernetesError(f"the broker's image needs Kafka: {error}") from error


def _wheels(extras: Sequence[str], environment: Mapping[str, str], progress: Progress) -> Path:
    """The wheels that an installation needs, and those that build ours, for the base image's Python."""
    project, constraints = (ROOT / name for name in ("pyproject.toml", "constraints.txt"))
    content = f"{','.join(extras)} {_ONLY_SOURCES}".encode() + project.read_bytes() + constraints.read_bytes()
    target = cache_directory(environment) / f"wheels-{hashlib.sha256(content).hexdigest()[:12]}"
    with locked(target.with_name("wheels.lock")):
        if not target.is_dir():
            progress(f"fetching the wheels of {', '.join(extras)}, once")
            described = tomllib.loads(project.read_text())
            wanted = [
                *described["project"]["dependencies"],
                *(
                    requirement
                    for extra in extras
                    for requirement in described["project"]["optional-dependencies"][extra]
                ),
                *described["build-system"]["requires"],
            ]
            with tempfile.TemporaryDirectory(prefix=".wheels-", dir=target.parent) as scratch:
                _fetch_wheels(wanted, constraints, Path(scratch) / "wheels", environment)
                (Path(scratch) / "wheels").rename(target)
    return target


def _fetch_wheels(
    wanted: Sequence[str], constraints: Path, target: Path, environment: Mapping[str, str]
) -> None:
    pip = (sys.executable, "-m", "pip")
    options = ("--quiet", "--disable-pip-version-check", f"--constraint={constraints}")
    target.mkdir()
    for name in _ONLY_SOURCES:
        if any(requirement.startswith(name) for requirement in wanted):
            command = [*pip, "wheel", *options, "--no-deps", f"--wheel-dir={target}", name]
            run(command, BUILD_TIMEOUT_S, environment=environment, directory=ROOT)
    command = [
        *(*pip, "download", *options, "--only-binary=:all:", f"--find-links={target}", f"--dest={target}"),
        *("--implementation=cp", f"--python-version={_PYTHON_VERSION}"),
        *(f"--platform=manylinux{each}_x86_64" for each in ("2014", "_2_17", "_2_28", "_2_34")),
        *wanted,
    ]
    run(command, BUILD_TIMEOUT_S, environment=environment, directory=ROOT)
