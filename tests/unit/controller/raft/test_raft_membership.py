"""Voters that come, go and change: AddRaftVoter, RemoveRaftVoter, UpdateRaftVoter (KIP-853)."""

from dataclasses import replace

import pytest
from quorate_controller.raft.events import FailureReason, Role, Tick
from quorate_controller.raft.messages import (
    AddRaftVoterRequest,
    AddRaftVoterResponse,
    ApiVersionsProbe,
    ApiVersionsProbeResponse,
    FetchRequest,
    FetchResponse,
    RemoveRaftVoterRequest,
    RemoveRaftVoterResponse,
    UpdateRaftVoterRequest,
    UpdateRaftVoterResponse,
)
from quorate_controller.raft.model import (
    BOOTSTRAP_SNAPSHOT_ID,
    Endpoint,
    OffsetAndEpoch,
    ReplicaKey,
    VersionRange,
)
from quorate_controller.raft.startup import KRaftVersionAt, VotersAt
from quorate_controller.raft.voters import VoterSet
from quorate_protocol.errors import ErrorCode
from quorate_protocol.records.batch import decode_batches
from quorate_protocol.records.control import VotersRecord, decode_control, encode_control_batch


def leading(lab, *voter_ids: int, is_committed: bool = True):
    """Node 1 leads epoch 2 of a quorum; the log ends at 11 and is committed."""
    node = lab.leader(log=lab.log(*(voter_ids or (1, 2, 3))))
    for voter_id in voter_ids or (1, 2, 3):
        if voter_id != 1 and is_committed:
            node.ask(lab.fetch(voter_id, 11))
    return node


def add(lab, node_id: int = 4, **changes: object) -> AddRaftVoterRequest:
    request = AddRaftVoterRequest(
        cluster_id=lab.cluster_id,
        timeout_ms=1000,
        voter=lab.key(node_id),
        endpoints=lab.endpoints(node_id),
    )
    return replace(request, **changes)  # type: ignore[arg-type]


def remove(lab, node_id: int) -> RemoveRaftVoterRequest:
    return RemoveRaftVoterRequest(cluster_id=lab.cluster_id, voter=lab.key(node_id))


def voters_in(result) -> tuple[int, ...]:
    (batch,) = decode_batches(result.appended)
    assert batch.is_control
    record = decode_control(batch.records[0])
    assert isinstance(record, VotersRecord)
    return VoterSet.from_record(record).ids


SUPPORTED = ApiVersionsProbeResponse(kraft_versions=VersionRange(lowest=0, highest=1))


def test_a_voter_is_probed_added_and_acknowledged_once_committed(lab) -> None:
    node = leading(lab)
    node.ask(lab.fetch(4, 11))
    response, result = node.ask(add(lab))
    assert response is None
    (probe,) = result.sends
    assert probe.request == ApiVersionsProbe()
    assert (probe.destination.node_id, probe.destination.port) == (4, 9004)
    result = node.respond(probe, SUPPORTED)
    assert voters_in(result) == (1, 2, 3, 4)
    assert node.node.voters.ids == (1, 2, 3, 4)
    assert not result.responses
    node.ask(lab.fetch(2, 12))
    assert node.node.high_watermark == 11
    _, result = node.ask(lab.fetch(4, 12))
    assert node.node.high_watermark == 12
    assert AddRaftVoterResponse() in [outgoing.response for outgoing in result.responses]


def test_a_new_voter_gets_the_record_that_makes_it_one(lab) -> None:
    """Its vote may be needed to commit the record, so it does not wait for the commit as observers do."""
    node = leading(lab)
    node.ask(lab.fetch(2, 11))
    node.ask(lab.fetch(4, 11))
    held, _ = node.ask(replace(lab.fetch(4, 11), max_wait_ms=500, high_watermark=11))
    assert held is None
    _, result = node.ask(add(lab))
    result = node.respond(result.sends[0], SUPPORTED)
    (outgoing,) = result.responses
    assert (outgoing.response.read.start_offset, outgoing.response.read.end_offset) == (11, 12)
    assert not outgoing.is_for_observer


