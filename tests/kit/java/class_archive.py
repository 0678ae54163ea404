"""Archives of Kafka's classes: with one a broker starts in half of the time or less.

From Java 25 on they are the AOT caches of `quorate play`; an older Java has archives of class data sharing.
Each is made once a machine, and kept beside Kafka's jars in the cache.
"""

import hashlib
import os
from contextlib import suppress
from functools import cache
from pathlib import Path

from quorate_operator.runtime.local import aot_cache
from quorate_operator.runtime.local.java import Java, find_java
from quorate_protocol.files import cache_directory

JVM = ("-XX:TieredStopAtLevel=1", aot_cache.COLLECTOR, "-XX:-UsePerfData")


@cache
def node_java() -> Java:
    """The Java that runs stock nodes and tools. Raises KafkaUnavailableError."""
    return find_java(os.environ)


@cache
def archive_options(jars: Path) -> tuple[str, ...]:
    """The options of a JVM of `node_java` that runs classes of these jars; none where no archive can be made."""
    java = node_java()
    archive = aot_cache.cache_of(java, jars, os.environ)
    if archive is not None:
        with suppress(aot_cache.ArchiveError):
            aot_cache.make(archive, java.program, jars)
        return aot_cache.options_with(archive, ())
    archive = _shared_classes_of(java, jars)
    with suppress(aot_cache.ArchiveError):
        aot_cache.archive_of_a_run(
            archive, java.program, jars, lambda made: f"-XX:ArchiveClassesAtExit={made}"
        )
    # A JVM that can't use the archive runs without it, and says nothing about it on stdout.
    return (f"-XX:SharedArchiveFile={archive}", "-Xlog:cds*=off") if archive.is_file() else ()


def _shared_classes_of(java: Java, jars: Path) -> Path:
    files = [(path.name, path.stat().st_size, path.stat().st_mtime_ns) for path in sorted(jars.glob("*.jar"))]
    facts = repr((java.program, java.version, str(jars), files))
    digest = hashlib.sha256(facts.encode()).hexdigest()[:12]
    return cache_directory(os.environ) / "class-archives" / f"{digest}.jsa"
