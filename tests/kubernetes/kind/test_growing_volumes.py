"""Volumes of controllers and brokers that grow under load; the tests run in order.

The volumes are those of a CSI driver for tests, which the provisioner and the resizer of Kubernetes ask; kubelet
has it grow their file systems.
"""

import json
import logging
import os
from collections.abc import Iterator
from typing import Any

import pytest
from kit.local_kubernetes import growing_volumes
from kit.local_kubernetes.errors import LocalKubernetesError
from kit.local_kubernetes.kind_cluster import KindCluster
from kit.operators.installation import (
    BROKERS,
    CONTROLLERS,
    GRACE_S,
    POOL,
    QUORUM,
    TIMEOUT_S,
    TOPIC,
    Installation,
    resource,
)
from kit.operators.pod_clients import PodClients
from kit.waiting import eventually
from quorate_operator.resources.data_volumes import VOLUME_DIRECTORY

# The first test pays for the cluster, the images and the programs, which are built when nothing is cached.
pytestmark = [pytest.mark.timeout(2_400), pytest.mark.flaky(reruns=0)]

_LOG = logging.getLogger(__name__)

NAMESPACE = "growing"
CONTROLLER_IDS, BROKER_IDS = (3000, 3001, 3002), (0, 1, 2)
PODS = tuple(f"{QUORUM}-{each}" for each in CONTROLLER_IDS) + tuple(
    f"{BROKERS}-{each}" for each in BROKER_IDS
)
SIZES_MIB = (100, 200, 300)
RESIZING, PENDING, FORBIDDEN = "VolumesResizing", "FileSystemResizePending", "VolumeCannotGrow"


@pytest.fixture(scope="module")
def growing(kind_cluster: KindCluster) -> Iterator[Installation]:
    """The chart and a namespace on volumes that can grow."""
    growing_volumes.install(kind_cluster, os.environ, _LOG.info)
    installation = Installation(kind_cluster, NAMESPACE)
    with installation.released(installation.values()):
        yield installation
        installation.remove()


def test_a_cluster_runs_on_these_volumes(growing: Installation) -> None:
    """What follows grows real file systems."""
    specs = {"KafkaController": (QUORUM, CONTROLLERS), "KafkaBroker": (BROKERS, POOL)}
    growing.apply(
        *(resource(kind, name, {**spec, "storage": _storage(spec)}) for kind, (name, spec) in specs.items())
    )
    growing.wait_ready(CONTROLLER_IDS, BROKER_IDS)
    for pod in PODS:
        assert _size_mib(growing, pod) == SIZES_MIB[0]


def test_volumes_grow_under_load(growing: Installation) -> None:
    """`storage.size` grows every volume while its node serves clients."""
    before = growing.uids(QUORUM) | growing.uids(BROKERS)
    clients = PodClients(growing, copies=len(BROKER_IDS))
    growing.apply(resource("KafkaTopic", TOPIC, {"cluster": QUORUM, "partitions": 3, "replicationFactor": 3}))
    clients.start()
    size = f"{SIZES_MIB[1]}Mi"
    growing.patch("kafkacontroller", QUORUM, storage={"size": size})
    eventually(
        lambda: _resizing(growing, "kafkacontroller", QUORUM) == ("True", PENDING),
        TIMEOUT_S,
        f"{RESIZING} because of {PENDING}",
        growing.state,
    )
    growing.patch("kafkabroker", BROKERS, storage={"size": size})
    for kind, name in (("kafkabroker", BROKERS), ("kafkacontroller", QUORUM)):
        _wait_resized(growing, kind, name)
        assert {_size_mib(growing, pod) for pod in PODS if pod.startswith(name)} == {SIZES_MIB[1]}
    assert {claim["status"]["capacity"]["storage"] for claim in growing.get("pvc")["items"]} == {size}
    growing.wait_ready(CONTROLLER_IDS, BROKER_IDS)
    records, topics = clients.stop()

    assert not records.failures + topics.failures
    assert records.names
    assert topics.names
    assert growing.uids(QUORUM) | growing.uids(BROKERS) == before
    for pod in growing.get("pods")["items"]:
        if pod["metadata"]["name"] in PODS:
            assert [each["restartCount"] for each in pod["status"]["containerStatuses"]] == [0]
    reported = {event["reason"] for event in growing.get("events")["items"]}
    assert reported >= {"GrowVolume", "FileSystemResizeSuccessful"}


def test_what_can_not_grow_is_told_and_harms_nothing(growing: Installation) -> None:
    """Nodes run on, and the size is requested as soon as it is allowed."""
    before = growing.uids(BROKERS)
    _allow_growth(growing, is_allowed=False)
    growing.patch("kafkabroker", BROKERS, storage={"size": f"{SIZES_MIB[2]}Mi"})
    reported = eventually(lambda: _refusals(growing), TIMEOUT_S, "the StorageClass to be told", growing.state)
    assert {each["code"] for each in reported} == {FORBIDDEN}
    assert growing_volumes.CLASS in reported[0]["message"]
    assert _resizing(growing, "kafkabroker", BROKERS) == ("True", FORBIDDEN)
    assert growing.ready_pods() >= set(PODS)

    _allow_growth(growing, is_allowed=True)
    _wait_resized(growing, "kafkabroker", BROKERS)
    assert {_size_mib(growing, pod) for pod in PODS if pod.startswith(BROKERS)} == {SIZES_MIB[2]}
    growing.wait_ready(CONTROLLER_IDS, BROKER_IDS)
    with pytest.raises(LocalKubernetesError, match="can't be made smaller"):
        growing.patch("kafkabroker", BROKERS, storage={"size": f"{SIZES_MIB[0]}Mi"})
    assert growing.uids(BROKERS) == before


def _storage(spec: dict[str, Any]) -> dict[str, Any]:
    return {**spec["storage"], "size": f"{SIZES_MIB[0]}Mi", "className": growing_volumes.CLASS}


def _size_mib(growing: Installation, pod: str) -> int:
    """The size of the file system that a node has its data on."""
    printed = growing.kubectl("exec", pod, "--", "df", "--block-size=1M", "--output=size", VOLUME_DIRECTORY)
    return int(printed.split()[-1])


def _resizing(growing: Installation, kind: str, name: str) -> tuple[str, str]:
    """Whether the volumes of a resource grow, and the reason."""
    conditions = growing.get(kind, name)["status"]["conditions"]
    (reported,) = (each for each in conditions if each["type"] == RESIZING)
    return reported["status"], reported["reason"]


def _wait_resized(growing: Installation, kind: str, name: str) -> None:
    """Wait as the documentation does."""
    wait = ("wait", f"{kind}/{name}", f"--for=condition={RESIZING}=false", f"--timeout={TIMEOUT_S}s")
    growing.cluster.kubectl(f"--namespace={NAMESPACE}", *wait, timeout_s=TIMEOUT_S + GRACE_S)


def _allow_growth(growing: Installation, *, is_allowed: bool) -> None:
    patch = json.dumps({"allowVolumeExpansion": is_allowed})
    growing.cluster.kubectl("patch", "storageclass", growing_volumes.CLASS, f"--patch={patch}")


def _refusals(growing: Installation) -> list[dict[str, str]]:
    status = growing.get("kafkabroker", BROKERS).get("status", {})
    return list(status.get("refusals") or ())
