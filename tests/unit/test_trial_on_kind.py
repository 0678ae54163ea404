"""What `make kind` takes from the examples and keeps between two commands; tests/kubernetes/kind has the rest."""

import fcntl
import json
import os
from pathlib import Path
from typing import Any

import yaml
from kit.local_kubernetes.docker_host import OwnDocker
from kit.local_kubernetes.processes import Service
from kit.operators.production import PRODUCTION, production


def test_the_example_differs_in_what_it_requests_alone() -> None:
    written, made = list(yaml.safe_load_all(PRODUCTION.read_text())), production()
    assert [_without_resources(document) for document in made] == [
        _without_resources(document) for document in written
    ]
    assert made != written


def _without_resources(manifest: dict[str, Any]) -> dict[str, Any]:
    template = {name: value for name, value in manifest["spec"]["template"].items() if name != "resources"}
    return {**manifest, "spec": {**manifest["spec"], "template": template}}


def test_a_docker_is_found_as_long_as_its_first_process_lives(tmp_path: Path) -> None:
    assert OwnDocker.find(tmp_path, os.environ) is None
    (tmp_path / "state.json").write_text(json.dumps({"init": 1, "sysctls": {}}))
    with (tmp_path / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        command = ["sleep", "600"]
        service = Service("docker", command, tmp_path / "log", os.environ, inherited=[lock.fileno()])
    try:
        found = OwnDocker.find(tmp_path, os.environ)
        assert found is not None
        assert found.inside(["kubectl"]) == ["nsenter", "--target=1", "--net", "kubectl"]
    finally:
        service.stop()
    assert OwnDocker.find(tmp_path, os.environ) is None
