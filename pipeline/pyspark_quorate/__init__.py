"""A Kafka cluster's metadata history on Spark: a data source, tables made from it, jobs and a report.

`spark.read.format("quorate").load("DIR")` reads the metadata logs and checkpoints below a directory;
:mod:`pyspark_quorate.rows` has the columns, :mod:`pyspark_quorate.tables` what is made of them.
"""
