"""An archive of Spark's classes, with which the JVM of a local job starts in half the time (JEP 350).

The JVM of the first job writes it when it ends, which takes some seconds, into the user's cache directory. A
JVM that can't use an archive, because Java or Spark has changed or the file is damaged, starts without it.
"""

import hashlib
import os
import shutil
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Final

from quorate_protocol.files import cache_directory

SWITCH: Final = "QUORATE_CLASS_ARCHIVE"
"""`off`: no archive is used or made, for containers whose cache does not outlive them."""
OWN_OPTIONS: Final = ("-XX:SharedArchiveFile", "-XX:ArchiveClassesAtExit", "-Xshare")
"""Options of a user who decides about archives."""
_QUIET: Final = "-Xlog:cds*=off"
_SUFFIX: Final = ".jsa"


@dataclass(frozen=True, slots=True)
class ClassArchive:
    """The archive for one Java and one Spark."""

    place: Path
    """The prefix of its path: its size and a suffix follow."""
    draft: Path
    """Where the JVM writes it, in the directory of the job."""

    @property
    def cached(self) -> Path | None:
        """The archive, if it was made before. A JVM that reads one that was cut off crashes."""
        found = self.place.parent.glob(f"{self.place.name}-*{_SUFFIX}")
        return next((path for path in found if path == self._path(path.stat().st_size)), None)

    @property
    def options(self) -> str:
        """Options of the JVM that use the archive, or write it."""
        cached = self.cached
        if cached is None:
            return f"-XX:ArchiveClassesAtExit={self.draft} {_QUIET}"
        return f"-XX:SharedArchiveFile={cached} -XX:+VerifySharedSpaces {_QUIET}"

    def cache(self) -> None:
        """Move the written archive to the cache. Without space or rights there, later jobs start slower."""
        if not self.draft.is_file():
            return
        new = self.place.with_suffix(f".{os.getpid()}")
        with suppress(OSError):
            self.place.parent.mkdir(parents=True, exist_ok=True)
            try:
                shutil.move(self.draft, new)
                new.rename(self._path(new.stat().st_size))
            finally:
                new.unlink(missing_ok=True)

    def _path(self, size_bytes: int) -> Path:
        return self.place.with_name(f"{self.place.name}-{size_bytes}{_SUFFIX}")


def class_archive(environment: Mapping[str, str], scratch: Path, given: str) -> ClassArchive | None:
    """The archive for a local job whose files are in `scratch`; None if it is turned off or can't be cached.

    `given`: the options of the JVM that the user chose.
    """
    if environment.get(SWITCH, "").lower() == "off" or any(option in given for option in OWN_OPTIONS):
        return None
    spark, java = find_spec("pyspark"), _java(environment)
    if spark is None or not spark.submodule_search_locations or java is None:
        return None
    jars = Path(spark.submodule_search_locations[0]) / "jars"
    directory = cache_directory(environment)
    try:
        reported = (str(java), _release_of(java), str(jars), jars.stat().st_mtime_ns)
        directory.mkdir(parents=True, exist_ok=True)
    except OSError:
        return None
    if not os.access(directory, os.W_OK):
        return None
    digest = hashlib.sha256(repr(reported).encode()).hexdigest()[:12]
    # Options of a JVM are split at spaces.
    place, draft = directory / "class-archives" / f"spark-{digest}", scratch / "classes.jsa"
    return None if " " in f"{place}{draft}" else ClassArchive(place, draft)


def _java(environment: Mapping[str, str]) -> Path | None:
    """The program that Spark's scripts start."""
    home = environment.get("JAVA_HOME")
    found = f"{home}/bin/java" if home else shutil.which("java", path=environment.get("PATH"))
    return None if found is None else Path(found).resolve()


def _release_of(java: Path) -> str:
    """The content of the file that names the version of this Java; empty if there is no such file."""
    release = java.parents[1] / "release"
    return release.read_text(errors="replace") if release.is_file() else ""
