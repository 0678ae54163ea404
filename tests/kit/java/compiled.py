"""Our programs in Java, compiled once a machine by the installed JDK: what runs them may have no compiler."""

import hashlib
import os
import subprocess
import tempfile
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Final

from quorate_operator.runtime.local.java import JAVA_MAJOR_MIN
from quorate_protocol.files import cache_directory

COMPILER: Final = ("java", "-m", "jdk.compiler/com.sun.tools.javac.Main", "--release", str(JAVA_MAJOR_MIN))


@cache
def compiled(source: Path, jars: Path) -> Path:
    """The directory with the classes of a program that uses classes of these jars."""
    digest = hashlib.sha256(repr((COMPILER, str(jars))).encode() + source.read_bytes()).hexdigest()[:12]
    target = cache_directory(os.environ) / "compiled" / f"{source.stem}-{digest}"
    if not target.is_dir():
        target.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix=".classes-", dir=target.parent) as scratch:
            made = Path(scratch, "classes")
            classes = ":".join(map(str, jars.glob("*.jar")))
            command = [*COMPILER, "-cp", classes, "-d", str(made), str(source)]
            subprocess.run(command, capture_output=True, check=True)
            with suppress(OSError):  # another process was first
                made.rename(target)
    return target
