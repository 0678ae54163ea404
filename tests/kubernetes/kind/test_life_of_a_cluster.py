"""The life of a cluster on kind, in order: each test continues where the previous one ended.

Once one fails, those behind it are skipped instead of failing for the same reason.
"""

import pytest
from kit.local_kubernetes.errors import LocalKubernetesError
from kit.operators.installation import (
    BROKERS,
    CHART,
    CONTROLLERS,
    NAMESPACE,
    POOL,
    QUORUM,
    RELEASE,
    TIMEOUT_S,
    Installation,
)
from kit.waiting import eventually

# The first test pays for the cluster and the images, which are built from their sources when nothing is cached.
# A test can't be repeated: what it changes is changed.
pytestmark = [pytest.mark.timeout(2_400), pytest.mark.flaky(reruns=0)]

DRAIN_TIMEOUT = "30s"


def test_the_chart_installs_the_operator(story: Installation) -> None:
    story.helm("install", RELEASE, f"{CHART}", "--create-namespace", "--wait", *story.values())
    assert len(story.operators()) == 2


def test_a_cluster_becomes_ready(story: Installation) -> None:
    """Three controllers and three stock brokers serve clients."""
    story.create()
    story.wait_ready([3000, 3001, 3002])
    story.create_topic(in_sync_min=1)
    story.write()
    assert set(story.read()) == set(range(story.written))


def test_controllers_scale_to_five_and_back(story: Installation) -> None:
    story.kubectl("scale", "kafkacontroller", QUORUM, "--replicas=5")
    story.wait_ready(range(3000, 3005))
    story.write()
    story.kubectl("scale", "kafkacontroller", QUORUM, "--replicas=3")
    story.wait_ready(range(3000, 3003))
    left = {f"data-{QUORUM}-{each}" for each in (3003, 3004)}
    eventually(lambda: not left & _claims(story), TIMEOUT_S, f"{left} to be deleted")
    story.write()


def test_a_controller_is_decommissioned(story: Installation) -> None:
    story.patch("kafkacontroller", QUORUM, decommission=[3001])
    story.wait_ready([3000, 3002, 3003])
    eventually(lambda: f"data-{QUORUM}-3001" not in _claims(story), TIMEOUT_S, "its volume to be deleted")
    story.write()


def test_a_new_host_template_is_rolled_out(story: Installation) -> None:
    template = "{pod}.{service}.{namespace}.svc.cluster.local"
    story.patch("kafkacontroller", QUORUM, advertisedHost=template)
    wanted = {f"{QUORUM}-{each}.{QUORUM}.{NAMESPACE}.svc.cluster.local:9093" for each in (3000, 3002, 3003)}

    def endpoints() -> set[str]:
        return {each.get("endpoint") for each in story.voter_statuses()}

    eventually(lambda: endpoints() == wanted, TIMEOUT_S, f"the voters {wanted}", story.state)
    story.wait_ready([3000, 3002, 3003])
    story.write()


def test_brokers_get_names_and_exchange_them(story: Installation) -> None:
    """New names are published beside the old ones, and a swap is one for clients, too."""
    listener = {**POOL["listeners"][0], "advertisedHost": f"b{{nodeId}}.{NAMESPACE}.svc"}
    story.patch("kafkabroker", BROKERS, listeners=[listener])
    _wait_advertised(story, {0: "b0", 1: "b1", 2: "b2"})
    story.write()
    swapped = [
        {"nodeId": node_id, "advertisedHosts": {listener["name"]: f"{name}.{NAMESPACE}.svc"}}
        for node_id, name in ((0, "b1"), (1, "b0"))
    ]
    story.patch("kafkabroker", BROKERS, nodes=swapped)
    _wait_advertised(story, {0: "b1", 1: "b0", 2: "b2"})
    story.write()


def test_a_deleted_disk_means_a_new_voter(story: Installation) -> None:
    before = _directory(story, 3002)
    story.kubectl("delete", "pvc", f"data-{QUORUM}-3002", "--wait=false")
    story.kubectl("delete", "pod", f"{QUORUM}-3002", "--wait=false")

    def is_replaced() -> bool:
        return _directory(story, 3002) not in (None, before)

    eventually(is_replaced, TIMEOUT_S, "another directory to vote for 3002", story.state)
    story.wait_ready([3000, 3002, 3003])
    story.write()