def test_who_does_not_wait_is_answered_with_the_append(lab) -> None:
    """Ack_when_committed=False, as auto-joining nodes ask."""
    node = leading(lab)
    node.ask(lab.fetch(4, 11))
    _, result = node.ask(add(lab, ack_when_committed=False))
    result = node.respond(result.sends[0], SUPPORTED)
    assert [outgoing.response for outgoing in result.responses] == [AddRaftVoterResponse()]
    assert node.ask(add(lab, 5))[0].error_code is ErrorCode.request_timed_out


@pytest.mark.parametrize(
    ("probe_response", "error_code"),
    [
        (ApiVersionsProbeResponse(), ErrorCode.invalid_request),
        (
            ApiVersionsProbeResponse(kraft_versions=VersionRange(lowest=0, highest=0)),
            ErrorCode.invalid_request,
        ),
        (ApiVersionsProbeResponse(error_code=ErrorCode.unsupported_version), ErrorCode.request_timed_out),
        (SUPPORTED, ErrorCode.request_timed_out),
    ],
)
def test_an_unfit_voter_is_not_added(
    lab, probe_response: ApiVersionsProbeResponse, error_code: ErrorCode
) -> None:
    """Wrong versions, errors and lagging replicas are refused."""
    node = leading(lab)
    _, result = node.ask(add(lab))
    result = node.respond(result.sends[0], probe_response)
    (outgoing,) = result.responses
    assert outgoing.response.error_code is error_code
    assert outgoing.response.error_message
    assert not result.appended


def test_a_directory_whose_log_diverged_is_refused_as_such(lab) -> None:
    """After `rebuild-quorum`, an old disk with diverging records does not lag behind."""

    def ask_to_add():
        _, result = node.ask(add(lab))
        (outgoing,) = node.respond(result.sends[0], SUPPORTED).responses
        return outgoing.response

    node = leading(lab)
    ahead = lab.fetch(4, 500, epoch=1)
    response, _ = node.ask(ahead)
    assert response.diverging_epoch is not None
    assert "lagging behind" in ask_to_add().error_message, "it may be about to truncate"
    node.ask(ahead)
    refused = ask_to_add()
    assert refused.error_code is ErrorCode.invalid_request
    assert (
        "its log diverged from that of this quorum: it ends at offset 500 in epoch 1" in refused.error_message
    )
    node.ask(lab.fetch(4, 5, epoch=1))
    assert "lagging behind" in ask_to_add().error_message


def test_a_voter_that_just_failed_to_answer_is_not_probed_at_once(lab) -> None:
    """A client that repeats its request does not end the leader, which has one request to a node at a time."""
    node = leading(lab)
    _, result = node.ask(add(lab))
    node.fail(result.sends[0])
    response, result = node.ask(add(lab))
    assert response.error_code is ErrorCode.request_timed_out
    assert "is not ready to receive requests" in response.error_message
    assert not result.sends


def test_a_probe_that_is_answered_late_adds_nobody(lab) -> None:
    node = leading(lab)
    node.ask(lab.fetch(4, 11))
    _, result = node.ask(add(lab))
    (probe,) = result.sends
    node.ask(lab.fetch(2, 11))
    expired = node.step(Tick(), after_ms=lab.config(1).request_timeout_ms)
    assert [outgoing.response.error_code for outgoing in expired.responses] == [ErrorCode.request_timed_out]
    assert not node.respond(probe, SUPPORTED).appended
    assert node.node.voters.ids == (1, 2, 3)


def test_one_voter_is_probed_at_a_time(lab) -> None:
    node = leading(lab)
    node.ask(add(lab, 4))
    for request in (add(lab, 5), remove(lab, 3)):
        response, result = node.ask(request)
        assert response.error_code is ErrorCode.request_timed_out
        assert "previous voter change request" in response.error_message
        assert not result.sends


def test_a_voter_that_cannot_be_reached_is_not_added(lab) -> None:
    node = leading(lab)
    _, result = node.ask(add(lab))
    (outgoing,) = node.fail(result.sends[0], FailureReason.DISCONNECTED).responses
    assert outgoing.response.error_code is ErrorCode.request_timed_out
    assert outgoing.response.error_message.endswith("API_VERSIONS returned an error NETWORK_EXCEPTION")


