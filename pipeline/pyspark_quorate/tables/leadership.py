"""Table `leadership`: the active controller over time."""

from typing import Final

from pyspark.sql.types import ArrayType, IntegerType

from pyspark_quorate.rows import CLUSTER_ID, column, nullable, schema
from pyspark_quorate.tables.contract import Cluster, Fold, GapEnds, Line, Table
from pyspark_quorate.tables.intervals import INTERVAL_COLUMNS, Interval, IntervalTracker

_LEADER_CHANGE: Final = "LeaderChangeMessage"

SCHEMA: Final = schema(
    CLUSTER_ID,
    column("epoch", IntegerType(), "leader epoch; epochs without a leader have no row"),
    nullable(
        "leader_id",
        IntegerType(),
        "node.id of the leader, which is the active controller; null: a gap hides the election",
    ),
    nullable("voters", ArrayType(IntegerType()), "node.ids of the voters at the election"),
    nullable("granting_voters", ArrayType(IntegerType()), "node.ids of the voters that granted their vote"),
    *INTERVAL_COLUMNS,
)


class Leadership(Fold):
    """The state of the table: one row per epoch that has records.

    A leader starts its epoch with a LeaderChangeMessage. Snapshots lack the leader, so here they bridge no gap.
    """

    def __init__(self, cluster: Cluster) -> None:
        super().__init__(cluster)
        self._gap_ends = GapEnds()
        self._intervals = IntervalTracker(self._gap_ends, self._end_interval)

    def step_epoch(self, line: Line) -> None:
        """Apply the first line of an epoch."""
        state: tuple[object, ...] = (line.epoch, None, None, None)
        if line.type == _LEADER_CHANGE:
            voters, granting = (
                tuple(sorted(voter["voterId"] for voter in line.fields[name]))
                for name in ("voters", "grantingVoters")
            )
            state = (line.epoch, line.fields["leaderId"], voters, granting)
        self._intervals.set_state((), state, line)

    def gap(self, offset: int) -> None:
        """Note a gap, which may hide elections."""
        self._gap_ends.gap(offset)

    def finish(self) -> None:
        """Add the row of the last leader."""
        self._intervals.finish()

    def _end_interval(self, interval: Interval, previous: Interval | None, is_followed: bool) -> None:  # noqa: ARG002
        # The time of an election is exact, whatever is missing before it.
        is_known = interval.state[1] is not None
        self.rows.append(
            (*interval.state, *interval._replace(from_exact=interval.from_exact or is_known).span)
        )


TABLE: Final = Table(
    name="leadership",
    fold=Leadership,
    doc=(
        "Leaders of the quorum, which are the active controllers, from the LeaderChangeMessage that starts an epoch. "
        "A row ends when the next leader's starts: the log does not record the time without a leader in between."
    ),
    schema=SCHEMA,
    key=("cluster_id", "epoch"),
)
