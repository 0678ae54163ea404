"""Connections that end between living processes: idle ones are closed by either side all the time."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from kit.simulator.clients import Administrator, active_node_id
from kit.simulator.cluster import Cluster
from kit.simulator.coverage import Happening
from kit.simulator.faults import break_connections
from kit.simulator.shape import Schedule, Shape
from quorate_controller.raft.handlers import responses
from quorate_controller.raft.roles.follower import Follower

if TYPE_CHECKING:
    from quorate_controller.raft.replica import Replica

RUN_MS = 20_000
BREAK_EVERY_MS = (50, 800)
SEEDS = (6, 7, 8)


def leaders_elected(seed: int) -> int:
    """Run a cluster in which nothing happens but that connections to the active controller break."""
    cluster = Cluster(seed, Shape.directed(seed, Schedule.OLD_EPOCH))
    world = cluster.world
    administrator = Administrator(world)

    def break_some() -> None:
        leader = world.machines[active_node_id(world)]
        other = world.rng.choice([machine for machine in cluster.machines if machine is not leader])
        break_connections(world, leader, other)
        world.schedule(world.rng.randint(*BREAK_EVERY_MS), break_some)

    for machine in cluster.machines:
        cluster.boot(machine)
    world.schedule(2000, break_some)
    world.run_until(world.now_ms + RUN_MS)
    assert world.coverage.counts[Happening.CONNECTION_BROKEN] > 20
    assert administrator.acknowledged > 100
    return world.coverage.counts[Happening.LEADER_ELECTED]


@pytest.mark.parametrize("seed", SEEDS)
def test_a_broken_connection_deposes_nobody(seed: int) -> None:
    assert leaders_elected(seed) == 1


def test_finds_followers_that_take_an_idle_connection_for_a_dead_leader(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    lost = responses.on_connection_lost

    def doubt_leader(replica: Replica, node_id: int) -> None:
        lost(replica, node_id)
        if isinstance(replica.state, Follower) and replica.state.leader_id == node_id:
            replica.state.leader_unreachable(replica)

    monkeypatch.setattr(responses, "on_connection_lost", doubt_leader)
    assert any(leaders_elected(seed) > 1 for seed in SEEDS)
