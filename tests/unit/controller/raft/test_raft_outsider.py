"""A controller that is in no voter set logs a warning with the voters that it knows, and the property to set."""

from dataclasses import replace

from quorate_controller.raft.events import FailureReason
from quorate_controller.raft.model import ReplicaKey
from quorate_controller.raft.node import WARN_AFTER_MS
from quorate_controller.raft.voters import VoterSet
from quorate_protocol.uuids import uuid_to_text


def warnings(node, duration_ms: int):
    """What is logged of it while no other controller can be reached."""
    found, end_ms, result = [], node.now_ms + duration_ms, node.start()
    while node.now_ms < end_ms:
        found += [note.facts for note in result.warnings if note.event == "not_a_voter"]
        for send in result.sends:
            node.fail(send, FailureReason.UNREACHABLE)
        result = node.wait_for_deadline()
    return found


def test_a_former_static_voter_with_bootstrap_servers_alone_names_the_property(lab):
    """The log says kraft.version 0, and the configuration names no voters."""
    log = replace(lab.log(1, 2, 3), voters=(), kraft_versions=())
    (facts,) = warnings(lab.node(1, log=log), 10 * WARN_AFTER_MS)
    assert facts["replica"] == str(lab.key(1))
    assert (facts["voters"], facts["kraft_version"], facts["leader_id"]) == ([], 0, -1)
    assert "set controller.quorum.voters as on the other controllers, with node 1" in facts["advice"]


def test_a_directory_that_lost_its_id_names_the_old_one(lab):
    """meta.properties had no directory.id, and the node made another one."""
    key = ReplicaKey(node_id=1, directory_id=lab.directory(9))
    (facts,) = warnings(lab.node(1, key=key, log=lab.log(1, 2, 3)), 10 * WARN_AFTER_MS)
    assert facts["replica"] == str(key)
    assert facts["voters"] == [str(lab.key(node_id)) for node_id in (1, 2, 3)]
    assert f"set directory.id={uuid_to_text(lab.directory(1))} in meta.properties" in facts["advice"]


def test_an_observer_that_finds_no_leader_names_its_bootstrap_servers(lab):
    """Its log is empty: it knows no voters."""
    log = replace(lab.log(), voters=(), kraft_versions=(), end_offset=0, epochs=())
    (facts,) = warnings(lab.node(4, log=log), 10 * WARN_AFTER_MS)
    assert facts["advice"].endswith("controller.quorum.bootstrap.servers=bootstrap:9999")


def test_an_observer_of_a_dynamic_quorum_can_be_added(lab):
    """It has the log, and is in none of its voter sets."""
    (facts,) = warnings(lab.node(4, log=lab.log(1, 2, 3)), 10 * WARN_AFTER_MS)
    assert "add-controller" in facts["advice"]


def test_voters_and_nodes_that_cannot_vote_are_quiet(lab):
    """A voter without a leader has other problems; a broker is an observer for good."""
    assert warnings(lab.node(1, log=lab.log(1, 2, 3)), 3 * WARN_AFTER_MS) == []
    assert warnings(lab.node(4, log=lab.log(1, 2, 3), can_vote=False), 3 * WARN_AFTER_MS) == []


def test_a_short_time_outside_is_no_warning(lab):
    """A controller that is about to join learns the voters first."""
    node = lab.node(4, log=replace(lab.log(1), voters=()), static_voters=VoterSet())
    assert warnings(node, WARN_AFTER_MS - 1_000) == []
