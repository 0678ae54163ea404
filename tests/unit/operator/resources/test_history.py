"""The history of a quorum: the side car, the volume and the CronJob, and what restarts controllers for it."""

from typing import Any

import pytest
from kit.desired_cluster import Cluster, Make, changed_parts
from quorate_controller.commands import app
from quorate_operator.planning.cluster import Lifecycle
from quorate_operator.resources.configs import config_map
from quorate_operator.resources.data_volumes import DATA_DIRECTORY
from quorate_operator.resources.facts import Images
from quorate_operator.resources.pods import node_pod
from quorate_operator.resources.shipping import history_claim, history_of, ingest_cron_job
from typer.main import get_command

STORAGE = "history: {storage: {size: 20Gi, className: shared}}"
MIXED = f"nodes: [{{nodeId: 3001, implementation: java}}], {STORAGE}"


def job_of(cluster: Cluster, lifecycle: Lifecycle = Lifecycle.RUNNING) -> dict[str, Any]:
    """The CronJob."""
    history = history_of(cluster.context)
    assert history is not None
    return ingest_cron_job(cluster.context, history, lifecycle)


def ingest_of(cluster: Cluster) -> dict[str, Any]:
    """The spec of the pod that a job runs."""
    return dict(job_of(cluster)["spec"]["jobTemplate"]["spec"]["template"]["spec"])


@pytest.mark.parametrize("node_id", [3000, 3001])
def test_every_controller_has_a_side_car_that_ships(make: Make, node_id: int) -> None:
    """The sidecar ships the node's log, and mounts it read-only."""
    spec = make(MIXED).pod(node_id)["spec"]
    node, ship = spec["containers"]
    assert (node["name"], ship["name"]) == ("node", "ship")
    assert ship["image"] == "quorate:9"
    assert ship["securityContext"]["capabilities"] == {"drop": ["ALL"]}
    assert ship["resources"]["limits"].keys() == {"memory"}
    quorate, controller, command, *arguments = ship["command"]
    assert (quorate, controller) == ("quorate", "controller")
    parsed = get_command(app).commands[command].make_context(command, arguments).params  # type: ignore[attr-defined]
    assert (str(parsed["log_dir"]), str(parsed["to"]), parsed["follow"]) == (
        DATA_DIRECTORY,
        "/history/shipped",
        True,
    )
    mounts = {mount["mountPath"]: mount for mount in ship["volumeMounts"]}
    assert mounts["/var/lib/quorate"]["readOnly"] is True
    assert "readOnly" not in mounts["/history"]
    assert {"name": "history", "persistentVolumeClaim": {"claimName": "history-quorum"}} in spec["volumes"]


def test_nobody_else_has_one(make: Make) -> None:
    assert [container["name"] for container in make(STORAGE).pod(0)["spec"]["containers"]] == ["node"]
    spec = make().pod(3000)["spec"]
    assert [container["name"] for container in spec["containers"]] == ["node"]
    assert "history" not in {volume["name"] for volume in spec["volumes"]}


def test_segments_close_in_time(make: Make) -> None:
    def segment_ms(controllers: str) -> str | None:
        cluster = make(controllers)
        text = config_map(cluster.context, cluster.desired, cluster.node(3000), {})["data"][
            "server.properties"
        ]
        found = [line for line in text.splitlines() if line.startswith("metadata.log.segment.ms=")]
        return found[0].partition("=")[2] if found else None

    assert segment_ms("") is None
    assert segment_ms(STORAGE) == "3600000"
    assert segment_ms("history: {claimName: c, segmentInterval: 5m}") == "300000"
    assert segment_ms(f"{STORAGE}, config: {{metadata.log.segment.ms: 1000}}") == "1000"


def test_turning_it_on_rolls_controllers_and_nobody_else(make: Make) -> None:
    before, after = make("nodes: [{nodeId: 3001, implementation: java}]"), make(MIXED)
    for node_id in (3000, 3001):
        assert changed_parts(before.node(node_id), after.node(node_id)) == {"config", "pod"}
    assert changed_parts(before.node(0), after.node(0)) == set()
    planned = make(
        MIXED.replace("size: 20Gi", "size: 30Gi").replace("}}", "}, schedule: '@daily', lake: other}")
    )
    assert changed_parts(after.node(3000), planned.node(3000)) == set()
    newer = make(MIXED, images=Images(quorate="quorate:10"))
    assert changed_parts(after.node(3000), newer.node(3000)) == {"image"}
    assert changed_parts(after.node(3001), newer.node(3001)) == set()


