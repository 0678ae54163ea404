"""AOT caches of Kafka's classes (JEP 483, 514, 515), with which a node starts in half of the processor time.

Java 25 and newer write one at the end of a run. `quorate play` runs a combined node for that, once for each Java and
each Kafka of a machine, and keeps the cache beside Kafka's jars. A JVM that can't use it runs without it, and its own
lines about that are turned off: a cache is tried before nodes start, and made again if Java refuses it.
"""

import fcntl
import hashlib
import os
import re
import shutil
import signal
import socket
import subprocess
import tempfile
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from threading import Timer
from typing import Final

from quorate_protocol.files import cache_directory

from quorate_operator.properties import LOG4J2
from quorate_operator.runtime.local.java import Java

MAJOR_MIN: Final = 25
"""The first Java that writes a cache at the end of one run."""
SWITCH: Final = "QUORATE_CLASS_ARCHIVE"
"""`off`: no cache is made or used, for containers whose cache does not outlive them."""
COLLECTOR: Final = "-XX:+UseSerialGC"
"""The collector of nodes and tools, with which the cache is made."""
TRIAL_TIMEOUT_S: Final = 30
TIMEOUT_S: Final = 300
"""For the whole run. It takes 15 s of processor time."""
_QUIET: Final = "-Xlog:aot*=off"
"""Java 25 also warns of cached code that it does not use, which costs nothing."""
_OWN_OPTIONS: Final = ("-XX:AOT", "-XX:SharedArchiveFile", "-XX:ArchiveClassesAtExit", "-Xshare")
"""The beginnings of options by which a user decides."""
_CLUSTER_ID: Final = "4L6g3nShT-eMCtK--X86sw"
_CONFIG: Final = """\
process.roles=broker,controller
node.id=1
controller.quorum.voters=1@127.0.0.1:{controller}
listeners=PLAINTEXT://127.0.0.1:{broker},CONTROLLER://127.0.0.1:{controller}
controller.listener.names=CONTROLLER
log.dirs={data}
offsets.topic.num.partitions=1
"""
_STARTED: Final = "Kafka Server started"


class ArchiveError(Exception):
    """No cache was made; the message says why."""


def options_with(cache: Path | None, given: Sequence[str]) -> tuple[str, ...]:
    """Return the options of a JVM that uses a cache; none if it is not made, or options of the user decide."""
    if cache is None or not cache.is_file() or any(option.startswith(_OWN_OPTIONS) for option in given):
        return ()
    return (f"-XX:AOTCache={cache}", _QUIET)


def cache_of(java: Java, libs: Path, environment: Mapping[str, str]) -> Path | None:
    """Return where the cache for this Java and these jars is kept, made or not; None if they can't have one."""
    if java.major < MAJOR_MIN or environment.get(SWITCH, "").lower() == "off":
        return None
    home = Path(java.program).resolve().parents[1]
    try:
        release, image = (home / "release").read_text(errors="replace"), (home / "lib" / "modules").stat()
        jars = [(jar.name, jar.stat().st_size, jar.stat().st_mtime_ns) for jar in sorted(libs.glob("*.jar"))]
    except OSError:
        return None  # not the layout of a Java runtime: `java` may be a script
    libs = libs.resolve()
    facts = (release, image.st_size, str(libs), jars, COLLECTOR)
    digest = hashlib.sha256(repr(facts).encode()).hexdigest()[:12]
    kafka = re.sub(r"[^\w.-]", "_", libs.parent.name)
    return cache_directory(environment) / "class-archives" / f"{kafka}-java-{java.version}-{digest}.aot"


def make(cache: Path, java: str, libs: Path) -> None:
    """Make a cache, whole or not at all, unless another process makes it meanwhile. Raises ArchiveError."""
    archive_of_a_run(
        cache,
        java,
        libs,
        lambda made: f"-XX:AOTCacheOutput={made}",
        is_usable=lambda: is_usable(cache, java, libs),
    )


