"""`kubectl quorate rebalance` against a real API server, with the operator's plans on a model of a cluster."""

import json
import subprocess
import threading
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import kubernetes.client
import pytest
import yaml
from kit.balance_model import BalanceModel, scaled_up
from kit.kubernetes_parts import kubectl_quorate
from kit.local_kubernetes.api_server import ApiServer
from quorate_operator.entities.balance import plan_rebalancing
from quorate_operator.entities.balance_facts import StoredRebalance
from quorate_operator.handlers.entities.statuses import EntityResult, entity_status
from quorate_operator.handlers.status_patches import merged_status
from quorate_operator.models.manifests import load_entity
from quorate_operator.models.rebalances import KafkaRebalance
from quorate_protocol.kafka.releases import DEFAULT_RELEASE

CRDS = Path(__file__).parents[3] / "crds"
API = ("quorate.dev", "v1alpha1")
PLURAL = "kafkarebalances"
LOOK_INTERVAL_S = 0.1


class ModelOperator:
    """Looks at the KafkaRebalances of a namespace as the operator does, and changes a model. Close it."""

    def __init__(self, client: kubernetes.client.ApiClient, namespace: str, model: BalanceModel) -> None:
        self.model = model
        self.is_stuck = False
        self._custom = kubernetes.client.CustomObjectsApi(client)
        self._namespace = namespace
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="operator of a model")
        self._thread.start()

    def read(self, name: str) -> dict[str, Any]:
        """A KafkaRebalance."""
        return dict(self._custom.get_namespaced_custom_object(*API, self._namespace, PLURAL, name))

    def close(self) -> None:
        """End it."""
        self._stop.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._stop.wait(LOOK_INTERVAL_S):
            for body in self._custom.list_namespaced_custom_object(*API, self._namespace, PLURAL)["items"]:
                self._reconcile(body)

    def _reconcile(self, body: Mapping[str, Any]) -> None:
        resource = load_entity(body, "test")
        assert isinstance(resource, KafkaRebalance)
        stored = StoredRebalance.of_status(body.get("status") or {})
        plan = plan_rebalancing(resource, self.model.observed(), stored, is_deleted=False)
        status = entity_status(EntityResult(plan=plan, cluster_id="c"), body["metadata"]["generation"])
        patch = merged_status(body.get("status") or {}, status, "2026-01-01T00:00:00Z")
        if patch is not None:
            self._custom.patch_namespaced_custom_object_status(
                *API, self._namespace, PLURAL, body["metadata"]["name"], {"status": patch}
            )
        for change in plan.changes:
            self.model.apply(change)
        if not self.is_stuck:
            self.model.complete()


@pytest.fixture
def operator(
    api_server: ApiServer, api_client: kubernetes.client.ApiClient, namespace: str
) -> Iterator[ModelOperator]:
    """The operator of a KafkaController `quorum`, whose third broker is new."""
    kubectl = [str(api_server.programs.kubectl), f"--kubeconfig={api_server.kubeconfig}"]
    crds = [f"--filename={crd}" for crd in sorted(CRDS.glob("*.yaml"))]
    subprocess.run([*kubectl, "apply", "--server-side", "--force-conflicts", *crds], check=True)
    subprocess.run([*kubectl, "wait", "--for=condition=Established", "--timeout=30s", *crds], check=True)
    spec = {"version": DEFAULT_RELEASE, "replicas": 3}
    quorum = {"kind": "KafkaController", "metadata": {"name": "quorum"}, "spec": spec}
    subprocess.run(
        [*kubectl, "apply", "--namespace", namespace, "--filename", "-"],
        input=yaml.safe_dump({"apiVersion": "/".join(API), **quorum}).encode(),
        check=True,
    )
    made = ModelOperator(api_client, namespace, scaled_up())
    yield made
    made.close()


def _quorate(server: ApiServer, namespace: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    return kubectl_quorate(server, namespace, "rebalance", "quorum", *arguments)


def test_from_preview_to_the_end(api_server: ApiServer, operator: ModelOperator, namespace: str) -> None:
    seen = _quorate(api_server, namespace, "--preview")
    assert (seen.returncode, seen.stderr) == (0, "")
    proposal = operator.read("quorum")["status"]["proposal"]["id"]
    assert seen.stdout.splitlines()[0] == (
        f"Proposal {proposal}: 8 partition(s) move, which copies 800 B; 0 other(s) get another preferred leader"
    )
    rows = [line.split() for line in seen.stdout.splitlines()]
    assert ["2", "0", "->", "8", "0", "->", "4", "0", "B", "->", "800", "B"] in rows
    assert f"kafkarebalance quorum -n {namespace} quorate.dev/approve={proposal}`" in seen.stdout
    assert operator.model.moved == 0

    operator.is_stuck = True
    begun = _quorate(api_server, namespace, "--throttle", "1Mi")
    assert "Approved; `kubectl get kafkarebalance quorum" in begun.stdout
    assert operator.read("quorum")["spec"]["throttleBytesPerSecond"] == "1Mi"
    busy = _quorate(api_server, namespace)
    assert busy.returncode == 1
    assert "is Rebalancing; wait until it is done, or end it with --stop" in busy.stderr
    late = _quorate(api_server, namespace, "--stop")
    assert late.stdout == f"KafkaRebalance {namespace}/quorum: stopped\n"
    assert (operator.model.moving, operator.model.rates) == ({}, {})

    operator.is_stuck = False
    done = _quorate(api_server, namespace, "--wait")
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.endswith("8 partition(s) in 1 slice(s) were moved, 800 B\n")
    assert operator.model.moved == 8
    again = _quorate(api_server, namespace, "--output", "json")
    assert json.loads(again.stdout)["status"]["phase"] == "Balanced"
    assert _quorate(api_server, namespace).stdout == "Nothing is to be moved.\n"


@pytest.mark.parametrize(
    "mistake",
    [
        (("--add-brokers", "7"), 1, "spec.brokers: 7: no such broker is registered; there are 0, 1, 2"),
        (
            ("--add-brokers", "1,x"),
            2,
            "--add-brokers: 'x' is not a number from 0 to 2147483647; give node ids",
        ),
        (("--add-brokers", "1", "--remove-brokers", "2"), 2, "can't be given together"),
        (("--throttle", "fast"), 2, "--throttle: 'fast': must be a number of bytes with a unit"),
        (("--stop", "--wait"), 2, "--stop and --wait can't be given together"),
        (("--stop",), 1, "quorum has no KafkaRebalance: nothing is to be stopped"),
    ],
)
def test_what_it_refuses(
    api_server: ApiServer,
    operator: ModelOperator,
    namespace: str,
    mistake: tuple[tuple[str, ...], int, str],
) -> None:
    arguments, code, words = mistake
    refused = _quorate(api_server, namespace, *arguments)
    assert refused.returncode == code
    assert words in refused.stderr
    assert "Traceback" not in refused.stderr
    assert operator.model.moved == 0
