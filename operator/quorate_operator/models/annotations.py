"""Annotations of a KafkaController or KafkaBroker: what is asked for once, besides the spec."""

ANNOTATION_RESTART = "quorate.dev/restart"
"""Any text: each node of the pool, or with `-<nodeId>` behind it one node, restarts when it changes."""
ANNOTATION_RECOVER = "quorate.dev/recover-quorum-from"
"""The node id of the controller from whose disk a lost quorum is to be rebuilt."""
ANNOTATION_PAUSE = "quorate.dev/pause"
"""`true`: like spec.paused."""
