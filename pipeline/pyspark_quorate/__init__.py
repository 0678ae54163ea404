"""A Kafka cluster's metadata history on Spark: a data source, tables made from it, jobs and a report.

`spark.read.format("quorate").load("DIR")` reads the metadata logs and checkpoints below a directory;
:mod:`pyspark_quorate.rows` has the columns, :mod:`pyspark_quorate.tables` what is made of them.
"""

from typing import TYPE_CHECKING

from pyspark_quorate.source.reader import FilteringDataSource
from pyspark_quorate.source.reader import QuorateDataSource as DefaultSource

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ("DefaultSource", "register")


def register(spark: "SparkSession") -> None:
    """Registers the data source with a session and lets Spark push filters down to it.

    Without it the source registers itself, as every module that is called `pyspark_…` does, and Spark filters.
    """
    spark.conf.set("spark.sql.python.filterPushdown.enabled", "true")
    spark.dataSource.register(FilteringDataSource)
