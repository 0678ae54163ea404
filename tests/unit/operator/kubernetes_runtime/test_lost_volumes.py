"""Pods that can't be scheduled: whether the Kubernetes node with their volumes is gone, and since when."""

from typing import Any, cast

import pytest
from quorate_operator.planning.cluster import Role
from quorate_operator.planning.losses import LostVolumes
from quorate_operator.runtime.kubernetes.api import ApiError, Kind
from quorate_operator.runtime.kubernetes.kubernetes_nodes import KubernetesNodes
from quorate_operator.runtime.kubernetes.lost_volumes import Host, hosts_of, lost_volumes
from quorate_operator.runtime.kubernetes.observation import NodeObjects, observed_node

Object = dict[str, Any]
HOSTNAME = "kubernetes.io/hostname"
EARLY, LATE = "2026-01-01T00:00:00Z", "2026-01-01T00:10:00Z"
EARLY_MS, LATE_MS = 1_767_225_600_000, 1_767_226_200_000
UNSCHEDULABLE = {
    "type": "PodScheduled",
    "status": "False",
    "reason": "Unschedulable",
    "message": "0/2 nodes are available",
    "lastTransitionTime": EARLY,
}


class _Api:
    """Has volumes and machines."""

    def __init__(self, volumes: list[Object], machines: list[Object], *, forbids: str = "") -> None:
        self._items = {"PersistentVolume": volumes, "Node": machines}
        self._forbids = forbids

    async def get(self, kind: Kind, namespace: str | None, name: str) -> Object | None:
        assert namespace is None
        self._check(kind)
        return next((item for item in self._items[kind.name] if item["metadata"]["name"] == name), None)

    async def list(self, kind: Kind, namespace: str | None, selector: str) -> tuple[list[Object], str]:
        assert namespace is None
        self._check(kind)
        key, _, values = selector.removesuffix(")").partition(" in (")
        found = [
            item
            for item in self._items[kind.name]
            if item["metadata"].get("labels", {}).get(key) in values.split(",")
        ]
        return found, "1"

    def _check(self, kind: Kind) -> None:
        if kind.name == self._forbids:
            raise ApiError(403, "Forbidden", "no")


def _volume(*terms: Object) -> Object:
    affinity = {"nodeAffinity": {"required": {"nodeSelectorTerms": list(terms)}}} if terms else {}
    return {"metadata": {"name": "pvc-1"}, "spec": affinity}


def _on(*hosts: str, key: str = HOSTNAME) -> Object:
    return {"matchExpressions": [{"key": key, "operator": "In", "values": list(hosts)}]}


def _machine(ready: str = "True", name: str = "ip-10-0-0-2", host: str = "worker-2") -> Object:
    condition = {"type": "Ready", "status": ready, "lastTransitionTime": LATE}
    return {"metadata": {"name": name, "labels": {HOSTNAME: host}}, "status": {"conditions": [condition]}}


def _node(*, pod: Object | None = None, volume: str | None = "pvc-1") -> NodeObjects:
    status = {"conditions": [UNSCHEDULABLE]}
    pending = {"metadata": {"name": "brokers-0", "creationTimestamp": EARLY}, "spec": {}, "status": status}
    claim = {"metadata": {"name": "data-brokers-0"}, "spec": {"volumeName": volume}}
    return NodeObjects(
        node_id=0, role=Role.BROKER, pool="brokers", pod=pending if pod is None else pod, claims={0: claim}
    )


async def _lost(api: _Api, node: NodeObjects | None = None) -> LostVolumes | None:
    return await lost_volumes(KubernetesNodes(cast("Any", api)), node or _node())


