"""The programs in this folder, which ask Kafka's own classes."""

import shutil
import subprocess
from collections.abc import Iterable
from pathlib import Path

import pytest
from kit.kafka import jars_of


def run_java(program: str, release: str, *arguments: str, lines: Iterable[str] = ()) -> list[str]:
    """Run a program with the jars of a release and these lines as input; the lines that it prints."""
    if shutil.which("java") is None:
        pytest.skip("java is missing: install a JRE, version 17 or later")
    source = Path(__file__).parent / f"{program}.java"
    command = ["java", "-XX:TieredStopAtLevel=1", "-cp", str(jars_of(release) / "*"), str(source), *arguments]
    text = "".join(f"{line}\n" for line in lines)
    run = subprocess.run(command, input=text, check=True, capture_output=True, text=True, timeout=120)
    return run.stdout.splitlines()
