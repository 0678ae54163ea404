"""Bits that turn in the files of a node while it is down: it refuses to run, or loses nothing that it has to keep."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from kit.simulator.__main__ import attempts
from kit.simulator.coverage import Happening
from kit.simulator.planted import first_violation
from kit.simulator.shape import Shape
from quorate_controller.storage import log, segment
from quorate_controller.storage.batch_spans import read_spans

if TYPE_CHECKING:
    from collections.abc import Iterator

    import pytest
    from quorate_controller.storage.batch_spans import BatchSpan

SEEDS = range(1, 21)


def test_a_damaged_node_refuses_to_run() -> None:
    results = list(attempts(SEEDS, 1, Shape.rotten))
    failures = [result.failure for result in results if result.failure]
    assert not failures, "\n".join(failures)
    counts: Counter[Happening] = Counter()
    for result in results:
        counts.update(result.counts)
    assert counts[Happening.ROT_REFUSED] > 5


def test_finds_a_log_that_is_read_without_its_checksums(monkeypatch: pytest.MonkeyPatch) -> None:
    def unchecked(*args: object, **options: object) -> Iterator[BatchSpan]:
        return read_spans(*args, **(options | {"check_crc": False}))  # type: ignore[arg-type]

    monkeypatch.setattr(segment, "read_spans", unchecked)
    found = {"ConsistentCommittedData", "Liveness", "MajorityReachedHighWatermark", "SameImages"}
    assert first_violation(Shape.rotten).name in found


def test_finds_a_log_whose_epochs_are_believed(monkeypatch: pytest.MonkeyPatch) -> None:
    """A log that ends in a higher epoch by damage alone is found: it wins elections, or can't take part in
    one.
    """
    monkeypatch.setattr(log, "settle_leader_epochs", lambda *_: None)
    assert first_violation(Shape.rotten).name in {"ConsistentCommittedData", "Liveness"}


def test_finds_a_log_that_is_cut_off_at_any_damage(monkeypatch: pytest.MonkeyPatch) -> None:
    """A node that forgets what it promised is found, although no node misses it."""
    monkeypatch.setattr(segment.Segment, "batch_behind_damage", lambda _segment, _size_bytes: None)
    monkeypatch.setattr(
        log.MetadataLog,
        "_recover_segment",
        lambda self, base_offset, last, _durable, recover=log.MetadataLog._recover_segment: recover(
            self, base_offset, last, 0
        ),
    )
    assert first_violation(Shape.rotten).name == "OnlyTornEnds"
