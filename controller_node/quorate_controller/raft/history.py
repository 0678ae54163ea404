"""The voter set and kraft.version in force at each offset of the log (KIP-853).

The last control record in the log is in force, committed or not; truncation brings back the one before.
"""

from bisect import bisect_right
from typing import Generic, TypeVar

from quorate_controller.raft.model import RaftSafetyError
from quorate_controller.raft.startup import KRAFT_VERSION_STATIC, LogState
from quorate_controller.raft.voters import VoterSet

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
        """Forget the entries that no longer hold at `start_offset`."""
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
        """The log now ends at `end_offset`: forget what was recorded behind it."""
        self._voters.truncate_to(end_offset)
        self._kraft_versions.truncate_to(end_offset)

    def trim_to(self, start_offset: int) -> None:
        """Drop what is needed only for offsets below `start_offset`."""
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