def test_an_address_of_somebody_else_is_not_added(lab) -> None:
    """A voter set holds no wrong address (KIP-1242)."""
    node = leading(lab)
    _, result = node.ask(add(lab))
    (outgoing,) = node.fail(result.sends[0], FailureReason.MISROUTED).responses
    assert outgoing.response.error_code is ErrorCode.request_timed_out
    assert "answers at host4:9004" in outgoing.response.error_message
    assert node.node.voters.ids == (1, 2, 3)


def many_endpoints(lab, node_id: int, count: int) -> tuple[Endpoint, ...]:
    """The endpoint of a node, and others with a host of 32 kB."""
    others = (Endpoint(listener=f"L{number}", host="h" * 32_767, port=9) for number in range(count))
    return (*lab.endpoints(node_id), *others)


def test_voters_that_fit_no_record_are_refused(lab) -> None:
    node = leading(lab)
    response, result = node.ask(add(lab, endpoints=many_endpoints(lab, 4, 100)))
    assert response.error_code is ErrorCode.invalid_request
    assert response.error_message.startswith("The VotersRecord would have 32")
    assert response.error_message.endswith(" bytes, at most 2097152 are allowed")
    assert not result.sends
    response, result = node.ask(update(lab, 2, endpoints=many_endpoints(lab, 2, 100)))
    assert response.error_code is ErrorCode.invalid_request
    assert not result.appended
    response, result = node.ask(update(lab, 2, endpoints=many_endpoints(lab, 2, 3)))
    assert response.error_code is ErrorCode.none
    assert result.appended


def test_a_change_that_does_not_commit_times_out(lab) -> None:
    """The response is sent after the request timeout; the change stays in force."""
    node = leading(lab)
    response, _ = node.ask(remove(lab, 3))
    assert response is None
    result = node.wait(2000)
    assert [outgoing.response.error_code for outgoing in result.responses] == [ErrorCode.request_timed_out]
    assert node.node.voters.ids == (1, 2)


@pytest.mark.parametrize(
    ("changes", "error_code"),
    [
        ({"cluster_id": "other"}, ErrorCode.inconsistent_cluster_id),
        ({"voter": ReplicaKey(node_id=4)}, ErrorCode.invalid_request),
        ({"endpoints": (Endpoint(listener="OTHER", host="h", port=1),)}, ErrorCode.invalid_request),
        ({"endpoints": ()}, ErrorCode.invalid_request),
    ],
)
def test_flaws_of_an_add_request(lab, changes: dict[str, object], error_code: ErrorCode) -> None:
    response, result = leading(lab).ask(add(lab, **changes))
    assert response.error_code is error_code
    assert response.error_message
    assert not result.sends


def test_a_node_id_is_taken_once(lab) -> None:
    voter = ReplicaKey(node_id=3, directory_id=lab.directory(99))
    response, _ = leading(lab).ask(add(lab, 3, voter=voter))
    assert response.error_code is ErrorCode.duplicate_voter


def test_one_change_at_a_time(lab) -> None:
    node = leading(lab)
    node.ask(remove(lab, 3))
    for request in (add(lab), remove(lab, 2)):
        assert node.ask(request)[0].error_code is ErrorCode.request_timed_out
    node.wait(2000)
    assert node.ask(remove(lab, 2))[0].error_code is ErrorCode.request_timed_out
    node.ask(lab.fetch(2, 12))
    assert node.ask(remove(lab, 2))[0].error_code is ErrorCode.none
    assert node.node.voters.ids == (1,)


def test_no_change_before_the_epoch_is_committed(lab) -> None:
    node = leading(lab, is_committed=False)
    assert node.ask(add(lab))[0].error_code is ErrorCode.request_timed_out
    assert node.ask(remove(lab, 3))[0].error_code is ErrorCode.request_timed_out


def test_only_the_leader_changes_voters(lab) -> None:
    node = lab.node(1)
    node.start()
    assert node.ask(add(lab))[0].error_code is ErrorCode.not_leader_or_follower
    assert node.ask(remove(lab, 2))[0].error_code is ErrorCode.not_leader_or_follower


