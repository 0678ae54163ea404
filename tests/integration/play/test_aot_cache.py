"""AOT caches that a real Java makes and uses."""

import os
import shutil
import subprocess
from pathlib import Path

import psutil
import pytest
from kit.cluster import HEAP, free_ports
from kit.java.class_archive import archive_options, node_java
from kit.player import CONTROLLERS_ALONE, playing
from kit.requirements import missing
from quorate_operator.runtime.local import aot_cache
from quorate_operator.runtime.local.java import Java
from quorate_operator.runtime.local.stock_kafka import Kafka, make_aot_cache
from quorate_protocol.kafka.releases import DEFAULT_RELEASE

pytestmark = pytest.mark.integration

TOPICS = "org.apache.kafka.tools.TopicCommand"
BROKER = """\
---
apiVersion: quorate.dev/v1alpha1
kind: KafkaBroker
metadata: {name: brokers}
spec: {controllers: quorum, replicas: 1, listeners: [{name: PLAINTEXT, port: %d}]}
"""
COMMAND_TIMEOUT_S = 120


@pytest.fixture
def java() -> Java:
    """A Java that can make a cache; skips without it."""
    found = node_java()
    if found.major < aot_cache.MAJOR_MIN:
        missing("java25", f"{found} makes no AOT cache: install the extra `java`, and set no JAVA_HOME")
    return found


@pytest.fixture
def cache(java: Java, kafka_jars: Path) -> Path:
    """The cache of the release of this test run, made now if it is missing."""
    archive_options(kafka_jars)
    found = aot_cache.cache_of(java, kafka_jars, os.environ)
    assert found is not None
    assert found.is_file()
    return found


def version_of_tool(java: Java, jars: str, *options: str) -> subprocess.CompletedProcess[str]:
    """Have a tool of Kafka print its version."""
    command = [java.program, *options, "-cp", jars, TOPICS, "--version"]
    return subprocess.run(command, capture_output=True, text=True, timeout=COMMAND_TIMEOUT_S, check=False)


@pytest.mark.parametrize("options", [("-Xmx256m", "-XX:TieredStopAtLevel=1"), ("-Xmx2g",), ("-Xmx64m",)])
def test_heaps_compilers_and_links_to_the_jars_leave_it_valid(
    java: Java, cache: Path, kafka_jars: Path, tmp_path: Path, options: tuple[str, ...]
) -> None:
    """With AOTMode=on, a JVM that can't use its cache ends."""
    (tmp_path / "libs").symlink_to(kafka_jars)
    for jars in (f"{kafka_jars}/*", f"{tmp_path}/libs/*", f"{kafka_jars}/*:{tmp_path}"):
        used = aot_cache.options_with(cache, ())
        ran = version_of_tool(java, jars, "-XX:AOTMode=on", *used, aot_cache.COLLECTOR, *options)
        assert (ran.returncode, ran.stderr) == (0, "")


def test_a_damaged_cache_is_not_used_and_made_again(
    java: Java, cache: Path, kafka_jars: Path, tmp_path: Path
) -> None:
    damaged = tmp_path / "cut.aot"
    shutil.copy(cache, damaged)
    os.truncate(damaged, cache.stat().st_size // 2)
    assert not aot_cache.is_usable(damaged, java.program, kafka_jars)
    kafka = Kafka(version="4.4.0", java=java.program, libs=kafka_jars, cache=damaged)
    command = kafka.command(TOPICS, "--version", jvm=(aot_cache.COLLECTOR,))
    ran = subprocess.run(command, capture_output=True, text=True, timeout=COMMAND_TIMEOUT_S, check=False)
    plain = version_of_tool(java, f"{kafka_jars}/*", aot_cache.COLLECTOR)
    assert (ran.returncode, ran.stdout, ran.stderr) == (0, plain.stdout, plain.stderr)
    reported: list[str] = []
    assert make_aot_cache(kafka, reported.append) is None
    assert len(reported) == 1
    assert aot_cache.is_usable(damaged, java.program, kafka_jars)


def test_a_played_broker_uses_it_and_the_status_names_its_java(java: Java, tmp_path: Path) -> None:
    environment = {name: value for name, value in os.environ.items() if name != "KAFKA_HOME"}
    with playing(tmp_path, environment | {"KAFKA_HEAP_OPTS": " ".join(HEAP)}) as player:
        player.write(CONTROLLERS_ALONE % free_ports(3) + BROKER % free_ports(1))
        player.play()
        status = player.status()
        assert status["java"] == str(java)
        (broker,) = [node for node in status["nodes"] if node["role"] == "broker"]
        mapped = {mapping.path for mapping in psutil.Process(broker["pid"]).memory_maps()}
        (used,) = [Path(path) for path in mapped if path.endswith(".aot")]
        assert used.name.startswith(f"kafka-{DEFAULT_RELEASE}-java-{java.version}-")
        log = (player.directory / "supervisor.log").read_text()
        assert f"Kafka {DEFAULT_RELEASE} of " in log
        assert f" runs on {java}\n" in log
