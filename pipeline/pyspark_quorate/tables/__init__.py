"""Tables: pure functions from DataFrames to a DataFrame with a documented schema, one module per table."""
