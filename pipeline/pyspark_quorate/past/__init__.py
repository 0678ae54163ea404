"""The metadata of a cluster as it was at a moment, from the rows of a lake. Needs neither Spark nor Java."""
