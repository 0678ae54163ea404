"""Kafka's own command line tools, run one after the other in one JVM: a run takes milliseconds, not a second."""

import json
import subprocess
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from threading import Lock, Timer
from typing import IO, Any, Self

from kit.java.class_archive import JVM as FAST_JVM
from kit.java.class_archive import archive_options
from kit.java.compiled import compiled
from quorate_operator.properties import TOOLS_LOG4J2
from quorate_operator.runtime.local.stock_kafka import Kafka

SERVER = Path(__file__).with_name("ToolServer.java")
JVM = (
    *("-Xmx256m", *FAST_JVM),
    *("-Dfile.encoding=UTF-8", "-Djava.awt.headless=true"),
)
TIMEOUT_S = 60
# The server gives up first, and prints where the tool hangs.
GRACE_S = 15
STOP_TIMEOUT_S = 10


@dataclass(frozen=True, slots=True)
class Ran:
    """The exit code and the output of a tool."""

    exit_code: int
    stdout: str
    stderr: str

    def succeeded(self) -> Self:
        """Assert that the exit code is 0; the same."""
        assert self.exit_code == 0, f"exit code {self.exit_code}\n{self.stdout}\n{self.stderr}"
        return self


class JavaTools:
    """Runs main classes of a release, by their names in Kafka 4.3, in a JVM for each directory of jars. Close it.

    A release that was published without its metadata shell has it, and a JVM for it, from another release.
    """

    def __init__(self, kafka: Kafka) -> None:
        self._kafka = kafka
        self._servers: dict[Path, _ToolServer] = {}
        self._lock = Lock()

    def __call__(self, main_class: str, *arguments: object, **options: Any) -> Ran:
        """Run a main class to its end; `options` are those of `_ToolServer.run`."""
        libs = self._kafka.libs_of(main_class)
        with self._lock:
            if libs not in self._servers:
                self._servers[libs] = _ToolServer(libs, self._kafka.java)
            server = self._servers[libs]
        return server.run(self._kafka.main_class(main_class), *arguments, **options)

    def close(self) -> None:
        """End the JVMs."""
        for server in self._servers.values():
            server.close()


class _ToolServer:
    """A JVM for the classes of some jars. It is started when it is first needed."""

    def __init__(self, jars: Path, java: str) -> None:
        self._jars = jars
        self._java = java
        self._lock = Lock()
        self._scratch = tempfile.TemporaryDirectory(prefix="quorate-java-tools-")
        self._process: subprocess.Popen[str] | None = None
        self._errors: IO[str] | None = None

    def run(
        self,
        main_class: str,
        *arguments: object,
        text: str = "",
        properties: Mapping[str, str] | None = None,
        timeout_s: float = TIMEOUT_S,
    ) -> Ran:
        """Run a main class to its end: `text` is its stdin, `properties` are the JVM's while it runs."""
        request = {
            "mainClass": main_class,
            "arguments": [str(argument) for argument in arguments],
            "text": text,
            "properties": dict(properties or {}),
            "timeoutMs": int(timeout_s * 1000),
        }
        with self._lock:
            response = self._ask(request, timeout_s)
            exit_code = response["exitCode"]
            if "stuckAt" in response:
                self._stop()
            elif exit_code is None:  # the tool has called System.exit, which our JVM can't be kept from
                assert self._process is not None
                exit_code = self._process.wait(timeout=STOP_TIMEOUT_S)
                self._stop()
        ran = Ran(exit_code if exit_code is not None else -1, response["stdout"], response["stderr"])
        assert "stuckAt" not in response, (
            f"{main_class} {arguments} did not end in {timeout_s:g} s. It was at\n{response['stuckAt']}\n"
            f"stdout: {ran.stdout}\nstderr: {ran.stderr}"
        )
        return ran

    def close(self) -> None:
        """End the JVM."""
        with self._lock:
            self._stop()
            self._scratch.cleanup()

    def _ask(self, request: Mapping[str, Any], timeout_s: float) -> dict[str, Any]:
        process = self._started()
        assert process.stdin is not None
        assert process.stdout is not None
        guard = Timer(timeout_s + GRACE_S, process.kill)
        guard.start()
        try:
            process.stdin.write(json.dumps(request) + "\n")
            process.stdin.flush()
            line = process.stdout.readline()
        except BrokenPipeError:
            line = ""
        finally:
            guard.cancel()
        if not line:
            process.wait(timeout=STOP_TIMEOUT_S)
            printed = self._printed()
            self._stop()
            raise AssertionError(f"the JVM for tools ended with {process.returncode}: {printed}")
        response: dict[str, Any] = json.loads(line)
        return response

    def _started(self) -> subprocess.Popen[str]:
        if self._process is None:
            log4j = Path(self._scratch.name) / "log4j2.properties"
            log4j.write_text(TOOLS_LOG4J2)
            self._errors = (Path(self._scratch.name) / "stderr").open("w+")
            # It ends with its stdin, so that it survives neither us nor the test run.
            self._process = subprocess.Popen(
                [
                    *(self._java, *JVM, *archive_options(self._jars)),
                    *(f"-Dlog4j2.configurationFile={log4j}", f"-Djava.io.tmpdir={self._scratch.name}"),
                    *("-cp", f"{self._jars}/*:{compiled(SERVER, self._jars)}", SERVER.stem),
                ],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=self._errors,
                encoding="utf-8",
                cwd=self._scratch.name,
            )
        return self._process

    def _printed(self) -> str:
        assert self._errors is not None
        self._errors.seek(0)
        return self._errors.read()

    def _stop(self) -> None:
        process, self._process = self._process, None
        if process is not None:
            process.kill()
            process.communicate(timeout=STOP_TIMEOUT_S)
        if self._errors is not None:
            self._errors.close()
            self._errors = None
