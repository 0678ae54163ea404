"""The conditions of volumes that grow, and of volumes that are to be removed."""

import pytest
from kit.conditions import conditions_of
from quorate_operator.handlers.statuses import (
    broker_status,
    controller_status,
)
from quorate_operator.models.manifests import load_manifests
from quorate_operator.planning.cluster import (
    NodeState,
    ObservedCluster,
    ObservedNode,
    ObservedVolume,
    Role,
)
from quorate_operator.planning.desired import desired_cluster
from quorate_operator.planning.steps import (
    GrowVolume,
    Plan,
    Refusal,
)
from quorate_operator.view.cluster import view_of

QUORUM = "{apiVersion: quorate.dev/v1alpha1, kind: KafkaController, metadata: {name: quorum}}"


@pytest.mark.parametrize(
    ("volume", "condition"),
    [
        (ObservedVolume(requested_bytes=2, capacity_bytes=2), ("False", "AsRequested")),
        (ObservedVolume(requested_bytes=2, capacity_bytes=1), ("True", "Requested")),
        (
            ObservedVolume(requested_bytes=2, capacity_bytes=1, progress="FileSystemResizePending: kubelet"),
            ("True", "FileSystemResizePending"),
        ),
    ],
)
def test_a_resize_has_a_condition(volume: ObservedVolume, condition: tuple[str, str]) -> None:
    """`kubectl describe` shows a volume that is growing, with Kubernetes' own reason."""
    node = ObservedNode(
        node_id=3000, role=Role.CONTROLLER, state=NodeState.READY, pool="quorum", volumes={0: volume}
    )
    desired = desired_cluster(load_manifests(QUORUM, "test"))
    view = view_of("quorum", desired, ObservedCluster(nodes={3000: node}, quorum=None), Plan(steps=()))
    assert conditions_of(controller_status(view, generation=1), "VolumesResizing") == [condition]


@pytest.mark.parametrize(
    ("is_in_use", "condition"), [(True, ("True", "RemovedFromVolumes")), (False, ("False", "AsRequested"))]
)
def test_a_volume_that_is_to_be_removed_has_a_condition(
    *, is_in_use: bool, condition: tuple[str, str]
) -> None:
    manifests = load_manifests(
        f"{QUORUM}\n---\n{{apiVersion: quorate.dev/v1alpha1, kind: KafkaBroker, metadata: {{name: pool}}, "
        "spec: {controllers: quorum, replicas: 1, nodeIds: {first: 0}, storage: {volumes: [{id: 0}]}}}",
        "test",
    )
    volumes = {0: ObservedVolume(directory="/0"), 1: ObservedVolume(directory="/1", is_in_use=is_in_use)}
    node = ObservedNode(node_id=0, role=Role.BROKER, state=NodeState.READY, pool="pool", volumes=volumes)
    observed = ObservedCluster(nodes={0: node}, quorum=None)
    view = view_of("quorum", desired_cluster(manifests), observed, Plan(steps=()))
    status = broker_status(view, pool="pool", generation=1)
    assert conditions_of(status, "VolumesEmptying") == [condition]
    (message,) = [
        condition["message"] for condition in status["conditions"] if condition["type"] == "VolumesEmptying"
    ]
    assert ("0 (volume 1)" in message) is is_in_use


@pytest.mark.parametrize(
    ("plan", "condition"),
    [
        (
            Plan(steps=(GrowVolume(node_id=3000, volume_id=0, reason="storage.size changed"),)),
            ("True", "Requested"),
        ),
        (
            Plan(steps=(), refusals=(Refusal("VolumeCannotGrow", "no", pool="quorum"),)),
            ("True", "VolumeCannotGrow"),
        ),
        (
            Plan(steps=(), refusals=(Refusal("VolumeCannotGrow", "no", pool="pool"),)),
            ("False", "AsRequested"),
        ),
    ],
)
def test_a_resize_is_told_before_it_is_requested(plan: Plan, condition: tuple[str, str]) -> None:
    """`kubectl wait` for the end of a resize does not return at once."""
    volume = ObservedVolume(requested_bytes=1, capacity_bytes=1)
    node = ObservedNode(
        node_id=3000, role=Role.CONTROLLER, state=NodeState.READY, pool="quorum", volumes={0: volume}
    )
    desired = desired_cluster(load_manifests(QUORUM, "test"))
    view = view_of("quorum", desired, ObservedCluster(nodes={3000: node}, quorum=None), plan)
    assert conditions_of(controller_status(view, generation=1), "VolumesResizing") == [condition]
