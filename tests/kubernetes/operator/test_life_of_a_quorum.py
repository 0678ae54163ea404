"""Quorums of real controllers from creation to deletion, as a real operator process leads them."""

import kubernetes.client
from kit.operators.operated import CONTROLLERS_FIRST, QUORUM, Operated

FIRST, SECOND, THIRD, FOURTH, FIFTH = range(CONTROLLERS_FIRST, CONTROLLERS_FIRST + 5)


def test_a_quorum_grows_shrinks_and_loses_a_named_member(operated: Operated) -> None:
    operated.create()
    operated.start_operator()
    operated.wait_settled(FIRST, SECOND, THIRD)
    cluster_id = operated.status()["clusterId"]
    operated.patch(replicas=5)
    operated.wait_settled(FIRST, SECOND, THIRD, FOURTH, FIFTH)
    operated.patch(replicas=3)
    operated.wait_settled(FIRST, SECOND, THIRD)
    operated.patch(decommission=[SECOND])
    operated.wait_settled(FIRST, THIRD, FOURTH)
    assert operated.status()["clusterId"] == cluster_id
    assert len(operated.claims()) == 5
    configs = operated.core.list_namespaced_config_map(operated.namespace).items
    names = {config.metadata.name for config in configs}
    assert {name for name in names if name.startswith(QUORUM)} == {
        f"{QUORUM}-{node_id}" for node_id in (FIRST, THIRD, FOURTH)
    }


def test_what_stands_around_the_nodes(operated: Operated) -> None:
    """What a cluster needs beside its pods is there, and is mended."""
    budgets = kubernetes.client.PolicyV1Api(operated.core.api_client)
    labels = {"app.kubernetes.io/managed-by": "quorate", "quorate.dev/cluster": QUORUM}
    outdated = {
        "metadata": {"name": "of-a-pool", "labels": labels},
        "spec": {"minAvailable": 1, "selector": {"matchLabels": {"quorate.dev/pool": "brokers"}}},
    }
    budgets.create_namespaced_pod_disruption_budget(operated.namespace, outdated)
    operated.create()
    operated.start_operator()
    operated.wait_settled(FIRST, SECOND, THIRD)
    service = operated.core.read_namespaced_service(QUORUM, operated.namespace)
    assert service.spec.publish_not_ready_addresses
    assert service.metadata.owner_references[0].kind == "KafkaController"
    policies = kubernetes.client.NetworkingV1Api(operated.core.api_client)
    assert policies.list_namespaced_network_policy(operated.namespace).items

    def available() -> int:
        return int(
            budgets.read_namespaced_pod_disruption_budget(QUORUM, operated.namespace).spec.min_available
        )

    operated.wait(lambda: available() == 2, "a budget that lets one of three go")
    patch = {"spec": {"minAvailable": 0}}
    budgets.patch_namespaced_pod_disruption_budget(QUORUM, operated.namespace, patch)
    operated.wait(lambda: available() == 2, "the budget to be mended")
    found = budgets.list_namespaced_pod_disruption_budget(operated.namespace).items
    assert {item.metadata.name for item in found} == {QUORUM, f"{QUORUM}-brokers"}


def test_a_restart_goes_one_by_one_with_its_reason(operated: Operated) -> None:
    """An annotation rolls the quorum, and says so; levels of loggers need no restart, and outlast one."""
    operated.create()
    operated.start_operator()
    operated.wait_settled(FIRST, SECOND, THIRD)
    settled = operated.pod_uids()
    operated.patch(logLevels={"quorate_controller.server": "DEBUG"})
    operated.wait(lambda: len(operated.events("SetLogLevels")) == 3, "three nodes with another level")
    assert all("quorate_controller.server: INFO -> DEBUG" in note for note in operated.events("SetLogLevels"))
    assert operated.pod_uids() == settled
    before = operated.pod_uids()
    pods = operated.core.list_namespaced_pod(operated.namespace)
    operated.annotate(restart="once")
    operated.wait(
        lambda: operated.settled(FIRST, SECOND, THIRD) and not before & operated.pod_uids(), "three new pods"
    )
    assert operated.fewest_since(pods) == 2
    operated.wait(lambda: len(operated.events("SetLogLevels")) == 6, "the level again, after the restarts")
    notes = operated.events("StopNode")
    assert len(notes) == 3
    assert all("restart" in note for note in notes)


