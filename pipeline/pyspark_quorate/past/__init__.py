"""The metadata of a cluster at a moment in the past, from the rows of a lake. Needs neither Spark nor Java."""
