"""A cluster of processes of this machine, as `quorate play` runs it."""
