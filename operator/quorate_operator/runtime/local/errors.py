"""What can go wrong when a cluster is played. Each message is for the person at the terminal."""


class PlayError(Exception):
    """What was asked for can't be done; the message says why and what to do about it."""


class AlreadyRunningError(PlayError):
    """Another supervisor runs the cluster of this directory."""


class NotRunningError(PlayError):
    """No supervisor runs the cluster of this directory."""


class NotAnsweringError(PlayError):
    """A supervisor runs the cluster of this directory, and has no time to answer."""


class KafkaUnavailableError(PlayError):
    """Stock Kafka can't be run here: Java or Kafka's jars are missing."""
