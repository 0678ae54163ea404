"""The rows that a lake keeps: every row ever read, once for each source file, in Parquet files that are sorted.

They are kept beside the tables because sources delete segments and replace checkpoints. Tables are rebuilt from them
when a cluster has new rows, when a table's definition changed, or with --rebuild. Nothing here needs Spark.
"""
