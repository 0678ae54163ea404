"""The data source: reads logs and checkpoints as rows, and follows a running quorum."""
