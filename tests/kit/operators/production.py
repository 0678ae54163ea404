"""examples/production.yaml and its Secrets, for a cluster of kind."""

import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml
from kit.local_kubernetes.errors import LocalKubernetesError
from kit.local_kubernetes.processes import run

EXAMPLES = Path(__file__).parents[3] / "examples"
PRODUCTION = EXAMPLES / "production.yaml"
SECRETS_TIMEOUT_S = 60
# The machines of kind are one machine: it has neither six processors for three brokers nor 24 GiB of memory.
_SMALL: dict[str, Any] = {
    "KafkaController": {"requests": {"cpu": "10m", "memory": "64Mi"}, "limits": {"memory": "512Mi"}},
    "KafkaBroker": {"requests": {"cpu": "10m", "memory": "256Mi"}, "limits": {"memory": "1Gi"}},
}


def production() -> list[dict[str, Any]]:
    """The objects of the example. They ask for less processor and memory; everything else is as it is written."""
    objects: list[dict[str, Any]] = list(yaml.safe_load_all(PRODUCTION.read_text()))
    for item in objects:
        item["spec"]["template"]["resources"] = _SMALL[item["kind"]]
    return objects


def secrets(directory: Path, namespace: str, environment: Mapping[str, str]) -> list[dict[str, Any]]:
    """The Secrets that the example's script makes, with certificates and passwords that `directory` keeps.

    Raises LocalKubernetesError.
    """
    if shutil.which("openssl", path=environment.get("PATH")) is None:
        raise LocalKubernetesError("the example's certificates need openssl: install it")
    script = EXAMPLES / "secure" / "secrets.sh"
    run([f"{script}", f"{directory}", namespace], SECRETS_TIMEOUT_S, environment=environment)
    return list(yaml.safe_load_all((directory / "secrets.yaml").read_text()))
