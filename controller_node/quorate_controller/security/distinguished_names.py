"""The name of a certificate's holder as Java prints it (X500Principal.getName, RFC 2253), read from DER.

Kafka's principals are made of this text, so it has to equal Java's to the letter: OpenSSL's own form has other
keywords and escapes. It is that of JDK 17.0.21.1 and its siblings; older ones take the bytes of each kind of text for
UTF-8, which is the same for UTF8String and for all that is ASCII.
"""

from dataclasses import dataclass
from typing import Final

_SEQUENCE: Final = 0x30
_SET: Final = 0x31
_OBJECT_IDENTIFIER: Final = 0x06
_VERSION_OF_CERTIFICATE: Final = 0xA0

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
class _Value:
    """One DER value: its tag, its content, and both with the length between them."""

    tag: int
    content: bytes
    encoded: bytes


def subject_of(certificate: bytes) -> str:
    """Return the subject of a DER certificate. Raises ValueError if it is none."""
    signed = _values(_only(certificate, _SEQUENCE).content)
    fields = _values(signed[0].content) if signed else []
    # serial number, algorithm, issuer, validity, subject, key
    if len(fields) < 6:
        raise ValueError("the certificate has no subject")
    return name_of(fields[4 + (fields[0].tag == _VERSION_OF_CERTIFICATE)].encoded)


def name_of(name: bytes) -> str:
    """Return a DER name as text, the last part first. Raises ValueError."""
    parts = _values(_only(name, _SEQUENCE).content)
    return ",".join(_relative_name(part) for part in reversed(parts))


def _relative_name(part: _Value) -> str:
    if part.tag != _SET:
        raise ValueError(f"a part of a name has the tag {part.tag:#x}")
    return "+".join(_attribute(attribute) for attribute in _values(part.content))


def _attribute(attribute: _Value) -> str:
    pair = _values(attribute.content)
    if len(pair) != 2 or pair[0].tag != _OBJECT_IDENTIFIER:
        raise ValueError("an attribute of a name is no pair of type and value")
    identifier = _identifier(pair[0].content)
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


def _identifier(content: bytes) -> str:
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


def _only(data: bytes, tag: int) -> _Value:
    values = _values(data)
    if len(values) != 1 or values[0].tag != tag:
        raise ValueError("this is not what DER has here")
    return values[0]


def _values(data: bytes) -> list[_Value]:
    """The DER values of which `data` consists."""
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
        values.append(_Value(tag, data[at:end], data[begin:end]))
        at = end
    return values
