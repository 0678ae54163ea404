"""Reads a cluster's history from the rows of a lake, without Spark."""

from collections.abc import Iterator

from pyspark_quorate.jobs.lake import Lake
from pyspark_quorate.jobs.state import LakeError
from pyspark_quorate.tables.lines import Line


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
    """Yields the lines of a cluster's timeline, of all record types."""
    from pyspark_quorate.stored.folders import folder_name  # noqa: PLC0415 - half a second
    from pyspark_quorate.stored.reading import StoredRows  # noqa: PLC0415
    from pyspark_quorate.tables.evidence import evidence_of  # noqa: PLC0415
    from pyspark_quorate.tables.timeline import Timeline  # noqa: PLC0415

    stored = StoredRows(lake.rows / folder_name(cluster_id))
    timeline = Timeline(evidence_of(stored.summary()))
    for batch in stored.records():
        yield from timeline.take(batch).lines
    yield from timeline.finish()
