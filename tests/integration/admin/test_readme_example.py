"""The Python in the README, as a reader would run it."""

import re
import subprocess
import sys
from pathlib import Path

from kit.java.cluster import JavaCluster

README = Path(__file__).parents[3] / "README.md"
ADDRESS = "127.0.0.1:22100"


def test_the_python_of_the_readme_runs(java_cluster: JavaCluster) -> None:
    (example,) = re.findall(r"```python\n(.*?)```", README.read_text(), re.DOTALL)
    assert ADDRESS in example
    code = example.replace(ADDRESS, java_cluster.bootstrap_controllers)
    ran = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=False, timeout=60
    )
    assert (ran.returncode, ran.stderr) == (0, "")
    found = re.fullmatch(r"(\d+) \[(.*)\]\n", ran.stdout)
    assert found is not None, ran.stdout
    leader_id, voters = found.groups()
    assert leader_id in voters.split(", ")
