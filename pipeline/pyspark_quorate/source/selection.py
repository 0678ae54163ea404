"""The selected rows: options and the filters that Spark pushes down, combined and applied exactly."""

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import Final

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
from pyspark_quorate.source.options import Options
from pyspark_quorate.source.payload import NO_OP, RECORD_NAMES
from pyspark_quorate.source.scanning import Gap

_OFFSET_MAX: Final = 2**63 - 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Selection:
    """`names` and the range apply to records. Gaps have their own range: options keep them, filters do not."""

    names: frozenset[str] = RECORD_NAMES - {NO_OP}
    start_offset: int = 0
    end_offset: int = _OFFSET_MAX
    gap_start_offset: int = 0
    gap_end_offset: int = _OFFSET_MAX
    clusters: frozenset[str] | None = None
    kinds: frozenset[str] | None = None
    types: frozenset[str] | None = None
    """Values of the column `type`."""
    filtered: tuple[int, int] | None = None
    """The offset range of filters, also for gaps: from, to (exclusive)."""
    wanted: frozenset[str] = field(init=False)
    """Names of records that become rows."""

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
        """Names of the records of a kind that become rows."""
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
        begins_behind = gap.offset is not None and gap.offset >= self.gap_end_offset
        ends_before = gap.end_offset is not None and gap.end_offset <= self.gap_start_offset
        return not begins_behind and not (ends_before and self.gap_start_offset > 0)


def select(options: Options) -> Selection:
    """The selection of the options."""
    names = RECORD_NAMES if options.record_types is None else options.record_types
    is_no_op_wanted = options.no_ops or NO_OP in (options.record_types or ())
    end_offset = _OFFSET_MAX if options.end_offset is None else options.end_offset
    return Selection(
        names=names if is_no_op_wanted else names - {NO_OP},
        start_offset=options.start_offset,
        end_offset=end_offset,
        gap_start_offset=options.start_offset,
        gap_end_offset=end_offset,
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
    elif isinstance(condition, IsNotNull) and column in ("cluster_id", "kind", "type"):
        return selection  # these columns are never null
    if values is None:
        return None
    if column == "cluster_id":
        return replace(selection, clusters=_both(selection.clusters, values))
    if column == "kind":
        return replace(selection, kinds=_both(selection.kinds, values))
    if column == "type":
        return replace(selection, types=_both(selection.types, values))
    return None


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


def _both(ones: frozenset[str] | None, others: frozenset[str]) -> frozenset[str]:
    return others if ones is None else ones & others
