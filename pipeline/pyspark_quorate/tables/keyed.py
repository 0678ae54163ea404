"""A part of the fold that makes intervals of keys. The lines of a snapshot name all keys that exist."""

from pyspark_quorate.tables.contract import Cluster, Fold
from pyspark_quorate.tables.intervals import Intervals, Life
from pyspark_quorate.tables.lines import Line


class KeyedFold(Fold):
    """The base class.

    `step` tells states to `lives`; `take` gets each interval when it ends, those of a key in order.
    """

    def __init__(self, cluster: Cluster) -> None:
        super().__init__(cluster)
        self.lives = Intervals(cluster.breaks, self.take)

    def take(self, life: Life, previous: Life | None, is_followed: bool) -> None:
        """Take an interval.

        `previous` is the interval that ends where this one begins, if any. `is_followed`: another begins at its end.
        """
        raise NotImplementedError

    def begin_snapshot(self, line: Line) -> None:
        """Begin a snapshot, whose lines name all keys that exist."""
        self.lives.begin_snapshot(line)

    def end_snapshot(self) -> None:
        """End the keys that the snapshot lacks."""
        self.lives.end_snapshot()

    def finish(self) -> None:
        """End the open intervals."""
        self.lives.finish()
