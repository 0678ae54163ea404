"""Mistakes in the translation of raft's messages, and in which ACL a request needs."""

from __future__ import annotations

from typing import Final

from kit.planted_mistakes.mistake import Mistake

_SERVER: Final = "controller_node/quorate_controller/server"
_TESTS: Final = "unit/controller/server"

MISTAKES: Final = (
    Mistake(
        name="a Fetch without a high watermark knows the lowest",
        file=f"{_SERVER}/raft_wire/requests.py",
        edits=(
            (
                "high_watermark=None if known == HIGH_WATERMARK_UNSUPPORTED else known,",
                "high_watermark=known,",
            ),
        ),
        harm="Fetch requests of older releases are never held: a loop of empty answers",
        tests=(f"{_TESTS}/test_raft_wire.py",),
    ),
    Mistake(
        name="a pre-vote is taken for a vote",
        file=f"{_SERVER}/raft_wire/requests.py",
        edits=(("        pre_vote=partition.pre_vote,\n", "        pre_vote=False,\n"),),
        harm="a node that comes back deposes a good leader",
        tests=(f"{_TESTS}/test_raft_wire.py",),
    ),
    Mistake(
        name="the last epoch of a candidate's log is that of its candidacy",
        file=f"{_SERVER}/raft_wire/requests.py",
        edits=(
            ("last_offset_epoch=partition.last_offset_epoch,", "last_offset_epoch=partition.replica_epoch,"),
        ),
        harm="a candidate with an old log wins",
        tests=(f"{_TESTS}/test_raft_wire.py",),
    ),
    Mistake(
        name="successors without their directories",
        file=f"{_SERVER}/raft_wire/requests.py",
        edits=(("directory_id=candidate.candidate_directory_id)", "directory_id=None)"),),
        harm="a replica with a new disk stands at once in place of the one that was meant",
        tests=(f"{_TESTS}/test_raft_wire.py",),
    ),
    Mistake(
        name="a follower's last epoch is the leader's",
        file=f"{_SERVER}/raft_wire/requests.py",
        edits=(
            (
                "        last_fetched_epoch=partition.last_fetched_epoch,\n",
                "        last_fetched_epoch=partition.current_leader_epoch,\n",
            ),
        ),
        harm="a log that diverges is taken for a prefix",
        tests=(f"{_TESTS}/test_raft_wire.py",),
    ),
    Mistake(
        name="AddRaftVoter waits for the commit in any case",
        file=f"{_SERVER}/raft_wire/requests.py",
        edits=(
            (
                (
                    "endpoints=_endpoints(request.listeners),\n"
                    "                ack_when_committed=request.ack_when_committed,"
                ),
                "endpoints=_endpoints(request.listeners),",
            ),
        ),
        harm="a controller that joins by itself waits for a commit that needs its own Fetch",
        tests=(f"{_TESTS}/test_raft_wire.py",),
    ),
    Mistake(
        name="any client that may describe the cluster votes",
        file=f"{_SERVER}/authorization.py",
        edits=(("ApiKey.VOTE: AclOperation.CLUSTER_ACTION,", "ApiKey.VOTE: AclOperation.DESCRIBE,"),),
        harm="a client changes the epoch of the quorum",
        tests=(f"{_TESTS}/test_operations_of_kafka.py",),
    ),
    Mistake(
        name="UnregisterBroker needs no more than a broker has",
        file=f"{_SERVER}/authorization.py",
        edits=(
            (
                "ApiKey.UNREGISTER_BROKER: AclOperation.ALTER,",
                "ApiKey.UNREGISTER_BROKER: AclOperation.CLUSTER_ACTION,",
            ),
        ),
        harm="each broker can take out the others",
        tests=(f"{_TESTS}/test_operations_of_kafka.py",),
    ),
)
