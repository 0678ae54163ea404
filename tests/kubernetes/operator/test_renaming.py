"""Advertised hosts that the operator does not manage: verified, waited for, rolled."""

from kit.operators.operated import CONTROLLERS_FIRST, Operated, forwarded

NODES = range(CONTROLLERS_FIRST, CONTROLLERS_FIRST + 3)


def test_new_hosts_are_waited_for_and_then_rolled(operated: Operated) -> None:
    """A rename waits until the new names lead to the right nodes, and each voter then has its new endpoint."""
    operated.create()
    operated.start_operator()
    operated.wait_settled(*NODES)
    before = _pods(operated)
    network = operated.network.rsplit(".", 1)[0] + ".251"
    operated.patch(advertisedHost=f"{network}.1{{offset}}")
    operated.wait(
        lambda: any(network in step["reason"] for step in operated.status().get("plan", ())),
        "the plan to say for which name it waits",
    )
    assert _pods(operated) == before
    pairs = operated.led_to(network, NODES)
    with forwarded(pairs):
        operated.wait(
            lambda: operated.settled(*NODES) and _endpoints(operated) == {str(new) for new, _ in pairs},
            "every voter to have its new endpoint",
        )
    assert not before & _pods(operated)
    assert len(operated.events("StopNode")) == len(NODES)


def _pods(operated: Operated) -> set[str]:
    return {pod.metadata.uid for pod in operated.core.list_namespaced_pod(operated.namespace).items}


def _endpoints(operated: Operated) -> set[str]:
    return {voter.get("endpoint", "") for voter in operated.status().get("voters", ())}
