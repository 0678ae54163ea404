"""From Kafka 4.3.1 to 4.4.0 on kind, under load: the software, the level, and a way back that is refused.

The tests run in order, each on the state that the previous one left. The files are those of examples/upgrade,
made small enough for one machine.
"""

import logging
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from kit.local_kubernetes.images import BROKERS as IMAGE
from kit.local_kubernetes.images import build_broker_image
from kit.local_kubernetes.kind_cluster import KindCluster
from kit.operators.installation import (
    BROKERS,
    CONTROLLERS,
    GRACE_S,
    POOL,
    QUORUM,
    TIMEOUT_S,
    TOOLS,
    Installation,
)
from kit.operators.pod_clients import PodClients
from kit.pauses import RecordPause
from kit.waiting import eventually

# The first test pays for the image, and for the cluster if it runs alone.
pytestmark = [pytest.mark.timeout(2_400), pytest.mark.flaky(reruns=0)]

_LOG = logging.getLogger(__name__)
EXAMPLES = Path(__file__).parents[3] / "examples" / "upgrade"
BEFORE, SOFTWARE, LEVEL = "cluster.yaml", "1-software.yaml", "2-level.yaml"
OLDER, NEWER = "4.3.1", "4.4.0"
LEVEL_BEFORE, LEVEL_AFTER = "4.3-IV0", "4.4-IV2"
NAMESPACE = "upgrade"
COPIES = 3
JAVA, LEAVING = 3002, 3001
FIRST, STAYING = [3000, LEAVING, JAVA], [3000, JAVA, 3003]
TOPICS_MIN = 20
# A pod takes its address along: a connection to it fails only after 10 s, Kafka's default, and a broker that tries so
# to reach the former active controller is fenced after 9 s.
PAUSE_S_MAX = 30.0


@pytest.fixture(scope="module")
def upgrade(kind_cluster: KindCluster) -> Iterator[Installation]:
    """The operator, images of both releases, and a namespace that is gone when the story ends."""
    kind_cluster.load(build_broker_image(OLDER, kind_cluster.docker, os.environ, _LOG.info))
    installation = Installation(kind_cluster, NAMESPACE)
    with installation.released(installation.values(**{"kafka.image.repository": IMAGE})):
        yield installation
        installation.remove()


@pytest.fixture(scope="module")
def clients(upgrade: Installation) -> PodClients:
    """A producer with acks=all, and a creator of topics."""
    return PodClients(upgrade, COPIES)


def test_a_cluster_of_the_older_release_serves(upgrade: Installation, clients: PodClients) -> None:
    """Brokers, Java controllers and ours form a cluster of 4.3.1."""
    upgrade.apply(*_cluster(BEFORE, leaves=False), TOOLS)
    upgrade.wait_ready(FIRST)
    upgrade.create_topic(COPIES)
    clients.start()
    assert _level(upgrade) == LEVEL_BEFORE
    assert _images(upgrade) == {f"{IMAGE}:{OLDER}"}


def test_a_controller_of_the_older_release_leaves(upgrade: Installation) -> None:
    upgrade.apply(*_cluster(BEFORE))
    _wait_settled(upgrade)
    assert LEAVING in _registered(upgrade)


def test_the_software_is_upgraded_node_by_node(upgrade: Installation) -> None:
    before = _uids(upgrade)
    upgrade.apply(*_cluster(SOFTWARE))
    rolled = (
        f"kafkabroker/{BROKERS}",
        f"--for=jsonpath={{.status.version}}={NEWER}",
        f"--timeout={TIMEOUT_S}s",
    )
    upgrade.cluster.kubectl(f"--namespace={NAMESPACE}", "wait", *rolled, timeout_s=TIMEOUT_S + GRACE_S)
    _wait_settled(upgrade)
    assert not before.items() & _uids(upgrade).items()
    assert _images(upgrade) == {f"{IMAGE}:{NEWER}"}
    assert _level(upgrade) == LEVEL_BEFORE


