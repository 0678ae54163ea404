"""Metadata history of Kafka clusters on Spark: a data source, tables, jobs and a report.

`spark.read.format("quorate").load("DIR")` reads the metadata logs and checkpoints below a directory.
:mod:`pyspark_quorate.rows` defines its columns, :mod:`pyspark_quorate.tables` the tables built from them.
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from pyspark_quorate.source.reader import QuorateDataSource as DefaultSource

__all__ = ("DefaultSource", "register")


def __getattr__(name: str) -> Any:
    """`DefaultSource`, by which Spark finds the source; loaded lazily, so that commands can report missing Spark."""
    if name != "DefaultSource":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from pyspark_quorate.source.reader import QuorateDataSource  # noqa: PLC0415

    return QuorateDataSource


def register(spark: "SparkSession") -> None:
    """Register the data source with a session, and let Spark push filters down to it.

    Without this call, Spark finds the source by the module's name (`pyspark_…`), and applies filters itself.
    """
    from pyspark_quorate.source.reader import FilteringDataSource  # noqa: PLC0415

    spark.conf.set("spark.sql.python.filterPushdown.enabled", "true")
    spark.dataSource.register(FilteringDataSource)