def test_a_lost_disk_replaces_the_voter(operated: Operated) -> None:
    operated.create()
    operated.start_operator()
    operated.wait_settled(FIRST, SECOND, THIRD)
    before = operated.voters()
    operated.core.delete_namespaced_persistent_volume_claim(f"data-{QUORUM}-{SECOND}", operated.namespace)

    def replaced() -> bool:
        now = operated.voters()
        return now.get(SECOND) not in (None, before[SECOND]) and operated.settled(FIRST, SECOND, THIRD)

    operated.wait(replaced, "another directory id of the same node")
    now = operated.voters()
    assert (now[FIRST], now[THIRD]) == (before[FIRST], before[THIRD])


def test_a_node_gets_new_volumes_by_annotation(operated: Operated) -> None:
    """Once for each request: the claim goes with the pod, and the new one belongs to another voter."""
    operated.create()
    operated.start_operator()
    operated.wait_settled(FIRST, SECOND, THIRD)
    before = operated.voters()
    operated.annotate(**{f"delete-pod-and-claim-{SECOND}": "the disk fails"})

    def replaced() -> bool:
        now = operated.voters()
        return now.get(SECOND) not in (None, before[SECOND]) and operated.settled(FIRST, SECOND, THIRD)

    operated.wait(replaced, "another directory id of the same node")
    now = operated.voters()
    assert (now[FIRST], now[THIRD]) == (before[FIRST], before[THIRD])
    assert len(operated.events("ReplaceVolumes")) == 1


def test_a_cluster_sleeps_wakes_rests_and_goes(operated: Operated) -> None:
    """Hibernation, pause and deletion keep all data."""
    operated.create()
    operated.start_operator()
    operated.wait_settled(FIRST, SECOND, THIRD)
    voters, cluster_id = operated.voters(), operated.status()["clusterId"]
    operated.patch(state="Hibernated")
    operated.wait(lambda: not operated.pods(), "no pod to be left")
    operated.wait(
        lambda: operated.condition("Ready").get("reason") == "Hibernated", "the condition to say so"
    )
    operated.patch(state="Running")
    operated.wait_settled(FIRST, SECOND, THIRD)
    operated.annotate(pause="true")
    operated.patch(replicas=4)
    operated.wait(
        lambda: operated.condition("Reconciling").get("reason") == "Paused", "the pause to be reported"
    )
    assert len(operated.pods()) == 3
    operated.patch(replicas=3)
    operated.annotate(pause=None)
    operated.delete()
    operated.wait(lambda: operated.resource() is None, "the resource to be gone")
    assert operated.pods() == []
    assert len(operated.claims()) == 3
    operated.create()
    operated.wait_settled(FIRST, SECOND, THIRD)
    assert operated.status()["clusterId"] == cluster_id
    assert operated.voters() == voters


def test_manifests_that_contradict_each_other_are_told(operated: Operated) -> None:
    operated.create(state="Hibernated")
    operated.start_operator()
    operated.wait(lambda: operated.condition("Ready").get("reason") == "Hibernated", "the cluster to be seen")
    operated.create_brokers(nodeIds={"first": CONTROLLERS_FIRST})
    operated.wait(
        lambda: operated.brokers_condition("Ready").get("reason") == "InvalidManifest", "the refusal"
    )
    assert "3000" in operated.brokers_condition("Ready")["message"]
    operated.wait(lambda: operated.events("InvalidManifest"), "the Event, which follows the condition")
    assert operated.condition("Ready")["reason"] == "Hibernated"
    operated.delete_brokers()
    operated.wait(lambda: operated.brokers() is None, "the pool to be gone")
