"""Reads a cluster's history from the rows of a lake, without Spark.

The rows are sorted in memory, so reading a history takes about as much memory as its rows.
"""

from collections.abc import Iterator
from typing import Any, Final

from pyspark_quorate import rows
from pyspark_quorate.jobs import raw
from pyspark_quorate.jobs.lake import Lake
from pyspark_quorate.jobs.state import LakeError
from pyspark_quorate.tables.lines import Line

BATCH_ROWS: Final = 50_000


def choose_cluster(lake: Lake, cluster_id: str | None) -> str:
    """Returns this cluster id, or without one the id of the only cluster. Raises LakeError, which lists the ids."""
    known = sorted(lake.state.clusters)
    if cluster_id is not None and cluster_id not in known:
        raise LakeError(f"--cluster-id {cluster_id}: {lake.path} has {', '.join(known) or 'no clusters'}")
    if cluster_id is None and len(known) != 1:
        raise LakeError(
            f"{lake.path} has {'several clusters' if known else 'no clusters'}"
            + (f": give --cluster-id with one of {', '.join(known)}" if known else "")
        )
    return cluster_id if cluster_id is not None else known[0]


def read_history(lake: Lake, cluster_id: str) -> Iterator[Line]:
    """The lines of a cluster's timeline, of all record types."""
    import pyarrow as pa  # noqa: PLC0415 - half a second
    import pyarrow.dataset as ds  # noqa: PLC0415

    from pyspark_quorate.tables import summary  # noqa: PLC0415
    from pyspark_quorate.tables.evidence import evidence_of  # noqa: PLC0415
    from pyspark_quorate.tables.timeline import Timeline  # noqa: PLC0415

    folder = raw.folders(lake.rows).get(cluster_id)
    if folder is None:
        return
    dataset = ds.dataset(folder, format="parquet")
    is_row = ds.field("kind") != rows.GAP
    told = dataset.scanner(columns=_columns(summary.COLUMNS, cluster_id), filter=is_row).to_reader()
    evidence = evidence_of(summary.summarize(told).get(cluster_id, summary.Summary()))
    bridges = [one.copy for one in evidence.bridges.values()]
    needed = (ds.field("kind") == rows.LOG) | (
        ds.field("source").isin(pa.array([one.source for one in bridges], pa.string()))
        & ds.field("offset").isin(pa.array([one.offset for one in bridges], pa.int64()))
    )
    found = dataset.to_table(columns=_columns(rows.SCHEMA.names, cluster_id), filter=is_row & needed)
    order = [("offset", "ascending"), ("kind", "descending")]
    order += [(name, "ascending") for name in ("epoch", "source", "ordinal")]
    timeline = Timeline(evidence)
    for batch in found.sort_by(order).to_batches(max_chunksize=BATCH_ROWS):
        yield from timeline.take(batch).lines
    yield from timeline.finish()


def _columns(names: Any, cluster_id: str) -> dict[str, Any]:
    """Returns expressions for the columns that the timeline reads. The cluster id comes from the folder's name."""
    import pyarrow as pa  # noqa: PLC0415
    import pyarrow.compute as pc  # noqa: PLC0415
    import pyarrow.dataset as ds  # noqa: PLC0415

    made: dict[str, Any] = {name: ds.field(name) for name in names}
    made["cluster_id"] = pc.scalar(cluster_id)
    made["time"] = ds.field("time").cast(pa.timestamp("us", "UTC")).cast(pa.int64())
    return made
