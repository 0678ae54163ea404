"""Kafka's uuids: 128 bits as URL-safe base64 without padding, 22 characters."""

import base64
import binascii
import re
from collections.abc import Callable
from typing import TYPE_CHECKING
from uuid import UUID, uuid4

if TYPE_CHECKING:
    from random import Random

ZERO_UUID_TEXT = "A" * 22
_TEXT = re.compile(r"[A-Za-z0-9_-]{22}")
_RESERVED_MAX = 100
"""Kafka's DirectoryId reserves the numbers below this for meanings such as LOST and UNASSIGNED."""


def uuid_to_text(value: UUID | None) -> str:
    """Return the text in Kafka's form; None is the zero uuid, as in decoded messages."""
    if value is None:
        return ZERO_UUID_TEXT
    return base64.urlsafe_b64encode(value.bytes).decode().rstrip("=")


def uuid_from_text(text: str) -> UUID:
    """Parse Kafka's form.

    Raises:
        ValueError: the text is not a uuid in this form.
    """
    if not _TEXT.fullmatch(text):
        raise ValueError(f"{text!r} is not a uuid in 22 characters of base64")
    try:
        return UUID(bytes=base64.urlsafe_b64decode(text + "=="))
    except binascii.Error as error:
        raise ValueError(f"{text!r} is not a uuid in base64: {error}") from error


def is_reserved(directory_id: UUID) -> bool:
    """Whether Kafka reserves it for a meaning, such as UNASSIGNED (DirectoryId.reserved)."""
    return directory_id.int < _RESERVED_MAX


def random_uuid(generate: Callable[[], UUID] = uuid4) -> UUID:
    """Return a random uuid whose text does not start with a dash: command lines would parse it as an option."""
    while True:
        value = generate()
        if not is_reserved(value) and not uuid_to_text(value).startswith("-"):
            return value


def uuid_from(rng: "Random") -> UUID:
    """Return a uuid as `random_uuid` does, from this random source."""
    return random_uuid(lambda: UUID(int=rng.getrandbits(128), version=4))
