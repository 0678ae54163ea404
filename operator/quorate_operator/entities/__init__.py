"""Topics and users of a Kafka cluster: what is desired and what is observed become changes. Pure."""
