"""Whatever is asked of a cluster, with an operator that is killed after every step, and in the middle of it."""

from collections import Counter
from collections.abc import Callable

import pytest
from kit.operator_model.desired_spec import OTHERS, OTHERS_FIRST, DesiredSpec
from kit.operator_model.driver import Cluster
from quorate_operator.planning.cluster import Lifecycle, Role, VolumePolicy

Edit = Callable[[Cluster], None]


def _scale_up(cluster: Cluster) -> None:
    cluster.spec.scale(Role.CONTROLLER, 5)
    cluster.spec.scale(Role.BROKER, 4)


def _scale_down(cluster: Cluster) -> None:
    cluster.spec.scale(Role.CONTROLLER, 1)
    cluster.spec.scale(Role.BROKER, 2)


def _decommission(cluster: Cluster) -> None:
    cluster.spec.leave(3001)
    cluster.spec.leave(0)


def _rename(cluster: Cluster) -> None:
    cluster.spec.rename()


def _swap_controllers(cluster: Cluster) -> None:
    cluster.spec.rotate((3000, 3002), "CONTROLLER")


def _rotate_brokers(cluster: Cluster) -> None:
    cluster.spec.rotate((0, 1, 2), "EXTERNAL")


def _upgrade(cluster: Cluster) -> None:
    cluster.spec.version, cluster.spec.metadata_version = "4.4.0", "4.4-IV2"


def _lose_disks(cluster: Cluster) -> None:
    for node_id in (3002, 1):
        cluster.lose_disk(cluster.world.nodes[node_id])


def _become_dynamic(cluster: Cluster) -> None:
    cluster.spec.dynamic = True


def _hibernate(cluster: Cluster) -> None:
    cluster.spec.lifecycle = Lifecycle.HIBERNATED


def _everything(cluster: Cluster) -> None:
    for edit in (_scale_up, _rotate_brokers, _swap_controllers, _decommission, _upgrade):
        edit(cluster)


EDITS: tuple[Edit, ...] = (
    _scale_up,
    _scale_down,
    _decommission,
    _rename,
    _swap_controllers,
    _rotate_brokers,
    _upgrade,
    _lose_disks,
    _become_dynamic,
    _hibernate,
    _everything,
)


def _running(*, dynamic: bool = True, is_external: bool = False) -> Cluster:
    cluster = Cluster(DesiredSpec(controllers=3, brokers=3, dynamic=dynamic, is_external=is_external), seed=1)
    cluster.settle()
    cluster.create_partitions()
    cluster.history.clear()
    return cluster


def _restarts(cluster: Cluster) -> Counter[str]:
    return Counter(
        line.split("StartNode(node_id=")[1].split(",")[0] for line in cluster.history if " StartNode(" in line
    )


@pytest.mark.parametrize("edit", EDITS, ids=lambda edit: edit.__name__.strip("_"))
@pytest.mark.parametrize("half", [False, True], ids=["after each step", "in the middle of each step"])
def test_the_result_is_the_same(edit: Edit, half: bool) -> None:
    """An operator that is killed between two steps, or in one, changes no result."""
    cluster = _running(dynamic=edit is not _become_dynamic)
    edit(cluster)
    for _ in range(150):
        cluster.round(cut=1, half=half)
    cluster.settle()


@pytest.mark.parametrize(
    ("edit", "restarts"),
    [
        (_rename, {"0": 1, "1": 1, "2": 1, "3000": 1, "3001": 1, "3002": 1}),
        (_swap_controllers, {"3000": 2, "3002": 1}),
        (_rotate_brokers, {"0": 2, "1": 2, "2": 1}),
        (_upgrade, {"0": 1, "1": 1, "2": 1, "3000": 1, "3001": 1, "3002": 1}),
        (_scale_down, {}),
    ],
)
def test_no_node_restarts_more_often_than_it_must(edit: Edit, restarts: dict[str, int]) -> None:
    cluster = _running()
    edit(cluster)
    cluster.settle()
    assert _restarts(cluster) == restarts


@pytest.mark.parametrize("half", [False, True], ids=["after each step", "in the middle of each step"])
def test_names_of_others_cost_one_restart_whoever_dies_meanwhile(half: bool) -> None:
    """A node starts with the new name by which it was reached, whichever operator stopped it, and a rename ends."""
    cluster = _running(is_external=True)
    cluster.spec.rename()
    for _ in range(150):
        cluster.round(cut=1, half=half)
    cluster.check_desired_state()
    if not half:
        assert _restarts(cluster) == {"0": 1, "1": 1, "2": 1, "3000": 1, "3001": 1, "3002": 1}


def test_a_cluster_sleeps_and_wakes_as_it_was() -> None:
    """Hibernation stops everything and loses nothing; names that changed meanwhile are given out on waking."""
    cluster = _running()
    cluster.spec.lifecycle = Lifecycle.HIBERNATED
    cluster.settle()
    voters = {node_id: voter.directory_id for node_id, voter in cluster.world.voters.items()}
    cluster.spec.rotate((3000, 3001, 3002), "CONTROLLER")
    cluster.spec.lifecycle = Lifecycle.RUNNING
    cluster.settle()
    assert {node_id: voter.directory_id for node_id, voter in cluster.world.voters.items()} == voters


def _with_another_pool(*, brokers: int) -> Cluster:
    cluster = Cluster(
        DesiredSpec(controllers=3, brokers=brokers, others=2, volumes=VolumePolicy.RETAIN), seed=1
    )
    cluster.settle()
    cluster.create_partitions()
    return cluster


@pytest.mark.parametrize("half", [False, True], ids=["after each step", "in the middle of each step"])
def test_a_deleted_pool_leaves_nothing_behind(half: bool) -> None:
    """A pool that is deleted with its volumes costs no replica, also if operator or nodes are killed meanwhile."""
    cluster = _with_another_pool(brokers=2)
    cluster.crash(cluster.world.nodes[OTHERS_FIRST])
    cluster.spec.drain_others()
    for _ in range(150):
        cluster.round(cut=1, half=half)
    cluster.settle()
    assert not [node for node in cluster.world.nodes.values() if node.pool == OTHERS]


def test_a_deleted_pool_that_has_nowhere_to_go_stays_in_service() -> None:
    """A deletion that can't be carried out stops no node."""
    cluster = _with_another_pool(brokers=1)
    cluster.spec.drain_others()
    for _ in range(30):
        made = cluster.round()
    pool = [node for node in cluster.world.nodes.values() if node.pool == OTHERS]
    assert [cluster.world.serves(node.node_id) for node in pool] == [True, True]
    assert [(refusal.code, refusal.pool) for refusal in made.refusals] == [("TooFewBrokers", OTHERS)]
    cluster.spec.scale(Role.BROKER, 2)
    cluster.settle()
    assert not [node for node in cluster.world.nodes.values() if node.pool == OTHERS]
