"""Nodes whose local volumes are on a machine that is gone."""

from kit.operators.operated import CONTROLLERS_FIRST, QUORUM, Operated

FIRST, SECOND, THIRD = range(CONTROLLERS_FIRST, CONTROLLERS_FIRST + 3)


def test_volumes_of_a_lost_machine_are_unbound_if_the_manifest_says_so(operated: Operated) -> None:
    """Without the field, the status names the machine, and nothing is deleted."""
    operated.create()
    operated.start_operator()
    operated.wait_settled(FIRST, SECOND, THIRD)
    before, claims = operated.voters(), _uids(operated)
    machine = operated.agent.lose_machine_of(f"{QUORUM}-{SECOND}")
    operated.wait(
        lambda: machine in operated.condition("Ready").get("message", ""), "the machine to be named"
    )
    assert operated.condition("Ready")["reason"] == "NodeProblem"
    assert (
        f"the Kubernetes node {machine}, which has its volume, was removed"
        in operated.condition("Ready")["message"]
    )
    assert _uids(operated) == claims

    operated.patch(storage={"unbindAfter": "1s"})

    def replaced() -> bool:
        now = operated.voters()
        return now.get(SECOND) not in (None, before[SECOND]) and operated.settled(FIRST, SECOND, THIRD)

    operated.wait(replaced, "the node to be back with another directory id")
    now = operated.voters()
    assert (now[FIRST], now[THIRD]) == (before[FIRST], before[THIRD])
    (note,) = operated.events("ReplaceVolumes")
    assert "storage.unbindAfter has passed" in note
    assert not operated.events("StopNode"), "a pod that was never scheduled is not waited for"
    kept = {name: uid for name, uid in _uids(operated).items() if claims[name] == uid}
    assert set(claims) - set(kept) == {f"data-{QUORUM}-{SECOND}"}


def test_a_machine_comes_back_in_time(operated: Operated) -> None:
    """A step of the plan says until when its volumes are waited for."""
    operated.create(storage={"unbindAfter": "1h"})
    operated.start_operator()
    operated.wait_settled(FIRST, SECOND, THIRD)
    before, claims = operated.voters(), _uids(operated)
    machine = operated.agent.lose_machine_of(f"{QUORUM}-{SECOND}")
    waits = f"the volumes of controller-{SECOND} to be found again or unbound: the Kubernetes node {machine}"
    operated.wait(
        lambda: any(waits in step.get("reason", "") for step in operated.status().get("plan", ())), "the step"
    )
    operated.agent.regain_machine(machine)
    operated.wait_settled(FIRST, SECOND, THIRD)
    assert (operated.voters(), _uids(operated)) == (before, claims)


def _uids(operated: Operated) -> dict[str, str]:
    claims = operated.core.list_namespaced_persistent_volume_claim(operated.namespace).items
    return {claim.metadata.name: claim.metadata.uid for claim in claims}
