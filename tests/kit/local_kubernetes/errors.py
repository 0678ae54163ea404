"""Errors whose reason the user can fix."""


class LocalKubernetesError(Exception):
    """Something that is needed is missing or failed; the message says what, and how to get it."""
