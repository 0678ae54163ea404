"""Address changes: what is published, who restarts, what an old address waits for, and exchanges."""

from dataclasses import replace

import pytest
from kit.scenarios import CLUSTER_ID, NOW_MS, Situation, briefly, healthy
from quorate_operator.models.listeners import BrokerListener
from quorate_operator.planning.addresses import AddressPlan, plan_addresses, shows_new_addresses
from quorate_operator.planning.cluster import (
    Address,
    NodeState,
    Publication,
    Reached,
    Role,
    RolloutPolicy,
)

LISTENER = "PLAINTEXT"
OVERLAP_MS = RolloutPolicy().overlap_ms


def old(node_id: int) -> Address:
    """The address that a broker has in a healthy cluster."""
    return Address(f"broker-{node_id}", 9092)


def interim(node_id: int) -> Address:
    """An address that is the broker's alone."""
    return Address(f"interim-{node_id}", 9092)


def asking(situation: Situation, wanted: dict[int, Address], *, controlled: bool = True) -> Situation:
    """Other addresses for some brokers, each of which has an interim address."""
    for node in situation.desired.of_role(Role.BROKER):
        own = wanted.get(node.node_id, old(node.node_id))
        situation = situation.asking_node(
            node.node_id,
            advertised={LISTENER: own},
            interim={LISTENER: interim(node.node_id)},
            controlled=frozenset({own, interim(node.node_id)}) if controlled else frozenset(),
        )
    return situation


def pointing(address: Address, node_id: int, *, retired_at_ms: int | None = None, **more: int) -> Publication:
    """An address that leads to a broker."""
    return Publication(
        address=address, node_id=node_id, listener=LISTENER, since_ms=0, retired_at_ms=retired_at_ms, **more
    )


def published(situation: Situation, *more: Publication) -> Situation:
    """Everybody's old addresses, and others."""
    brokers = situation.desired.of_role(Role.BROKER)
    moved = {publication.address for publication in more}
    own = (
        pointing(old(broker.node_id), broker.node_id)
        for broker in brokers
        if old(broker.node_id) not in moved
    )
    return situation.seeing(publications=(*own, *more))


def reaching(situation: Situation, address: Address, node_id: int) -> Situation:
    """A probe that found a node."""
    found = Reached(at_ms=NOW_MS, node_id=node_id, cluster_id=CLUSTER_ID)
    return situation.seeing(probes={**situation.observed.probes, address: found})


def planned(situation: Situation, now_ms: int = NOW_MS) -> AddressPlan:
    """The plan for it."""
    return plan_addresses(situation.desired, situation.observed, now_ms)


def waits(plan: AddressPlan) -> str:
    """What is waited for, a line each."""
    return "\n".join(wait.reason for wait in plan.waits)


NEW = Address("new-0", 9092)


def test_a_cluster_that_advertises_what_it_is_to_has_nothing_to_do() -> None:
    plan = planned(published(asking(healthy(brokers=3), {})))
    assert (plan.steps, plan.waits, plan.restarts, plan.refusals) == ((), (), {}, ())


def test_a_new_address_is_published_then_probed_then_advertised() -> None:
    """The order of an address change, with the reasons that people read."""
    situation = asking(healthy(brokers=2), {0: NEW})
    first = planned(published(situation))
    assert briefly(first.steps) == ["PublishAddress 0"]
    assert not first.restarts
    beside = published(situation, pointing(NEW, 0))
    asked = planned(beside)
    assert not asked.steps
    assert "new-0:9092 to reach broker-0 of this cluster (PLAINTEXT): it has not been probed yet" in waits(
        asked
    )
    verified = planned(reaching(beside, NEW, 0))
    assert verified.restarts[0].advertised == {LISTENER: NEW}
    assert verified.restarts[0].reason == (
        "its advertised address changes: PLAINTEXT broker-0:9092 -> new-0:9092"
    )


@pytest.mark.parametrize(
    ("found", "expected"),
    [
        (Reached(at_ms=NOW_MS, node_id=1, cluster_id=CLUSTER_ID), "node 1 answers there now"),
        (Reached(at_ms=NOW_MS, node_id=0, cluster_id="other"), "a node of another cluster (other) answers"),
        (Reached(at_ms=NOW_MS, error="no such host"), "nothing answers there now (no such host)"),
    ],
)
def test_a_name_that_leads_elsewhere_is_waited_for(found: Reached, expected: str) -> None:
    """A name of an external DNS is never published; the plan says what it reaches."""
    situation = asking(healthy(brokers=2), {0: NEW}, controlled=False).seeing(probes={NEW: found})
    plan = planned(situation)
    assert not plan.steps
    assert not plan.restarts
    assert expected in waits(plan)