def test_the_volume_is_the_histories_own(make: Make) -> None:
    cluster = make(STORAGE)
    history = history_of(cluster.context)
    assert history is not None
    claim = history_claim(cluster.context, history)
    assert claim is not None
    assert claim["spec"] == {
        "accessModes": ["ReadWriteMany"],
        "resources": {"requests": {"storage": "20Gi"}},
        "storageClassName": "shared",
    }
    assert "ownerReferences" not in claim["metadata"]
    assert "quorate.dev/node-id" not in claim["metadata"]["labels"]
    other = make("history: {claimName: archive}")
    assert history_claim(other.context, history_of(other.context)) is None  # type: ignore[arg-type]
    assert {"name": "history", "persistentVolumeClaim": {"claimName": "archive"}} in other.pod(3000)["spec"][
        "volumes"
    ]


def test_a_job_takes_in_what_was_shipped(make: Make) -> None:
    """The lake is made of what the side cars write."""
    cluster = make(
        "history: {storage: {size: 1Gi}, schedule: '5 */2 * * *', lake: lakes/a, image: 'lake:1'}, "
        "template: {nodeSelector: {disk: fast}, imagePullSecrets: [{name: registry}]}"
    )
    job = job_of(cluster)
    assert job["spec"]["schedule"] == "5 */2 * * *"
    assert job["spec"]["concurrencyPolicy"] == "Forbid"
    spec = ingest_of(cluster)
    (container,) = spec["containers"]
    assert container["image"] == "lake:1"
    quorate, lake, command, *arguments = container["command"]
    assert (quorate, lake) == ("quorate", "lake")
    commands = pytest.importorskip("quorate.lake_command")
    parsed = get_command(commands.app).commands[command].make_context(command, arguments).params  # type: ignore[attr-defined]
    assert (list(parsed["sources"]), parsed["to"]) == (["/history/shipped"], "/history/lakes/a")
    assert spec["nodeSelector"] == {"disk": "fast"}
    assert spec["securityContext"]["runAsNonRoot"] is True
    assert spec["restartPolicy"] == "Never"
    # Its pods don't have the cluster's labels: whatever counts the cluster's pods does not see them.
    labels = job["spec"]["jobTemplate"]["spec"]["template"]["metadata"]["labels"]
    assert "quorate.dev/cluster" not in labels
    assert (
        ingest_of(make(STORAGE, images=Images(quorate="q", lake="lake:9")))["containers"][0]["image"]
        == "lake:9"
    )


def test_a_job_waits_while_it_is_told_to_or_the_quorum_sleeps(make: Make) -> None:
    """Suspended by the manifest, or as there is nothing new while nothing runs."""
    cluster = make(STORAGE)
    assert job_of(cluster)["spec"]["suspend"] is False
    assert job_of(cluster, Lifecycle.HIBERNATED)["spec"]["suspend"] is True
    assert job_of(make("history: {claimName: c, suspend: true}"))["spec"]["suspend"] is True


def test_a_volume_of_one_machine_has_the_job_there(make: Make) -> None:
    spec = ingest_of(make("replicas: 1, history: {storage: {size: 1Gi, accessMode: ReadWriteOnce}}"))
    (term,) = spec["affinity"]["podAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]
    assert term["topologyKey"] == "kubernetes.io/hostname"
    cluster = make("replicas: 1")
    labels = node_pod(
        cluster.context, cluster.desired, cluster.node(3000), cluster.node(3000).advertised, is_initial=True
    )["metadata"]["labels"]
    assert term["labelSelector"]["matchLabels"].items() <= labels.items()


def test_resources_of_the_job_are_those_that_are_asked_for(make: Make) -> None:
    """A long history has gigabytes by default."""
    asked = "history: {claimName: c, resources: {limits: {memory: 8Gi}}}"
    assert ingest_of(make(asked))["containers"][0]["resources"] == {"limits": {"memory": "8Gi"}}
    assert ingest_of(make(STORAGE))["containers"][0]["resources"] == {
        "requests": {"cpu": "500m", "memory": "1Gi"},
        "limits": {"memory": "4Gi"},
    }
    assert make(asked).node(3000).revision == make("history: {claimName: c}").node(3000).revision
