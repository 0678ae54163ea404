"""The examples: the models take them, and so does an API server, rule by rule."""

import subprocess
from pathlib import Path

import pytest
import yaml
from kit.api_requests import Api, Kubectl
from kit.local_kubernetes.api_server import ApiServer
from kit.waiting import eventually
from quorate_operator.models.manifests import ENTITIES, load_entity, load_manifests
from quorate_operator.planning.desired import desired_cluster

ROOT = Path(__file__).parents[3]
EXAMPLES = ROOT / "examples"
CLUSTERS = sorted(path for path in EXAMPLES.rglob("*.yaml") if "kind: KafkaController" in path.read_text())
IN_CLUSTERS = (EXAMPLES / "topics-and-users.yaml", EXAMPLES / "rebalance.yaml")
MIGRATION = sorted((EXAMPLES / "static-to-dynamic").glob("*.yaml"))
RESOURCES = sorted(
    path for path in EXAMPLES.rglob("*.yaml") if "apiVersion: quorate.dev/" in path.read_text()
)
APPLY_TIMEOUT_S = 30


@pytest.mark.parametrize("path", CLUSTERS, ids=lambda path: str(path.relative_to(EXAMPLES)))
def test_the_models_take_each_example(path: Path) -> None:
    manifests = load_manifests(path.read_text(), path.name)
    desired = desired_cluster(manifests)
    assert desired.nodes
    assert len({node.node_id for node in desired.nodes}) == len(desired.nodes)


def test_the_models_take_what_is_in_clusters() -> None:
    documents = [document for path in IN_CLUSTERS for document in yaml.safe_load_all(path.read_text())]
    assert {document["kind"] for document in documents} == ENTITIES.keys()
    named = {load_entity(document, document["metadata"]["name"]).spec.cluster for document in documents} - {
        None
    }
    quickstart = load_manifests((EXAMPLES / "quickstart.yaml").read_text(), "quickstart.yaml")
    assert named == {quickstart.controllers.metadata.name}


def test_the_migration_goes_from_static_to_dynamic_to_more() -> None:
    steps = [load_manifests(path.read_text(), path.name).controllers.spec for path in MIGRATION]
    assert [(step.quorum, step.replicas) for step in steps] == [("static", 3), ("dynamic", 3), ("dynamic", 5)]


def test_an_api_server_takes_each_example_and_each_next_one(api_server: ApiServer, namespace: str) -> None:
    kubectl = [str(api_server.programs.kubectl), f"--kubeconfig={api_server.kubeconfig}"]
    crds = [f"--filename={path}" for path in sorted((ROOT / "crds").glob("*.yaml"))]
    subprocess.run(
        [*kubectl, "apply", "--server-side", "--force-conflicts", *crds], check=True, capture_output=True
    )
    said: list[str] = []

    def is_applied(path: Path) -> bool:
        command = [*kubectl, "apply", "--server-side", "--namespace", namespace, "--validate=strict"]
        ran = subprocess.run([*command, f"--filename={path}"], capture_output=True, text=True, check=False)
        said.append(ran.stderr)
        # Definitions are served a moment after they were taken.
        assert ran.returncode == 0 or "no matches for kind" in ran.stderr or "not find" in ran.stderr, (
            ran.stderr
        )
        return ran.returncode == 0

    for path in (*MIGRATION, EXAMPLES / "quickstart.yaml"):
        eventually(
            lambda path=path: is_applied(path), APPLY_TIMEOUT_S, f"{path.name} to be taken", lambda: said[-1]
        )
        subprocess.run(
            [*kubectl, "get", "kafkacontrollers", "--namespace", namespace], check=True, capture_output=True
        )
    for path in IN_CLUSTERS:
        is_applied(path)
    for path in CLUSTERS:
        other = f"{namespace}-{CLUSTERS.index(path)}"
        subprocess.run([*kubectl, "create", "namespace", other], check=True, capture_output=True)
        command = [*kubectl, "apply", "--server-side", "--namespace", other, "--validate=strict"]
        ran = subprocess.run([*command, f"--filename={path}"], capture_output=True, text=True, check=False)
        assert ran.returncode == 0, ran.stderr


@pytest.mark.parametrize("path", RESOURCES, ids=lambda path: str(path.relative_to(EXAMPLES)))
@pytest.mark.parametrize("options", [(), ("--server-side",)], ids=["client-side", "server-side"])
def test_an_example_that_is_applied_again_is_unchanged(
    api: Api, kubectl: Kubectl, namespace: str, path: Path, options: tuple[str, ...]
) -> None:
    """Else Argo CD finds a difference, and each apply stands in the audit log."""
    assert api.send("GET", "/apis/quorate.dev/v1alpha1").status == 200
    of_file = (f"--namespace={namespace}", f"--filename={path}")

    def versions() -> str:
        return kubectl("get", *of_file, "--output=jsonpath={..metadata.resourceVersion}")

    kubectl("apply", *options, *of_file)
    before = versions()
    said = kubectl("apply", *options, *of_file).splitlines()
    assert before
    assert versions() == before
    if not options:
        assert [line for line in said if not line.endswith(" unchanged")] == []


def test_the_applications_point_at_what_is_there() -> None:
    documents = list(yaml.safe_load_all((EXAMPLES / "gitops" / "applications.yaml").read_text()))
    for document in documents:
        assert any((ROOT / document["spec"]["source"]["path"]).iterdir())
    prunes = {
        document["metadata"]["name"]: document["spec"]["syncPolicy"]["automated"]["prune"]
        for document in documents
    }
    assert prunes == {"quorate": True, "kafka": False}
