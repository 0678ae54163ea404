"""The stored rows of a lake, for tests."""

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame, SparkSession
from pyspark_quorate import rows
from pyspark_quorate.jobs.lake import Lake
from pyspark_quorate.source.record_decoder import ARROW_SCHEMA
from pyspark_quorate.stored.files import folders
from pyspark_quorate.stored.row_reader import StoredRows, valid_gaps


def rows_that_count(lake: Lake) -> pa.Table:
    """All rows of a lake but void gaps, with the columns of the source."""
    batches = []
    for cluster_id, folder in folders(lake.rows).items():
        stored = StoredRows(folder)
        for batch in (valid_gaps(stored.gaps(), lake.state.reads), *stored.records()):
            named = batch.append_column(rows.CLUSTER_ID.name, pa.repeat(pa.scalar(cluster_id), len(batch)))
            columns = [named.column(name).cast(ARROW_SCHEMA.field(name).type) for name in ARROW_SCHEMA.names]
            batches.append(pa.RecordBatch.from_arrays(columns, schema=ARROW_SCHEMA))
    return pa.Table.from_batches(batches, ARROW_SCHEMA)


def frame_of(spark: SparkSession, lake: Lake) -> DataFrame:
    """These rows as a frame."""
    return spark.createDataFrame(rows_that_count(lake), rows.SCHEMA)


def gaps_of(lake: Lake, reason: str) -> int:
    """The number of stored gaps with this reason, void or not."""
    found = [StoredRows(folder).gaps() for folder in folders(lake.rows).values()]
    return sum(pc.sum(pc.equal(one.column("type"), reason)).as_py() or 0 for one in found)
