"""Prometheus' JMX exporter, in the release that the image of Quorate has."""

import fcntl
import os
import re
import shutil
import subprocess
from pathlib import Path
from typing import Final

from kit.cluster import Cluster, free_ports
from quorate_protocol.files import cache_directory

ROOT: Final = Path(__file__).parents[2]
FETCH_TIMEOUT_S: Final = 300


def agent_jar() -> Path | None:
    """Return the agent, which Maven fetches once; None without Maven, or if it can't be fetched."""
    found = re.search(r"^ARG JMX_EXPORTER_VERSION=(\S+)$", (ROOT / "Dockerfile").read_text(), re.MULTILINE)
    assert found is not None
    artifact, version = "jmx_prometheus_javaagent", found[1]
    directory = cache_directory(os.environ) / "jmx-exporter"
    jar = directory / f"{artifact}-{version}.jar"
    directory.mkdir(parents=True, exist_ok=True)
    with (directory / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not jar.is_file() and (maven := shutil.which("mvn")) is not None:
            command = [
                *(maven, "--batch-mode", "--quiet", "--no-transfer-progress", "dependency:copy"),
                *(f"-Dartifact=io.prometheus.jmx:{artifact}:{version}", f"-DoutputDirectory={directory}"),
            ]
            subprocess.run(
                command,
                check=False,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                timeout=FETCH_TIMEOUT_S,
            )
    return jar if jar.is_file() else None


def start_with_agent(cluster: Cluster, node_id: int, agent: Path, rules: Path) -> str:
    """Start a node of Kafka with the agent; returns the address of its metrics."""
    address = f"127.0.0.1:{free_ports(1)}"
    before = cluster.environment
    options = f"{before['KAFKA_HEAP_OPTS']} -javaagent:{agent}={address}:{rules}"
    cluster.environment = {**before, "KAFKA_HEAP_OPTS": options}
    try:
        cluster.start(node_id)
    finally:
        cluster.environment = before
    return address
