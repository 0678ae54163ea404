"""The error response to any request that this controller can get, in the shape that the API's row names.

Most responses have one error code, at the top. Those to requests about several things repeat the error for
each item of the request, and clients read it nowhere else. The shapes are those of Kafka's `getErrorResponse`; a
golden test compares them byte by byte.
"""

from __future__ import annotations

from dataclasses import MISSING, replace
from functools import cache
from typing import TYPE_CHECKING, Any

from quorate_protocol.errors import ErrorCode
from quorate_protocol.kafka.apis import api_of
from quorate_protocol.plain_data import dataclass
from quorate_protocol.wire.schema import element_class, implicit_default, schema_of

if TYPE_CHECKING:
    from collections.abc import Mapping

    from quorate_protocol.kafka.apis import ErrorShape, Payload


def error_response(
    request: Payload, error_code: ErrorCode, message: str | None = None, *, version: int | None = None
) -> Payload:
    """The canonical response with `error_code` for the whole of a canonical request.

    `message` goes wherever the response has room for one; with None the client shows its own text for the
    code. Fields that a response of `version` does not have are left out.
    """
    error = _Error(error_code, message)
    api = api_of(request)
    fields = _fields(api.error, request, api.canonical_response, error)
    if version is not None and api.error.constants:
        known = {schema.name for schema in schema_of(api.response_class(version))}
        fields = {name: value for name, value in fields.items() if name in known}
    response: Payload = error.fill(api.canonical_response, fields)
    if version is not None and version < api.error.top_error_since:
        response = replace(response, error_code=ErrorCode.none)
    return response


def not_awaited(response: Payload) -> Payload:
    """The response to a request with a timeout of 0 whose changes are decided, but not committed (KIP-4).

    Changes get REQUEST_TIMED_OUT and no other field. Refused items keep their error.
    """
    timed_out: Payload = _timed_out(api_of(response).error, response)
    return timed_out


def _timed_out(shape: ErrorShape, entity: Any) -> Any:
    if shape.per_item is not None:
        assert shape.item is not None, "an array of items has a shape for each"
        items = getattr(entity, shape.per_item) or ()
        return replace(entity, **{shape.per_item: tuple(_timed_out(shape.item, item) for item in items)})
    if entity.error_code is not ErrorCode.none:
        return entity
    kept = (*shape.copied, *((shape.own_value,) if shape.own_value else ()))
    fields = {**shape.constants, **{name: getattr(entity, name) for name in kept}}
    return _Error(ErrorCode.request_timed_out, None).fill(type(entity), fields)


@dataclass(frozen=True, slots=True)
class _Error:
    """The content of an error response, as far as its class has fields for it."""

    error_code: ErrorCode
    error_message: str | None

    def fill(self, entity_class: Any, fields: Mapping[str, object]) -> Any:
        """An instance with the error, with `fields`, and with Kafka's defaults for everything else."""
        values = {**_defaults(entity_class), **fields}
        if "error_code" in values:
            values["error_code"] = self.error_code
        if "error_message" in values:
            values["error_message"] = self.error_message
        return entity_class(**values)


@cache
def _defaults(entity_class: Any) -> Mapping[str, object]:
    return {
        schema.name: implicit_default(schema) if schema.default is MISSING else schema.default
        for schema in schema_of(entity_class)
    }


def _fields(shape: ErrorShape, asked: Any, entity_class: Any, error: _Error) -> dict[str, object]:
    """Values of an `entity_class` for `asked`, a request or an item of a request."""
    values: dict[str, object] = {name: getattr(asked, source) for name, source in shape.copied.items()}
    values.update(shape.constants)
    if shape.own_value is not None:
        values[shape.own_value] = asked
    if shape.per_item is not None:
        assert shape.item is not None, "an array of items has a shape for each"
        item_class = element_class(entity_class, shape.per_item)
        elements = [
            error.fill(item_class, _fields(shape.item, item, item_class, error))
            for items in shape.items
            for item in getattr(asked, items) or ()
        ]
        values[shape.per_item] = tuple(elements if len(shape.items) == 1 else dict.fromkeys(elements))
    return values
