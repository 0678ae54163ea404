"""Helm, and what it makes of the chart."""

import os
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml
from kit.local_kubernetes.golang import cache
from kit.local_kubernetes.versions import KUBERNETES
from kit.requirements import missing

ROOT = Path(__file__).parents[3]
CHART = ROOT / "charts" / "quorate"
HOW_TO_GET = "helm is missing: run `make control-plane`, which builds it, or install it"

Object = dict[str, Any]
Render = Callable[..., list[Object]]


@pytest.fixture(scope="session")
def helm(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., subprocess.CompletedProcess[str]]:
    """Runs helm with a home of its own; skips without helm."""
    built = cache(os.environ) / "bin" / "helm"
    program = str(built) if built.is_file() else shutil.which("helm")
    if program is None:
        missing("kubernetes", HOW_TO_GET)
    home = tmp_path_factory.mktemp("helm")
    environment = {**os.environ, "HOME": str(home), "HELM_CACHE_HOME": str(home / "cache")}

    def run(*arguments: str, stdin: str | None = None) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [program, *arguments],
            input=stdin,
            capture_output=True,
            text=True,
            env=environment,
            check=False,
            timeout=60,
        )

    return run


@pytest.fixture(scope="session")
def render(helm: Callable[..., subprocess.CompletedProcess[str]]) -> Render:
    """What the chart becomes with some values, as objects."""

    def make(
        values: Object | None = None, *, release: str = "quorate", namespace: str = "quorate-system"
    ) -> list[Object]:
        arguments = ("template", release, str(CHART), "--namespace", namespace, "--kube-version", KUBERNETES)
        ran = helm(*arguments, "--values", "-", stdin=yaml.safe_dump(values or {}))
        assert ran.returncode == 0, ran.stderr
        return [one for one in yaml.safe_load_all(ran.stdout) if one]

    return make