def with_tokens_alone(situation: Situation) -> Situation:
    """Broker 0's listener accepts no password: the operator can't log in."""
    oauth = {"jwksSecretName": "keys", "issuer": "a", "audiences": ["b"]}
    sasl = {"mechanisms": ["OAUTHBEARER"], "oauth": oauth}
    named = {"name": LISTENER, "protocol": "SASL_SSL", "tls": {"secretName": "a"}, "sasl": sasl}
    return situation.asking_node(0, listeners=(BrokerListener.model_validate(named),))


def test_a_certificate_is_all_that_is_known_where_clients_have_tokens_alone() -> None:
    """An address changes though probes can't identify nodes."""
    moving = asking(healthy(brokers=2), {0: NEW}, controlled=False)
    responses = {NEW: Reached(at_ms=NOW_MS)}
    expected = "a node with a trusted certificate answers there, and does not report which one"
    assert expected in waits(planned(moving.seeing(probes=responses)))
    alone = with_tokens_alone(moving)
    assert planned(alone.seeing(probes=responses)).restarts[0].advertised == {LISTENER: NEW}
    silent = alone.seeing(probes={NEW: Reached(at_ms=NOW_MS, error="no such host")})
    assert not planned(silent).restarts
    assert "nothing answers there now (no such host)" in waits(planned(silent))
    assert planned(silent.down(0)).start_with[0] == {LISTENER: NEW}


def test_a_node_that_was_stopped_starts_with_what_is_published_for_it() -> None:
    """The start behind a restart advertises the new address."""
    down = published(asking(healthy(brokers=2), {0: NEW}), pointing(NEW, 0)).down(0)
    assert planned(down).start_with[0] == {LISTENER: NEW}


def test_a_node_that_died_before_its_new_name_led_to_it_starts_as_it_was() -> None:
    down = asking(healthy(brokers=2), {0: NEW}, controlled=False).down(0, NodeState.CRASHED)
    assert planned(down).start_with[0] == {LISTENER: old(0)}
    assert planned(reaching(down, NEW, 0)).start_with[0] == {LISTENER: NEW}


def renamed(situation: Situation) -> Situation:
    """Broker 0 advertises its new address, and is registered with it."""
    assert situation.observed.kafka is not None
    registrations = dict(situation.observed.kafka.registrations)
    registrations[0] = replace(registrations[0], endpoints={LISTENER: NEW})
    return situation.node(0, configured={LISTENER: NEW}).kafka(registrations=registrations)


def test_an_old_address_is_retired_when_nobody_is_told_it_and_withdrawn_after_its_window() -> None:
    situation = renamed(asking(healthy(brokers=2), {0: NEW}))
    assert briefly(planned(published(situation, pointing(NEW, 0))).steps) == ["RetireAddress 0"]
    retired = published(situation, pointing(NEW, 0), pointing(old(0), 0, retired_at_ms=NOW_MS))
    waiting = planned(retired)
    assert not waiting.steps
    assert waiting.waits[0].until_ms == NOW_MS + OVERLAP_MS
    assert briefly(planned(retired, NOW_MS + OVERLAP_MS).steps) == ["WithdrawAddress 0"]


def test_the_address_of_a_removed_listener_has_no_window() -> None:
    """No process serves it any more: clients that are led there would find nothing."""
    situation = published(healthy(brokers=2), replace(pointing(old(0), 0), listener="GONE", address=NEW))
    assert briefly(planned(situation).steps) == ["RetireAddress 0"]
    retired = pointing(old(0), 0, retired_at_ms=NOW_MS)
    situation = published(healthy(brokers=2), replace(retired, listener="GONE", address=NEW))
    assert briefly(planned(situation).steps) == ["WithdrawAddress 0"]


def test_clients_keep_an_old_address_for_three_windows_more() -> None:
    situation = renamed(asking(healthy(brokers=2), {0: NEW}))
    used = published(situation, pointing(NEW, 0), pointing(old(0), 0, retired_at_ms=NOW_MS, connections=2))
    plan = planned(used, NOW_MS + OVERLAP_MS)
    assert not plan.steps
    assert "2 connected" in waits(plan)
    assert plan.waits[0].until_ms == NOW_MS + 4 * OVERLAP_MS
    withdrawn = planned(used, NOW_MS + 4 * OVERLAP_MS).steps
    assert withdrawn[0].reason == "the window of broker-0's old address has passed, though 2 clients use it"


