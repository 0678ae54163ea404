"""`kubectl quorate` against a real API server: what it shows, what it changes, what it refuses."""

import json
import subprocess
from pathlib import Path
from typing import Any

import kubernetes.client
import pytest
import yaml
from kit.kubernetes_parts import kubectl_quorate
from kit.local_kubernetes.api_server import ApiServer
from quorate_protocol.kafka.releases import DEFAULT_RELEASE

CRDS = Path(__file__).parents[3] / "crds"
API = ("quorate.dev", "v1alpha1")
STATUS = {
    "observedGeneration": 1,
    "conditions": [
        {
            "type": "Ready",
            "status": "True",
            "reason": "AsDesired",
            "message": "",
            "lastTransitionTime": "2026-01-01T00:00:00Z",
        }
    ],
    "clusterId": "MkU3OEVBNTcwNTJENDM2Qg",
    "quorum": {"leaderId": 3000, "epoch": 1, "highWatermark": 5, "kraftVersion": 1},
    "voters": [{"nodeId": 3000, "caughtUp": True}],
}


@pytest.fixture
def cluster(api_server: ApiServer, api_client: kubernetes.client.ApiClient, namespace: str) -> str:
    """A KafkaController `quorum` with a status, and a KafkaBroker `pool`, in a namespace of their own."""
    assert api_server.programs.kubectl is not None
    crds = sorted(str(file) for file in CRDS.glob("*.yaml"))
    kubectl = [str(api_server.programs.kubectl), f"--kubeconfig={api_server.kubeconfig}"]
    subprocess.run([*kubectl, "apply", "--server-side", *(f"--filename={crd}" for crd in crds)], check=True)
    waits = [*kubectl, "wait", "--for=condition=Established", "--timeout=30s"]
    subprocess.run([*waits, *(f"--filename={crd}" for crd in crds)], check=True)
    resources: list[dict[str, Any]] = [
        {
            "kind": "KafkaController",
            "metadata": {"name": "quorum"},
            "spec": {"version": DEFAULT_RELEASE, "replicas": 3},
        },
        {
            "kind": "KafkaBroker",
            "metadata": {"name": "pool"},
            "spec": {
                "version": DEFAULT_RELEASE,
                "controllers": "quorum",
                "replicas": 2,
                "nodeIds": {"first": 0},
            },
        },
    ]
    subprocess.run(
        [*kubectl, "apply", "--namespace", namespace, "--filename", "-"],
        input=yaml.safe_dump_all(
            {"apiVersion": "/".join(API), **resource} for resource in resources
        ).encode(),
        check=True,
    )
    kubernetes.client.CustomObjectsApi(api_client).patch_namespaced_custom_object_status(
        *API, namespace, "kafkacontrollers", "quorum", {"status": STATUS}
    )
    return namespace


def _read(client: kubernetes.client.ApiClient, namespace: str, plural: str, name: str) -> Any:
    return kubernetes.client.CustomObjectsApi(client).get_namespaced_custom_object(
        *API, namespace, plural, name
    )


def test_what_it_shows(api_server: ApiServer, cluster: str) -> None:
    """Status, plan and doctor read real resources."""
    listed = kubectl_quorate(api_server, cluster, "status")
    assert listed.stdout.splitlines()[1].split()[:5] == [cluster, "quorum", "True", "3000", "1/3"]
    shown = json.loads(kubectl_quorate(api_server, cluster, "status", "quorum", "-o", "json").stdout)
    assert shown["controllers"]["status"]["quorum"]["leaderId"] == 3000
    assert kubectl_quorate(api_server, cluster, "plan", "quorum").stdout == "Nothing to do.\n"
    examined = kubectl_quorate(api_server, cluster, "doctor", "quorum")
    assert examined.returncode == 1  # without an operator, the pool has no status
    assert f"KafkaBroker {cluster}/pool: No operator manages it" in examined.stdout


def test_what_it_changes(
    api_server: ApiServer, api_client: kubernetes.client.ApiClient, cluster: str
) -> None:
    left = kubectl_quorate(api_server, cluster, "decommission", "quorum", "3001", "1", "--scale-down")
    assert left.stderr == ""
    spec = _read(api_client, cluster, "kafkacontrollers", "quorum")["spec"]
    assert (spec["decommission"], spec["replicas"]) == ([3001], 2)
    spec = _read(api_client, cluster, "kafkabrokers", "pool")["spec"]
    assert (spec["decommission"], spec["replicas"]) == ([1], 1)
    assert kubectl_quorate(api_server, cluster, "decommission", "quorum", "3001", "--undo").returncode == 0
    assert _read(api_client, cluster, "kafkacontrollers", "quorum")["spec"]["decommission"] == []
    assert kubectl_quorate(api_server, cluster, "restart", "quorum", "3000").returncode == 0
    assert kubectl_quorate(api_server, cluster, "pause", "quorum").returncode == 0
    annotations = _read(api_client, cluster, "kafkacontrollers", "quorum")["metadata"]["annotations"]
    assert annotations["quorate.dev/pause"] == "true"
    assert "quorate.dev/restart-3000" in annotations
    assert kubectl_quorate(api_server, cluster, "resume", "quorum").returncode == 0
    annotations = _read(api_client, cluster, "kafkacontrollers", "quorum")["metadata"]["annotations"]
    assert "quorate.dev/pause" not in annotations


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("status", "nobody"), "there is no KafkaController 'nobody' in namespace"),
        (("decommission", "quorum", "4711"), "NODE_ID: 4711: KafkaBroker pool has 0, 1"),
        (
            ("decommission", "quorum", "3001", "--undo"),
            "is not decommissioned in KafkaController quorum; no node is",
        ),
        (("restart", "quorum", "3007"), "NODE_ID: 3007: KafkaController quorum has 3000, 3001, 3002"),
        (
            ("decommission", "quorum", "3000", "3001", "3002", "--scale-down"),
            "spec.replicas",
        ),
    ],
)
def test_what_it_refuses(
    api_server: ApiServer,
    api_client: kubernetes.client.ApiClient,
    cluster: str,
    arguments: tuple[str, ...],
    words: str,
) -> None:
    before = _read(api_client, cluster, "kafkacontrollers", "quorum")["spec"]
    refused = kubectl_quorate(api_server, cluster, *arguments)
    assert refused.returncode == 1
    assert words in refused.stderr
    assert "Traceback" not in refused.stderr
    assert _read(api_client, cluster, "kafkacontrollers", "quorum")["spec"] == before
