"""Versions have one source each: pyproject.toml for Quorate, the models for the Kafka that it runs."""

import re
import subprocess
import sys
from pathlib import Path

from quorate_operator.models.v1alpha1 import KAFKA_VERSION

ROOT = Path(__file__).parents[2]


def test_every_file_has_the_version_of_the_distribution() -> None:
    ran = subprocess.run(
        [sys.executable, ROOT / "tools" / "version.py", "--check"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert (ran.returncode, ran.stderr) == (0, "")


def test_the_image_has_the_kafka_of_the_models() -> None:
    image = (ROOT / "docker/broker/Dockerfile").read_text()
    found = re.findall(r"KAFKA_VERSION=(\S+)|quorate-broker:(\S+)", image)
    assert {version for groups in found for version in groups if version} == {KAFKA_VERSION}
