"""The error response to any request that this controller can get: one table of shapes.

Most responses have one error code, at the top. Those to requests about several things repeat the error for
each thing asked about, and clients look nowhere else. The shapes are those of Kafka's `getErrorResponse`; a
golden test compares them byte by byte.
"""

from __future__ import annotations

from dataclasses import MISSING, dataclass, field, replace
from functools import cache
from operator import attrgetter
from typing import TYPE_CHECKING, Any, Final

import kio.schema.alter_client_quotas.v1.response as client_quotas
from kio.schema.errors import ErrorCode
from quorate_protocol.wire.api import api_of
from quorate_protocol.wire.schema import implicit_default, schema_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from kio.static.protocol import Payload

    Getter = Callable[[Any], Any]


def error_response(
    request: Payload, error_code: ErrorCode, message: str | None = None, *, version: int | None = None
) -> Payload:
    """The canonical response that tells `error_code` for the whole of a canonical request.

    `message` goes wherever the response has room for one; with None the client shows its own text for the
    code. The response says nothing that one of `version` has no place for.
    """
    error = _Error(error_code, message)
    api = api_of(request)
    shape = _SHAPES.get(api.key)
    fields = {} if shape is None else shape.fields(request, api.canonical_response, error)
    response: Payload = error.fill(api.canonical_response, fields)
    if version is not None and version < _TOP_ERROR_SINCE.get(api.key, 0):
        response = replace(response, error_code=ErrorCode.none)
    return response


@dataclass(frozen=True, slots=True)
class _Error:
    """What an error response says, wherever its class has a place for it."""

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


@cache
def _item_class(entity_class: Any, name: str) -> type[Any]:
    struct = next(schema.struct for schema in schema_of(entity_class) if schema.name == name)
    assert struct is not None, f"{entity_class.__name__}.{name} is an array of structs"
    return struct


@dataclass(frozen=True, slots=True, kw_only=True)
class _Shape:
    """Where a response differs from an error at the top and defaults below.

    `copied` names fields that repeat something of the request, or of the item of it. `per_item` is the array
    that has one item for each of `items`, each with the error and in the shape `item`.
    """

    copied: Mapping[str, Getter] = field(default_factory=dict)
    per_item: str | None = None
    items: Callable[[Any], Iterable[Any] | None] = lambda _: ()
    item: _Shape | None = None

    def fields(self, asked: Any, entity_class: Any, error: _Error) -> dict[str, object]:
        """Values for an `entity_class` that answers `asked`."""
        values: dict[str, object] = {name: get_value(asked) for name, get_value in self.copied.items()}
        if self.per_item is not None:
            assert self.item is not None, "an array of items has a shape for each"
            item_class = _item_class(entity_class, self.per_item)
            values[self.per_item] = tuple(
                error.fill(item_class, self.item.fields(item, item_class, error))
                for item in self.items(asked) or ()
            )
        return values


def _same(*names: str) -> Mapping[str, Getter]:
    return {name: attrgetter(name) for name in names}


def _itself(item: Any) -> Any:
    return item


def _quota_entity(entry: Any) -> tuple[client_quotas.EntityData, ...]:
    return tuple(
        client_quotas.EntityData(entity_type=part.entity_type, entity_name=part.entity_name)
        for part in entry.entity
    )


def _scram_users(request: Any) -> Iterable[str]:
    return dict.fromkeys(item.name for item in (*request.deletions, *request.upsertions))


_TOPIC: Final = _Shape(copied=_same("name"))
_RESOURCE: Final = _Shape(copied=_same("resource_type", "resource_name"))


def _each(per_item: str, items: str, item: _Shape) -> _Shape:
    return _Shape(per_item=per_item, items=attrgetter(items), item=item)


_SHAPES: Final[Mapping[int, _Shape]] = {
    1: _Shape(copied=_same("session_id")),
    19: _each("topics", "topics", _TOPIC),
    20: _each("responses", "topics", _Shape(copied=_same("name", "topic_id"))),
    30: _each("results", "creations", _Shape()),
    31: _each("filter_results", "filters", _Shape()),
    32: _each("results", "resources", _RESOURCE),
    33: _each("responses", "resources", _RESOURCE),
    37: _each("results", "topics", _TOPIC),
    43: _each(
        "replica_election_results",
        "topic_partitions",
        _Shape(
            copied=_same("topic"),
            per_item="partition_result",
            items=attrgetter("partitions"),
            item=_Shape(copied={"partition_id": _itself}),
        ),
    ),
    44: _each("responses", "resources", _RESOURCE),
    45: _Shape(
        copied=_same("allow_replication_factor_change"),
        per_item="responses",
        items=attrgetter("topics"),
        item=_Shape(
            copied=_same("name"),
            per_item="partitions",
            items=attrgetter("partitions"),
            item=_Shape(copied=_same("partition_index")),
        ),
    ),
    46: _each(
        "topics",
        "topics",
        _Shape(
            copied=_same("name"),
            per_item="partitions",
            items=attrgetter("partition_indexes"),
            item=_Shape(copied={"partition_index": _itself}),
        ),
    ),
    49: _each("entries", "entries", _Shape(copied={"entity": _quota_entity})),
    50: _each("results", "users", _Shape()),
    51: _Shape(per_item="results", items=_scram_users, item=_Shape(copied={"user": _itself})),
}
"""By API key; an API that is not listed has its one error at the top."""

_TOP_ERROR_SINCE: Final[Mapping[int, int]] = {43: 1}
"""API keys whose older versions have an error on each item only, and the first version that has one on top.
"""