@pytest.mark.parametrize(
    ("terms", "hosts"),
    [
        ([_on("worker-2")], (Host(HOSTNAME, ("worker-2",)),)),
        ([_on("a", key="topology.topolvm.io/node")], (Host("topology.topolvm.io/node", ("a",)),)),
        (
            [{"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["a"]}]}],
            (Host("metadata.name", ("a",)),),
        ),
        ([_on("a"), _on("b")], (Host(HOSTNAME, ("a",)), Host(HOSTNAME, ("b",)))),
        ([_on("zone-a", key="topology.kubernetes.io/zone")], ()),
        ([_on("a"), _on("zone-a", key="topology.kubernetes.io/zone")], ()),
        ([{"matchExpressions": [{"key": HOSTNAME, "operator": "NotIn", "values": ["a"]}]}], ()),
        ([], ()),
    ],
)
def test_local_volumes_name_their_machine(terms: list[Object], hosts: tuple[Host, ...]) -> None:
    assert hosts_of(_volume(*terms)) == hosts


async def test_volumes_of_a_removed_machine_are_lost() -> None:
    """A machine is found by its label, which may differ from its name."""
    volume = _volume(_on("worker-2"))
    removed = "the Kubernetes node worker-2, which has its volume, was removed"
    assert await _lost(_Api([volume], [])) == LostVolumes(removed, EARLY_MS)
    assert await _lost(_Api([volume], [_machine()])) is None, "it may be full or cordoned"
    assert await _lost(_Api([volume], [_machine("False")])) is None, "its kubelet answers"
    silent = removed.replace("was removed", "does not answer")
    assert await _lost(_Api([volume], [_machine("Unknown")])) == LostVolumes(silent, LATE_MS)
    assert await _lost(_Api([], [_machine()])) == LostVolumes(
        "the PersistentVolume pvc-1 was removed", EARLY_MS
    )


async def test_other_pods_wait_for_no_lost_volumes() -> None:
    api = _Api([_volume(_on("worker-2"))], [])
    assert await _lost(api, _node(volume=None)) is None, "no volume was provisioned yet"
    assert await _lost(_Api([_volume()], [])) is None, "a volume in the network"
    gated = {**UNSCHEDULABLE, "reason": "SchedulingGated"}
    pod = {"metadata": {"creationTimestamp": EARLY}, "spec": {}, "status": {"conditions": [gated]}}
    assert await _lost(api, _node(pod=pod)) is None
    new = {"metadata": {"creationTimestamp": EARLY}, "spec": {}, "status": {}}
    assert await _lost(api, _node(pod=new)) is None, "the scheduler has not tried yet"


@pytest.mark.parametrize("kind", ["Node", "PersistentVolume"])
async def test_without_the_right_to_read_them_it_is_unknown(kind: str) -> None:
    api = _Api([_volume(_on("worker-2"))], [], forbids=kind)
    lost = await _lost(api)
    assert lost is not None
    assert (lost.is_known, lost.since_ms) == (False, EARLY_MS)
    assert "rbac.readNodes" in lost.reason
    running = _node().pod | {"spec": {"nodeName": "ip-10-0-0-2"}}  # type: ignore[operator]
    assert await _lost(api, _node(pod=running)) is None


async def test_a_pod_on_a_silent_machine_is_still_there() -> None:
    pod = {
        "metadata": {"creationTimestamp": EARLY, "deletionTimestamp": LATE},
        "spec": {"nodeName": "ip-10-0-0-2"},
        "status": {"conditions": [{"type": "Ready", "status": "False", "lastTransitionTime": LATE}]},
    }
    assert await _lost(_Api([], [_machine("Unknown")]), _node(pod=pod)) == LostVolumes(
        "the Kubernetes node ip-10-0-0-2 does not answer", LATE_MS, has_pod=True
    )
    assert await _lost(_Api([], []), _node(pod=pod)) == LostVolumes(
        "the Kubernetes node ip-10-0-0-2 was removed", LATE_MS, has_pod=True
    )
    assert await _lost(_Api([], [_machine()]), _node(pod=pod)) is None


def test_the_problem_of_a_node_names_the_machine() -> None:
    lost = LostVolumes("the Kubernetes node worker-2, which has its volume, was removed", EARLY_MS)
    assert observed_node(_node(), lost).problem == (f"Unschedulable: 0/2 nodes are available; {lost.reason}")
    assert observed_node(_node(), lost._replace(is_known=False)).problem == (
        "Unschedulable: 0/2 nodes are available"
    )
