"""The simulation bites: each of a dozen mistakes, switched on, is found within a few seeds.

`pytest --log-cli-level=info` reports the seed and the invariant.
"""

from __future__ import annotations

import sys
from dataclasses import replace
from typing import TYPE_CHECKING

from kit.simulator.__main__ import main
from kit.simulator.checkpoints import Checkpoints
from kit.simulator.disk import SimulatedFile
from kit.simulator.planted import first_violation
from kit.simulator.shape import SHAPES, Schedule, Shape
from kit.simulator.wire import RELEASES
from quorate_controller.control import controller, partition_change, partitions, producer_ids
from quorate_controller.control.broker_transitions import PartitionTransitions
from quorate_controller.node import snapshotter
from quorate_controller.node.request_processor import RequestProcessor
from quorate_controller.node.turn import ControllerNode
from quorate_controller.raft import progress
from quorate_controller.raft.handlers import membership
from quorate_controller.raft.handlers.common import leader_state
from quorate_controller.raft.roles.leader import Leader
from quorate_controller.storage.controller_storage import ControllerStorage
from quorate_protocol.image import BrokerRegistration, MetadataImage, snapshot
from quorate_protocol.image.snapshot import write_checkpoint
from quorate_protocol.kafka.generated.describe_configs_response import DescribeConfigsResponse
from quorate_protocol.records.generated import AbortTransactionRecord, PartitionChangeRecord

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    import pytest
    from quorate_controller.control.api import ControlResult
    from quorate_controller.node.metadata import Waiter
    from quorate_controller.raft.replica import Replica
    from quorate_controller.raft.startup import HardState
    from quorate_protocol.image.partitions import PartitionRegistration
    from quorate_protocol.image.state import ImageState
    from quorate_protocol.kafka.generated.alter_partition_request import PartitionData


def test_finds_a_commit_without_a_majority(monkeypatch: pytest.MonkeyPatch) -> None:
    """A leader that counts itself alone is found."""

    def highest(end_offsets: Iterable[int | None]) -> int | None:
        return max((offset for offset in end_offsets if offset is not None), default=None)

    monkeypatch.setattr(progress, "majority_offset", highest)
    assert first_violation(Shape.of).name == "MajorityReachedHighWatermark"


def test_finds_a_vote_that_is_not_persisted(monkeypatch: pytest.MonkeyPatch) -> None:
    save = ControllerStorage.save_hard_state

    def forget_vote(storage: ControllerStorage, state: HardState, *, kraft_version: int) -> None:
        save(storage, replace(state, voted_key=None), kraft_version=kraft_version)

    monkeypatch.setattr(ControllerStorage, "save_hard_state", forget_vote)
    assert first_violation(Shape.storm, first=16).name == "SingleLeader"


def test_finds_a_reply_before_fsync(monkeypatch: pytest.MonkeyPatch) -> None:
    """Promising what a power failure still can take is found."""
    monkeypatch.setattr(ControllerStorage, "flush", lambda _: None)
    assert first_violation(Shape.of).name in {
        "MajorityReachedHighWatermark",
        "ConsistentCommittedData",
        "NoAcknowledgedRecordLost",
    }


def test_finds_a_commit_of_an_older_epoch(monkeypatch: pytest.MonkeyPatch) -> None:
    """To count replicas of an older epoch's records is found (Raft 5.4.2)."""
    advance = Leader.advance_high_watermark

    def advance_at_once(leader: Leader, replica: Replica) -> None:
        epoch_start_offset, leader.epoch_start_offset = leader.epoch_start_offset, -1
        advance(leader, replica)
        leader.epoch_start_offset = epoch_start_offset

    monkeypatch.setattr(Leader, "advance_high_watermark", advance_at_once)
    assert first_violation(SHAPES[Schedule.OLD_EPOCH.value]).name == "ConsistentCommittedData"


