"""What a certificate says, read from DER: whose it is, by whom it is signed, for which names and until when."""

from datetime import UTC, datetime
from typing import Final

from quorate_protocol.plain_data import dataclass

from quorate_controller.security.der import SEQUENCE, Value, identifier_of, only_value, values_of
from quorate_controller.security.distinguished_names import name_of

_VERSION: Final = 0xA0
_EXTENSIONS: Final = 0xA3
_UTC_TIME: Final = 0x17
_ALTERNATIVE_NAMES: Final = "2.5.29.17"


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
        """Read a DER certificate. Raises ValueError if it is none."""
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
    """Return the subject of a DER certificate. Raises ValueError if it is none."""
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
