"""Volumes that grow: what is requested, what is waited for, and what is refused."""

from kit.scenarios import REVISION, Situation, briefly, healthy
from quorate_operator.planning.cluster import NodeState, ObservedVolume
from quorate_operator.planning.steps import CreateVolume, GrowVolume
from quorate_operator.planning.volumes import volumes_revision

GIB = 2**30
SMALL = ObservedVolume(requested_bytes=10 * GIB, capacity_bytes=10 * GIB)


def _sized(volume: ObservedVolume, asked_bytes: int = 20 * GIB, node_id: int = 0) -> Situation:
    """A healthy cluster of which one broker has this volume and shall have another size."""
    situation = healthy(3, brokers=2).asking_node(node_id, volumes={0: asked_bytes})
    return situation.node(node_id, volumes={0: volume})


def test_a_larger_size_is_requested_while_the_node_runs() -> None:
    situation = _sized(SMALL).asking_node(3001, volumes={0: 20 * GIB}).node(3001, volumes={0: SMALL})
    assert briefly(situation.due()) == ["GrowVolume 3001", "GrowVolume 0"]
    (grow, _) = situation.due()
    assert isinstance(grow, GrowVolume)
    assert grow.reason == "storage.size changed, 10.0 GiB -> 20.0 GiB"


def test_what_was_requested_is_waited_for() -> None:
    growing = ObservedVolume(
        requested_bytes=20 * GIB, capacity_bytes=10 * GIB, progress="FileSystemResizePending: by kubelet"
    )
    situation = _sized(growing)
    assert situation.due() == ()
    assert (
        "the volume of broker-0 to grow, 10.0 GiB -> 20.0 GiB (FileSystemResizePending: by kubelet)"
        in situation.waits()
    )
    unbound = _sized(ObservedVolume(requested_bytes=10 * GIB))
    assert unbound.due() == ()
    assert "the volume of broker-0 to exist before it grows, 10.0 GiB -> 20.0 GiB" in unbound.waits()
    assert _sized(SMALL, asked_bytes=10 * GIB).plan().steps == ()


def test_a_size_that_is_less_is_refused_for_its_pool() -> None:
    situation = _sized(SMALL, asked_bytes=5 * GIB)
    (refusal,) = situation.plan().refusals
    assert (refusal.code, refusal.pool) == ("VolumeCannotShrink", "brokers")
    assert "spec.storage.size: volumes of 0: 5.0 GiB is less than the 10.0 GiB" in refusal.message
    assert briefly(situation.asking_config().due()) == ["StopNode 3001"]


def test_one_refusal_names_all_volumes_that_cannot_grow() -> None:
    """A class without expansion is reported once, and no request is repeated."""
    stuck = ObservedVolume(
        requested_bytes=10 * GIB, capacity_bytes=10 * GIB, refusal="no allowVolumeExpansion"
    )
    situation = _sized(stuck).asking_node(1, volumes={0: 20 * GIB}).node(1, volumes={0: stuck})
    assert situation.due() == ()
    (refusal,) = situation.plan().refusals
    assert refusal.message == (
        "brokers: spec.storage.size: volumes of 0 and 1: they can't grow to 20.0 GiB: no allowVolumeExpansion"
    )


def test_a_volume_that_is_added_is_created_and_then_used() -> None:
    situation = _sized(SMALL).asking_node(0, volumes={0: 10 * GIB, 1: 5 * GIB})
    (step,) = situation.due()
    assert isinstance(step, CreateVolume)
    assert (step.volume_id, step.reason) == (1, "storage.volumes has volume 1")
    growing = situation.node(0, volumes={0: SMALL, 1: SMALL}).asking_node(
        0, volumes={0: 10 * GIB, 1: 20 * GIB}
    )
    (step,) = growing.due()
    assert isinstance(step, GrowVolume)
    assert (step.volume_id, step.reason) == (1, "storage.volumes: 1: size changed, 10.0 GiB -> 20.0 GiB")
    used = situation.node(0, volumes={0: SMALL, 1: SMALL}).asking_node(
        0, volumes={0: 10 * GIB, 1: 10 * GIB}, revision={**REVISION, **volumes_revision([0, 1])}
    )
    (stop,) = used.due()
    assert (briefly([stop]), stop.reason) == (["StopNode 0"], "storage.volumes: 0 -> 0,1")
    assert briefly(situation.down(0, NodeState.ABSENT, volumes={}).due()) == ["CreateNode 0", "StartNode 0"]


def test_no_volume_is_created_beside_claims_that_are_going() -> None:
    """The node gets all of them when it is created again; until its process ends, the old claims are in the way."""
    going = ObservedVolume(is_in_use=False, requested_bytes=10 * GIB, capacity_bytes=10 * GIB)
    situation = _sized(going, node_id=1).node(1, volumes={0: going, 1: going})
    assert situation.due() == ()
    assert situation.asking_node(1, volumes={0: 10 * GIB, 1: 5 * GIB}).due() == ()
    assert situation.asking_node(1, volumes={0: 10 * GIB, 1: 5 * GIB, 2: GIB}).due() == ()
