"""A Kafka cluster's metadata history on Spark: a data source, tables made from it, jobs and a report.

`spark.read.format("quorate").load("DIR")` reads the metadata logs and checkpoints below a directory;
:mod:`pyspark_quorate.rows` has the columns, :mod:`pyspark_quorate.tables` what is made of them.
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from pyspark_quorate.source.reader import QuorateDataSource as DefaultSource

__all__ = ("DefaultSource", "register")


def __getattr__(name: str) -> Any:
    """`DefaultSource`, which Spark looks for; loaded when it does, so that commands can say that Spark is missing."""
    if name != "DefaultSource":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from pyspark_quorate.source.reader import QuorateDataSource  # noqa: PLC0415

    return QuorateDataSource


def register(spark: "SparkSession") -> None:
    """Registers the data source with a session and lets Spark push filters down to it.

    Without it the source registers itself, as every module that is called `pyspark_…` does, and Spark filters.
    """
    from pyspark_quorate.source.reader import FilteringDataSource  # noqa: PLC0415

    spark.conf.set("spark.sql.python.filterPushdown.enabled", "true")
    spark.dataSource.register(FilteringDataSource)
