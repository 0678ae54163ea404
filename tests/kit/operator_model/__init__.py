"""A model of a Kafka cluster for `plan()`: deterministic, without sockets and clocks. See `world.World`."""