@pytest.mark.parametrize(
    "state", [NodeState.STARTING, NodeState.UNREADY, NodeState.STOPPED, NodeState.CRASHED]
)
def test_the_window_begins_when_the_node_serves_at_its_new_address(state: NodeState) -> None:
    """A broker registers, recovers its logs for longer than the window, and serves only then."""
    situation = renamed(asking(healthy(brokers=2), {0: NEW}))
    recovering = published(situation, pointing(NEW, 0)).node(0, state=state)
    plan = planned(recovering)
    assert plan.steps == ()
    assert "broker-0 to be ready, before its old address broker-0:9092 goes" in waits(plan)
    assert briefly(planned(recovering.node(0, state=NodeState.READY)).steps) == ["RetireAddress 0"]


def test_an_old_address_stays_while_its_node_is_away() -> None:
    """Clients that only have the old address get the new one when the node is back."""
    situation = renamed(asking(healthy(brokers=2), {0: NEW}))
    retired = published(situation, pointing(NEW, 0), pointing(old(0), 0, retired_at_ms=NOW_MS))
    away = retired.node(0, state=NodeState.STARTING)
    assert planned(away, NOW_MS + OVERLAP_MS).steps == ()
    assert briefly(planned(retired, NOW_MS + OVERLAP_MS).steps) == ["WithdrawAddress 0"]


def test_the_window_of_a_node_that_is_not_asked_for_needs_no_node() -> None:
    """Another node may be waiting for the address."""
    situation = published(asking(healthy(brokers=2), {}))
    assert situation.observed.kafka is not None
    left = situation.down(1).unregistered(1)
    gone = left.asking(nodes=tuple(node for node in left.desired.nodes if node.node_id != 1))
    assert briefly(planned(gone).steps) == ["RetireAddress 1"]


def test_without_a_leader_nothing_is_retired() -> None:
    situation = renamed(asking(healthy(brokers=2), {0: NEW}))
    assert not planned(published(situation, pointing(NEW, 0)).leaderless()).steps


def test_a_name_is_not_taken_over_inside_its_window() -> None:
    situation = renamed(asking(healthy(brokers=2), {0: NEW, 1: old(0)}))
    retired = published(situation, pointing(NEW, 0), pointing(old(0), 0, retired_at_ms=NOW_MS))
    plan = planned(retired, NOW_MS + OVERLAP_MS - 1)
    assert (plan.steps, plan.restarts) == ((), {})
    assert "broker-0:9092 to be free for broker-1 (PLAINTEXT): it was the address of broker-0" in waits(plan)
    assert briefly(planned(retired, NOW_MS + OVERLAP_MS).steps) == ["WithdrawAddress 0"]


def test_a_joining_node_is_held_back_while_its_name_is_anothers() -> None:
    situation = published(asking(healthy(brokers=2), {0: NEW, 1: old(0)}))
    assert situation.observed.kafka is not None
    new = situation.asking_node(1, interim={}).down(1, NodeState.ABSENT).unregistered(1)
    plan = planned(new.seeing(publications=(pointing(old(0), 0),)))
    assert "clients are sent there for broker-0" in plan.held_back[1].reason
    assert 1 not in plan.start_with


def rotation(nodes: int) -> dict[int, Address]:
    """Each broker is to have the name of the next one."""
    return {node_id: old((node_id + 1) % nodes) for node_id in range(nodes)}


@pytest.mark.parametrize(
    ("nodes", "aside"), [(2, {0}), (3, {0, 1}), (4, {0, 2}), (5, {0, 1, 3}), (6, {0, 2, 4})]
)
def test_every_other_node_of_a_cycle_goes_to_its_interim_name(nodes: int, aside: set[int]) -> None:
    plan = planned(published(asking(healthy(brokers=nodes), rotation(nodes))))
    assert {step.node_id for step in plan.steps} == aside
    assert {step.address for step in plan.steps} == {interim(node_id) for node_id in aside}


def test_the_restart_to_an_interim_name_says_why() -> None:
    situation = published(asking(healthy(brokers=2), rotation(2)), pointing(interim(0), 0))
    plan = planned(reaching(situation, interim(0), 0))
    assert plan.restarts[0].reason == (
        "its advertised address changes: PLAINTEXT broker-0:9092 -> interim-0:9092 (until broker-1:9092 is free)"
    )
    assert 1 not in plan.restarts


