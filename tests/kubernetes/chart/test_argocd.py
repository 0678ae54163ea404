"""The health script for Argo CD, run by Lua."""

import json
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
from kit.requirements import missing

SCRIPT = Path(__file__).parents[3] / "argocd" / "health.lua"
LUAS = ("lua5.4", "lua5.3", "lua5.1", "lua", "luajit")


def health(resource: dict[str, Any]) -> tuple[str, str]:
    """Status and message of a resource; skips without Lua."""
    lua = next((found for name in LUAS if (found := shutil.which(name))), None)
    if lua is None:
        missing("lua", "no Lua was found; on Debian: apt-get install lua5.4")
    program = f"obj = {literal(resource)}\nlocal health = (function()\n{SCRIPT.read_text()}\nend)()\n"
    program += 'io.write(health.status, "\\n", health.message)'
    ran = subprocess.run([lua, "-"], input=program, capture_output=True, text=True, check=False, timeout=20)
    assert ran.returncode == 0, ran.stderr
    status, _, message = ran.stdout.partition("\n")
    return status, message


def literal(value: object) -> str:
    """A value of JSON as Lua writes it."""
    if isinstance(value, dict):
        return "{" + ", ".join(f"[{json.dumps(key)}] = {literal(part)}" for key, part in value.items()) + "}"
    if isinstance(value, list):
        return "{" + ", ".join(literal(part) for part in value) + "}"
    return json.dumps(value)


def resource(spec: dict[str, Any] | None = None, seen: int = 2, **conditions: str) -> dict[str, Any]:
    """A resource of generation 2 with conditions."""
    return {
        "metadata": {"name": "quorum", "generation": 2},
        "spec": spec or {},
        "status": {
            "observedGeneration": seen,
            "conditions": [
                {"type": kind, "status": status, "reason": "Because", "message": f"about {kind}"}
                for kind, status in conditions.items()
            ],
        },
    }


def because(kind: str, reason: str, **conditions: str) -> dict[str, Any]:
    """A resource, one of whose conditions has this reason."""
    given = resource(**conditions)
    for condition in given["status"]["conditions"]:
        if condition["type"] == kind:
            condition["reason"] = reason
    return given


PAUSED_BY_ANNOTATION = {
    **resource(Ready="True"),
    "metadata": {"generation": 2, "annotations": {"quorate.dev/pause": "true"}},
}
LEAVING = {
    **resource(Ready="True"),
    "metadata": {"generation": 2, "deletionTimestamp": "2026-01-01T00:00:00Z"},
}


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({"metadata": {"generation": 1}}, ("Progressing", "the operator has not reconciled it yet")),
        ({"status": {}}, ("Progressing", "the operator has not reconciled it yet")),
        (resource(Ready="True", Stalled="False", QuorumHealthy="True"), ("Healthy", "about Ready")),
        (resource(Ready="True", Reconciling="True", Stalled="False"), ("Progressing", "about Reconciling")),
        (resource(Ready="False", Reconciling="False"), ("Progressing", "about Ready")),
        (resource(Ready="True", Stalled="True"), ("Degraded", "about Stalled")),
        (
            resource(Ready="False", QuorumHealthy="False", Reconciling="False"),
            ("Degraded", "about QuorumHealthy"),
        ),
        (
            resource(Ready="False", QuorumHealthy="False", Reconciling="True"),
            ("Progressing", "about Reconciling"),
        ),
        (because("Ready", "NodeProblem", Ready="False", Reconciling="True"), ("Degraded", "about Ready")),
        (because("Ready", "NodesFailed", Ready="False", Reconciling="True"), ("Degraded", "about Ready")),
        (
            because("Ready", "NodesNotReady", Ready="False", Reconciling="True"),
            ("Progressing", "about Reconciling"),
        ),
        (
            because("Reconciling", "StepFailed", Ready="True", Reconciling="True"),
            ("Degraded", "about Reconciling"),
        ),
        (
            resource(Ready="True", seen=1),
            ("Progressing", "the operator has not reconciled the latest change yet"),
        ),
        (resource({"state": "Paused"}, Ready="True"), ("Suspended", "paused")),
        (resource({"state": "Hibernated"}, Ready="False"), ("Suspended", "hibernated")),
        (PAUSED_BY_ANNOTATION, ("Suspended", "paused")),
        (LEAVING, ("Progressing", "it is being deleted")),
        (resource(Ready="True", Reconciling="False", Stalled="False"), ("Healthy", "about Ready")),
        (resource(Ready="False", Reconciling="True", Stalled="False"), ("Progressing", "about Reconciling")),
        (resource(Ready="False", Reconciling="True", Stalled="True"), ("Degraded", "about Stalled")),
    ],
)
def test_health_is_what_the_conditions_say(given: dict[str, Any], expected: tuple[str, str]) -> None:
    """Argo CD waits for resources that are not ready, and shows stalled ones as degraded."""
    assert health(given) == expected
