"""A lake of stored rows alone, without tables, as an older version wrote them: in files that are not sorted."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark_quorate.jobs.lake import Change, Lake
from pyspark_quorate.source.options import parse_options
from pyspark_quorate.source.reader import MetadataLogReader
from pyspark_quorate.stored.files import COMMIT, folder_name

PARTITION_BYTES = "20000"


def store_rows(where: Path, logs: Path, cluster_id: str, *, parts: int = 1) -> None:
    """Make a lake at `where` with the rows of all metadata logs below `logs`, in `parts` files.

    The first file has the last rows, so that readers have to sort them.
    """
    options = {"path": str(logs), "clusterId": cluster_id, "noOps": "true", "partitionBytes": PARTITION_BYTES}
    reader = MetadataLogReader(parse_options(options))
    batches = [batch for part in reader.partitions() for batch in reader.read(part)]
    with Lake.writing(str(where)) as lake:
        folder = lake.rows / folder_name(cluster_id)
        folder.mkdir(parents=True)
        table = pa.Table.from_batches(batches).drop(["cluster_id"])
        table = table.append_column(COMMIT, pa.repeat(pa.scalar(1, pa.int64()), len(table)))
        for place, rows in enumerate(_slices(table, parts)):
            pq.write_table(rows, folder / f"{place}.parquet")
        lake.commit(Change(), replace(lake.state, clusters={cluster_id: 1}))


def _slices(table: pa.Table, parts: int) -> Iterator[pa.Table]:
    size = -(-len(table) // parts)
    for part in reversed(range(parts)):
        yield table.slice(part * size, size)
