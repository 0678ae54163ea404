"""Errors of playing a cluster. Each message is for the person at the terminal."""


class PlayError(Exception):
    """A request that can't be met; the message says why and what to do."""


class AlreadyRunningError(PlayError):
    """Another supervisor runs the cluster of this directory."""


class NotRunningError(PlayError):
    """No supervisor runs the cluster of this directory."""


class NotAnsweringError(PlayError):
    """The supervisor of this directory runs and does not answer in time."""


class KafkaUnavailableError(PlayError):
    """Stock Kafka can't be run here: Java or Kafka's jars are missing."""
