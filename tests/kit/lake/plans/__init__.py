"""The tables as declarative Spark plans over the same rows: the oracle of the fold."""
