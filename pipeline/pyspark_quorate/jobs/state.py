"""What a lake remembers: what was read, and which tables were made of what. Pure data, one JSON file."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple, Self

LAYOUT: Final = 1
"""The number of the layout that this version writes. A lake of a higher one is refused."""


class LakeError(Exception):
    """A lake, a source or an option can't be used. The message names which, and what to do."""


class Read(NamedTuple):
    """A directory was read: at which commit, and from which offset on."""

    commit: int
    start: int


@dataclass(frozen=True, slots=True)
class TableState:
    """How a table stands: the fingerprint of its schema, and for each cluster the commit it was made at."""

    schema: str
    built: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class State:
    """Everything that a lake remembers between two runs."""

    format: str
    commit: int = 0
    """The number of the last commit; 0: none yet."""
    files: Mapping[str, str] = field(default_factory=dict)
    """What was read, by path: size and time of change when it was."""
    reads: Mapping[str, Sequence[Read]] = field(default_factory=dict)
    """By directory: when it was read, and from where. What older reads complained about there is void."""
    clusters: Mapping[str, int] = field(default_factory=dict)
    """By cluster id: the last commit that brought rows of it."""
    tables: Mapping[str, TableState] = field(default_factory=dict)
    streams: Mapping[str, int] = field(default_factory=dict)
    """By name of a stream: the number of its last batch that is in the lake."""

    def stale(self, table: str, schema: str) -> frozenset[str]:
        """The clusters whose part of a table has to be made again."""
        known = self.tables.get(table)
        if known is None or known.schema != schema:
            return frozenset(self.clusters)
        return frozenset(
            cluster for cluster, commit in self.clusters.items() if known.built.get(cluster) != commit
        )

    def as_json(self) -> dict[str, Any]:
        """The state as it is written."""
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
        """The state that was written at `where`. Raises LakeError for the layout of a newer version."""
        layout = found.get("layout")
        if not isinstance(layout, int) or layout > LAYOUT:
            raise LakeError(
                f"{where} has layout {layout}, and this version of Quorate knows layouts up to {LAYOUT}: "
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
