"""A part of the fold whose keys have intervals: a snapshot's lines state all keys that are there."""

from pyspark_quorate.tables.contract import Cluster, Fold
from pyspark_quorate.tables.intervals import Intervals, Life
from pyspark_quorate.tables.lines import Line


class KeyedFold(Fold):
    """Tell `lives` what a line shows; `take` gets the intervals as they end, those of a key in order."""

    def __init__(self, cluster: Cluster) -> None:
        super().__init__(cluster)
        self.lives = Intervals(cluster.breaks, self.take)

    def take(self, life: Life, previous: Life | None, is_followed: bool) -> None:
        """Take an interval, the one that ends where it begins (None: none), and whether another follows."""
        raise NotImplementedError

    def begin_snapshot(self, line: Line) -> None:
        """All keys that are there follow."""
        self.lives.begin_snapshot(line)

    def end_snapshot(self) -> None:
        """End the keys that the snapshot lacks."""
        self.lives.end_snapshot()

    def finish(self) -> None:
        """The keys that are left."""
        self.lives.finish()
