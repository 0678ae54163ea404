"""Turns take simulated time in proportion to their work: a leader that works too long at once loses its office."""

from __future__ import annotations

from dataclasses import replace

from kit.simulator.clients import Administrator, active_node_id
from kit.simulator.cluster import Cluster
from kit.simulator.coverage import Happening
from kit.simulator.shape import Schedule, Shape
from kit.simulator.work import counting_work

RUN_MS = 20_000
SEED = 3


def quiet_cluster(**changes: object) -> Cluster:
    """Three controllers that an administrator keeps busy, and nothing goes wrong."""
    shape = replace(Shape.directed(SEED, Schedule.OLD_EPOCH), voters=3, drifts_ppm=(0,) * 3)
    return Cluster(SEED, replace(shape, releases=shape.releases[:3], brokers=0, **changes))


def test_a_leader_that_works_too_long_is_replaced() -> None:
    cluster = quiet_cluster()
    world = cluster.world
    Administrator(world)
    with counting_work(world.work):
        for machine in cluster.machines:
            cluster.boot(machine)
        world.run_until(world.now_ms + 5000)
        assert world.coverage.counts[Happening.LEADER_ELECTED] == 1
        first = active_node_id(world)
        world.machines[first].slowness = 20_000
        world.run_until(world.now_ms + RUN_MS)
    assert active_node_id(world) != first
    assert world.coverage.counts[Happening.LONG_TURN] > 0
