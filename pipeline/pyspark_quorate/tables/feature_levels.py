"""Table `feature_levels`: finalized feature levels over time."""

from typing import Final

from pyspark.sql.types import ShortType, StringType
from quorate_protocol.features import KRAFT_VERSION, METADATA_VERSION, METADATA_VERSIONS

from pyspark_quorate.rows import CLUSTER_ID, column, schema
from pyspark_quorate.tables.contract import Line, Table
from pyspark_quorate.tables.intervals import INTERVAL_COLUMNS, Interval, KeyedFold

_FEATURE_LEVEL: Final = "FeatureLevelRecord"
_KRAFT_VERSION: Final = "KRaftVersionRecord"

SCHEMA: Final = schema(
    CLUSTER_ID,
    column("feature", StringType(), "such as metadata.version or kraft.version"),
    column("level", ShortType(), "the finalized level; a feature at level 0 is off and has no row"),
    column(
        "level_name", StringType(), "metadata.version: its name, such as 4.3-IV0; other features: the number"
    ),
    *INTERVAL_COLUMNS,
)


class FeatureLevels(KeyedFold):
    """The state of the table."""

    TYPES = (_FEATURE_LEVEL, _KRAFT_VERSION)

    def step(self, line: Line) -> None:
        """Apply the level of a feature; level 0 means that it is not finalized."""
        if line.type == _KRAFT_VERSION:
            feature, level = KRAFT_VERSION, line.fields["kRaftVersion"]
        else:
            feature, level = line.fields["name"], line.fields["featureLevel"]
            if feature == KRAFT_VERSION:
                return  # Kafka ignores it: kraft.version has its own control record
        self.intervals.set_state((feature,), (level,) if level else None, line)

    def end_interval(self, interval: Interval, previous: Interval | None, is_followed: bool) -> None:  # noqa: ARG002
        """Add a row for the interval."""
        (feature,), (level,) = interval.key, interval.state
        self.rows.append((feature, level, level_name(feature, level), *interval.span))


def level_name(feature: str, level: int) -> str:
    """4.3-IV0 for level 30 of metadata.version; the number for other features and unknown levels."""
    version = METADATA_VERSIONS.get(level) if feature == METADATA_VERSION else None
    return str(level) if version is None else version.name


TABLE: Final = Table(
    name="feature_levels",
    fold=FeatureLevels,
    doc="Finalized levels of features (KIP-584), kraft.version among them where the quorum is dynamic.",
    schema=SCHEMA,
    key=("cluster_id", "feature", "from_offset"),
)
