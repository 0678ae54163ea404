"""Envelope: requests that brokers forward for their clients (KIP-590).

An envelope carries the client's request with its header, the client's principal, and its address. What is
wrong with the envelope is an error on the envelope; an unreadable request inside is UNSUPPORTED_VERSION,
upon which the broker closes its client's connection.
"""

from __future__ import annotations

import ipaddress
from typing import TYPE_CHECKING, Final

from quorate_protocol.errors import ErrorCode, ProtocolError, UnsupportedVersion
from quorate_protocol.kafka.apis import APIS
from quorate_protocol.kafka.generated.default_principal_data import DefaultPrincipalData
from quorate_protocol.plain_data import dataclass
from quorate_protocol.wire.codec import decode
from quorate_protocol.wire.headers import read_request_header
from quorate_protocol.wire.server import parse_request

from quorate_controller.node.events import Principal

if TYPE_CHECKING:
    from collections.abc import Mapping

    from quorate_protocol.kafka.apis import Api
    from quorate_protocol.kafka.generated.envelope_request import EnvelopeRequest
    from quorate_protocol.wire.server import Request

_ID_DIGITS_MAX: Final = 10
_PRINCIPAL_VERSION_0: Final = b"\x00\x00"


@dataclass(frozen=True, slots=True, kw_only=True)
class Forwarded:
    """The content of an envelope."""

    request: Request
    principal: Principal
    client_host: str


def forwarder_of(envelope: Request) -> int | None:
    """Return the id of the broker that forwards: brokers use it as their client id. None if this is no id."""
    client_id = envelope.client_id or ""
    is_id = client_id.isascii() and client_id.isdecimal() and len(client_id) <= _ID_DIGITS_MAX
    return int(client_id) if is_id else None


def open_envelope(envelope: EnvelopeRequest, apis: Mapping[int, Api], elements_max: int) -> Forwarded:
    """Unwrap an envelope. `apis` are those that are served; `elements_max` is of all arrays of the request inside.

    Raises:
        ProtocolError: its error code belongs on the envelope.
    """
    principal = _read_principal(envelope.request_principal)
    try:
        client_host = str(ipaddress.ip_address(envelope.client_host_address))
    except ValueError as error:
        raise ProtocolError(ErrorCode.invalid_request, f"client address of an envelope: {error}") from error
    request = _read_request(envelope.request_data, apis, elements_max)
    return Forwarded(request=request, principal=principal, client_host=client_host)


def _read_request(data: bytes, apis: Mapping[int, Api], elements_max: int) -> Request:
    try:
        api_key = read_request_header(data).api_key
    except ProtocolError as error:
        raise UnsupportedVersion(f"header of a forwarded request: {error.message}") from error
    api = APIS.get(api_key)
    if api is not None and not api.is_forwardable:
        raise ProtocolError(ErrorCode.invalid_request, f"{api.name} requests are not forwarded")
    try:
        return parse_request(data, apis, elements_max)
    except ProtocolError as error:
        raise UnsupportedVersion(f"forwarded request: {error.message}") from error


def _read_principal(data: bytes | None) -> Principal:
    """A principal as Kafka's default builder serializes it: a version, then DefaultPrincipalData."""
    if data is None or not data.startswith(_PRINCIPAL_VERSION_0):
        raise ProtocolError(
            ErrorCode.principal_deserialization_failure, "an envelope has no principal of version 0"
        )
    try:
        principal = decode(DefaultPrincipalData, data, len(_PRINCIPAL_VERSION_0))
    except ProtocolError as error:
        raise ProtocolError(
            ErrorCode.principal_deserialization_failure, f"principal of an envelope: {error.message}"
        ) from error
    return Principal(
        type=principal.type_,
        name=principal.name,
        token_authenticated=principal.token_authenticated,
    )
