"""What control relies on of raft and of the process's loggers: the same of the real ones and of the tests' own."""

import logging
from collections.abc import Callable, Iterator
from random import Random
from typing import Any
from uuid import UUID

import pytest
from kit.controller_parts import LoneQuorum
from quorate_controller.control.api import ControlError, QuorumPort
from quorate_controller.control.broker_loggers import Loggers
from quorate_controller.node.assembly import _QuorumOf
from quorate_controller.raft.events import Persisted, Role
from quorate_controller.raft.model import (
    BOOTSTRAP_SNAPSHOT_ID,
    Endpoint,
    ReplicaKey,
    VersionRange,
    Voter,
)
from quorate_controller.raft.node import RaftNode
from quorate_controller.raft.startup import HardState, KRaftVersionAt, LogState, RaftConfig, VotersAt
from quorate_controller.raft.voters import VoterSet
from quorate_controller.structured_logs import ProcessLoggers
from quorate_protocol.errors import ErrorCode

NODE_ID = 3000
LOGGER = "quorate.contract"
NOW_MS = 1_000_000


def real_quorum() -> QuorumPort:
    """Raft of the only voter of a dynamic quorum, which leads."""
    key = ReplicaKey(node_id=NODE_ID, directory_id=UUID(int=1))
    endpoints = (Endpoint(listener="CONTROLLER", host="h", port=9093),)
    voter = Voter(key=key, endpoints=endpoints, kraft_versions=VersionRange(lowest=0, highest=1))
    raft = RaftNode(
        config=RaftConfig(cluster_id="c", key=key, listener="CONTROLLER", endpoints=endpoints),
        hard_state=HardState(),
        log=LogState(
            snapshot_id=BOOTSTRAP_SNAPSHOT_ID,
            voters=(VotersAt(offset=-1, voters=VoterSet(voters=(voter,))),),
            kraft_versions=(KRaftVersionAt(offset=-1, kraft_version=1),),
        ),
        rng=Random(1),
    )
    raft.start(NOW_MS)
    raft.step(Persisted(end_offset=raft.log_end_offset), NOW_MS)
    assert raft.role is Role.LEADER
    return _QuorumOf(raft)


@pytest.fixture(params=["raft", "harness", "lone"])
def quorum(request: pytest.FixtureRequest, harness: Any) -> QuorumPort:
    """Each quorum that tests of control decide with."""
    made: dict[str, Callable[[], QuorumPort]] = {
        "raft": real_quorum,
        "harness": lambda: harness.quorum,
        "lone": LoneQuorum,
    }
    return made[request.param]()


def test_a_quorum_of_one(quorum: QuorumPort) -> None:
    """Leader and voters, and no way back from kraft.version 1."""
    assert (quorum.kraft_version, quorum.leader_id, quorum.voter_ids) == (1, NODE_ID, frozenset({NODE_ID}))
    quorum.check_kraft_upgrade(1)
    with pytest.raises(ControlError) as caught:
        quorum.check_kraft_upgrade(0)
    assert caught.value.error_code is ErrorCode.invalid_update_version


@pytest.fixture(params=["process", "harness"])
def loggers(request: pytest.FixtureRequest, harness: Any) -> Iterator[tuple[Loggers, str]]:
    """Each set of loggers, and the name of one that has no level of its own."""
    if request.param == "harness":
        yield harness.loggers, "kafka"
        return
    before = logging.root.level
    logging.getLogger(LOGGER).setLevel(logging.NOTSET)
    yield ProcessLoggers(), LOGGER
    logging.getLogger(LOGGER).setLevel(logging.NOTSET)
    logging.root.setLevel(before)


def test_levels_are_inherited(loggers: tuple[Loggers, str]) -> None:
    them, name = loggers
    for level in ("WARN", "ERROR"):
        them.set_level("root", level)
        assert (them.levels()["root"], them.levels()[name]) == (level, level)
    them.set_level(name, "DEBUG")
    assert (them.levels()["root"], them.levels()[name]) == ("ERROR", "DEBUG")
    them.set_level(name, None)
    assert them.levels()[name] == "ERROR"