def test_the_level_is_raised_and_the_registration_removed(upgrade: Installation) -> None:
    upgrade.apply(*_cluster(LEVEL))
    _wait_settled(upgrade)
    assert _level(upgrade) == LEVEL_AFTER
    assert set(_registered(upgrade)) == set(STAYING)
    events = {event["reason"] for event in upgrade.get("events")["items"]}
    assert {"RefreshRegistration", "UnregisterController"} <= events


def test_the_way_back_is_refused_and_nothing_was_lost(
    upgrade: Installation, clients: PodClients, record_pause: RecordPause
) -> None:
    """Stock nodes are not started with metadata that they can't read; clients lost nothing on all the way."""
    before = _uids(upgrade)
    upgrade.apply(*_cluster(BEFORE))
    _wait_settled(upgrade)
    refusals = upgrade.get("kafkacontroller", QUORUM)["status"]["refusals"]
    assert {each["code"] for each in refusals} == {"UnsafeDowngrade"}
    reported = "\n".join(each["message"] for each in refusals)
    assert f"metadata.version is not lowered from {LEVEL_AFTER} to {LEVEL_BEFORE}" in reported
    stock = {f"{QUORUM}-{JAVA}", *(f"{BROKERS}-{node_id}" for node_id in range(3))}
    assert {name for name, uid in _uids(upgrade).items() if before[name] == uid} == stock
    assert _level(upgrade) == LEVEL_AFTER

    records, topics = clients.stop_without_loss()
    record_pause(records.pauses.longest_s, "records", max_s=PAUSE_S_MAX)
    record_pause(topics.pauses.longest_s, max_s=PAUSE_S_MAX)
    assert len(topics.names) > TOPICS_MIN


def _cluster(name: str, *, leaves: bool = True) -> list[dict[str, Any]]:
    """The resources of an example, with a second Java controller that leaves, small volumes and small heaps."""
    controllers, brokers = yaml.safe_load_all((EXAMPLES / name).read_text())
    small = POOL["template"]  # its limit of memory decides how large the heap of a Java controller is, too
    spec = controllers["spec"]
    spec |= {**{key: CONTROLLERS[key] for key in ("storage", "rollout")}, "template": small}
    if leaves:
        spec["decommission"] = [LEAVING]
    else:
        spec["nodes"].append({"nodeId": LEAVING, "implementation": "java"})
    pool = brokers["spec"]
    pool |= {key: POOL[key] for key in ("storage", "rollout", "config", "template", "listeners")}
    pool |= {"controllers": QUORUM, "image": f"{IMAGE}:{pool['version']}"}
    controllers["metadata"]["name"], brokers["metadata"]["name"] = QUORUM, BROKERS
    return [controllers, brokers]


def _wait_settled(upgrade: Installation) -> None:
    """Until nothing is left to do, for brokers and then for controllers, whose turn is before that of brokers."""
    settled = {"Ready": "True", "Reconciling": "False"}.items()

    def is_settled() -> bool:
        return upgrade.conditions("kafkabroker", BROKERS).items() >= settled

    eventually(is_settled, TIMEOUT_S, "brokers as they are wanted", upgrade.state)
    upgrade.wait_ready(STAYING)


def _level(upgrade: Installation) -> str:
    found: str = upgrade.get("kafkacontroller", QUORUM)["status"]["metadataVersion"]
    return found


def _registered(upgrade: Installation) -> list[int]:
    """The ids of the registered controllers."""
    return [each["nodeId"] for each in upgrade.get("kafkacontroller", QUORUM)["status"]["registrations"]]


def _uids(upgrade: Installation) -> dict[str, str]:
    return upgrade.uids(QUORUM) | upgrade.uids(BROKERS)


def _images(upgrade: Installation) -> set[str]:
    """The images that run stock Kafka: those of brokers and of Java controllers."""
    pods = upgrade.get("pods")["items"]
    found = {pod["metadata"]["name"]: pod["spec"]["containers"][0]["image"] for pod in pods}
    stock = [name for name in found if name.startswith(f"{BROKERS}-") or name == f"{QUORUM}-{JAVA}"]
    return {found[name] for name in stock}
