"""Stock Kafka's producer and consumer in a JVM of their own, writing and reading a topic without pause."""

import subprocess
import tempfile
import threading
from pathlib import Path
from types import TracebackType
from typing import Self

from kit.cluster import DIE_WITH_PARENT, HEAP
from kit.java.class_archive import archive_options, node_java
from kit.java.compiled import compiled
from quorate_operator.runtime.local.aot_cache import COLLECTOR

SOURCE = Path(__file__).with_name("RoutedClient.java")
STOP_TIMEOUT_S = 10
REBOOTSTRAPPED = "Rebootstrap requested by server due to cluster metadata mismatch"
"""What a client of Kafka 4.4 logs when it gets REBOOTSTRAP_REQUIRED."""
_LOG4J2 = """\
appender.console.type = Console
appender.console.name = STDERR
appender.console.target = SYSTEM_ERR
appender.console.layout.type = PatternLayout
appender.console.layout.pattern = %d %t %p %m (%c)%n
rootLogger.level = INFO
rootLogger.appenderRef.console.ref = STDERR
"""


class RoutedClient:
    """Runs from `with` to its end. What it wrote and read is in `acknowledged` and `read`, in order."""

    def __init__(self, jars: Path, bootstrap: str, topic: str) -> None:
        self.acknowledged: list[int] = []
        self.read: list[int] = []
        self._command = [
            *(node_java().program, *HEAP, COLLECTOR, *archive_options(jars)),
            *("-cp", f"{jars}/*:{compiled(SOURCE, jars)}"),
            *("-Dlog4j2.configurationFile=log4j2.properties", SOURCE.stem, bootstrap, topic),
        ]

    def __enter__(self) -> Self:
        self._scratch = tempfile.TemporaryDirectory(prefix="quorate-routed-client-")
        directory = Path(self._scratch.name)
        (directory / "log4j2.properties").write_text(_LOG4J2)
        self._errors = directory / "stderr"
        with self._errors.open("wb") as errors:
            self._process = subprocess.Popen(
                [*DIE_WITH_PARENT, *self._command],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                text=True,
                cwd=directory,
            )
        self._reader = threading.Thread(target=self._read_lines)
        self._reader.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._process.kill()
        self._process.wait(STOP_TIMEOUT_S)
        self._reader.join(STOP_TIMEOUT_S)
        for stream in (self._process.stdin, self._process.stdout):
            assert stream is not None
            stream.close()
        self._scratch.cleanup()

    def rebootstraps(self, who: str) -> int:
        """How often the `producer` or the `consumer` logged that it had reached another node or cluster."""
        return sum(
            REBOOTSTRAPPED in line and f"clientId={who}-" in line
            for line in self._errors.read_text(errors="replace").splitlines()
        )

    def describe(self) -> str:
        """How far it is, and the end of its log."""
        ended = self._process.poll()
        counts = f"acknowledged {len(self.acknowledged)}, read {len(self.read)}, exit code {ended}"
        return "\n".join([counts, *self._errors.read_text(errors="replace").splitlines()[-20:]])

    def _read_lines(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            kind, _, number = line.partition(" ")
            (self.acknowledged if kind == "acknowledged" else self.read).append(int(number))
