"""Names in clusters that tests share."""

from uuid import uuid4


def unused(prefix: str) -> str:
    """A name that nothing has yet, not even what a failed attempt of the same test has left."""
    return f"{prefix}-{uuid4().hex[:8]}"
