"""A small model of controllers that carry out the real planner's steps: enough for a complete roll."""

from dataclasses import replace

from kit.snapshots import NOW_MS, well
from quorate_operator.planning.cluster import NodeState, ObservedCluster
from quorate_operator.planning.planner import plan
from quorate_operator.planning.steps import Action, StartNode, StopNode
from quorate_operator.web.snapshots import ClusterEvent, ClusterSnapshot

SECOND_MS = 1000


class RollingCluster:
    """Three controllers and three brokers that are well, until a restart of the controllers is asked for."""

    def __init__(self) -> None:
        start = well()
        assert start.desired is not None
        assert start.observed is not None
        self._start, self._desired, self._observed = start, start.desired, start.observed
        self._now_ms = NOW_MS

    def ask_restart(self) -> None:
        """Ask for a restart of each controller, as an annotation does."""
        nodes = tuple(
            replace(node, revision={**node.revision, "restart": "now"}) if node.pool == "quorum" else node
            for node in self._desired.nodes
        )
        self._desired = replace(self._desired, nodes=nodes)

    def snapshot(self) -> ClusterSnapshot:
        """What the operator would see now, and what the real planner makes of it."""
        return replace(
            self._start,
            at_ms=self._now_ms,
            desired=self._desired,
            observed=self._observed,
            plan=plan(self._desired, self._observed, self._now_ms),
        )

    def do(self, actions: tuple[Action, ...]) -> list[ClusterEvent]:
        """Do what is due, and return the events; a second passes."""
        self._now_ms += SECOND_MS
        for action in actions:
            self._do(action)
        return [
            ClusterEvent(
                at_ms=self._now_ms, text=f"{type(action).__name__} {action.node_id}: {action.reason}"
            )
            for action in actions
        ]

    def _do(self, action: Action) -> None:
        match action:
            case StopNode():
                self._change(action.node_id, runs=False)
            case StartNode():
                self._change(action.node_id, runs=True)
            case _:
                raise AssertionError(f"a roll has no {action}")

    def _change(self, node_id: int, *, runs: bool) -> None:
        """Have a controller stop, and the next of the others lead if it led; or have it run and be caught up."""
        observed, quorum = self._observed, self._observed.quorum
        assert quorum is not None
        assert observed.kafka is not None
        wanted = next(node for node in self._desired.nodes if node.node_id == node_id)
        node = replace(
            observed.nodes[node_id],
            state=NodeState.READY if runs else NodeState.STOPPED,
            revision=wanted.revision if runs else {},
            started_at_ms=self._now_ms if runs else None,
        )
        voters = {
            voter_id: replace(
                voter,
                caught_up=runs if voter_id == node_id else voter.caught_up,
                last_fetch_ms=self._now_ms if runs or voter_id != node_id else voter.last_fetch_ms,
            )
            for voter_id, voter in quorum.voters.items()
        }
        leader_id, epoch = quorum.leader_id, quorum.leader_epoch
        if not runs and leader_id == node_id:
            leader_id, epoch = next(voter_id for voter_id in voters if voter_id != node_id), epoch + 1
        quorum = replace(quorum, voters=voters, leader_id=leader_id, leader_epoch=epoch)
        self._observed: ObservedCluster = replace(
            observed,
            nodes={**observed.nodes, node_id: node},
            quorum=quorum,
            kafka=replace(observed.kafka, quorum=quorum),
        )
