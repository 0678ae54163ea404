"""From static voters to a dynamic quorum (KIP-853), while it serves.

    1. every voter runs and has caught up
    2. kraft.version 1 is finalized: the leader writes the voters, with their disks, into the log
    3. each node is restarted with bootstrap servers in place of voters: its configuration differs, see `rollout`

A runtime writes voters into configurations as long as `Formation.is_static` holds. There is no way back.
"""

from quorate_protocol.features import KRAFT_VERSION

from quorate_operator.planning.cluster import DesiredCluster, ObservedCluster, Role
from quorate_operator.planning.part import Part, labels
from quorate_operator.planning.safety import view_quorum
from quorate_operator.planning.steps import FinalizeFeature, Refusal, WaitFor


def plan_migration(desired: DesiredCluster, observed: ObservedCluster) -> Part:
    """What is due for the kind of quorum that is asked for."""
    view = view_quorum(observed)
    if view is None or desired.dynamic_quorum == view.is_dynamic:
        return Part()
    if view.is_dynamic:
        message = (
            "spec.quorum: static: the quorum is dynamic already (kraft.version 1), and Kafka knows no way back. "
            "Set spec.quorum: dynamic"
        )
        return Part(refusals=(Refusal("NoWayBack", message),))
    if view.dead:
        what = f"{labels(Role.CONTROLLER, view.dead)} to be caught up: every voter tells its disk to a dynamic quorum"
        return Part(rest=(WaitFor(reason=what, node_ids=view.dead),))
    reason = "kraft.version 0 -> 1: the quorum becomes dynamic, and its voters are written into the log"
    return Part(
        due=(FinalizeFeature(feature=KRAFT_VERSION, level=1, reason=reason),),
        rest=(WaitFor(reason="the quorum to be dynamic (kraft.version 1)"),),
    )
