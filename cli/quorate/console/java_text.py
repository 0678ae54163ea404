"""Java's texts and orders, where the output of Kafka's tools depends on them."""

from collections.abc import Callable, Hashable, Iterable, Mapping
from functools import lru_cache
from typing import TypeVar

_TABLE_SIZE_DEFAULT = 16

_Key = TypeVar("_Key", bound=Hashable)


def hash_order(
    keys: Iterable[_Key],
    capacity: int = _TABLE_SIZE_DEFAULT,
    *,
    hash_code: Callable[[_Key], int] | None = None,
) -> list[_Key]:
    """The distinct keys in the iteration order of a `java.util.HashMap`.

    Kafka's tools print such maps, so the order is part of their output. It depends on the keys' hash codes and on the
    table size, which starts at `capacity` (rounded up to a power of two) and doubles when the table is three quarters
    full. Strings and 32-bit integers have Java's hash codes; other keys need a `hash_code`.
    """
    distinct = list(dict.fromkeys(keys))
    size = 1 << max(capacity - 1, 0).bit_length()
    while len(distinct) > size * 3 // 4:
        size *= 2
    code_of = hash_code or _hash_code_of
    return sorted(distinct, key=lambda key: _spread(code_of(key) & 0xFFFF_FFFF) & (size - 1))


def map_hash_code(content: Mapping[str, str | None]) -> int:
    """`Map.hashCode()`."""
    return sum(
        _hash_code(key) ^ (0 if value is None else _hash_code(value)) for key, value in content.items()
    )


def _hash_code_of(key: object) -> int:
    """`hashCode()` of an Integer or a String."""
    if isinstance(key, int):
        return key
    assert isinstance(key, str)
    return _hash_code(key)


@lru_cache(maxsize=1024)
def _hash_code(text: str) -> int:
    """`String.hashCode()`, as an unsigned number."""
    units = text.encode("utf-16-be", "surrogatepass")
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


def joined(values: Iterable[object]) -> str:
    """`String.join(",", …)`: a,b."""
    return ",".join(map(str, values))


def null_text(value: str | None) -> str:
    """`String.valueOf()`."""
    return "null" if value is None else value


def list_text(values: Iterable[object]) -> str:
    """`List.toString()`: [a, b]."""
    return f"[{', '.join(map(str, values))}]"
