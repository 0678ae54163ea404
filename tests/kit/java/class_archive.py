"""An archive of Kafka's classes: with it a broker starts in half the time and with half the processor's work.

It is made once a machine, by running a combined broker and controller, and kept beside Kafka's jars in the cache.
"""

import fcntl
import hashlib
import os
import shutil
import socket
import subprocess
import tempfile
import time
from functools import cache
from pathlib import Path

from quorate_protocol.files import cache_directory

JVM = ("-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-XX:-UsePerfData")
START_TIMEOUT_S = 60
STOP_TIMEOUT_S = 60
_CLUSTER_ID = "4L6g3nShT-eMCtK--X86sw"
_CONFIG = """\
process.roles=broker,controller
node.id=1
controller.quorum.voters=1@127.0.0.1:{controller}
listeners=PLAINTEXT://127.0.0.1:{broker},CONTROLLER://127.0.0.1:{controller}
controller.listener.names=CONTROLLER
log.dirs={data}
"""


@cache
def archive_options(jars: Path) -> tuple[str, ...]:
    """The options of a JVM that runs classes of these jars; none where no archive can be made."""
    archive = _archive_of(jars)
    if not archive.is_file():
        archive.parent.mkdir(parents=True, exist_ok=True)
        with archive.with_suffix(".lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            if not archive.is_file():
                _make(archive, jars)
    # A JVM that can't use the archive runs without it, and says nothing about it on stdout.
    return (f"-XX:SharedArchiveFile={archive}", "-Xlog:cds*=off") if archive.is_file() else ()


def _archive_of(jars: Path) -> Path:
    version = subprocess.run(["java", "-version"], capture_output=True, check=False).stderr
    files = [(path.name, path.stat().st_size, path.stat().st_mtime_ns) for path in sorted(jars.glob("*.jar"))]
    digest = hashlib.sha256(version + repr((str(jars), files)).encode()).hexdigest()[:12]
    return cache_directory(os.environ) / "class-archives" / f"{digest}.jsa"


def _make(archive: Path, jars: Path) -> None:
    java = ["java", "-Xmx256m", *JVM]
    with tempfile.TemporaryDirectory(prefix="quorate-classes-") as scratch:
        config, made = Path(scratch, "server.properties"), Path(scratch, "classes.jsa")
        broker, controller = _free_port(), _free_port()
        config.write_text(_CONFIG.format(controller=controller, broker=broker, data=Path(scratch, "data")))
        classes = ("-cp", f"{jars}/*")
        subprocess.run(
            [*java, *classes, "kafka.tools.StorageTool", "format", "-t", _CLUSTER_ID, "-c", config],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            check=False,
            timeout=START_TIMEOUT_S,
        )
        with subprocess.Popen(
            [*java, f"-XX:ArchiveClassesAtExit={made}", *classes, "kafka.Kafka", config],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        ) as server:
            _await_listener(broker, server)
            server.terminate()
            try:
                server.wait(STOP_TIMEOUT_S)
            except subprocess.TimeoutExpired:
                server.kill()
        if made.is_file():
            shutil.move(made, archive.with_suffix(".new"))
            archive.with_suffix(".new").rename(archive)


def _free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return int(listener.getsockname()[1])


def _await_listener(port: int, server: subprocess.Popen[bytes]) -> None:
    """Wait until it listens. If it does not, tests only start slower, so that this is no error."""
    deadline = time.monotonic() + START_TIMEOUT_S
    while time.monotonic() < deadline and server.poll() is None:
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", port)) == 0:
                return
        time.sleep(0.1)
