"""Delta tables of a lake, written by delta-rs, without a JVM."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from pyspark_quorate.errors import LakeError

if TYPE_CHECKING:
    from deltalake import DeltaTable

APPLICATION: Final = "quorate-lake"
"""The application id of Delta's transaction identifiers; their version is the lake's commit."""
PARTITIONS: Final = ["cluster_id", "day"]
HOW_TO_GET: Final = "deltalake is missing: pip install 'quorate[lake,delta]'"


def check_installed() -> None:
    """Raise LakeError when delta-rs is missing."""
    _deltalake()


def replace_clusters(table: Path, staged: Path, clusters: Sequence[str], commit: int) -> None:
    """Replace the rows of some clusters by staged rows, in one transaction of the Delta table.

    A transaction that a killed run already committed is not repeated.
    """
    import pyarrow.dataset as ds  # noqa: PLC0415 - only for lakes of this format
    import pyarrow.parquet as pq  # noqa: PLC0415

    deltalake = _deltalake()
    schema = _plain(pq.read_schema(staged / "_common_metadata"))
    found = open_table(table)
    if found is None:
        found = deltalake.DeltaTable.create(
            str(table), schema=deltalake.Schema.from_arrow(schema), partition_by=PARTITIONS
        )
    if (found.transaction_version(APPLICATION) or 0) >= commit:
        return
    rows = ds.dataset(staged, schema=schema, format="parquet", partitioning=hive_partitioning())
    listed = ", ".join("'" + cluster.replace("'", "''") + "'" for cluster in clusters)
    deltalake.write_deltalake(
        found,
        rows.scanner(batch_size=65_536).to_reader(),
        mode="overwrite",
        predicate=f"cluster_id IN ({listed})",
        schema_mode="merge",
        commit_properties=deltalake.CommitProperties(
            app_transactions=[deltalake.Transaction(app_id=APPLICATION, version=commit)]
        ),
    )


def open_table(table: Path) -> "DeltaTable | None":
    """A Delta table, or None before the first commit."""
    deltalake = _deltalake()
    return deltalake.DeltaTable(str(table)) if deltalake.DeltaTable.is_deltatable(str(table)) else None


def compact(table: Path) -> int:
    """Merge small files of a Delta table, and delete files that no version of the last week needs.

    Returns the number of files left.
    """
    found = open_table(table)
    if found is None:
        return 0
    found.optimize.compact()
    found.vacuum(dry_run=False)
    return len(found.file_uris())


def hive_partitioning() -> Any:
    """The partitioning of a table by cluster and day."""
    import pyarrow as pa  # noqa: PLC0415
    import pyarrow.dataset as ds  # noqa: PLC0415

    return ds.partitioning(pa.schema([("cluster_id", pa.string()), ("day", pa.date32())]), flavor="hive")


def _plain(schema: Any) -> Any:
    """The columns without Spark's metadata, with UTC timestamps in microseconds, as in Delta."""
    import pyarrow as pa  # noqa: PLC0415

    def kind(found: Any) -> Any:
        return pa.timestamp("us", tz="UTC") if pa.types.is_timestamp(found) else found

    return pa.schema([pa.field(field.name, kind(field.type), nullable=True) for field in schema])


def _deltalake() -> Any:
    try:
        import deltalake  # noqa: PLC0415 - an extra
    except ImportError as error:
        raise LakeError(HOW_TO_GET) from error
    return deltalake
