"""Lakes of tests: made without Spark, and what is stored in them."""

from dataclasses import replace
from pathlib import Path

import pyarrow.compute as pc
from kit.lake.directories import read_rows
from pyspark.sql import SparkSession
from pyspark_quorate.jobs.ingest import Ingested, find_new_files, ingest
from pyspark_quorate.jobs.lake import Change, Lake
from pyspark_quorate.jobs.progress import Steps
from pyspark_quorate.jobs.table_build import choose_tables
from pyspark_quorate.jobs.table_reader import read_table
from pyspark_quorate.stored.files import folders
from pyspark_quorate.stored.row_reader import StoredRows
from pyspark_quorate.stored.row_writer import RowsWriter


def store_rows(where: Path, logs: Path, cluster_id: str) -> None:
    """Make a lake at `where` with the rows of all metadata logs below `logs`, without tables."""
    with Lake.writing(str(where)) as lake:
        writer = RowsWriter(lake.rows, 1)
        for batch in read_rows(logs, clusterId=cluster_id, noOps="true", partitionBytes="20000"):
            writer.add(cluster_id, batch)
        writer.close()
        lake.commit(Change(), replace(lake.state, clusters={cluster_id: 1}))


def ingest_into(
    spark: SparkSession,
    lake: Path,
    *sources: Path,
    kind: str | None = None,
    tables: str | None = None,
    everything: bool = False,
) -> Ingested:
    """One ingest of some sources, with the options of the command: `kind` is the format of a new lake."""
    with Lake.writing(str(lake), kind) as found:
        new = find_new_files(found, [str(source) for source in sources])
        chosen = choose_tables(tables)
        return ingest(spark, found, new, Steps(), tables=chosen, everything=everything)


def gaps_of(lake: Lake, reason: str) -> int:
    """The number of stored gaps with this reason, void or not."""
    found = [StoredRows(folder).gaps() for folder in folders(lake.rows).values()]
    return sum(pc.sum(pc.equal(gaps.column("type"), reason)).as_py() or 0 for gaps in found)


def stored_lines(lake: Path, tables: str) -> dict[str, list[str]]:
    """The rows of a lake's tables (a comma-separated list); of gaps, those that hide records."""
    found = Lake.open(str(lake))
    lines = {}
    for name in tables.split(","):
        read = read_table(found, name)
        assert read is not None
        lines[name] = sorted(repr(row) for row in read.rows if row.get("hides_records", True))
    return lines
