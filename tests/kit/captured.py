"""Requests and responses captured from stock Kafka: see tests/golden/data/README.md."""

import base64
import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from quorate_protocol.errors import ErrorCode
from quorate_protocol.kafka.apis import APIS, Api
from quorate_protocol.wire.codec import decode
from quorate_protocol.wire.headers import read_request_header, read_response_header, skip_tagged_fields

DATA = Path(__file__).parents[1] / "golden" / "data"
ENVELOPE = 58


@dataclass(frozen=True, slots=True, kw_only=True)
class Captured:
    """One request and its response, without frame lengths."""

    source: str
    request: bytes
    response: bytes

    @property
    def api(self) -> Api:
        """The API that the request names."""
        return APIS[int.from_bytes(self.request[:2], "big")]

    @property
    def version(self) -> int:
        """The version that the request names."""
        return int.from_bytes(self.request[2:4], "big")

    @property
    def request_body(self) -> Any:
        """The request in the class of its version."""
        offset = read_request_header(self.request).size_bytes
        if self.api.request_header_version(self.version) == 2:
            offset = skip_tagged_fields(self.request, offset)
        return decode(self.api.request_class(self.version), self.request, offset)

    @property
    def response_body(self) -> Any:
        """The response in the class of its version."""
        _, body = decode_response(self.api, self.version, self.response)
        return body


def decode_response(api: Api, version: int, response: bytes) -> tuple[int, Any]:
    """The correlation id and the body of a response, without its frame's length.

    Raises:
        ProtocolError: it is not of this version.
    """
    correlation_id, offset = read_response_header(response, api.response_header_version(version))
    return correlation_id, decode(api.response_class(version), response, offset)


def captured_exchanges() -> Iterator[Captured]:
    """All captured exchanges, and those that Envelopes carry."""
    for path in sorted(DATA.rglob("*.jsonl")):
        name = path.relative_to(DATA).with_suffix("")
        for number, line in enumerate(path.read_text().splitlines()):
            exchange = json.loads(line)
            request, response = (base64.b64decode(exchange[key]) for key in ("request", "response"))
            outer = Captured(source=f"{name}:{number}", request=request, response=response)
            yield outer
            if outer.api.key == ENVELOPE and outer.response_body.error_code is ErrorCode.none:
                yield Captured(
                    source=f"{name}:{number} inside",
                    request=outer.request_body.request_data,
                    response=outer.response_body.response_data,
                )