def is_usable(cache: Path, java: str, libs: Path) -> bool:
    """Whether Java accepts a cache for these jars. It takes 0.2 s."""
    if not cache.is_file():
        return False
    trial = [
        java,
        "-XX:AOTMode=on",
        f"-XX:AOTCache={cache}",
        _QUIET,
        COLLECTOR,
        "-cp",
        f"{libs}/*",
        "-version",
    ]
    try:
        ran = subprocess.run(trial, capture_output=True, timeout=TRIAL_TIMEOUT_S, check=False)  # noqa: S603 - as above
    except (OSError, subprocess.TimeoutExpired):
        return False
    return ran.returncode == 0


def archive_of_a_run(
    target: Path,
    java: str,
    libs: Path,
    option: Callable[[Path], str],
    *,
    is_usable: Callable[[], bool] = lambda: True,
) -> None:
    """Start a node, stop it, and keep what the JVM writes at its end; unless another process does so meanwhile.

    `option` makes the JVM write to a path. What is there is made again unless it `is_usable`. Raises ArchiveError.
    """
    if target.is_file() and is_usable():
        return
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        with target.with_suffix(".lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            if target.is_file() and is_usable():
                return
            with tempfile.TemporaryDirectory(prefix="quorate-classes-") as scratch:
                made = Path(scratch, "classes")
                output = _run(java, libs, option(made), Path(scratch))
                if not made.is_file():
                    raise ArchiveError(f"Java wrote none: {output}")
                _store(made, target)
    except OSError as error:
        raise ArchiveError(f"{error.filename or target}: {error.strerror}") from error


def _store(made: Path, target: Path) -> None:
    new = target.with_suffix(".new")
    shutil.move(made, new)
    with new.open("rb") as file:
        os.fsync(file.fileno())  # a JVM that maps a part of an archive crashes
    new.rename(target)


def _run(java: str, libs: Path, option: str, scratch: Path) -> str:
    """Run a combined node until it serves. Returns its last lines. Raises OSError."""
    config, log4j = scratch / "server.properties", scratch / "log4j2.properties"
    broker, controller = _free_port(), _free_port()
    config.write_text(_CONFIG.format(controller=controller, broker=broker, data=scratch / "data"))
    log4j.write_text(LOG4J2)
    head = [java, "-Xmx256m", COLLECTOR, "-XX:-UsePerfData", f"-Dlog4j2.configurationFile={log4j}"]
    classes = ["-cp", f"{libs}/*"]
    node = [*head, option, *classes, "kafka.Kafka", str(config)]
    _to_the_end([*head, *classes, "kafka.tools.StorageTool", "format", "-t", _CLUSTER_ID, "-c", str(config)])
    return _to_the_end(node, stop_at=_STARTED)


def _to_the_end(command: Sequence[str], stop_at: str | None = None) -> str:
    """Run a command, and ask it to end when it prints `stop_at`. Returns its last lines. Raises OSError."""
    tail: deque[str] = deque(maxlen=3)
    setpriv = shutil.which("setpriv")
    with subprocess.Popen(  # noqa: S603 - the Java that was found
        [*((setpriv, "--pdeathsig", "KILL", "--") if setpriv else ()), *command],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        process_group=0,  # Java starts another JVM, which writes the cache
    ) as process:
        guard = Timer(TIMEOUT_S, _kill_group, (process.pid,))
        guard.start()
        try:
            assert process.stdout is not None
            for line in process.stdout:
                tail.append(line.strip())
                if stop_at is not None and stop_at in line:
                    process.terminate()
            process.wait()
        finally:
            guard.cancel()
            _kill_group(process.pid)
    return "; ".join(tail)


def _kill_group(group: int) -> None:
    with suppress(ProcessLookupError):
        os.killpg(group, signal.SIGKILL)


def _free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return int(listener.getsockname()[1])
