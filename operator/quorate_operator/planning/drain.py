"""Brokers that leave: drained of every replica, stopped, unregistered, their volumes dealt with, forgotten. Pure."""

from dataclasses import dataclass, field

from quorate_operator.planning.cluster import DesiredCluster, ObservedCluster
from quorate_operator.planning.steps import Action, Refusal, WaitFor


@dataclass(frozen=True, slots=True, kw_only=True)
class DrainPlan:
    """What is to be done about brokers that are there and not desired, from the first reassignment to ForgetNode.

    `steps` are due at once; none of them takes a broker from service that holds a replica.
    """

    steps: tuple[Action, ...] = ()
    waits: tuple[WaitFor, ...] = ()
    refusals: tuple[Refusal, ...] = ()
    leaving: frozenset[int] = field(default_factory=frozenset)
    """The brokers that leave: nobody but this plan starts, stops or restarts them."""


def plan_drain(desired: DesiredCluster, observed: ObservedCluster, now_ms: int) -> DrainPlan:
    """What is due for the brokers that are to leave. The caller has ruled out that the cluster is to be down."""
    del desired, observed, now_ms
    return DrainPlan()
