"""Racks of brokers by labels of nodes: when a pod gets its rack, and what it waits for."""

from typing import Any, cast

import pytest
from kit.desired_cluster import Make
from quorate_operator.planning.cluster import Role
from quorate_operator.resources.pods import node_pod
from quorate_operator.runtime.kubernetes.api import ApiError, Kind
from quorate_operator.runtime.kubernetes.kubernetes_nodes import KubernetesNodes, set_racks
from quorate_operator.runtime.kubernetes.observation import NodeObjects

Object = dict[str, Any]
ZONE = "topology.kubernetes.io/zone"
BY_ZONE = f"rack: {{topologyKey: {ZONE}}}"


class _Api:
    """Has one machine, and takes annotations of pods."""

    def __init__(self, machine: Object | ApiError | None) -> None:
        self.machine = machine
        self.asked = 0

    async def get(self, kind: Kind, namespace: str | None, name: str) -> Object | None:
        assert (kind.name, namespace, name) == ("Node", None, "machine-1")
        self.asked += 1
        if isinstance(self.machine, ApiError):
            raise self.machine
        return self.machine


class _Objects:
    def __init__(self) -> None:
        self.annotated: list[Object] = []

    async def annotate(self, _item: Object, annotations: Object) -> None:
        self.annotated.append(annotations)


def _pod(make: Make, brokers: str = BY_ZONE, **changes: Any) -> Object:
    cluster = make(brokers=brokers)
    pod = node_pod(cluster.context, cluster.desired, cluster.node(0), {}, is_initial=False)
    pod["spec"]["nodeName"] = changes.pop("machine", "machine-1")
    pod["metadata"] |= changes
    return pod


async def _racks(
    make: Make, pod: Object | None, machine: Object | ApiError | None, brokers: str = BY_ZONE
) -> tuple[list[Object], list[str]]:
    """The annotations that were written, and the problems."""
    objects, api = _Objects(), _Api(machine)
    node = NodeObjects(node_id=0, role=Role.BROKER, pool="brokers", pod=pod)
    context = make(brokers=brokers).context
    problems = await set_racks(cast("Any", objects), KubernetesNodes(cast("Any", api)), context, [node, node])
    return objects.annotated[:1], [*problems.values()]


def _machine(**labels: str) -> Object:
    return {"metadata": {"name": "machine-1", "labels": labels}}


async def test_a_pod_is_told_the_label_of_its_machine(make: Make) -> None:
    reported = ([{"quorate.dev/rack": "zone-a"}], [])
    assert await _racks(make, _pod(make), _machine(**{ZONE: "zone-a"})) == reported
    pod = _pod(make)
    pod["metadata"]["labels"][ZONE] = "zone-a"
    assert await _racks(make, pod, ApiError(403, "", "no")) == reported


@pytest.mark.parametrize(
    ("machine", "problem"),
    [
        (_machine(other="a"), f"its rack is unknown: the node machine-1 has no label {ZONE}"),
        (None, f"its rack is unknown: the node machine-1 has no label {ZONE}"),
        (ApiError(403, "", "no"), "its rack is unknown: the operator may not read the labels of machine-1"),
    ],
)
async def test_a_pod_that_waits_says_for_what(
    make: Make, machine: Object | ApiError | None, problem: str
) -> None:
    """A missing label or right is reported in the status."""
    annotated, problems = await _racks(make, _pod(make), machine)
    assert annotated == []
    assert problems[0].startswith(problem)


async def test_other_pods_are_let_alone(make: Make) -> None:
    machine = _machine(**{ZONE: "zone-b"})
    for pod, brokers in (
        (_pod(make, annotations={"quorate.dev/rack": "zone-a"}), BY_ZONE),
        (_pod(make, machine=None), BY_ZONE),
        (_pod(make, deletionTimestamp="2026-01-01T00:00:00Z"), BY_ZONE),
        (_pod(make, brokers=""), BY_ZONE),
        (_pod(make), ""),
        (None, BY_ZONE),
    ):
        assert await _racks(make, pod, machine, brokers) == ([], [])


async def test_a_label_is_read_again_before_it_is_racks() -> None:
    """A cached label is never written, and pods that wait cost few requests."""
    now = [100.0]
    api = _Api(_machine())
    machines = KubernetesNodes(cast("Any", api), clock=lambda: now[0])
    assert [await machines.label("machine-1", ZONE) for _ in range(3)] == [None] * 3
    assert api.asked == 1
    api.machine = _machine(**{ZONE: "zone-a"})
    now[0] += 10.0
    assert await machines.label("machine-1", ZONE) == "zone-a"
    api.machine = _machine(**{ZONE: "zone-b"})
    now[0] += 1.0
    assert await machines.label("machine-1", ZONE) == "zone-b"
