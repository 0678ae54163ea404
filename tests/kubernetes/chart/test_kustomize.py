"""kustomize/base is the chart with its defaults, and overlays can build on it."""

import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml
from kit.local_kubernetes.api_server import ApiServer
from kit.local_kubernetes.golang import cache

ROOT = Path(__file__).parents[3]
BASE = ROOT / "kustomize" / "base"
OVERLAY = ROOT / "examples" / "gitops" / "operator"


def built(server: ApiServer, directory: Path) -> list[dict[str, Any]]:
    """What kustomize makes of a directory."""
    assert server.programs.kubectl is not None
    ran = subprocess.run(
        [str(server.programs.kubectl), "kustomize", str(directory)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert ran.returncode == 0, ran.stderr
    return [document for document in yaml.safe_load_all(ran.stdout) if document]


def test_the_base_is_what_its_script_writes(helm: Callable[..., Any], tmp_path: Path) -> None:
    assert helm("version").returncode == 0
    found = cache(os.environ) / "bin" / "helm"
    program = str(found) if found.is_file() else str(shutil.which("helm"))
    ran = subprocess.run(
        [sys.executable, str(ROOT / "tools" / "kustomize_base.py"), "--helm", program, "--check"],
        env={**os.environ, "HOME": str(tmp_path)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert ran.returncode == 0, ran.stderr
    for path in (BASE / "crds").iterdir():
        assert path.read_text() == (ROOT / "crds" / path.name).read_text()


@pytest.mark.parametrize("directory", [BASE, OVERLAY], ids=["base", "overlay"])
def test_an_api_server_takes_it(api_server: ApiServer, directory: Path) -> None:
    objects = built(api_server, directory)
    kubectl = [str(api_server.programs.kubectl), f"--kubeconfig={api_server.kubeconfig}"]
    for name in ("quorate-system", "kafka"):
        subprocess.run([*kubectl, "create", "namespace", name], capture_output=True, check=False)
    ran = subprocess.run(
        [
            *kubectl,
            "apply",
            "--server-side",
            "--dry-run=server",
            "--force-conflicts",
            "--validate=strict",
            "-f",
            "-",
        ],
        input=yaml.safe_dump_all(objects),
        capture_output=True,
        text=True,
        check=False,
    )
    assert ran.returncode == 0, ran.stderr
    assert not any("helm" in str(item["metadata"].get("labels", {})).lower() for item in objects)


def test_the_overlay_changes_both_images(api_server: ApiServer) -> None:
    (deployment,) = [item for item in built(api_server, OVERLAY) if item["kind"] == "Deployment"]
    (container,) = deployment["spec"]["template"]["spec"]["containers"]
    (image,) = [variable["value"] for variable in container["env"] if variable["name"] == "QUORATE_IMAGE"]
    assert image == container["image"] == "registry.example.com/quorate:0.1.0"


def test_the_overlay_manages_another_namespace(api_server: ApiServer) -> None:
    objects = built(api_server, OVERLAY)
    (deployment,) = [item for item in objects if item["kind"] == "Deployment"]
    (container,) = deployment["spec"]["template"]["spec"]["containers"]
    assert [argument for argument in container["args"] if "namespace" in argument] == ["--namespace=kafka"]
    places = {
        (item["kind"], item["metadata"]["name"]): item["metadata"]["namespace"]
        for item in objects
        if item["kind"] in ("Role", "RoleBinding")
    }
    for kind in ("Role", "RoleBinding"):
        assert places[kind, "quorate"] == "quorate-system"
        assert places[kind, "quorate-system-quorate-clusters"] == "kafka"
