"""Metadata transactions (KIP-868): what they hide until they end, and how they are undone."""

from typing import Any

import pytest
from quorate_protocol.image import ReplayError
from quorate_protocol.records.generated import (
    AbortTransactionRecord,
    BeginTransactionRecord,
    EndTransactionRecord,
)

BEGIN, END, ABORT = BeginTransactionRecord(name="bootstrap"), EndTransactionRecord(), AbortTransactionRecord()


def test_open_transaction_is_not_stable(log: Any, make: Any) -> None:
    log.append(make.acl(1))
    log.append(BEGIN, make.acl(2))
    log.append(make.acl(3))
    log.commit()
    assert log.image.transaction.begin_offset == 1
    assert log.image.transaction.name == "bootstrap"
    assert log.image.stable.end_offset == 1
    assert len(log.image.acls) == 3
    assert len(log.image.committed_copy().acls) == 1
    log.append(END)
    assert log.image.transaction is None
    assert len(log.image.committed_copy().acls) == 1, "the end is not committed yet"
    log.commit()
    assert log.image.stable.end_offset == log.image.end_offset
    assert len(log.image.committed_copy().acls) == 3


def test_abort_undoes_all_of_the_transaction(log: Any, make: Any) -> None:
    log.append(make.topic(1), make.partition(1, 0), make.config("a", "1"))
    log.commit()
    before = log.image.copy()
    log.append(BEGIN, make.config("a", "2"), make.change(1, 0, leader=2), make.topic(2))
    log.commit()
    log.append(make.partition(2, 0), make.acl(1))
    log.append(ABORT)
    assert log.image.same_as(before)
    assert log.image.transaction is None
    log.commit()
    assert log.image.same_as(before)
    assert log.image.stable.end_offset == log.image.end_offset


def test_lost_abort_brings_the_transaction_back(log: Any, make: Any) -> None:
    log.append(BEGIN, make.acl(1))
    log.commit()
    log.append(ABORT)
    assert len(log.image.acls) == 0
    log.image.revert_to(log.image.committed_end_offset)
    assert len(log.image.acls) == 1
    assert log.image.transaction is not None
    log.append(make.acl(2), END)
    log.commit()
    assert len(log.image.committed_copy().acls) == 2


def test_lost_begin_leaves_no_transaction(log: Any, make: Any) -> None:
    log.append(BEGIN, make.acl(1))
    log.image.revert_to(0)
    assert log.image.transaction is None
    log.append(BEGIN, make.acl(2), END)
    log.commit()
    assert len(log.image.committed_copy().acls) == 1


def test_snapshot_ends_with_a_batch(log: Any, make: Any) -> None:
    log.append(make.acl(1))
    log.append(make.acl(2), make.acl(3), BEGIN, make.acl(4))
    log.commit()
    assert log.image.stable.end_offset == 1
    assert len(log.image.committed_copy().acls) == 1
    log.append(ABORT)
    log.commit()
    assert len(log.image.committed_copy().acls) == 3


def test_transactions_that_meet_in_one_batch(log: Any, make: Any) -> None:
    log.append(make.acl(1))
    log.append(BEGIN, make.acl(2))
    log.append(END, BEGIN, make.acl(3))
    log.commit()
    assert log.image.stable.end_offset == 1
    assert len(log.image.committed_copy().acls) == 1


def test_whole_transaction_in_one_batch(log: Any, make: Any) -> None:
    log.append(BEGIN, make.feature(), END)
    log.commit()
    assert log.image.stable.end_offset == 3
    assert log.image.committed_copy().metadata_version == 30


def test_two_transactions_before_a_commit(log: Any, make: Any) -> None:
    ends = [
        log.append(BEGIN, make.acl(1)),
        log.append(END),
        log.append(BEGIN, make.acl(2)),
        log.append(make.acl(3)),
        log.append(ABORT),
    ]
    stable = []
    for end in ends:
        log.image.commit(end)
        stable.append((log.image.stable.end_offset, len(log.image.committed_copy().acls)))
    assert stable == [(0, 0), (ends[1], 1), (ends[1], 1), (ends[1], 1), (ends[4], 1)]


def test_nested_begin_is_refused(log: Any) -> None:
    log.append(BEGIN)
    with pytest.raises(ReplayError, match="the transaction at 0 was never closed"):
        log.append(BEGIN)