def test_a_voter_is_removed_by_the_majority_of_the_rest(lab) -> None:
    node = leading(lab)
    response, result = node.ask(remove(lab, 3))
    assert response is None
    assert voters_in(result) == (1, 2)
    _, result = node.ask(lab.fetch(2, 12))
    assert RemoveRaftVoterResponse() in [outgoing.response for outgoing in result.responses]
    observers = node.node.describe_quorum(node.now_ms).observers
    assert [(observer.key.node_id, observer.log_end_offset) for observer in observers] == [(3, 11)]


@pytest.mark.parametrize("voter", [ReplicaKey(node_id=9), ReplicaKey(node_id=3), ReplicaKey(node_id=-1)])
def test_only_an_exact_voter_is_removed(lab, voter: ReplicaKey) -> None:
    request = RemoveRaftVoterRequest(cluster_id=lab.cluster_id, voter=voter)
    assert leading(lab).ask(request)[0].error_code is ErrorCode.invalid_request
    stranger = ReplicaKey(node_id=3, directory_id=lab.directory(99))
    request = RemoveRaftVoterRequest(cluster_id=lab.cluster_id, voter=stranger)
    assert leading(lab).ask(request)[0].error_code is ErrorCode.voter_not_found


def test_failures_of_a_removed_voter_do_not_delay_its_successor(lab) -> None:
    node = leading(lab)
    peers = node.node._replica.peers
    for _ in range(8):
        peers.back_off(3, node.now_ms)
    assert peers.is_backing_off(3, node.now_ms)
    node.ask(remove(lab, 3))
    assert not peers.is_backing_off(3, node.now_ms)


def test_the_last_voter_stays(lab) -> None:
    node = lab.node(1, log=lab.formatted(1))
    node.start()
    assert node.ask(remove(lab, 1))[0].error_code is ErrorCode.voter_not_found


def test_a_removed_leader_resigns_once_that_is_committed(lab) -> None:
    """It leads until the others have its removal, without counting itself."""
    node = leading(lab)
    node.ask(remove(lab, 1))
    assert node.node.role is Role.LEADER
    assert not node.node.is_voter
    node.ask(lab.fetch(2, 12))
    assert node.node.high_watermark == 11
    _, result = node.ask(lab.fetch(3, 12))
    assert node.node.high_watermark == 12
    assert RemoveRaftVoterResponse() in [outgoing.response for outgoing in result.responses]
    assert node.node.role is Role.RESIGNED
    node.wait(2000)
    assert (node.node.role, node.node.epoch, node.node.leader_id) == (Role.UNATTACHED, 3, -1)
    node.wait(10_000)
    assert node.node.role is Role.UNATTACHED


def test_a_removed_replica_stands_while_its_removal_is_uncommitted(lab) -> None:
    log = lab.log(1, 2, 3)
    removed = replace(log, voters=(*log.voters, replace(log.voters[0], offset=9, voters=lab.voters(2, 3))))
    node = lab.node(1, log=removed)
    node.start()
    votes = node.wait_for_deadline().sends
    assert node.node.role is Role.PROSPECTIVE
    assert {send.destination.node_id for send in votes} == {2, 3}
    node = lab.node(1, log=replace(removed, voters=removed.voters[1:]))
    node.start()
    node.wait(5000)
    assert node.node.role is Role.UNATTACHED


@pytest.mark.parametrize("snapshot_id", [BOOTSTRAP_SNAPSHOT_ID, OffsetAndEpoch(epoch=1, offset=10)])
def test_a_voter_of_the_configuration_does_not_stand_against_a_checkpoint(
    lab, snapshot_id: OffsetAndEpoch
) -> None:
    """A node that its bootstrap checkpoint does not name, or that was removed before the last checkpoint, has
    no uncommitted removal to bring to the others.
    """
    log = lab.log(1, 2, 3, end=snapshot_id.offset, epochs=((1, 0),) if snapshot_id.offset else ())
    log = replace(
        log,
        snapshot_id=snapshot_id,
        voters=(VotersAt(offset=snapshot_id.offset - 1, voters=lab.voters(2, 3, 4)),),
        kraft_versions=(KRaftVersionAt(offset=snapshot_id.offset - 1, kraft_version=1),),
    )
    node = lab.node(1, log=log, static_voters=lab.static_voters(1, 2, 3))
    node.start()
    node.wait(5000)
    assert (node.node.role, node.node.epoch) == (Role.UNATTACHED, snapshot_id.epoch)


