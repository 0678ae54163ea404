"""Table `upgrade_blockers`: registrations that block feature levels, over time."""

from collections import defaultdict
from collections.abc import Iterator
from typing import Final

from pyspark.sql.types import BooleanType, IntegerType, ShortType, StringType, TimestampType

from pyspark_quorate.rows import CLUSTER_ID, column, nullable, schema
from pyspark_quorate.tables.contract import Cluster, Fold, Table
from pyspark_quorate.tables.controller_registrations import (
    BROKER,
    CONTROLLER,
    BrokerRegistrations,
    ControllerRegistrations,
)
from pyspark_quorate.tables.feature_levels import level_name
from pyspark_quorate.tables.intervals import INTERVAL_COLUMNS, Interval, merge_adjacent, overlap
from pyspark_quorate.tables.membership import VoterIntervals

SCHEMA: Final = schema(
    CLUSTER_ID,
    column("feature", StringType(), "the feature that can't be raised"),
    column("level", ShortType(), "a level that another registered node supports and this one does not"),
    column(
        "level_name", StringType(), "metadata.version: its name, such as 4.3-IV0; other features: the number"
    ),
    column("role", StringType(), "role of the registered node: broker or controller"),
    column("node_id", IntegerType(), "node.id of the registered node"),
    column(
        "supported_max", ShortType(), "the highest level that it supports; 0: it does not support the feature"
    ),
    nullable(
        "is_ghost",
        BooleanType(),
        "controller: registered but not a voter when the interval ended, or now if it still holds; null: a "
        "broker, or a static quorum, whose voters are not in the log",
    ),
    nullable(
        "ghost_since",
        TimestampType(),
        "when it last stopped being a voter; null: not a ghost, or never seen as a voter",
    ),
    *INTERVAL_COLUMNS,
)


class UpgradeBlockers(Fold):
    """The state of the table. It needs all registrations and voters, so it makes its rows in `finish`.

    Kafka checks every registration, also of fenced brokers and stopped controllers
    (FeatureControlManager.reasonNotSupported); a feature that a registration lacks counts as level 0.
    """

    NEEDS = (BrokerRegistrations, ControllerRegistrations, VoterIntervals)

    def __init__(
        self,
        cluster: Cluster,
        brokers: BrokerRegistrations,
        controllers: ControllerRegistrations,
        voters: VoterIntervals,
    ) -> None:
        super().__init__(cluster)
        self._roles = ((BROKER.name, brokers), (CONTROLLER.name, controllers))
        self._voters = voters

    def finish(self) -> None:
        """Add a row per registration and level that it blocks while another registration supports it."""
        for interval in merge_adjacent(self._blocking(), self.cluster.gap_ends):
            feature, level, role, node_id, supported = interval.key
            ghost = self._ghost(interval) if role == CONTROLLER.name else (None, None)
            name = level_name(feature, level)
            self.rows.append((feature, level, name, role, node_id, supported, *ghost, *interval.span))

    def _blocking(self) -> Iterator[Interval]:
        """Yield intervals of blocked levels; the key is (feature, level, role, node id, supported level)."""
        reachable: dict[str, list[Interval]] = defaultdict(list)
        for interval in merge_adjacent(self._supported(), self.cluster.gap_ends):
            reachable[interval.key[0]].append(interval)
        for role, registrations in self._roles:
            for node in registrations.ended:
                maxima = {name: maximum for name, _, maximum in node.state[2]}
                for feature, intervals in reachable.items():
                    supported = maxima.get(feature, 0)
                    for level in intervals:
                        both = overlap(node, level) if level.key[1] > supported else None
                        if both is not None:
                            key = (*level.key, role, node.key[0], supported)
                            yield both._replace(key=key, state=())

    def _supported(self) -> Iterator[Interval]:
        """Yield an interval per registration and level that it supports; the key is (feature, level)."""
        for _, registrations in self._roles:
            for node in registrations.ended:
                for feature, _, maximum in node.state[2]:
                    for level in range(1, maximum + 1):
                        yield node._replace(key=(feature, level), state=())

    def _ghost(self, interval: Interval) -> tuple[bool | None, int | None]:
        """Whether a controller was not a voter when the interval ended, and when it last stopped being one.

        None: unknown.
        """
        voters = self._voters.ended
        if not voters:
            return None, None
        terms = [
            voter for voter in voters if voter.key[0] == interval.key[3] and voter.from_offset < interval.end
        ]
        if any(term.end >= interval.end for term in terms):
            return False, None
        last = max(terms, key=lambda term: term.end, default=None)
        return True, None if last is None else last.valid_to


TABLE: Final = Table(
    name="upgrade_blockers",
    fold=UpgradeBlockers,
    doc=(
        "Registrations that block feature levels: for each level that at least one registered node supports, the "
        "registrations whose range ends below it, while both are registered. Kafka refuses to raise a feature past "
        "such a registration, even if its node no longer exists: a ghost."
    ),
    schema=SCHEMA,
    key=("cluster_id", "feature", "level", "role", "node_id", "from_offset"),
)
