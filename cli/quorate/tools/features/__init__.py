"""`quorate features`: the options and the output of kafka-features, with JSON beside them."""

from quorate.tools.features.command import app

__all__ = ("app",)
