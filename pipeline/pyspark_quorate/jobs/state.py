"""The state of a lake: files read and tables built. Pure data, stored as one JSON file."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple, Self

from pyspark_quorate.errors import LakeError

LAYOUT: Final = 1
"""The layout version that this version of Quorate writes. Lakes with a higher one are refused."""


class Read(NamedTuple):
    """One read of a directory: its commit, and the offset that it started at."""

    commit: int
    start: int


@dataclass(frozen=True, slots=True)
class TableState:
    """The state of a table: the fingerprint of its schema, and per cluster the commit that it was built at."""

    schema: str
    built: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class LakeState:
    """Everything that a lake keeps between two runs."""

    format: str
    commit: int = 0
    """The number of the last commit; 0: none yet."""
    files: Mapping[str, str] = field(default_factory=dict)
    """Files read, by path: size and modification time at the read."""
    reads: Mapping[str, Sequence[Read]] = field(default_factory=dict)
    """Reads per directory. They supersede gaps that older reads found at the same offsets."""
    clusters: Mapping[str, int] = field(default_factory=dict)
    """Per cluster id: the last commit that added rows of it."""
    tables: Mapping[str, TableState] = field(default_factory=dict)
    streams: Mapping[str, int] = field(default_factory=dict)
    """Per stream: the number of its last batch in the lake."""

    def stale(self, table: str, schema: str) -> frozenset[str]:
        """The clusters for which a table has to be rebuilt."""
        known = self.tables.get(table)
        if known is None or known.schema != schema:
            return frozenset(self.clusters)
        return frozenset(
            cluster for cluster, commit in self.clusters.items() if known.built.get(cluster) != commit
        )

    def as_json(self) -> dict[str, Any]:
        """The state as JSON."""
        return {
            "layout": LAYOUT,
            "format": self.format,
            "commit": self.commit,
            "files": dict(self.files),
            "reads": {name: [list(read) for read in reads] for name, reads in self.reads.items()},
            "clusters": dict(self.clusters),
            "tables": {
                name: {"schema": table.schema, "built": dict(table.built)}
                for name, table in self.tables.items()
            },
            "streams": dict(self.streams),
        }

    @classmethod
    def from_json(cls, found: Mapping[str, Any], where: str) -> Self:
        """Parse a state; `where` is for messages. Raises LakeError for the layout of a newer version."""
        layout = found.get("layout")
        if not isinstance(layout, int) or layout > LAYOUT:
            raise LakeError(
                f"{where} has layout {layout}, but this version of Quorate supports layouts up to {LAYOUT}: "
                "upgrade Quorate, or use another directory"
            )
        return cls(
            format=found["format"],
            commit=found["commit"],
            files=found["files"],
            reads={name: [Read(*read) for read in reads] for name, reads in found["reads"].items()},
            clusters=found["clusters"],
            tables={
                name: TableState(table["schema"], table["built"]) for name, table in found["tables"].items()
            },
            streams=found["streams"],
        )
