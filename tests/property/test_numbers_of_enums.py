"""Numbers that are in no enum, in each place of each served request where a number may be one of an enum.

Kafka's enums are 8-bit numbers on the wire. A client of a newer release, or a hostile one, may send any of them.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, fields, is_dataclass
from datetime import timedelta
from itertools import product
from typing import Any
from uuid import UUID

import pytest
from kit.captured import decode_response
from kit.fuzz.simulated_controller import ServedController
from quorate_protocol.errors import ErrorCode
from quorate_protocol.kafka.apis import APIS, SERVED_APIS, Api, ApiKey
from quorate_protocol.kafka.generated.create_topics_request import CreatableTopic, CreateTopicsRequest
from quorate_protocol.wire.client import encode_request
from quorate_protocol.wire.frames import FrameDecoder
from quorate_protocol.wire.schema import EntityClass, FieldSchema, implicit_default, schema_of

TOPIC = CreateTopicsRequest(
    topics=(CreatableTopic(name="t0", num_partitions=1, replication_factor=1, assignments=(), configs=()),),
    timeout=timedelta(seconds=1),
)
STRANGE = (-128, -1, 0, 3, 4, 8, 16, 32, 99, 127)
"""Numbers that are in no enum, in some only, or the unknown member."""
ORDINARY = (0, 1, 2, 3)
"""What the other enums of a request have."""
NAMES = ("", "t0", "3000")
"""No name, the name of a topic, that of the node."""


@pytest.fixture(scope="module")
def controller() -> Iterator[ServedController]:
    """A controller that serves one request after the other."""
    served = ServedController()
    yield served
    served.close()


def enums_of(entity: EntityClass, path: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    """The paths of the fields that may be enums."""
    for field in schema_of(entity):
        if field.struct is not None:
            yield from enums_of(field.struct, (*path, field.name))
        elif field.kafka_type == "int8":
            yield (*path, field.name)


@dataclass(frozen=True)
class Filling:
    """What a request has in its fields."""

    name: str
    ordinary: int
    strange: Mapping[tuple[str, ...], int]
    flag: bool
    """The value of each boolean."""
    fills_lists: bool
    """Whether lists that have no structs have an element, such as the names of configs."""

    def request(self, entity: EntityClass, path: tuple[str, ...] = ()) -> Any:
        """A request with one element in each array of structs."""
        values = {}
        for field in schema_of(entity):
            at = (*path, field.name)
            if field.struct is not None:
                value = self.request(field.struct, at)
            elif field.kafka_type == "int8":
                value = self.strange.get(at, self.ordinary)
            elif field.kafka_type == "bool":
                value = self.flag
            else:
                value = _plain(field, self.name)
            is_left_out = field.struct is None and not self.fills_lists
            values[field.name] = (() if is_left_out else (value,)) if field.is_array else value
        return entity(**values)


def _plain(field: FieldSchema, name: str) -> object:
    match field.kafka_type:
        case "string":
            return name
        case "uuid":
            return UUID(int=(4 << 76) + 1)
        case "int16" | "int32" | "int64":
            return 1
        case "bytes" | "records":
            return b""
        case _:
            return implicit_default(
                FieldSchema(**{**_fields(field), "is_array": False, "is_nullable": False})
            )


def _fields(entity: Any) -> dict[str, Any]:
    return {field.name: getattr(entity, field.name) for field in fields(entity)}


def errors_in(value: object) -> Iterator[ErrorCode]:
    """All error codes of a response."""
    if isinstance(value, ErrorCode):
        yield value
    elif isinstance(value, tuple):
        for element in value:
            yield from errors_in(element)
    elif is_dataclass(value):
        yield from errors_in(tuple(_fields(value).values()))


def requests_of(api: Api, version: int) -> Iterator[Any]:
    """Yield requests in which one number, or all numbers, are strange."""
    entity = api.request_class(version)
    enums = list(enums_of(entity))
    flags = (False, True)
    for name, flag, fills_lists, number in product(NAMES, flags, flags, STRANGE):
        yield Filling(name, number, {}, flag, fills_lists).request(entity)
        for path, ordinary in product(enums, ORDINARY):
            yield Filling(name, ordinary, {path: number}, flag, fills_lists).request(entity)


WITH_ENUMS = [
    (api, version)
    for api in SERVED_APIS.values()
    for version in range(api.version_min, api.version_max + 1)
    if any(enums_of(api.request_class(version)))
]


@pytest.mark.parametrize(
    ("api", "version"), WITH_ENUMS, ids=lambda value: getattr(value, "name", f"v{value}")
)
def test_a_number_that_no_enum_has_is_no_fault_of_ours(
    controller: ServedController, api: Api, version: int
) -> None:
    """No such number is an exception, UNKNOWN_SERVER_ERROR or the end of a connection."""
    controller.serve(encode_request(APIS[ApiKey.CREATE_TOPICS], 7, 1, "x", TOPIC))
    for request in requests_of(api, version):
        try:
            exchange = controller.serve(encode_request(api, version, 1, "x", request))
            assert exchange.response is not None, "there is no response"
            (payload,) = FrameDecoder().feed(bytes(exchange.response))
            _, response = decode_response(api, version, payload)
            assert ErrorCode.unknown_server_error not in set(errors_in(response)), response
        except Exception as error:
            raise AssertionError(f"{request}") from error


def test_the_apis_with_enums_are_found() -> None:
    names = {api.name for api, _ in WITH_ENUMS}
    assert names >= {
        *("AlterConfigs", "DescribeConfigs", "IncrementalAlterConfigs"),
        *("CreateAcls", "DeleteAcls", "DescribeAcls"),
        *("AlterUserScramCredentials", "DescribeCluster", "ElectLeaders", "UpdateFeatures"),
    }
