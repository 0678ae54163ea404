"""The DNS of a cluster, as far as names of nodes go: for operators and nodes that are processes of this machine."""

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest
from kit.operators.cluster_dns.sitecustomize import NAMES_FILE
from kit.operators.operated import QUORUM, Operated
from kubernetes.client import ApiException
from quorate_operator.resources.names import LABEL_NODE_ID, LABEL_PURPOSE
from quorate_operator.resources.services import PURPOSE_PUBLISHED_NAME

LOOK_EVERY_S = 0.1


@contextmanager
def names_of_services(operated: Operated, patch: pytest.MonkeyPatch) -> Iterator[None]:
    """Each published name leads to the pod of its Service, and each pod's own name to it, in processes begun now."""
    file = operated.directory / "names.json"
    file.write_text("{}")
    patch.setenv(NAMES_FILE, f"{file}")
    patch.setenv("PYTHONPATH", f"{Path(__file__).parent / 'cluster_dns'}")
    ended = threading.Event()

    def write_names() -> None:
        while not ended.wait(LOOK_EVERY_S):
            with suppress(ApiException):
                _write(file, _names(operated))

    thread = threading.Thread(target=write_names, name="names of Services", daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()


def _names(operated: Operated) -> dict[str, str]:
    domain, names = f"{operated.namespace}.svc", {}
    for pod in operated.pods():
        names[f"{pod}.{QUORUM}.{domain}"] = operated.agent.address_of(pod)
    selector = f"{LABEL_PURPOSE}={PURPOSE_PUBLISHED_NAME}"
    for service in operated.core.list_namespaced_service(operated.namespace, label_selector=selector).items:
        pod = f"{QUORUM}-{service.spec.selector[LABEL_NODE_ID]}"
        names[f"{service.metadata.name}.{domain}"] = operated.agent.address_of(pod)
    return names


def _write(file: Path, names: dict[str, str]) -> None:
    whole = file.with_suffix(".new")
    whole.write_text(json.dumps(names))
    whole.replace(file)