def test_finds_a_voter_change_before_the_first_commit_of_an_epoch(monkeypatch: pytest.MonkeyPatch) -> None:
    refusal = membership._change_refusal

    def without_fence(replica: Replica, verb: str) -> membership.Refusal | None:
        leader = leader_state(replica)
        high_watermark = leader.high_watermark
        leader.high_watermark = replica.high_watermark if high_watermark is None else high_watermark
        refused = refusal(replica, verb)
        leader.high_watermark = high_watermark
        return refused

    monkeypatch.setattr(membership, "_change_refusal", without_fence)
    assert first_violation(SHAPES[Schedule.RIVAL_CHANGES.value]).name == "ConsistentCommittedData"


def test_finds_two_voter_changes_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    refusal = membership._change_refusal

    def one_after_the_other(replica: Replica, verb: str) -> membership.Refusal | None:
        return refusal(replica, verb) if leader_state(replica).high_watermark is None else None

    monkeypatch.setattr(membership, "_change_refusal", one_after_the_other)
    assert first_violation(SHAPES[Schedule.DOUBLE_CHANGE.value]).name == "ConsistentCommittedData"


def test_finds_a_read_of_what_is_not_committed(monkeypatch: pytest.MonkeyPatch) -> None:
    respond = RequestProcessor.respond

    def respond_to_reads_at_once(
        requests: RequestProcessor, token: int, result: object, *requester: object
    ) -> None:
        if isinstance(result, DescribeConfigsResponse):
            requests._deliver(token, result)
        else:
            respond(requests, token, result, *requester)  # type: ignore[arg-type]

    monkeypatch.setattr(RequestProcessor, "respond", respond_to_reads_at_once)
    assert first_violation(Shape.of, first=25).name == "Linearizability"


def test_finds_an_answer_of_a_deposed_controller(monkeypatch: pytest.MonkeyPatch) -> None:
    release = ControllerNode._release

    def release_all(node: ControllerNode, waiters: Sequence[Waiter], _refusal: object) -> None:
        release(node, waiters, None)

    monkeypatch.setattr(ControllerNode, "_release", release_all)
    found = {"AcknowledgedIsCommitted", "Linearizability", "NoAcknowledgedRecordLost"}
    assert first_violation(Shape.of).name in found


def leave_out_voters(monkeypatch: pytest.MonkeyPatch) -> None:
    """Checkpoints have no VotersRecord: a controller that loads one knows no voters."""

    def without_voters(*args: object, **options: object) -> Iterable[bytes]:
        return write_checkpoint(*args, **(options | {"voters": None}))  # type: ignore[arg-type]

    monkeypatch.setattr(snapshotter, "write_checkpoint", without_voters)


def test_finds_checkpoints_without_their_voters(monkeypatch: pytest.MonkeyPatch) -> None:
    """A missing VotersRecord is found as soon as the checkpoint has its name."""
    leave_out_voters(monkeypatch)
    assert first_violation(Shape.of).name == "CheckpointHasQuorum"


def test_an_ended_cluster_is_a_failure(monkeypatch: pytest.MonkeyPatch) -> None:
    """A cluster that its controllers have ended counts as a failure, whatever they believe about their
    voters.
    """
    leave_out_voters(monkeypatch)
    monkeypatch.setattr(Checkpoints, "check", lambda *_: None)
    assert first_violation(Shape.of).name == "Liveness"


