"""The error that commands of the lake report in one line."""


class LakeError(Exception):
    """A lake, a source or an option can't be used. The message names it and what to do."""
