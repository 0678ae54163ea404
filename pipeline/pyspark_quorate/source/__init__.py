"""The data source: finds logs and checkpoints, reads them to rows; follows a living quorum."""
