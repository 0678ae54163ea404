"""Kafka's protocol for controllers: messages, records, batches, the metadata image."""

from quorate_protocol import kio_import

kio_import.install()
