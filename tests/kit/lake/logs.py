"""Metadata logs as nodes have them on disk: appended, truncated, rolled, and written as segments."""

import uuid
from dataclasses import dataclass, field, replace
from itertools import pairwise
from pathlib import Path

from kit.lake.directories import CLUSTER, write_directory
from quorate_protocol.kafka.metadata_log import METADATA_DIRECTORY
from quorate_protocol.records.batch import build_batch
from quorate_protocol.records.control import LeaderChangeMessage, LeaderChangeVoter, encode_control_batch
from quorate_protocol.records.framing import encode_record
from quorate_protocol.records.generated import NoOpRecord, TopicRecord

START_MS = 1_700_000_000_000
NO_OP = encode_record(NoOpRecord())


def topic_id(name: str) -> uuid.UUID:
    """The id of the topic with this name."""
    return uuid.uuid5(uuid.NAMESPACE_URL, name)


def topic(name: str) -> bytes:
    """A record that creates a topic."""
    return encode_record(TopicRecord(name=name, topic_id=topic_id(name)))


@dataclass(frozen=True, slots=True)
class LoggedBatch:
    """A batch at its place; `values` None: a LeaderChangeMessage of this leader."""

    offset: int
    epoch: int
    time_ms: int
    values: tuple[bytes, ...] | None
    leader: int = 3000

    @property
    def end(self) -> int:
        """The offset after its last record."""
        return self.offset + (1 if self.values is None else len(self.values))

    def encoded(self) -> bytes:
        """The bytes in a segment."""
        if self.values is not None:
            return bytes(build_batch(self.values, self.offset, self.epoch, self.time_ms))
        voter = LeaderChangeVoter(voter_id=self.leader, voter_directory_id=None)
        message = LeaderChangeMessage(
            version=0, leader_id=self.leader, voters=(voter,), granting_voters=(voter,)
        )
        return bytes(encode_control_batch([message], self.offset, self.epoch, self.time_ms))


@dataclass(frozen=True, slots=True)
class NodeLog:
    """The log of a node. Changes return another log, so that nodes may share a beginning."""

    batches: tuple[LoggedBatch, ...] = ()
    rolled: tuple[int, ...] = field(default=(0,))
    """Base offsets of the segments."""
    time_ms: int = START_MS

    @property
    def end(self) -> int:
        """The offset of the next record."""
        return self.batches[-1].end if self.batches else self.rolled[0]

    @property
    def epoch(self) -> int:
        """The epoch of the last record."""
        return self.batches[-1].epoch if self.batches else 0

    def elected(self, epoch: int, leader: int = 3000) -> "NodeLog":
        """A leader of this epoch appends its LeaderChangeMessage."""
        return self._with(LoggedBatch(self.end, epoch, self.time_ms, None, leader))

    def appended(self, *values: bytes) -> "NodeLog":
        """The leader appends a batch."""
        return self._with(LoggedBatch(self.end, self.epoch, self.time_ms, values))

    def later(self, milliseconds: int) -> "NodeLog":
        """Time passes, or with a negative number the clock goes back."""
        return replace(self, time_ms=self.time_ms + milliseconds)

    def roll(self) -> "NodeLog":
        """The next batch begins another segment."""
        return self if self.end in self.rolled else replace(self, rolled=(*self.rolled, self.end))

    def truncated(self, end: int) -> "NodeLog":
        """Remove the batches from the one on that ends after this offset."""
        kept = tuple(batch for batch in self.batches if batch.end <= end)
        behind = kept[-1].end if kept else self.rolled[0]
        return replace(self, batches=kept, rolled=tuple(base for base in self.rolled if base <= behind))

    def fetched(self, leader: "NodeLog", end: int | None = None) -> "NodeLog":
        """Become a follower of this log: truncate what it lacks, and fetch what is new, up to an offset."""
        common = 0
        for mine, theirs in zip(self.batches, leader.batches, strict=False):
            if mine != theirs:
                break
            common = mine.end
        log = self.truncated(common)
        new = [
            batch for batch in leader.batches if batch.offset >= common and (end is None or batch.end <= end)
        ]
        return replace(log, batches=(*log.batches, *new), time_ms=leader.time_ms)

    def _with(self, batch: LoggedBatch) -> "NodeLog":
        return replace(self, batches=(*self.batches, batch), time_ms=self.time_ms + 1000)

    def write(self, node: Path, cluster_id: str = CLUSTER) -> Path:
        """Write the directory of a node, as it is now. Returns the partition's."""
        bases = [*self.rolled, 2**62]
        files = {
            base: b"".join(batch.encoded() for batch in self.batches if base <= batch.offset < following)
            for base, following in pairwise(bases)
        }
        partition = node / METADATA_DIRECTORY
        for path in partition.glob("*.log") if partition.is_dir() else ():
            if int(path.stem) not in files:
                path.unlink()
        unchanged = {
            base
            for base, content in files.items()
            if (path := partition / f"{base:020d}.log").is_file() and path.read_bytes() == content
        }
        return write_directory(
            node, {base: content for base, content in files.items() if base not in unchanged}, cluster_id
        )