def test_truncation_brings_the_former_voters_back(lab) -> None:
    node = lab.node(1, log=lab.log(1, 2, 3))
    node.start()
    begin = lab.begin_epoch()
    send = node.ask(begin)[1].sends[-1]
    records = encode_control_batch([lab.voters(1, 2, 3, 4).to_record()], 10, 5, lab.start_ms)
    result = node.respond(send, FetchResponse(leader_id=2, leader_epoch=5, records=records))
    assert node.node.voters.ids == (1, 2, 3, 4)
    assert result.readies[0].voters == lab.voters(1, 2, 3, 4)
    begin = replace(begin, leader_id=3, leader_epoch=6, leader_endpoints=lab.endpoints(3))
    send = node.ask(begin)[1].sends[-1]
    diverging = FetchResponse(leader_id=3, leader_epoch=6, diverging_epoch=OffsetAndEpoch(epoch=1, offset=10))
    result = node.respond(send, diverging)
    assert result.truncated_to == [10]
    assert node.node.voters.ids == (1, 2, 3)
    assert node.node.voters_at(9) == lab.voters(1, 2, 3)


def test_a_removed_leader_needs_the_last_voter(lab) -> None:
    node = leading(lab, 1, 2)
    node.ask(remove(lab, 1))
    assert node.node.voters.ids == (2,)
    node.wait(3000)
    assert node.node.role is Role.RESIGNED


def update(lab, node_id: int = 2, **changes: object) -> UpdateRaftVoterRequest:
    request = UpdateRaftVoterRequest(
        cluster_id=lab.cluster_id,
        current_leader_epoch=2,
        voter=lab.key(node_id),
        endpoints=(Endpoint(listener=lab.listener, host="moved", port=1),),
        kraft_versions=VersionRange(lowest=0, highest=1),
    )
    return replace(request, **changes)  # type: ignore[arg-type]


def test_a_moved_voter_is_written_down(lab) -> None:
    node = leading(lab)
    response, result = node.ask(update(lab))
    assert (response.error_code, response.leader_id, response.leader_epoch) == (ErrorCode.none, 1, 2)
    assert voters_in(result) == (1, 2, 3)
    assert node.node.voters.endpoints(2)[0].host == "moved"
    node.ask(lab.fetch(3, 12))
    response, result = node.ask(update(lab))
    assert response.error_code is ErrorCode.none
    assert not result.appended


def test_a_voter_waits_to_be_updated_until_the_change_under_way_is_over(lab) -> None:
    probing, updated = leading(lab), leading(lab)
    probing.ask(add(lab))
    assert updated.ask(update(lab, 3))[0].error_code is ErrorCode.none
    for node in (probing, updated):
        response, result = node.ask(update(lab))
        assert response.error_code is ErrorCode.request_timed_out
        assert not result.appended
    updated.ask(lab.fetch(2, 12))
    assert updated.ask(update(lab))[0].error_code is ErrorCode.none


@pytest.mark.parametrize(
    ("changes", "error_code"),
    [
        ({"cluster_id": "other"}, ErrorCode.inconsistent_cluster_id),
        ({"current_leader_epoch": 1}, ErrorCode.fenced_leader_epoch),
        ({"current_leader_epoch": 3}, ErrorCode.unknown_leader_epoch),
        ({"voter": ReplicaKey(node_id=2)}, ErrorCode.invalid_request),
        ({"endpoints": ()}, ErrorCode.invalid_request),
        ({"kraft_versions": VersionRange(lowest=1, highest=0)}, ErrorCode.invalid_request),
        ({"kraft_versions": VersionRange(lowest=-1, highest=1)}, ErrorCode.invalid_request),
        ({"kraft_versions": VersionRange(lowest=0, highest=0)}, ErrorCode.invalid_request),
        ({"voter": ReplicaKey(node_id=9, directory_id=None)}, ErrorCode.invalid_request),
    ],
)
def test_flaws_of_an_update_request(lab, changes: dict[str, object], error_code: ErrorCode) -> None:
    response, result = leading(lab).ask(update(lab, **changes))
    assert response.error_code is error_code
    assert not result.appended


