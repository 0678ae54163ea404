"""TLS and SASL from Kafka's client properties."""
