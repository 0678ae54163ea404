"""`quorate topics`: the options and the output of kafka-topics (Kafka 4.3.1)."""

from quorate_admin.tools.topics.command import app

__all__ = ("app",)
