"""`quorate metadata-quorum`: the options and the output of kafka-metadata-quorum, with JSON beside them."""

from quorate.tools.metadata_quorum.command import app

__all__ = ("app",)