def test_an_exchange_without_interim_names_is_refused_and_the_rest_goes_on() -> None:
    situation = asking(healthy(brokers=3), {0: old(1), 1: old(0), 2: NEW})
    for node_id in range(3):
        situation = situation.asking_node(node_id, interim={})
    plan = planned(published(situation))
    assert [refusal.code for refusal in plan.refusals] == ["InterimHostMissing"]
    assert "listeners[].interimHost of PLAINTEXT" in plan.refusals[0].message
    assert briefly(plan.steps) == ["PublishAddress 2"]


def test_two_nodes_with_one_address_are_refused() -> None:
    plan = planned(published(asking(healthy(brokers=2), {0: NEW, 1: NEW})))
    assert plan.refusals[0].message.startswith(
        "new-0:9092 is the address of broker-0 (PLAINTEXT) and broker-1 (PLAINTEXT)"
    )
    assert (plan.steps, plan.restarts) == ((), {})
    assert plan.start_with == {
        0: {LISTENER: old(0)},
        1: {LISTENER: old(1)},
        **{node_id: {"CONTROLLER": Address(f"controller-{node_id}", 9092)} for node_id in (3000, 3001, 3002)},
    }


def test_a_chain_waits_and_needs_no_interim_name() -> None:
    plan = planned(published(asking(healthy(brokers=2), {0: old(1), 1: NEW})))
    assert briefly(plan.steps) == ["PublishAddress 1"]
    assert "clients are sent there for broker-1" in waits(plan)


def test_an_address_that_is_wanted_again_is_no_longer_retired() -> None:
    situation = renamed(asking(healthy(brokers=2), {}))
    retired = published(situation, pointing(NEW, 0), pointing(old(0), 0, retired_at_ms=NOW_MS))
    assert briefly(planned(retired).steps) == ["PublishAddress 0"]


def test_a_controller_shows_its_new_address_when_the_voter_set_has_it() -> None:
    """The roll continues when the quorum can find the node."""
    new = {"CONTROLLER": Address("new", 9093)}
    situation = healthy().node(3001, configured=new).registered(3001, Role.CONTROLLER)
    assert not shows_new_addresses(situation.observed, 3001)
    assert shows_new_addresses(situation.voter(3001, endpoints=new).observed, 3001)


CONTROLLER = {node_id: Address(f"controller-{node_id}", 9092) for node_id in (3001, 3002)}
"""What they have in a healthy cluster."""


def exchanged_without_leader() -> Situation:
    """3001 and 3002 are stopped, no leader answers, and they are to have each other's names, which others point."""
    situation = healthy()
    for node_id, other in ((3001, 3002), (3002, 3001)):
        situation = situation.asking_node(node_id, advertised={"CONTROLLER": CONTROLLER[other]})
        situation = situation.down(node_id, configured={"CONTROLLER": CONTROLLER[node_id]})
    return situation.leaderless()


def test_without_a_leader_a_stopped_controller_starts_as_it_ran_last() -> None:
    """Rule 3 where only stored verifications show the node of a name."""
    plan = planned(exchanged_without_leader())
    assert plan.start_with[3001] == {"CONTROLLER": CONTROLLER[3001]}
    assert plan.start_with[3002] == {"CONTROLLER": CONTROLLER[3002]}
    assert not plan.held_back


def test_without_a_leader_a_name_stays_with_the_stopped_node_that_had_it_last() -> None:
    situation = exchanged_without_leader().asking_node(3002, advertised={"CONTROLLER": Address("new", 9092)})
    plan = planned(reaching(situation, CONTROLLER[3002], 3001))
    assert plan.start_with[3001] == {"CONTROLLER": CONTROLLER[3001]}
    assert "controller-3002:9092 to be free for controller-3001 (CONTROLLER)" in waits(plan)


@pytest.mark.parametrize("state", [NodeState.READY, NodeState.STOPPED])
def test_what_two_nodes_were_started_with_is_not_taken_for_the_stopped_ones(state: NodeState) -> None:
    new = {"CONTROLLER": Address("new", 9092)}
    situation = exchanged_without_leader().asking_node(3002, advertised=new)
    situation = situation.node(3001, state=state, configured={"CONTROLLER": CONTROLLER[3002]})
    assert planned(situation).start_with[3002] == new


def test_a_leader_knows_better_than_what_was_written_down() -> None:
    new = Address("new", 9092)
    down = healthy().down(3001, configured={"CONTROLLER": new})
    assert planned(down).start_with[3001] == {"CONTROLLER": CONTROLLER[3001]}
    moving = down.asking_node(3001, advertised={"CONTROLLER": Address("newer", 9092)})
    assert planned(moving).start_with[3001] == {"CONTROLLER": CONTROLLER[3001]}
