"""Kafka's own text of each error code, which clients show where a response has no message (Errors.exception)."""

import json
import pkgutil
from functools import cache

from quorate_protocol.errors import ErrorCode


def error_text(code: ErrorCode) -> str | None:
    """Return the text of a code; None for a code that Kafka does not have."""
    return _texts().get(str(int(code)))


@cache
def _texts() -> dict[str, str]:
    data = pkgutil.get_data("quorate_protocol.kafka", "error_texts.json")
    assert data is not None
    texts: dict[str, str] = json.loads(data)
    return texts
