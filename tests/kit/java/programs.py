"""The programs in this folder, which ask Kafka's own classes."""

import shutil
import subprocess
from collections.abc import Iterable
from pathlib import Path

import pytest
from kit.java.class_archive import JVM, archive_options, node_java
from kit.java.compiled import compiled
from kit.kafka import jars_of


def run_java(program: str, release: str, *arguments: str, lines: Iterable[str] = ()) -> list[str]:
    """Run a program with the jars of a release and these lines as input; the lines that it prints."""
    if shutil.which("java") is None:
        pytest.skip("java is missing: install a JRE, version 17 or later")
    source = Path(__file__).parent / f"{program}.java"
    jars = jars_of(release)
    classes = f"{jars}/*:{compiled(source, jars)}"
    command = [node_java().program, *JVM, *archive_options(jars), "-cp", classes, program, *arguments]
    text = "".join(f"{line}\n" for line in lines)
    run = subprocess.run(command, input=text, check=True, capture_output=True, text=True, timeout=120)
    return run.stdout.splitlines()
