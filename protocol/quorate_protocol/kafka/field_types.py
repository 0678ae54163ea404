"""The primitive types of fields in Kafka's message schemas, and those that our classes have instead of numbers."""

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Final

from quorate_protocol.error_codes import ErrorCode

EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
MILLISECOND: Final = timedelta(milliseconds=1)

INTEGER_TYPES: Final = tuple(f"{sign}int{bits}" for sign in ("", "u") for bits in (8, 16, 32, 64))
ZEROS: Final[Mapping[str, object]] = {
    **dict.fromkeys(INTEGER_TYPES, 0),
    "bool": False,
    "bytes": b"",
    "datetime_i64": EPOCH,
    "error_code": ErrorCode.none,
    "float64": 0.0,
    "records": b"",
    "string": "",
    "timedelta_i32": timedelta(0),
    "timedelta_i64": timedelta(0),
    "uuid": None,
}
"""Each type -> the value of a field without a default. Any other type is a struct."""
