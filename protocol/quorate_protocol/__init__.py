"""Kafka's protocol for controllers: messages, records, batches, the metadata image."""
