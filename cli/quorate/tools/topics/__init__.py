"""`quorate topics`: the options and the output of kafka-topics (Kafka 4.3.1), and JSON."""

from quorate.tools.topics.command import app

__all__ = ("app",)
