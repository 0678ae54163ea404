"""The selected rows: options and the filters that Spark pushes down, combined and applied exactly."""

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import Any, Final

from pyspark.sql.datasource import (
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    IsNotNull,
    LessThan,
    LessThanOrEqual,
)

from pyspark_quorate.rows import GAP, UNKNOWN_RECORD
from pyspark_quorate.source.batch_scanner import Gap
from pyspark_quorate.source.options import Options
from pyspark_quorate.source.payload import NO_OP, RECORD_NAMES

_OFFSET_MAX: Final = 2**63 - 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Selection:
    """`names` apply to records; the range also to gaps that are completely outside of it."""

    names: frozenset[str] = RECORD_NAMES - {NO_OP}
    start_offset: int = 0
    end_offset: int = _OFFSET_MAX
    clusters: frozenset[str] | None = None
    kinds: frozenset[str] | None = None
    types: frozenset[str] | None = None
    """Values of the column `type`."""
    filtered: tuple[int, int] | None = None
    """The offset range of filters, also for gaps: from, to (exclusive)."""
    wanted: frozenset[str] = field(init=False)
    """The names of records that become rows."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "wanted", self.names if self.types is None else self.names & self.types)

    @property
    def offset_range(self) -> tuple[int, int]:
        """Of records: from, to (exclusive)."""
        low, high = self.filtered or (0, _OFFSET_MAX)
        return max(self.start_offset, low), min(self.end_offset, high)

    def wants_cluster(self, cluster_id: str) -> bool:
        """Whether rows of this cluster are wanted."""
        return self.clusters is None or cluster_id in self.clusters

    def wants_kind(self, kind: str) -> bool:
        """Whether rows of this kind are wanted."""
        return self.kinds is None or kind in self.kinds

    def wanted_of(self, kind: str) -> frozenset[str]:
        """The names of the records of a kind that become rows."""
        return self.wanted if self.wants_kind(kind) else frozenset()

    @property
    def wants_undecodable(self) -> bool:
        """Whether records are decoded only to report those that can't be decoded."""
        return self.wants_kind(GAP) and (self.types is None or UNKNOWN_RECORD in self.types)

    def wants_gap(self, gap: Gap) -> bool:
        """Whether a gap becomes a row."""
        if not self.wants_kind(GAP) or (self.types is not None and gap.reason not in self.types):
            return False
        if self.filtered is not None and (
            gap.offset is None or not self.filtered[0] <= gap.offset < self.filtered[1]
        ):
            return False
        begins_behind = gap.offset is not None and gap.offset >= self.end_offset
        ends_before = gap.end_offset is not None and gap.end_offset <= self.start_offset
        return not begins_behind and not (ends_before and self.start_offset > 0)


def select(options: Options) -> Selection:
    """The selection of the options."""
    names = RECORD_NAMES if options.record_types is None else options.record_types
    is_no_op_wanted = options.no_ops or NO_OP in (options.record_types or ())
    return Selection(
        names=names if is_no_op_wanted else names - {NO_OP},
        start_offset=options.start_offset,
        end_offset=_OFFSET_MAX if options.end_offset is None else options.end_offset,
        clusters=options.clusters,
    )


def narrow(selection: Selection, filters: Iterable[Filter]) -> tuple[Selection, list[Filter]]:
    """The selection narrowed by the filters that can be applied exactly, and the other filters."""
    others = []
    for each in filters:
        narrowed = _apply(selection, each)
        if narrowed is None:
            others.append(each)
        else:
            selection = narrowed
    return selection, others


def _apply(selection: Selection, condition: Filter) -> Selection | None:
    column = ".".join(getattr(condition, "attribute", ()))
    if column == "offset":
        return _apply_offset(selection, condition)
    values: frozenset[str] | None = None
    if isinstance(condition, EqualTo) and isinstance(condition.value, str):
        values = frozenset((condition.value,))
    elif isinstance(condition, In):
        values = frozenset(each for each in condition.value if isinstance(each, str))
    chosen = {"cluster_id": "clusters", "kind": "kinds", "type": "types"}.get(column)
    if chosen is not None and isinstance(condition, IsNotNull):
        return selection  # these columns are never null
    if chosen is None or values is None:
        return None
    before: frozenset[str] | None = getattr(selection, chosen)
    narrowed: dict[str, Any] = {chosen: values if before is None else values & before}
    return replace(selection, **narrowed)


def _apply_offset(selection: Selection, condition: Filter) -> Selection | None:
    low, high = 0, _OFFSET_MAX
    if isinstance(condition, IsNotNull):
        pass
    elif not isinstance(getattr(condition, "value", None), int):
        return None
    elif isinstance(condition, EqualTo):
        low, high = condition.value, condition.value + 1
    elif isinstance(condition, GreaterThan):
        low = condition.value + 1
    elif isinstance(condition, GreaterThanOrEqual):
        low = condition.value
    elif isinstance(condition, LessThan):
        high = condition.value
    elif isinstance(condition, LessThanOrEqual):
        high = condition.value + 1
    else:
        return None
    before = selection.filtered or (0, _OFFSET_MAX)
    return replace(selection, filtered=(max(low, before[0]), min(high, before[1])))