def test_only_voters_are_updated(lab) -> None:
    assert leading(lab).ask(update(lab, 4))[0].error_code is ErrorCode.voter_not_found


def test_a_follower_that_moved_tells_the_leader(lab) -> None:
    """UpdateRaftVoter one fetch timeout after following, again until the log agrees."""
    moved = (Endpoint(listener=lab.listener, host="moved", port=1),)
    node = lab.node(1, log=lab.log(1, 2, 3), endpoints=moved)
    node.start()
    begin = lab.begin_epoch()
    send = node.ask(begin)[1].sends[-1]
    response = FetchResponse(leader_id=2, leader_epoch=5, high_watermark=10)
    node.wait(1000)
    (send,) = node.respond(send, response).sends
    node.wait(1000)
    (send,) = node.respond(send, response).sends
    assert send.request == UpdateRaftVoterRequest(
        cluster_id=lab.cluster_id,
        current_leader_epoch=5,
        voter=lab.key(1),
        endpoints=moved,
        kraft_versions=VersionRange(lowest=0, highest=1),
    )
    result = node.respond(send, UpdateRaftVoterResponse(leader_id=2, leader_epoch=5))
    assert isinstance(result.sends[0].request, FetchRequest)


def test_a_leader_that_moved_writes_itself_down(lab) -> None:
    moved = (Endpoint(listener=lab.listener, host="moved", port=1),)
    node = lab.node(1, log=lab.log(1, 2, 3), endpoints=moved)
    node.start()
    result = node.become_leader()
    (batch,) = decode_batches(result.appended)
    assert len(batch.records) == 3
    assert node.node.voters.endpoints(1) == moved


def test_the_first_epoch_brings_the_bootstrap_voters_into_the_log(lab) -> None:
    """{LeaderChange, KRaftVersion, Voters} in one batch, as Kafka writes it."""
    node = lab.node(1)
    node.start()
    result = node.become_leader()
    (batch,) = decode_batches(result.appended)
    kinds = [type(decode_control(record)).__name__ for record in batch.records]
    assert kinds == ["LeaderChangeMessage", "KRaftVersionRecord", "VotersRecord"]
    assert node.node.voters_at(2) == lab.voters(1, 2, 3)
    assert node.node.kraft_version_at(2) == 1


def joining(lab, *, log, **config: object):
    node = lab.node(4, log=log, auto_join=True, **config)
    node.start()
    begin = lab.begin_epoch()
    send = node.ask(begin)[1].sends[-1]
    node.wait(1900)
    (send,) = node.respond(send, FetchResponse(leader_id=2, leader_epoch=5, high_watermark=10)).sends
    node.wait(200)
    return node, node.respond(send, FetchResponse(leader_id=2, leader_epoch=5, high_watermark=10)).sends[0]


def test_a_controller_joins_by_itself_only_if_told_to(lab) -> None:
    node, send = joining(lab, log=lab.log(1, 2, 3))
    assert send.request == AddRaftVoterRequest(
        cluster_id=lab.cluster_id,
        timeout_ms=2000,
        voter=lab.key(4),
        endpoints=lab.endpoints(4),
        ack_when_committed=False,
    )
    refused = AddRaftVoterResponse(error_code=ErrorCode.request_timed_out)
    assert 2 not in node.respond(send, refused).requests
    _, send = joining(lab, log=lab.log(1, 2, 3), can_vote=False)
    assert isinstance(send.request, FetchRequest)


def test_a_controller_with_a_new_disk_has_its_former_self_removed(lab) -> None:
    """Auto-join replaces a lost directory."""
    former = ReplicaKey(node_id=4, directory_id=lab.directory(99))
    voters = VoterSet.of([*lab.voters(1, 2, 3), replace(lab.voter(4), key=former)])
    log = lab.log(1, 2, 3)
    log = replace(log, voters=(replace(log.voters[0], voters=voters),))
    _, send = joining(lab, log=log)
    assert send.request == RemoveRaftVoterRequest(cluster_id=lab.cluster_id, voter=former)
