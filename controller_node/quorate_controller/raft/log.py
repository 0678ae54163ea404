"""The metadata of the log that raft needs: start, end, epochs by offset (`LogMetadata`), and the voter set and
kraft.version in force at each offset (`VoterHistory`, KIP-853).

The last control record in the log is in force, committed or not; truncation restores the one before.
"""

from bisect import bisect_right
from typing import Generic, TypeVar

from quorate_protocol.plain_data import dataclass

from quorate_controller.raft.model import BOOTSTRAP_SNAPSHOT_ID, OffsetAndEpoch, RaftSafetyError, SnapshotId
from quorate_controller.raft.startup import KRAFT_VERSION_STATIC, EpochStart, LogState
from quorate_controller.raft.voters import VoterSet


@dataclass(frozen=True, slots=True, kw_only=True)
class FetchPosition:
    """Whether a follower's log is a prefix of ours (both None), or what it must truncate to or load first."""

    diverging_epoch: OffsetAndEpoch | None = None
    snapshot_id: SnapshotId | None = None

    @property
    def is_valid(self) -> bool:
        return self.diverging_epoch is None and self.snapshot_id is None


class LogMetadata:
    """Offsets and epochs of the log; the records are the driver's.

    `persisted_offset` is how far the log is known to be durable. The first epoch entry may begin below the
    log's start: it then is the epoch of the snapshot there.
    """

    __slots__ = (
        "_epochs",
        "earliest_snapshot_id",
        "end_offset",
        "persisted_offset",
        "snapshot_id",
        "start_offset",
    )

    def __init__(self, state: LogState) -> None:
        if state.start_offset > state.end_offset:
            raise RaftSafetyError(f"the log starts at {state.start_offset} and ends at {state.end_offset}")
        self.start_offset = state.start_offset
        self.end_offset = state.end_offset
        self.persisted_offset = state.end_offset
        self.snapshot_id = state.snapshot_id
        self.earliest_snapshot_id = state.earliest_snapshot_id or state.snapshot_id
        self._epochs = [epoch for epoch in state.epochs if epoch.start_offset < state.end_offset]
        earliest = self.earliest_snapshot_id
        if state.start_offset > 0:
            if earliest is None:
                raise RaftSafetyError(f"a log that starts at {state.start_offset} needs a snapshot")
            self._base_on(earliest)

    def _base_on(self, snapshot_id: SnapshotId) -> None:
        """Make the epoch of the snapshot at the log's start the first entry, which begins within the snapshot."""
        base = EpochStart(epoch=snapshot_id.epoch, start_offset=snapshot_id.offset - 1)
        if not self._epochs or self._epochs[0].epoch > base.epoch:
            self._epochs.insert(0, base)
        elif self._epochs[0].start_offset > base.start_offset:
            self._epochs[0] = base

    @property
    def last_epoch(self) -> int:
        """Epoch of the last record in log or snapshot; 0 for an empty log."""
        return self._epochs[-1].epoch if self._epochs else 0

    @property
    def last(self) -> OffsetAndEpoch:
        """The end offset and the last epoch of the log, by which candidates are compared."""
        return OffsetAndEpoch(epoch=self.last_epoch, offset=self.end_offset)

    def epoch_at(self, offset: int) -> int:
        """The epoch of the record at `offset`, which is in the log or the last one before it."""
        if not self.start_offset - 1 <= offset < self.end_offset:
            raise RaftSafetyError(f"{offset} is not in the log, {self.start_offset} to {self.end_offset}")
        index = bisect_right(self._epochs, offset, key=lambda entry: entry.start_offset)
        return self._epochs[index - 1].epoch if index else 0

    def append(self, *, base_offset: int, last_offset: int, epoch: int) -> None:
        """Record a batch at the end of the log."""
        if base_offset != self.end_offset:
            raise RaftSafetyError(f"a batch at {base_offset} is appended at the end offset {self.end_offset}")
        if last_offset < base_offset:
            raise RaftSafetyError(f"a batch goes from {base_offset} to {last_offset}")
        if epoch < self.last_epoch:
            raise RaftSafetyError(f"a batch of epoch {epoch} is appended after epoch {self.last_epoch}")
        if epoch > self.last_epoch:
            self._epochs.append(EpochStart(epoch=epoch, start_offset=base_offset))
        self.end_offset = last_offset + 1

    def persisted(self, end_offset: int) -> None:
        if end_offset > self.end_offset:
            raise RaftSafetyError(f"{end_offset} is durable, but was never appended: {self.end_offset}")
        self.persisted_offset = max(self.persisted_offset, end_offset)

    def end_offset_for_epoch(self, epoch: int) -> OffsetAndEpoch:
        """The largest epoch in the log that is not above `epoch`, and its end offset."""
        index = bisect_right(self._epochs, epoch, key=lambda entry: entry.epoch)
        if not self._epochs or (index == len(self._epochs) and epoch != self.last_epoch):
            return self.last
        floor_epoch = self._epochs[index - 1].epoch if index else epoch
        end = self.end_offset if index == len(self._epochs) else self._epochs[index].start_offset
        end = max(end, self.start_offset)
        earliest = self.earliest_snapshot_id
        if earliest is not None and end == earliest.offset and floor_epoch == epoch:
            return earliest
        return OffsetAndEpoch(epoch=floor_epoch, offset=end)

    def validate(self, fetch_offset: int, last_fetched_epoch: int) -> FetchPosition:
        """Compare a follower's log, which ends at `fetch_offset` in that epoch, with ours (KIP-595, KIP-630).

        A replica with an empty log fetches the latest snapshot, because loading it is faster than replaying.
        """
        snapshot_id = self.snapshot_id
        if fetch_offset == 0 and snapshot_id is not None and snapshot_id != BOOTSTRAP_SNAPSHOT_ID:
            return FetchPosition(snapshot_id=snapshot_id)
        if fetch_offset == 0 and self.start_offset == 0:
            return FetchPosition()
        earliest = self.earliest_snapshot_id
        if earliest is not None and (
            fetch_offset < self.start_offset
            or (fetch_offset == self.start_offset and last_fetched_epoch != earliest.epoch)
            or last_fetched_epoch < earliest.epoch
        ):
            return FetchPosition(snapshot_id=snapshot_id)
        end = self.end_offset_for_epoch(last_fetched_epoch)
        if end.epoch != last_fetched_epoch or end.offset < fetch_offset:
            return FetchPosition(diverging_epoch=end)
        return FetchPosition()

    def truncation_offset(self, diverging: OffsetAndEpoch) -> int:
        """The offset to truncate to when the leader reports that its largest common epoch ends at `diverging`."""
        if diverging.epoch == 0:
            return min(diverging.offset, self.end_offset)
        local = self.end_offset_for_epoch(diverging.epoch)
        return min(local.offset, diverging.offset) if local.epoch == diverging.epoch else local.offset

    def truncate_to(self, end_offset: int) -> None:
        if not self.start_offset <= end_offset <= self.end_offset:
            raise RaftSafetyError(
                f"{end_offset} is outside of the log, {self.start_offset} to {self.end_offset}"
            )
        self.end_offset = end_offset
        self.persisted_offset = min(self.persisted_offset, end_offset)
        while self._epochs and self._epochs[-1].start_offset >= end_offset:
            self._epochs.pop()

    def reset_to(self, snapshot_id: SnapshotId) -> None:
        """A downloaded snapshot replaced the log."""
        self.start_offset = self.end_offset = self.persisted_offset = snapshot_id.offset
        self.snapshot_id = self.earliest_snapshot_id = snapshot_id
        self._epochs.clear()
        self._base_on(snapshot_id)

    def snapshot_taken(self, snapshot_id: SnapshotId) -> None:
        if not self.start_offset <= snapshot_id.offset <= self.end_offset:
            log = f"{self.start_offset} to {self.end_offset}"
            raise RaftSafetyError(f"a snapshot up to {snapshot_id.offset} of the log {log}")
        if self.snapshot_id is None or snapshot_id > self.snapshot_id:
            self.snapshot_id = snapshot_id
        if self.earliest_snapshot_id is None:
            self.earliest_snapshot_id = snapshot_id

    def move_start(self, start_offset: int) -> None:
        """Retention removed the log below `start_offset`, where a snapshot ends, and older snapshots."""
        snapshot_offset = -1 if self.snapshot_id is None else self.snapshot_id.offset
        if not self.start_offset <= start_offset <= min(self.end_offset, snapshot_offset):
            log = f"{self.start_offset} to {self.end_offset} with a snapshot up to {snapshot_offset}"
            raise RaftSafetyError(f"the log start moved to {start_offset} in the log {log}")
        if start_offset == self.start_offset:
            return
        self.earliest_snapshot_id = SnapshotId(epoch=self.epoch_at(start_offset - 1), offset=start_offset)
        self.start_offset = start_offset
        while len(self._epochs) > 1 and self._epochs[1].start_offset < start_offset:
            self._epochs.pop(0)


