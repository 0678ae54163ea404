"""`plan(desired, observed, now_ms)`: what is left to do, each step with its reason. Pure."""

from quorate_operator.planning.cluster import DesiredCluster, ObservedCluster
from quorate_operator.planning.liveness import start_stopped
from quorate_operator.planning.provisioning import create_missing
from quorate_operator.planning.readiness import wait_for_ready
from quorate_operator.planning.shutdown import stop_all
from quorate_operator.planning.steps import Plan


def plan(desired: DesiredCluster, observed: ObservedCluster, now_ms: int) -> Plan:
    """The way from what is observed to what is desired.

    `observed` knows every desired node, an absent one as ABSENT. An empty plan means that the cluster is as
    desired. `now_ms` is Unix time in milliseconds.
    """
    if not desired.running:
        return Plan(steps=stop_all(desired, observed))
    starts, pauses = start_stopped(desired, observed, now_ms)
    return Plan(
        steps=(*create_missing(desired, observed), *starts, *pauses, *wait_for_ready(desired, observed)),
    )
