"""Table `advertised_addresses`: addresses that nodes advertised, and addresses that moved to another node."""

from collections import defaultdict
from collections.abc import Iterator
from datetime import timedelta
from typing import Final

from pyspark.sql.types import DoubleType, IntegerType, StringType

from pyspark_quorate.rows import CLUSTER_ID, column, nullable, schema
from pyspark_quorate.tables.contract import Cluster, Fold, Table
from pyspark_quorate.tables.controller_registrations import BrokerRegistrations, ControllerRegistrations
from pyspark_quorate.tables.intervals import INTERVAL_COLUMNS, Interval, Key, merge_adjacent
from pyspark_quorate.tables.membership import VoterIntervals

REUSE_WINDOW: Final = timedelta(minutes=10)
"""Clients keep addresses for some time: metadata.max.age.ms of Kafka's clients is 5 minutes."""

SCHEMA: Final = schema(
    CLUSTER_ID,
    column("host", StringType(), "advertised host"),
    column("port", IntegerType(), "advertised port"),
    column("role", StringType(), "source of the address: broker or controller registration, or voter set"),
    column("node_id", IntegerType(), "node.id of the node that advertised it"),
    column("listener", StringType(), "name of the listener"),
    nullable(
        "reused_from_node_id",
        IntegerType(),
        "node.id of another node that advertised this host and port within the last 10 minutes; null: none",
    ),
    nullable(
        "reused_after_s",
        DoubleType(),
        "seconds since that node stopped advertising it; 0: it still did; null: no such node",
    ),
    *INTERVAL_COLUMNS,
)


class AdvertisedAddresses(Fold):
    """The state of the table. It needs all registrations and voter sets, so it makes its rows in `finish`."""

    NEEDS = (BrokerRegistrations, ControllerRegistrations, VoterIntervals)

    def __init__(
        self,
        cluster: Cluster,
        brokers: BrokerRegistrations,
        controllers: ControllerRegistrations,
        voters: VoterIntervals,
    ) -> None:
        super().__init__(cluster)
        self._roles = (("broker", brokers, 1), ("controller", controllers, 1), ("voter", voters, 0))

    def finish(self) -> None:
        """Add a row per interval in which a node advertised an address."""
        owned: dict[Key, list[Interval]] = defaultdict(list)
        for interval in merge_adjacent(self._advertised(), self.cluster.gap_ends):
            owned[interval.key[:2]].append(interval)
        for intervals in owned.values():
            for interval in intervals:
                self.rows.append((*interval.key, *_reuse(interval, intervals, REUSE_WINDOW), *interval.span))

    def _advertised(self) -> Iterator[Interval]:
        """Yield an interval per listener of a registration or voter, by (host, port, role, node id, listener)."""
        for role, source, at in self._roles:
            for interval in source.ended:
                for listener, host, port, *_ in interval.state[at] or ():
                    yield interval._replace(key=(host, port, role, interval.key[0], listener), state=())


def _reuse(
    interval: Interval, intervals: list[Interval], window: timedelta
) -> tuple[int | None, float | None]:
    """Return the other node that used this host and port last, and the pause since then in seconds.

    Both are None if no other node used it, or if the pause is longer than `window`. Offsets decide which node was
    first. Times come from several leaders' clocks: a negative pause counts as 0.
    """
    found = []
    for other in intervals:
        if other.key[3] == interval.key[3] or other.from_offset >= interval.from_offset:
            continue
        pause_s = 0.0
        if other.end <= interval.from_offset:
            if interval.valid_from is None or other.valid_to is None:
                continue
            pause_s = max((interval.valid_from - other.valid_to) / 1e6, 0.0)
        if pause_s <= window.total_seconds():
            found.append((pause_s, -other.from_offset, other.key[3]))
    if not found:
        return None, None
    pause_s, _, node_id = min(found)
    return node_id, pause_s


TABLE: Final = Table(
    name="advertised_addresses",
    fold=AdvertisedAddresses,
    doc=(
        "Hosts and ports that nodes advertised: brokers and controllers by their registrations, voters by the voter "
        "set. A stopped node stays registered with its addresses until it registers others or is unregistered. "
        "Addresses that moved to another node within 10 minutes are marked: clients that cached them reached the "
        "wrong node."
    ),
    schema=SCHEMA,
    key=("cluster_id", "host", "port", "role", "node_id", "listener", "from_offset"),
)
