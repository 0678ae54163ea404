"""TLS and SASL as Kafka configures and speaks them, for clients and controllers."""
