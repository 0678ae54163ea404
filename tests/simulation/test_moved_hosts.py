"""All hosts of a dynamic quorum get new addresses at once: the voter set names none of them (KIP-1347)."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
from kit.simulator.clients import Administrator, active_node_id
from kit.simulator.cluster import Cluster
from kit.simulator.coverage import Happening
from kit.simulator.faults import Faults
from kit.simulator.shape import Schedule, Shape
from quorate_controller.raft.lookup import VoterLookup

if TYPE_CHECKING:
    from kit.simulator.world import World

SEEDS = range(1, 9)
BEFORE_MS = 3_000
ELECTION_MS_MAX = 15_000
"""The last reboot is after 4 s, and an election timeout of some machines is up to four times that of others."""
RECORDED_MS_MAX = 10_000


def move_all(seed: int, *, disks_lost: int = 0) -> tuple[World, Administrator, int]:
    """Let a quorum work, and then restart all of it elsewhere, some machines with empty disks.

    Returns the world, its administrator, and how many requests were acknowledged before.
    """
    shape = replace(Shape.directed(seed, Schedule.OLD_EPOCH), is_dynamic=True)
    cluster = Cluster(seed, shape)
    world, administrator = cluster.world, Administrator(cluster.world)
    for machine in cluster.machines:
        cluster.boot(machine)
    world.run_until(world.now_ms + BEFORE_MS)
    assert administrator.acknowledged
    Faults(cluster)._move_all()
    for machine in cluster.machines[:disks_lost]:
        cluster.replace_disk(machine)
    return world, administrator, administrator.acknowledged


def leads(world: World) -> bool:
    return any(node.is_active for node in world.alive)


@pytest.mark.parametrize("seed", SEEDS)
def test_a_quorum_whose_hosts_all_moved_elects_a_leader_and_records_the_addresses(seed: int) -> None:
    world, administrator, before = move_all(seed)
    world.run_until(world.now_ms + ELECTION_MS_MAX, lambda: leads(world))
    assert leads(world)
    world.run_until(world.now_ms + RECORDED_MS_MAX)
    hosts = {machine.node_id: machine.host for machine in world.machines.values()}
    for node in world.alive:
        assert {voter.node_id: voter.endpoints[0].host for voter in node.raft.voters} == hosts
    assert administrator.acknowledged > before
    assert world.coverage.counts[Happening.VOTER_FOUND]


@pytest.mark.parametrize("seed", SEEDS)
def test_machines_with_other_disks_are_never_taken_for_the_voters(seed: int) -> None:
    majority = len(Cluster(seed, Shape.directed(seed, Schedule.OLD_EPOCH)).machines) // 2 + 1
    world, administrator, before = move_all(seed, disks_lost=majority)
    world.run_until(world.now_ms + 2 * ELECTION_MS_MAX)
    assert len(world.alive) == len(world.machines)
    assert not leads(world)
    assert administrator.acknowledged == before
    assert active_node_id(world) in world.machines


def test_without_the_lookup_there_is_no_leader(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(VoterLookup, "silent", property(lambda _self: frozenset()))
    for seed in SEEDS:
        world, _, _ = move_all(seed)
        world.run_until(world.now_ms + ELECTION_MS_MAX)
        assert not leads(world)
