"""Our config definitions are those in Kafka's jars."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from kit.kafka import jars_of
from kit.releases import RELEASES

GENERATOR = Path(__file__).resolve().parents[2] / "tools" / "generate_config_schema.py"


@pytest.mark.integration
@pytest.mark.parametrize("release", RELEASES)
def test_the_config_schema_is_up_to_date(release: str) -> None:
    jars = jars_of(release)
    if shutil.which("java") is None:
        pytest.skip("java is missing: install a JRE, version 17 or later")
    command = [sys.executable, str(GENERATOR), "--jars", str(jars), "--check"]
    checked = subprocess.run(command, capture_output=True, text=True, check=False)
    assert checked.returncode == 0, checked.stderr
