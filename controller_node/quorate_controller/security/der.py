"""Values of DER, the encoding of certificates."""

from typing import Final

from quorate_protocol.plain_data import dataclass

SEQUENCE: Final = 0x30
OBJECT_IDENTIFIER: Final = 0x06


@dataclass(frozen=True, slots=True)
class Value:
    """One DER value: its tag, its content, and both with the length between them."""

    tag: int
    content: bytes
    encoded: bytes


def identifier_of(content: bytes) -> str:
    """Return an object identifier as text: `2.5.4.3`. Raises ValueError if it is none."""
    numbers = []
    number = 0
    for byte in content:
        number = number << 7 | byte & 0x7F
        if byte < 0x80:
            numbers.append(number)
            number = 0
    if not numbers:
        raise ValueError("an object identifier is empty")
    first = min(numbers[0] // 40, 2)
    return ".".join(map(str, (first, numbers[0] - first * 40, *numbers[1:])))


def only_value(data: bytes, tag: int) -> Value:
    """Return the one value of which `data` consists. Raises ValueError if there is another, or not this tag."""
    values = values_of(data)
    if len(values) != 1 or values[0].tag != tag:
        raise ValueError("this is not what DER has here")
    return values[0]


def values_of(data: bytes) -> list[Value]:
    """Return the values of which `data` consists. Raises ValueError if it is no DER."""
    values = []
    at = 0
    while at < len(data):
        begin = at
        if at + 2 > len(data):
            raise ValueError("a DER value ends early")
        tag, length = data[at], data[at + 1]
        at += 2
        if length & 0x80:
            size = length & 0x7F
            length = int.from_bytes(data[at : at + size], "big")
            at += size
        end = at + length
        if end > len(data):
            raise ValueError("a DER value ends early")
        values.append(Value(tag, data[at:end], data[begin:end]))
        at = end
    return values
