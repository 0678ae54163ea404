"""The fields of a certificate, read from DER: subject, issuer, validity, alternative names.

Kafka's principals are made of the subject as Java prints it (X500Principal.getName, RFC 2253), so it has to equal
Java's to the letter: OpenSSL's own form has other keywords and escapes. It is that of JDK 17.0.21.1 and its siblings;
older ones take the bytes of each kind of text for UTF-8, which is the same for UTF8String and for all that is ASCII.
"""

from datetime import UTC, datetime
from typing import Final

from quorate_protocol.plain_data import dataclass

_VERSION: Final = 0xA0
_EXTENSIONS: Final = 0xA3
_UTC_TIME: Final = 0x17
_ALTERNATIVE_NAMES: Final = "2.5.29.17"

SEQUENCE: Final = 0x30
OBJECT_IDENTIFIER: Final = 0x06

_SET: Final = 0x31

_KEYWORDS: Final = {
    "2.5.4.3": "CN",
    "2.5.4.6": "C",
    "2.5.4.7": "L",
    "2.5.4.8": "ST",
    "2.5.4.9": "STREET",
    "2.5.4.10": "O",
    "2.5.4.11": "OU",
    "0.9.2342.19200300.100.1.1": "UID",
    "0.9.2342.19200300.100.1.25": "DC",
}
_BMP_STRING: Final = 0x1E
_ENCODINGS: Final = {
    0x0C: "utf-8",  # UTF8String
    0x13: "latin-1",  # PrintableString
    0x14: "latin-1",  # T61String
    0x16: "latin-1",  # IA5String
    0x1B: "latin-1",  # GeneralString
    _BMP_STRING: "utf-16-be",
}
"""How Java decodes the kinds of text, by tag."""
_ESCAPED: Final = frozenset(',=+<>#;"\\')
_BLANKS: Final = " \r"


@dataclass(frozen=True, slots=True)
class Value:
    """One DER value: its tag, its content, and both with the length between them."""

    tag: int
    content: bytes
    encoded: bytes


def identifier_of(content: bytes) -> str:
    """Return an object identifier as text: `2.5.4.3`. Raises ValueError."""
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
    """Return the one value of which `data` consists. Raises ValueError if there are others, or its tag differs."""
    values = values_of(data)
    if len(values) != 1 or values[0].tag != tag:
        raise ValueError(f"expected one DER value with the tag {tag:#x}")
    return values[0]


def values_of(data: bytes) -> list[Value]:
    """Return the values of which `data` consists. Raises ValueError."""
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


def name_of(name: bytes) -> str:
    """Return a DER name as text, the last part first. Raises ValueError."""
    parts = values_of(only_value(name, SEQUENCE).content)
    return ",".join(_relative_name(part) for part in reversed(parts))


def _relative_name(part: Value) -> str:
    if part.tag != _SET:
        raise ValueError(f"a part of a name has the tag {part.tag:#x}")
    return "+".join(_attribute(attribute) for attribute in values_of(part.content))


def _attribute(attribute: Value) -> str:
    pair = values_of(attribute.content)
    if len(pair) != 2 or pair[0].tag != OBJECT_IDENTIFIER:
        raise ValueError("an attribute of a name is no pair of type and value")
    identifier = identifier_of(pair[0].content)
    keyword, value = _KEYWORDS.get(identifier), pair[1]
    encoding = _ENCODINGS.get(value.tag)
    if keyword is None or encoding is None:
        return f"{keyword or identifier}=#{value.encoded.hex()}"
    text = value.content.decode(encoding, errors="replace")
    if value.tag == _BMP_STRING and any(ord(character) > 0xFFFF for character in text):
        raise ValueError("a BMPString has a character that needs two units, which Java refuses")
    return f"{keyword}={_escaped(text)}"


def _escaped(text: str) -> str:
    escaped = "".join(
        "\\" + character if character in _ESCAPED else "\\00" if character == "\0" else character
        for character in text
    )
    first = len(escaped) - len(escaped.lstrip(_BLANKS))
    end = len(escaped.rstrip(_BLANKS))
    return "".join(
        character if first <= at < end else "\\" + character for at, character in enumerate(escaped)
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Certificate:
    """A certificate. `subject` and `issuer` are as Java prints them."""

    subject: str
    issuer: str
    serial_number: str
    """In hexadecimal, as openssl prints it."""
    not_before: datetime
    not_after: datetime
    alternative_names: frozenset[bytes]
    """The encoded names of subjectAltName: hosts and addresses."""

    @classmethod
    def of(cls, encoded: bytes) -> "Certificate":
        """Read a DER certificate. Raises ValueError."""
        fields = _fields(encoded)
        begin, end = values_of(fields[3].content)
        return cls(
            subject=name_of(fields[4].encoded),
            issuer=name_of(fields[2].encoded),
            serial_number=fields[0].content.removeprefix(b"\0").hex().upper(),
            not_before=_time(begin),
            not_after=_time(end),
            alternative_names=_alternative_names(fields[5:]),
        )


def subject_of(certificate: bytes) -> str:
    """Return the subject of a DER certificate. Raises ValueError."""
    return name_of(_fields(certificate)[4].encoded)


def _fields(certificate: bytes) -> list[Value]:
    """From the serial number on: serial number, algorithm, issuer, validity, subject, key, and what is optional."""
    signed = values_of(only_value(certificate, SEQUENCE).content)
    fields = values_of(signed[0].content) if signed else []
    found = fields[1:] if fields and fields[0].tag == _VERSION else fields
    if len(found) < 6:
        raise ValueError("the certificate has no subject")
    return found


def _time(value: Value) -> datetime:
    # RFC 5280: years of UTCTime are those from 1950 to 2049.
    text = value.content.decode("ascii")
    if value.tag == _UTC_TIME:
        text = ("19" if text[:2] >= "50" else "20") + text
    return datetime.strptime(text, "%Y%m%d%H%M%SZ").replace(tzinfo=UTC)


def _alternative_names(fields: list[Value]) -> frozenset[bytes]:
    for field in fields:
        if field.tag != _EXTENSIONS:
            continue
        for extension in values_of(only_value(field.content, SEQUENCE).content):
            parts = values_of(extension.content)
            if identifier_of(parts[0].content) == _ALTERNATIVE_NAMES:
                return frozenset(
                    value.encoded for value in values_of(only_value(parts[-1].content, SEQUENCE).content)
                )
    return frozenset()
