"""How Java writes values, where Kafka's tools let it."""

from collections.abc import Iterable
from functools import lru_cache
from typing import TypeVar

_TABLE_SIZE_DEFAULT = 16

_Key = TypeVar("_Key", str, int)


def hash_order(keys: Iterable[_Key], capacity: int = _TABLE_SIZE_DEFAULT) -> list[_Key]:
    """The different keys, texts or 32-bit numbers, in the order in which a `java.util.HashMap` gives them.

    Kafka's tools print the entries of such maps on one line. The order follows from the keys' hash codes
    and the size of the table, which starts at `capacity` (its next power of two) and doubles when it is
    filled to three quarters.
    """
    distinct = list(dict.fromkeys(keys))
    size = 1 << max(capacity - 1, 0).bit_length()
    while len(distinct) > size * 3 // 4:
        size *= 2
    return sorted(distinct, key=lambda key: _spread(_hash_code(key)) & (size - 1))


@lru_cache(maxsize=1024)
def _hash_code(key: str | int) -> int:
    """`hashCode()` of a String or an Integer, as an unsigned number."""
    if isinstance(key, int):
        return key & 0xFFFF_FFFF
    units = key.encode("utf-16-be", "surrogatepass")
    code = 0
    for index in range(0, len(units), 2):
        code = (31 * code + (units[index] << 8) + units[index + 1]) & 0xFFFF_FFFF
    return code


def _spread(code: int) -> int:
    return code ^ (code >> 16)


def double_text(value: float) -> str:
    """`Double.toString()`: 1024.0, 1.0E7, 5.0E-4."""
    if value != value:  # noqa: PLR0124 - not a number, in the way that needs no import
        return "NaN"
    if value in {float("inf"), float("-inf")}:
        return "Infinity" if value > 0 else "-Infinity"
    shortest = repr(value)
    if value == 0 or 1e-3 <= abs(value) < 1e7:  # where Python writes no exponent either
        return shortest
    from decimal import Decimal

    number = Decimal(shortest).normalize()
    digits = "".join(map(str, number.as_tuple().digits))
    return f"{'-' if value < 0 else ''}{digits[0]}.{digits[1:] or '0'}E{number.adjusted()}"


def list_text(values: Iterable[object]) -> str:
    """`List.toString()`: [a, b]."""
    return f"[{', '.join(map(str, values))}]"
