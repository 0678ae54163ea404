"""The image that makes lakes, as far as it can be tried without building it: its entry point, and what it copies."""

import os
import re
import subprocess
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
ENTRY_POINT = ROOT / "docker" / "lake" / "entrypoint.sh"
# What Spark sets in the pod of an executor (KubernetesExecutorBuilder, BasicExecutorFeatureStep).
EXECUTOR = {
    "SPARK_DRIVER_URL": "spark://CoarseGrainedScheduler@driver:7078",
    "SPARK_EXECUTOR_CORES": "2",
    "SPARK_EXECUTOR_MEMORY": "1g",
    "SPARK_APPLICATION_ID": "spark-1",
    "SPARK_EXECUTOR_ID": "7",
    "SPARK_EXECUTOR_POD_IP": "10.0.0.7",
    "SPARK_EXECUTOR_POD_NAME": "executor-7",
    "SPARK_RESOURCE_PROFILE_ID": "0",
    "SPARK_HOME": "/opt/quorate/spark",
    **{f"SPARK_JAVA_OPT_{number}": f"-Dkey.{number}=a b" for number in range(11)},
}


@pytest.fixture
def programs(tmp_path: Path) -> Path:
    """Stand-ins for what the entry point runs: each prints its name and its arguments, one a line."""
    for name in ("java", "spark-submit", "quorate"):
        program = tmp_path / name
        program.write_text('#!/bin/sh\nprintf "%s\\n" "${0##*/}" "$@"\n')
        program.chmod(0o755)
    tini = tmp_path / "tini"
    tini.write_text('#!/bin/sh\n[ "$1" = -- ] && shift && exec "$@"\n')
    tini.chmod(0o755)
    return tmp_path


def run(programs: Path, *arguments: str, **environment: str) -> list[str]:
    """What was run, and with which arguments."""
    path = f"{programs}:{os.environ['PATH']}"
    ran = subprocess.run(
        [str(ENTRY_POINT), *arguments],
        env={"PATH": path, **environment},
        capture_output=True,
        text=True,
        check=True,
    )
    return ran.stdout.splitlines()


@pytest.mark.parametrize("arguments", [("lake", "ingest", "a b"), ("quorate", "lake", "ingest", "a b")])
def test_commands_are_those_of_quorate(programs: Path, arguments: tuple[str, ...]) -> None:
    assert run(programs, *arguments) == ["quorate", "lake", "ingest", "a b"]


def test_a_driver_is_submitted_in_its_pod(programs: Path) -> None:
    submitted = run(
        programs, "driver", "local:///opt/quorate/lake.py", "ingest", SPARK_DRIVER_BIND_ADDRESS="10.0.0.1"
    )
    assert submitted[0] == "spark-submit"
    assert "spark.driver.bindAddress=10.0.0.1" in submitted
    assert submitted[-4:] == ["--deploy-mode", "client", "local:///opt/quorate/lake.py", "ingest"]


def test_an_executor_finds_its_driver(programs: Path) -> None:
    """What Spark says arrives, in its order and in one piece."""
    java, *arguments = run(programs, "executor", **EXECUTOR)
    assert java == "java"
    assert arguments[:11] == [f"-Dkey.{number}=a b" for number in range(11)]
    assert "-Xmx1g" in arguments
    for option, name in {
        "--driver-url": "SPARK_DRIVER_URL",
        "--executor-id": "SPARK_EXECUTOR_ID",
        "--app-id": "SPARK_APPLICATION_ID",
        "--podName": "SPARK_EXECUTOR_POD_NAME",
    }.items():
        assert arguments[arguments.index(option) + 1] == EXECUTOR[name]


def test_what_images_copy_is_in_their_context() -> None:
    allowed = {
        line.removeprefix("!")
        for line in (ROOT / ".dockerignore").read_text().splitlines()
        if line.startswith("!")
    }
    lines = (ROOT / "docker" / "lake" / "Dockerfile").read_text().splitlines()
    copied = {
        found[1] for line in lines if (found := re.match(r"COPY (?!--from)(\S+) ", line)) and found[1] != "."
    }
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    packages = project["tool"]["hatch"]["build"]["targets"]["wheel"]["packages"]
    assert copied <= allowed
    assert {package.partition("/")[0] for package in packages} <= allowed
    for name in copied:
        assert (ROOT / name).exists()