def test_a_drain_stops_at_the_quorum(story: Installation) -> None:
    worker = _worker_with_most(story)
    with pytest.raises(LocalKubernetesError) as stopped:
        story.cluster.kubectl(
            *("drain", worker, "--ignore-daemonsets", "--delete-emptydir-data", "--force"),
            f"--timeout={DRAIN_TIMEOUT}",
        )
    assert "would violate the pod's disruption budget" in str(stopped.value)
    assert len([name for name in story.ready_pods() if name.startswith(f"{QUORUM}-")]) == 2
    assert len([voter for voter in story.voter_statuses() if voter["caughtUp"]]) == 2
    story.cluster.kubectl("uncordon", worker)
    story.wait_ready([3000, 3002, 3003])
    story.write()


def test_a_lost_worker_is_survived(story: Installation) -> None:
    most = _worker_with_most(story)
    (worker,) = set(story.cluster.workers) - {most}
    story.cluster.stop_node(worker)
    story.cluster.kubectl("wait", f"node/{worker}", "--for=condition=Ready=Unknown", "--timeout=120s")
    # The operator may have run there; its standby takes over, and sees a quorum that keeps working.
    eventually(lambda: set(story.voters()) == {3000, 3002, 3003}, TIMEOUT_S, "the voters", story.state)
    story.write()
    story.cluster.start_node(worker)
    story.cluster.kubectl("wait", f"node/{worker}", "--for=condition=Ready", "--timeout=120s")
    story.wait_ready([3000, 3002, 3003])
    story.write()


def test_the_operator_is_upgraded_and_killed_during_a_roll(story: Installation) -> None:
    before = story.uids(QUORUM)
    story.kubectl("annotate", "kafkacontroller", QUORUM, "quorate.dev/restart=once")
    eventually(lambda: story.uids(QUORUM) != before, TIMEOUT_S, "the first restart", story.state)
    story.helm("upgrade", RELEASE, f"{CHART}", *story.values(**{"podAnnotations.upgraded": "yes"}))
    story.cluster.kubectl("delete", "--namespace=quorate-system", "--force", *story.operators())
    kept = before.items()

    def is_rolled() -> bool:
        return not kept & story.uids(QUORUM).items()

    eventually(is_rolled, TIMEOUT_S, "every controller to be restarted", story.state)
    story.wait_ready([3000, 3002, 3003])
    story.write()


def test_uninstalling_leaves_clusters_and_data(story: Installation) -> None:
    claims = _claims(story)
    pods = story.uids(QUORUM) | story.uids(BROKERS)
    story.helm("uninstall", RELEASE, "--wait")
    assert story.get("kafkacontroller", QUORUM)["spec"]["nodeIds"] == CONTROLLERS["nodeIds"]
    assert _claims(story) == claims
    story.write()
    assert set(story.read()) == set(range(story.written))
    assert story.uids(QUORUM) | story.uids(BROKERS) == pods
    # The chart left the definitions, so it can be installed again.
    story.helm("install", RELEASE, f"{CHART}", "--wait", *story.values())
    assert len(story.operators()) == 2


def _wait_advertised(story: Installation, names: dict[int, str]) -> None:
    """Until each broker advertises its name, which leads to it, and nothing is left to do."""

    def advertised() -> dict[int, str]:
        brokers = story.get("kafkabroker", BROKERS)["status"]["brokers"]
        return {each["nodeId"]: each["advertised"]["PLAINTEXT"] for each in brokers}

    wanted = {node_id: f"{name}.{NAMESPACE}.svc:9092" for node_id, name in names.items()}
    eventually(lambda: advertised() == wanted, TIMEOUT_S, f"the brokers to advertise {wanted}", story.state)
    story.wait_ready([3000, 3002, 3003])
    leads_to = {
        name: story.get("service", name)["spec"]["selector"]["quorate.dev/node-id"] for name in names.values()
    }
    assert leads_to == {name: str(node_id) for node_id, name in names.items()}


def _claims(story: Installation) -> set[str]:
    return {claim["metadata"]["name"] for claim in story.get("pvc")["items"]}


def _directory(story: Installation, node_id: int) -> str | None:
    """The directory that votes for a node."""
    found = [each.get("directoryId") for each in story.voter_statuses() if each["nodeId"] == node_id]
    return found[0] if found else None


def _worker_with_most(story: Installation) -> str:
    """The worker on which most controllers run."""
    return max(story.cluster.workers, key=lambda worker: len(story.pods_on(worker, QUORUM)))