T = TypeVar("T")


class OffsetHistory(Generic[T]):
    """Values by the offset from which they hold. Offsets ascend."""

    __slots__ = ("_offsets", "_values")

    def __init__(self) -> None:
        self._offsets: list[int] = []
        self._values: list[T] = []

    def add(self, offset: int, value: T) -> None:
        """Append a value; at the same offset (a snapshot repeats its own) the later one counts."""
        if self._offsets and offset < self._offsets[-1]:
            raise RaftSafetyError(f"offset {offset} follows {self._offsets[-1]} in the history of the voters")
        if self._offsets and self._offsets[-1] == offset:
            self._values[-1] = value
        else:
            self._offsets.append(offset)
            self._values.append(value)

    @property
    def last(self) -> tuple[int, T] | None:
        """The newest entry: its offset and its value."""
        return (self._offsets[-1], self._values[-1]) if self._offsets else None

    @property
    def previous(self) -> T | None:
        """The value before the newest."""
        return self._values[-2] if len(self._values) > 1 else None

    def at(self, offset: int) -> T | None:
        """The value in force at `offset`."""
        index = bisect_right(self._offsets, offset)
        return self._values[index - 1] if index else None

    def truncate_to(self, end_offset: int) -> None:
        """Forget the entries at or behind `end_offset`."""
        while self._offsets and self._offsets[-1] >= end_offset:
            self._offsets.pop()
            self._values.pop()

    def trim_to(self, start_offset: int) -> None:
        """Drop the entries that no longer hold at `start_offset`."""
        keep = max(bisect_right(self._offsets, start_offset) - 1, 0)
        del self._offsets[:keep]
        del self._values[:keep]

    def clear(self) -> None:
        self._offsets.clear()
        self._values.clear()


