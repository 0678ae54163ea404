"""What can go wrong for a reason that the user can mend."""


class LocalKubernetesError(Exception):
    """Something that is needed is missing or failed; the message says what, and how to get it."""
