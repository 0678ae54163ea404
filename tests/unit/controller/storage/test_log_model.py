"""The metadata log against a list of batches, with power losses at any operation."""

from dataclasses import dataclass
from pathlib import Path
from random import Random

from hypothesis import given, settings
from hypothesis import strategies as st
from quorate_controller.storage.log import LogConfig, MetadataLog
from quorate_protocol.records.batch import scan_batches

DIRECTORY = Path("/disk/__cluster_metadata-0")
CONFIG = LogConfig(segment_bytes=900, index_interval_bytes=150)


@dataclass(frozen=True)
class Batch:
    """One batch as the model knows it."""

    start: int
    end: int
    epoch: int
    data: bytes


class Model:
    """What the log must hold, and up to which offset a crash must not take it away."""

    def __init__(self) -> None:
        self.batches: list[Batch] = []
        self.start = 0
        self.durable_end = 0

    @property
    def end(self) -> int:
        return self.batches[-1].end if self.batches else self.start

    def truncate(self, offset: int) -> None:
        self.batches = [batch for batch in self.batches if batch.end <= offset]
        self.durable_end = min(self.durable_end, self.end)


def check(log: MetadataLog, model: Model, rng: Random) -> None:
    """The log gives the model's batches, whole and in order, from and to random offsets."""
    assert (log.start_offset, log.end_offset) == (model.start, model.end)
    first, last = sorted(rng.randint(model.start, model.end) for _ in range(2))
    size_bytes_max = rng.choice((1, 100, 500, 100_000))
    data = log.read(first, size_bytes_max, last)
    expected = [batch for batch in model.batches if batch.end > first and batch.end <= last]
    got = [header.base_offset for header in scan_batches(data, check_crc=True)]
    assert got == [batch.start for batch in expected[: len(got)]]
    assert got or not expected
    assert len(got) <= 1 or len(data) <= size_bytes_max
    epochs: list[tuple[int, int]] = []
    for batch in model.batches:
        if not epochs or batch.epoch > epochs[-1][0]:
            epochs.append((batch.epoch, max(batch.start, model.start)))
    known = [(entry.epoch, entry.start_offset) for entry in log.epochs]
    assert known == [entry for entry in epochs if entry[1] < model.end]


def survivors(model: Model, log: MetadataLog) -> None:
    """After a crash: everything durable is there, and the rest is a prefix of what was appended.

    The bound may lie inside of a batch that a truncation was about to drop.
    """
    boundary = max(
        (batch.end for batch in model.batches if batch.end <= model.durable_end), default=model.start
    )
    assert boundary <= log.end_offset <= model.end
    model.truncate(log.end_offset)
    assert model.end == log.end_offset
    model.durable_end = model.end


@settings(max_examples=150, deadline=None)
@given(seed=st.integers(0, 2**32), steps=st.integers(5, 60))
def test_log_agrees_with_a_model_through_power_losses(
    make_batches, new_crash_disk, power_loss, seed: int, steps: int
):
    """Random appends, flushes, truncations and restarts; power goes at a random operation now and then."""
    disk = new_crash_disk()
    rng = Random(seed)
    model = Model()
    epoch = 1
    log = MetadataLog.open(disk, DIRECTORY, CONFIG)
    for _ in range(steps):
        if rng.random() < 0.15:
            disk.power_loss_in = rng.randint(0, 12)
        step = rng.random()
        cut = rng.randint(model.start, model.end)
        try:
            if step < 0.5:
                epoch += rng.random() < 0.2
                records = rng.randint(1, 3)
                data = b""
                for _ in range(rng.randint(1, 4)):
                    batch = make_batches(
                        model.end, 1, epoch=epoch, records=records, size_bytes=rng.randint(1, 90)
                    )
                    model.batches.append(Batch(model.end, model.end + records, epoch, batch))
                    data += batch
                log.append(data)
            elif step < 0.75:
                log.flush()
                model.durable_end = model.end
            elif step < 0.85:
                # Recorded before it is done: a truncation that the crash interrupts may be undone or not.
                model.durable_end = min(model.durable_end, cut)
                log.truncate_to(cut)
                model.truncate(cut)
            elif step < 0.95:
                log.close()
                model.durable_end = model.end
                log = MetadataLog.open(disk, DIRECTORY, CONFIG)
            elif step < 0.98:
                # The process dies, the machine does not: what the next one finds, it must be able to rely on.
                log = MetadataLog.open(disk, DIRECTORY, CONFIG)
                model.durable_end = model.end
            else:
                disk.power_loss_in = 0
                disk.tick()
        except power_loss:
            disk.restart(rng)
            log = MetadataLog.open(disk, DIRECTORY, CONFIG)
            survivors(model, log)
            continue
        check(log, model, rng)


@settings(max_examples=100, deadline=None)
@given(seed=st.integers(0, 2**32))
def test_retention_and_reset_survive_power_losses(make_batches, new_crash_disk, power_loss, seed: int):
    """Power goes while old segments are deleted, or all of them: the log opens, without a gap."""
    disk = new_crash_disk()
    rng = Random(seed)
    log = MetadataLog.open(disk, DIRECTORY, CONFIG)
    for start in range(60):
        log.append(make_batches(start, 1))
    log.flush()
    offset = rng.randint(1, 60)
    is_reset = rng.random() < 0.5
    disk.power_loss_in = rng.randint(0, 60)
    try:
        if is_reset:
            log.reset_to(offset)
        else:
            log.advance_start(offset)
    except power_loss:
        pass
    disk.restart(rng)
    log = MetadataLog.open(disk, DIRECTORY, CONFIG)
    if is_reset:
        assert log.end_offset <= 60
        return
    assert log.start_offset <= offset
    assert log.end_offset == 60
    assert len(list(scan_batches(log.read(59, 1), check_crc=True))) == 1
