"""Jobs: read sources, keep a lake of tables, batch or streaming. Sessions of Spark begin here and nowhere else."""