class VoterHistory:
    """The voter sets and kraft.versions of the log, over the static voters of the configuration."""

    __slots__ = ("_kraft_versions", "_static_voters", "_voters")

    def __init__(self, static_voters: VoterSet, log: LogState) -> None:
        self._static_voters = static_voters
        self._voters: OffsetHistory[VoterSet] = OffsetHistory()
        self._kraft_versions: OffsetHistory[int] = OffsetHistory()
        for entry in log.voters:
            self._voters.add(entry.offset, entry.voters)
        for version in log.kraft_versions:
            self._kraft_versions.add(version.offset, version.kraft_version)

    @property
    def voters(self) -> VoterSet:
        """The voter set in force."""
        last = self._voters.last
        return self._static_voters if last is None else last[1]

    @property
    def voters_offset(self) -> int | None:
        """The offset of the VotersRecord in force: -1 in the bootstrap checkpoint, None for configured voters."""
        last = self._voters.last
        return None if last is None else last[0]

    @property
    def previous_voters(self) -> VoterSet | None:
        """The voter set that the one in force replaced, while the log or the configuration still has it."""
        previous = self._voters.previous
        if previous is not None or self._voters.last is None:
            return previous
        return self._static_voters if self._static_voters.voters else None

    @property
    def kraft_version(self) -> int:
        last = self._kraft_versions.last
        return KRAFT_VERSION_STATIC if last is None else last[1]

    def voters_at(self, offset: int) -> VoterSet | None:
        """The recorded voter set in force at `offset`, None while the configuration applies."""
        return self._voters.at(offset)

    def kraft_version_at(self, offset: int) -> int:
        version = self._kraft_versions.at(offset)
        return KRAFT_VERSION_STATIC if version is None else version

    def add_voters(self, offset: int, voters: VoterSet) -> None:
        self._voters.add(offset, voters)

    def add_kraft_version(self, offset: int, kraft_version: int) -> None:
        self._kraft_versions.add(offset, kraft_version)

    def truncate_to(self, end_offset: int) -> None:
        """The log now ends at `end_offset`: drop later entries."""
        self._voters.truncate_to(end_offset)
        self._kraft_versions.truncate_to(end_offset)

    def trim_to(self, start_offset: int) -> None:
        """Drop entries that are needed only for offsets below `start_offset`."""
        self._voters.trim_to(start_offset)
        self._kraft_versions.trim_to(start_offset)

    def reset(self, offset: int, kraft_version: int | None, voters: VoterSet | None) -> None:
        """A snapshot whose last record is at `offset` replaced everything."""
        self._voters.clear()
        self._kraft_versions.clear()
        if kraft_version is not None:
            self._kraft_versions.add(offset, kraft_version)
        if voters is not None:
            self._voters.add(offset, voters)