def test_an_ended_cluster_fails_the_command(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    leave_out_voters(monkeypatch)
    monkeypatch.setattr(Checkpoints, "check", lambda *_: None)
    monkeypatch.setattr(sys, "argv", ["kit.simulator", "--seeds", "2", "--jobs", "1"])
    assert main() == 1
    assert "Liveness: no progress in" in capsys.readouterr().out


def test_finds_a_checkpoint_that_lacks_a_change(monkeypatch: pytest.MonkeyPatch) -> None:
    config_records = snapshot._config_records

    def all_but_one(image: ImageState) -> Iterable[object]:
        return list(config_records(image))[:-1]

    monkeypatch.setattr(snapshot, "_config_records", all_but_one)
    assert first_violation(Shape.of).name == "CheckpointIsSame"


def test_finds_a_checkpoint_of_what_is_not_committed(monkeypatch: pytest.MonkeyPatch) -> None:
    def everything(image: MetadataImage) -> ImageState:
        copied = image.copy()
        copied.provenance = image.stable
        return copied

    monkeypatch.setattr(MetadataImage, "committed_copy", everything)
    assert first_violation(Shape.of).name == "CheckpointIsSame"


def test_finds_a_tail_that_a_failed_sync_has_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    """A log that takes for durable what only the page cache has is found."""
    monkeypatch.setattr(SimulatedFile, "rewrite_from", lambda _file, _position: None)
    assert first_violation(Shape.of).name in {"MajorityReachedHighWatermark", "OnlyDamageIsRefused"}


def test_finds_a_transaction_that_nobody_aborts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Decisions within a metadata transaction that another kind of leader has left open are found."""
    activate = controller.activation

    def without_abort(*args: object) -> ControlResult:
        result = activate(*args)  # type: ignore[arg-type]
        records = tuple(record for record in result.records if not isinstance(record, AbortTransactionRecord))
        return replace(result, records=records)

    monkeypatch.setattr(controller, "activation", without_abort)
    assert first_violation(Shape.of).name in {"Liveness", "NoUnforeseenError", "AcknowledgedIsCommitted"}


def test_finds_an_observer_that_reads_ahead(monkeypatch: pytest.MonkeyPatch) -> None:
    """A broker that gets what can be truncated is found (ADR 29)."""
    monkeypatch.setattr(Leader, "readable_end", lambda _leader, replica, _key: replica.log.end_offset)
    assert first_violation(Shape.of).name == "ObserverReadsCommitted"


def test_finds_producer_ids_that_are_given_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    allocate = producer_ids.ProducerIdManager.allocate_producer_ids

    def without_record(manager: producer_ids.ProducerIdManager, request: object) -> ControlResult:
        return replace(allocate(manager, request), records=())  # type: ignore[arg-type]

    monkeypatch.setattr(producer_ids.ProducerIdManager, "allocate_producer_ids", without_record)
    assert first_violation(Shape.of).name in {"ProducerIdsAreUnique", "AcknowledgedIsCommitted"}


def test_finds_a_leader_in_a_failed_directory(monkeypatch: pytest.MonkeyPatch) -> None:
    """A replica that leads without its directory is found (KIP-858)."""
    go_offline = PartitionTransitions.on_directories_offline

    def without_partitions(transitions: PartitionTransitions, *args: object) -> list[object]:
        records = go_offline(transitions, *args)  # type: ignore[arg-type]
        return [record for record in records if not isinstance(record, PartitionChangeRecord)]

    monkeypatch.setattr(PartitionTransitions, "on_directories_offline", without_partitions)
    assert first_violation(Shape.partitions).name == "InactiveLeadsNothing"


def test_finds_a_replica_on_a_cordoned_broker(monkeypatch: pytest.MonkeyPatch) -> None:
    """A placement where nothing new may be placed is found (KIP-1066)."""
    monkeypatch.setattr(BrokerRegistration, "has_uncordoned_directory", True)
    assert first_violation(Shape.partitions).name == "CordonedGetsNothing"


def test_finds_a_fenced_broker_that_keeps_a_partition(monkeypatch: pytest.MonkeyPatch) -> None:
    take_out = PartitionTransitions._take_out

    def all_but_one(transitions: PartitionTransitions, *args: object, **options: object) -> list[object]:
        records = take_out(transitions, *args, **options)  # type: ignore[arg-type]
        return records[:-1] if len(records) > 1 else records  # type: ignore[return-value]

    monkeypatch.setattr(PartitionTransitions, "_take_out", all_but_one)
    assert first_violation(Shape.partitions).name == "InactiveLeadsNothing"


def test_finds_a_partition_that_falls_between_two_slices(monkeypatch: pytest.MonkeyPatch) -> None:
    """What only large clusters would show is found where slices are small."""
    next_slice = PartitionTransitions._next_slice

    def one_less(transitions: PartitionTransitions, *args: object) -> tuple[list[object], bool]:
        found, is_last = next_slice(transitions, *args)  # type: ignore[arg-type]
        return (found if is_last else found[:-1]), is_last  # type: ignore[return-value]

    monkeypatch.setattr(PartitionTransitions, "_next_slice", one_less)
    assert first_violation(SHAPES["slices"]).name == "InactiveLeadsNothing"


def test_finds_a_transition_that_nobody_goes_on_with(monkeypatch: pytest.MonkeyPatch) -> None:
    """A change of controllers between two slices is found to lose the rest."""

    def of_three(seed: int) -> Shape:
        return replace(
            SHAPES["slices"](seed), voters=3, brokers=4, releases=(max(RELEASES),) * 3, drifts_ppm=(0,) * 3
        )

    monkeypatch.setattr(PartitionTransitions, "activate", lambda _transitions: None)
    assert first_violation(of_three, first=75).name == "InactiveLeadsNothing"


def test_finds_a_copy_that_may_have_lost_records(monkeypatch: pytest.MonkeyPatch) -> None:
    """An election that is clean by its records and loses acknowledged appends is found (KIP-966)."""
    monkeypatch.setattr(PartitionTransitions, "on_unclean_restart", PartitionTransitions.on_broker_fenced)
    assert first_violation(Shape.partitions, first=17).name == "AcknowledgedAppends"


def test_finds_a_stale_report_that_is_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    """An AlterPartition of a leader that knows an older state is found to be taken."""
    epoch_error = partitions._epoch_error

    def without_partition_epoch(
        broker_id: int, partition: PartitionRegistration, asked: PartitionData
    ) -> object:
        known = replace(asked, partition_epoch=partition.partition_epoch)
        return epoch_error(broker_id, partition, known)

    monkeypatch.setattr(partitions, "_epoch_error", without_partition_epoch)
    assert first_violation(Shape.partitions).name == "StaleAlterPartition"


def test_finds_a_reassignment_that_ends_too_early(monkeypatch: pytest.MonkeyPatch) -> None:
    """Old replicas that go before the new ones are in sync are found."""

    def complete_at_once(target: partition_change._Target) -> None:
        isr = tuple(replica for replica in target.isr if replica not in target.removing_replicas)
        if isr and (target.adding_replicas or target.removing_replicas):
            target.isr = isr
            target.replicas = tuple(
                replica for replica in target.replicas if replica not in target.removing_replicas
            )
            target.removing_replicas = target.adding_replicas = ()

    monkeypatch.setattr(partition_change, "_complete_reassignment", complete_at_once)
    assert first_violation(Shape.partitions).name == "ReassignmentInSync"


def test_finds_a_replica_that_may_not_join(monkeypatch: pytest.MonkeyPatch) -> None:
    """An ISR with a broker that is fenced, or that has restarted since its leader looked, is found."""
    monkeypatch.setattr(partitions.PartitionManager, "_may_join_isr", lambda _manager, _replica: True)
    assert first_violation(Shape.partitions).name in {
        "StaleAlterPartition",
        "ActiveMembers",
        "InactiveLeadsNothing",
    }


def test_finds_an_election_of_whoever_is_there(monkeypatch: pytest.MonkeyPatch) -> None:
    def anybody(
        target: partition_change._Target, _election: object, may_lead: Callable[[int], bool]
    ) -> int | None:
        leader = next(filter(may_lead, target.replicas), None)
        if leader is not None:
            target.isr = (leader, *(replica for replica in target.isr if replica != leader))
        return leader

    monkeypatch.setattr(partition_change, "_clean_leader", anybody)
    assert first_violation(Shape.partitions).name in {"CleanElection", "ActiveMembers"}


def test_finds_removed_replicas_in_the_elr(monkeypatch: pytest.MonkeyPatch) -> None:
    """A replica that was taken away and may be elected when it is back is found."""

    def update_elr(
        target: partition_change._Target,
        partition: PartitionRegistration,
        lost_replica: int | None,
        min_insync_replicas: int,
    ) -> None:
        eligible = {*target.elr, *partition.isr} - set(target.isr) - {lost_replica}
        target.elr = () if len(target.isr) >= min_insync_replicas else tuple(sorted(eligible))  # type: ignore[type-var]

    monkeypatch.setattr(partition_change, "_update_elr", update_elr)
    assert first_violation(Shape.partitions).name == "SanePartition"
