"""Undo, deltas and committed copies: what an image does beyond replaying."""

from typing import Any
from uuid import UUID

import pytest
from quorate_protocol.image import ImageState, Provenance, ReplayError
from quorate_protocol.image.snapshot import image_to_records
from quorate_protocol.records import generated as records


def contents(image: ImageState) -> list[Any]:
    return list(image_to_records(image, 33))


def test_revert_undoes_what_is_not_committed(log: Any, make: Any) -> None:
    log.append(make.topic(1), make.partition(1, 0), make.config("a", "1"))
    log.commit()
    before = contents(log.image)
    log.append(make.broker(1), make.config("a", "2"), make.change(1, 0, leader=2))
    log.append(records.RemoveTopicRecord(topic_id=make.topic_id(1)), make.topic(2, "topic-1"))
    log.append(make.partition(2, 0))
    log.image.revert_to(log.image.committed_end_offset)
    assert contents(log.image) == before
    assert log.image.end_offset == 3
    assert log.image.provenance == Provenance(end_offset=3, epoch=1, timestamp_ms=0)


def test_revert_to_a_batch_in_between(log: Any, make: Any) -> None:
    log.append(make.acl(1))
    middle = log.append(make.acl(2))
    log.append(make.acl(3))
    log.image.revert_to(middle)
    assert len(log.image.acls) == 2
    assert log.image.provenance.end_offset == middle
    log.append(make.acl(4))
    assert UUID(int=0x4004) in log.image.acls


def test_revert_of_a_decision_whose_batch_is_not_complete(log: Any, make: Any) -> None:
    log.append(make.acl(1))
    log.commit()
    log.image.replay(make.acl(2), 1)
    assert log.image.end_offset == 2
    assert log.image.provenance.end_offset == 1
    log.image.revert_to(1)
    assert len(log.image.acls) == 1
    assert log.image.end_offset == 1


def test_committed_records_cannot_be_reverted(log: Any, make: Any) -> None:
    """Going below the high watermark is a bug of ours."""
    log.append(make.acl(1))
    log.commit()
    with pytest.raises(AssertionError):
        log.image.revert_to(0)
    with pytest.raises(AssertionError):
        log.image.commit(0)
    with pytest.raises(AssertionError):
        log.image.commit(2)


def test_committing_empties_the_journal(log: Any, make: Any) -> None:
    journal = log.image._journal
    first = log.append(make.acl(1), make.acl(2))
    log.append(make.acl(3))
    assert len(journal) == 3
    log.image.commit(first)
    assert len(journal) == 1
    log.commit()
    assert len(journal) == 0
    assert not log.image._batch_ends


def test_control_records_leave_gaps(log: Any, make: Any) -> None:
    """Offsets of control batches are skipped, but a snapshot may end behind one."""
    log.append(make.acl(1))
    log.image.advance(end_offset=4, epoch=2, timestamp_ms=77)
    log.commit()
    assert log.image.stable == Provenance(end_offset=4, epoch=2, timestamp_ms=77)
    log.append(make.acl(2))
    assert log.image.end_offset == 5


def test_committed_copy_stays_while_the_image_goes_on(log: Any, make: Any) -> None:
    log.append(make.feature(), make.topic(1), make.partition(1, 0), make.topic(2), make.partition(2, 0))
    log.commit()
    expected = contents(log.image)
    log.append(make.change(1, 0, leader=3), make.topic(3))
    copied = log.image.committed_copy()
    assert copied.provenance == log.image.stable
    assert contents(copied) == expected
    log.append(make.change(1, 0, leader=2), make.change(2, 0, leader=2), make.partition(3, 0))
    log.append(records.RemoveTopicRecord(topic_id=make.topic_id(2)))
    log.commit()
    assert contents(copied) == expected
    assert contents(log.image) != expected


def test_committed_copy_leaves_the_image_alone(log: Any, make: Any) -> None:
    log.append(make.topic(1), make.partition(1, 0))
    log.commit()
    log.append(make.change(1, 0, replicas=(4, 5)), make.partition(1, 1))
    before = contents(log.image)
    log.image.committed_copy()
    assert contents(log.image) == before
    topics = [list(log.image.index.topics_of_broker(number)) for number in range(1, 6)]
    assert topics == [["topic-1"]] * 5


def test_restore_replaces_everything(log: Any, make: Any) -> None:
    log.append(make.topic(1), make.partition(1, 0), make.acl(1))
    log.image.restore(
        [make.feature(), make.topic(2), make.partition(2, 0, (7,))],
        Provenance(end_offset=500, epoch=9, timestamp_ms=1),
    )
    assert set(log.image.topics.by_name) == {"topic-2"}
    assert log.image.acls == {}
    assert list(log.image.index.topics_of_broker(1)) == []
    assert list(log.image.index.topics_of_broker(7)) == ["topic-2"]
    assert log.image.end_offset == log.image.committed_end_offset == 500
    log.append(make.partition(2, 1, (7,)))
    log.image.revert_to(500)
    assert log.image.index.num_partitions == 1
    assert log.image.stable.epoch == 9


def test_restore_refuses_bad_records(log: Any, make: Any) -> None:
    log.append(make.acl(1))
    with pytest.raises(ReplayError, match=r"PartitionRecord.* at offset 1: no such topic"):
        log.image.restore([make.topic(2), make.partition(1, 0)], Provenance(end_offset=9))
    with pytest.raises(ReplayError, match=r"BeginTransactionRecord.* a snapshot can't contain it"):
        log.image.restore([records.BeginTransactionRecord()], Provenance(end_offset=9))
    assert len(log.image.acls) == 1
    assert log.image.end_offset == 1
