"""What is to be shipped, decided from two listings."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from quorate_controller.shipping.decision import FileFacts, Verdict, plan_shipments, verdict_on


def file(name: str, size_bytes: int = 10, modified_ns: int = 1) -> FileFacts:
    """A file in a listing."""
    return FileFacts(name=name, size_bytes=size_bytes, modified_ns=modified_ns)


def log(base_offset: int, size_bytes: int = 10, modified_ns: int = 1) -> FileFacts:
    """A segment."""
    return file(f"{base_offset:020d}.log", size_bytes, modified_ns)


def checkpoint(offset: int, size_bytes: int = 10, modified_ns: int = 1) -> FileFacts:
    """A checkpoint of epoch 3."""
    return file(f"{offset:020d}-0000000003.checkpoint", size_bytes, modified_ns)


OTHER_FILES = (
    file("00000000000000000000.index"),
    file("00000000000000000000.log.deleted"),
    file("00000000000000000050-0000000003.checkpoint.part"),
    file("00000000000000000040-0000000003.checkpoint.deleted"),
    file("leader-epoch-checkpoint"),
    file("quorum-state"),
    file("bootstrap.checkpoint"),
)


def test_closed_segments_and_checkpoints_go_in_the_order_in_which_they_will_be_deleted():
    source = (log(100), checkpoint(90), log(0), log(200), checkpoint(150), *OTHER_FILES)
    planned = plan_shipments(source, ())
    assert [shipment.file for shipment in planned] == [log(0), checkpoint(90), log(100), checkpoint(150)]
    assert not any(shipment.is_active or shipment.is_shipped for shipment in planned)


def test_the_active_segment_goes_when_it_is_asked_for():
    """The one with the highest base offset is active, and an empty one has nothing to ship."""
    (first, second) = plan_shipments((log(0), log(100)), (), include_active=True)
    assert (first.is_active, second.is_active) == (False, True)
    assert plan_shipments((log(0, size_bytes=0),), (), include_active=True) == ()


def test_what_was_shipped_is_left_alone_unless_it_looks_different():
    """A segment may be truncated and grow again under its name; a checkpoint never changes."""
    shipped = (log(0), checkpoint(90))
    assert plan_shipments((log(0), checkpoint(90, 11, 2), log(100)), shipped) == ()
    for changed in (log(0, size_bytes=11), log(0, modified_ns=2)):
        (only,) = plan_shipments((changed, log(100)), shipped)
        assert (only.file, only.is_shipped) == (changed, True)
        assert plan_shipments((changed, log(100)), shipped, settled={changed.name: changed}) == ()
        assert plan_shipments((changed, log(100)), shipped, settled={changed.name: log(0)}) == (only,)


@given(
    bases=st.sets(st.integers(0, 50), max_size=8),
    shipped=st.sets(st.integers(0, 50), max_size=8),
    ends=st.sets(st.integers(0, 50), max_size=8),
)
def test_a_second_round_has_nothing_to_do(bases: set[int], shipped: set[int], ends: set[int]):
    source = [*(log(base) for base in bases), *(checkpoint(end) for end in ends)]
    there = {log(base) for base in shipped}
    planned = plan_shipments(source, there)
    assert plan_shipments(source, there | {shipment.file for shipment in planned}) == ()
    closed = {log(base) for base in bases} - ({log(max(bases))} if bases else set())
    assert {shipment.file for shipment in planned} | there >= closed | {checkpoint(end) for end in ends}


@pytest.mark.parametrize(
    ("source", "shipped", "verdict"),
    [
        (b"abc", b"abc", Verdict.KEEP),
        (b"abc", b"abcd", Verdict.KEEP),
        (b"abcd", b"abc", Verdict.EXTEND),
        (b"abcd", b"", Verdict.EXTEND),
        (b"abX", b"abcd", Verdict.SUPERSEDE),
        (b"abXde", b"abcd", Verdict.SUPERSEDE),
    ],
)
def test_nothing_that_a_log_ever_had_is_lost(source: bytes, shipped: bytes, verdict: Verdict):
    common = next(
        (at for at, (byte, other) in enumerate(zip(source, shipped, strict=False)) if byte != other),
        min(len(source), len(shipped)),
    )
    found = verdict_on(common_bytes=common, source_bytes=len(source), shipped_bytes=len(shipped))
    assert found is verdict
