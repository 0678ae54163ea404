"""Table `producer_id_blocks`: blocks of producer ids that brokers received for their clients."""

from typing import Final

from pyspark.sql.types import BooleanType, IntegerType, LongType, TimestampType

from pyspark_quorate.rows import CLUSTER_ID, column, nullable, schema
from pyspark_quorate.tables.contract import Cluster, Fold, Line, Table

PRODUCER_ID_BLOCK_SIZE: Final = 1000
"""Kafka's ProducerIdsBlock.PRODUCER_ID_BLOCK_SIZE; a record has only the first id of the block after it."""

SCHEMA: Final = schema(
    CLUSTER_ID,
    column("time", TimestampType(), "when the active controller appended it, or that of a snapshot"),
    column("offset", LongType(), "offset of the record, or of the last one in the snapshot that shows it"),
    nullable(
        "broker_id",
        IntegerType(),
        "the broker that received the block; null: hidden by a gap or by the start of the history",
    ),
    nullable("broker_epoch", LongType(), "the broker's epoch then; null as broker_id"),
    column("first_producer_id", LongType(), "first id of the block"),
    column("last_producer_id", LongType(), "last id of the block, or of the blocks that a gap hides"),
    column("exact", BooleanType(), "false: a gap hides who got it, and when, at or before `time`"),
)


class ProducerIdBlocks(Fold):
    """The state of the table: the first id after the known blocks. Ids between two blocks were assigned in a gap."""

    TYPES = ("ProducerIdsRecord",)

    def __init__(self, cluster: Cluster) -> None:
        super().__init__(cluster)
        self._known_until = 0

    def step(self, line: Line) -> None:
        """Apply a block. A record in a snapshot gives only the start of the next block."""
        until = line.fields["nextProducerId"]
        first = until if line.is_snapshot else until - PRODUCER_ID_BLOCK_SIZE
        at = (line.time_us, line.placed)
        if first > self._known_until:
            self.rows.append((*at, None, None, self._known_until, first - 1, False))
        if not line.is_snapshot:
            broker = (line.fields["brokerId"], line.fields["brokerEpoch"])
            self.rows.append((*at, *broker, first, until - 1, True))
        self._known_until = max(self._known_until, until)


TABLE: Final = Table(
    name="producer_id_blocks",
    fold=ProducerIdBlocks,
    doc="Blocks of producer ids that brokers received.",
    schema=SCHEMA,
    key=("cluster_id", "first_producer_id"),
)
