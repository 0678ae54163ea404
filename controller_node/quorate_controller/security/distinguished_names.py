"""The name of a certificate's holder as Java prints it (X500Principal.getName, RFC 2253), read from DER.

Kafka's principals are made of this text, so it has to equal Java's to the letter: OpenSSL's own form has other
keywords and escapes. It is that of JDK 17.0.21.1 and its siblings; older ones take the bytes of each kind of text for
UTF-8, which is the same for UTF8String and for all that is ASCII.
"""

from typing import Final

from quorate_controller.security.der import (
    OBJECT_IDENTIFIER,
    SEQUENCE,
    Value,
    identifier_of,
    only_value,
    values_of,
)

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
