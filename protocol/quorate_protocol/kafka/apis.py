"""Kafka's APIs: one :class:`Api` for each, with what its schema, Kafka's broker and our controller say about it.

Keys, names, versions and listeners are generated from Kafka's message schemas (:mod:`.generated.api_keys`). What
the schemas do not say is in ``_FACTS``: which part of our controller answers, whether brokers forward the request,
and the shape of an error response. APIs that Kafka does not have are in ``EXTENSION_APIS``.

Message classes are imported, or made (:mod:`.schemas`), when they are first used: all of them take seconds.
"""

import re
from collections.abc import Mapping
from dataclasses import Field, field, replace
from datetime import UTC, datetime
from enum import Enum, IntEnum
from functools import cache
from importlib import import_module
from typing import Any, ClassVar, Final, Protocol

from quorate_protocol.errors import UnknownApi, UnsupportedVersion
from quorate_protocol.kafka.generated.api_keys import API_SCHEMAS, VERSIONS_LACKED, ApiKey
from quorate_protocol.plain_data import dataclass

__all__ = (
    "APIS",
    "CONTROLLER_APIS",
    "CONTROLLER_READ_APIS",
    "EXTENSION_APIS",
    "SERVED_APIS",
    "Api",
    "ApiKey",
    "ErrorShape",
    "ExtensionKey",
    "HandledBy",
    "ListenerType",
    "Payload",
    "api_of",
    "find_api",
)

EntityClass = type[Any]


class Payload(Protocol):
    """A request or response."""

    __dataclass_fields__: ClassVar[dict[str, Field[Any]]]
    __version__: ClassVar[int]
    __flexible__: ClassVar[bool]
    __api_key__: ClassVar[int]


class ExtensionKey(IntEnum):
    """The key of an API that only controllers of Quorate have; far above those that Kafka gives away in order."""

    CONTROLLER_HEARTBEAT = 20_051
    """KIP-631's, which has key 51 there; Kafka gave that to another API."""


class ListenerType(Enum):
    """The kind of nodes on whose listeners Kafka accepts a request (ApiMessageType.ListenerType)."""

    BROKER = "broker"
    CONTROLLER = "controller"


class HandledBy(Enum):
    """Which part of our controller answers a request."""

    RAFT = "raft"
    """The raft replica, in any role; it names the leader where only a leader can answer."""
    ACTIVE_CONTROLLER = "active controller"
    """The controller logic of the active controller; the others answer NOT_CONTROLLER."""
    ANY_CONTROLLER = "any controller"
    """The controller logic of any controller, from its metadata image; for what it can't answer, NOT_CONTROLLER."""
    LISTENER = "listener"
    """The listener itself."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ErrorShape:
    """Where the response to a failed request differs from an error at the top and defaults everywhere else.

    Field names are those of the canonical classes. Source: ``getErrorResponse`` of Kafka's request classes.
    """

    copied: Mapping[str, str] = field(default_factory=dict)
    """Field of the response -> field of the request (or of its item) whose value it repeats."""
    constants: Mapping[str, object] = field(default_factory=dict)
    """Field of the response -> a value that is not the default of its type."""
    own_value: str | None = None
    """Field of the response that repeats the item itself, where items are no structs."""
    per_item: str | None = None
    """The array that has one element for each item of the request, each with the error and in the shape ``item``."""
    items: tuple[str, ...] = ()
    """The request's arrays with the items. Of two or more arrays, items that give the same element count once."""
    item: "ErrorShape | None" = None
    top_error_since: int = 0
    """The first version of the response with an error code at the top."""

    @property
    def needs_request(self) -> bool:
        """Whether the response repeats something of the request."""
        return bool(self.copied or self.own_value or self.per_item)


TOP_LEVEL_ERROR: Final = ErrorShape()
"""One error code, at the top."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Api:
    """One API, and its versions that we support: those of the newest release of Kafka."""

    key: ApiKey | ExtensionKey
    name: str
    version_min: int
    version_max: int
    flexible_since: int | None
    """The first version with compact strings and tagged fields (KIP-482); None if no version has them."""
    listeners: frozenset[ListenerType]
    """The kinds of nodes on whose listeners Kafka accepts it."""
    is_forwardable: bool = False
    """Whether a broker may forward it in an Envelope (KIP-590; ``ApiKeys.forwardable``)."""
    handled_by: HandledBy | None = None
    """Which part of our controller answers; None if our controllers do not serve it."""
    error: ErrorShape = TOP_LEVEL_ERROR

    def request_class(self, version: int) -> EntityClass:
        """Return the class of a request in one version.

        Raises:
            UnsupportedVersion: the version is not between ``version_min`` and ``version_max``.
        """
        return _load(self.key, version, "request")

    def response_class(self, version: int) -> EntityClass:
        """Return the class of a response in one version.

        Raises:
            UnsupportedVersion: the version is not between ``version_min`` and ``version_max``.
        """
        return _load(self.key, version, "response")

    @property
    def canonical_request(self) -> EntityClass:
        """The class in which all our code handles the request: that of the highest version."""
        return self.request_class(self.version_max)

    @property
    def canonical_response(self) -> EntityClass:
        """The class in which all our code handles the response: that of the highest version."""
        return self.response_class(self.version_max)

    @property
    def is_extension(self) -> bool:
        """Whether Kafka does not have it."""
        return isinstance(self.key, ExtensionKey)

    def version_max_in(self, release: str) -> int | None:
        """Return the highest version that a release of Kafka has; None if it does not have the API."""
        if isinstance(self.key, ExtensionKey):
            return None
        return VERSIONS_LACKED.get(release, {}).get(self.key, self.version_max)

    def is_supported(self, version: int) -> bool:
        """Whether we support this version."""
        return self.version_min <= version <= self.version_max

    def common_version(self, lowest: int, highest: int) -> int | None:
        """Return the highest version that we and a peer with this range support, or None."""
        version = min(self.version_max, highest)
        return version if version >= max(self.version_min, lowest) else None

    def is_flexible(self, version: int) -> bool:
        """Whether this version has compact strings and tagged fields (KIP-482)."""
        return self.flexible_since is not None and version >= self.flexible_since

    def request_header_version(self, version: int) -> int:
        """Return the version of the header in front of a request."""
        return 2 if self.is_flexible(version) else 1

    def response_header_version(self, version: int) -> int:
        """Return the version of the header in front of a response.

        ApiVersions keeps 0: its reader does not know yet which versions the peer supports (KIP-511).
        """
        return 1 if self.is_flexible(version) and self.key is not ApiKey.API_VERSIONS else 0


@cache
def _load(key: ApiKey | ExtensionKey, version: int, kind: str) -> EntityClass:
    api = find_api(key)
    if not api.is_supported(version):
        raise UnsupportedVersion(
            f"{api.name} version {version}: versions {api.version_min} to {api.version_max} are known"
        )
    class_name = f"{api.name}{kind.capitalize()}"
    if version < api.version_max:
        from quorate_protocol.kafka.schemas import older_classes  # noqa: PLC0415 - many processes use none

        return older_classes(class_name, version)[class_name]
    folder = "extensions" if api.is_extension else "generated"
    snake = re.sub(r"(?<=[a-z])(?=[A-Z])", "_", class_name).lower()
    module = import_module(f"quorate_protocol.kafka.{folder}.{snake}")
    loaded: EntityClass = getattr(module, class_name)
    return loaded


# What the schemas do not say.


@dataclass(frozen=True, slots=True)
class _Facts:
    handled_by: HandledBy | None = None
    is_forwardable: bool = False
    error: ErrorShape = TOP_LEVEL_ERROR


def _same(*names: str) -> ErrorShape:
    return ErrorShape(copied={name: name for name in names})


def _each(per_item: str, items: str, item: ErrorShape) -> ErrorShape:
    return ErrorShape(per_item=per_item, items=(items,), item=item)


_RAFT: Final = HandledBy.RAFT
_ACTIVE: Final = HandledBy.ACTIVE_CONTROLLER
_ANY: Final = HandledBy.ANY_CONTROLLER
_LISTENER: Final = HandledBy.LISTENER
_FORWARDABLE: Final = True

_RESOURCES: Final = _each("responses", "resources", _same("resource_type", "resource_name"))
_PARTITIONS: Final = ErrorShape(
    copied={"name": "name"}, per_item="partitions", items=("partitions",), item=_same("partition_index")
)
_BEFORE_1970: Final = datetime(1969, 12, 31, 23, 59, 59, 999_000, tzinfo=UTC)
"""-1 on the wire: no time."""
_NO_TOKEN: Final = ErrorShape(
    constants={
        "principal_type": "User",
        "principal_name": "ANONYMOUS",
        "token_requester_principal_type": "User",
        "token_requester_principal_name": "ANONYMOUS",
        "issue_timestamp": _BEFORE_1970,
        "expiry_timestamp": _BEFORE_1970,
        "max_timestamp": _BEFORE_1970,
    }
)

_FACTS: Final[Mapping[ApiKey, _Facts]] = {
    ApiKey.FETCH: _Facts(_RAFT, error=_same("session_id")),
    ApiKey.SASL_HANDSHAKE: _Facts(_LISTENER),
    ApiKey.API_VERSIONS: _Facts(_LISTENER),
    ApiKey.CREATE_TOPICS: _Facts(_ACTIVE, _FORWARDABLE, _each("topics", "topics", _same("name"))),
    ApiKey.DELETE_TOPICS: _Facts(
        _ACTIVE, _FORWARDABLE, _each("responses", "topics", _same("name", "topic_id"))
    ),
    ApiKey.DESCRIBE_ACLS: _Facts(_ANY),
    ApiKey.CREATE_ACLS: _Facts(_ACTIVE, _FORWARDABLE, _each("results", "creations", TOP_LEVEL_ERROR)),
    ApiKey.DELETE_ACLS: _Facts(_ACTIVE, _FORWARDABLE, _each("filter_results", "filters", TOP_LEVEL_ERROR)),
    ApiKey.DESCRIBE_CONFIGS: _Facts(
        _ANY, error=_each("results", "resources", _same("resource_type", "resource_name"))
    ),
    ApiKey.ALTER_CONFIGS: _Facts(_ACTIVE, _FORWARDABLE, _RESOURCES),
    ApiKey.SASL_AUTHENTICATE: _Facts(_LISTENER),
    ApiKey.CREATE_PARTITIONS: _Facts(_ACTIVE, _FORWARDABLE, _each("results", "topics", _same("name"))),
    ApiKey.CREATE_DELEGATION_TOKEN: _Facts(_ACTIVE, _FORWARDABLE, _NO_TOKEN),
    ApiKey.RENEW_DELEGATION_TOKEN: _Facts(_ACTIVE, _FORWARDABLE),
    ApiKey.EXPIRE_DELEGATION_TOKEN: _Facts(_ACTIVE, _FORWARDABLE),
    ApiKey.ELECT_LEADERS: _Facts(
        _ACTIVE,
        _FORWARDABLE,
        ErrorShape(
            per_item="replica_election_results",
            items=("topic_partitions",),
            item=ErrorShape(
                copied={"topic": "topic"},
                per_item="partition_result",
                items=("partitions",),
                item=ErrorShape(own_value="partition_id"),
            ),
            top_error_since=1,
        ),
    ),
    ApiKey.INCREMENTAL_ALTER_CONFIGS: _Facts(_ANY, _FORWARDABLE, _RESOURCES),
    ApiKey.ALTER_PARTITION_REASSIGNMENTS: _Facts(
        _ACTIVE,
        _FORWARDABLE,
        ErrorShape(per_item="responses", items=("topics",), item=_PARTITIONS),
    ),
    ApiKey.LIST_PARTITION_REASSIGNMENTS: _Facts(
        _ACTIVE,
        _FORWARDABLE,
        _each(
            "topics",
            "topics",
            ErrorShape(
                copied={"name": "name"},
                per_item="partitions",
                items=("partition_indexes",),
                item=ErrorShape(own_value="partition_index"),
            ),
        ),
    ),
    ApiKey.ALTER_CLIENT_QUOTAS: _Facts(
        _ACTIVE,
        _FORWARDABLE,
        _each("entries", "entries", _each("entity", "entity", _same("entity_type", "entity_name"))),
    ),
    ApiKey.DESCRIBE_TOPIC_PARTITIONS: _Facts(error=_each("topics", "topics", _same("name"))),
    ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS: _Facts(error=_each("results", "users", TOP_LEVEL_ERROR)),
    ApiKey.ALTER_USER_SCRAM_CREDENTIALS: _Facts(
        _ACTIVE,
        _FORWARDABLE,
        ErrorShape(
            per_item="results", items=("deletions", "upsertions"), item=ErrorShape(copied={"user": "name"})
        ),
    ),
    ApiKey.VOTE: _Facts(_RAFT),
    ApiKey.BEGIN_QUORUM_EPOCH: _Facts(_RAFT),
    ApiKey.END_QUORUM_EPOCH: _Facts(_RAFT),
    ApiKey.DESCRIBE_QUORUM: _Facts(_LISTENER, _FORWARDABLE),
    ApiKey.ALTER_PARTITION: _Facts(_ACTIVE),
    ApiKey.UPDATE_FEATURES: _Facts(_ACTIVE, _FORWARDABLE),
    ApiKey.ENVELOPE: _Facts(_LISTENER),
    ApiKey.FETCH_SNAPSHOT: _Facts(_RAFT),
    ApiKey.DESCRIBE_CLUSTER: _Facts(_ANY),
    ApiKey.BROKER_REGISTRATION: _Facts(_ACTIVE),
    ApiKey.BROKER_HEARTBEAT: _Facts(_ACTIVE),
    ApiKey.UNREGISTER_BROKER: _Facts(_ACTIVE, _FORWARDABLE),
    ApiKey.ALLOCATE_PRODUCER_IDS: _Facts(_ACTIVE, _FORWARDABLE),
    ApiKey.CONTROLLER_REGISTRATION: _Facts(_ACTIVE),
    ApiKey.ASSIGN_REPLICAS_TO_DIRS: _Facts(_ACTIVE),
    ApiKey.ADD_RAFT_VOTER: _Facts(_RAFT, _FORWARDABLE),
    ApiKey.REMOVE_RAFT_VOTER: _Facts(_RAFT, _FORWARDABLE),
    ApiKey.UPDATE_RAFT_VOTER: _Facts(_RAFT),
    ApiKey.UNREGISTER_CONTROLLER: _Facts(_ACTIVE, _FORWARDABLE),
}


def _api(schema: tuple[ApiKey, str, int, int, int | None, tuple[str, ...]]) -> Api:
    key, name, lowest, highest, flexible_since, listeners = schema
    facts = _FACTS.get(key, _Facts())
    return Api(
        key=key,
        name=name,
        version_min=lowest,
        version_max=highest,
        flexible_since=flexible_since,
        listeners=frozenset(map(ListenerType, listeners)),
        is_forwardable=facts.is_forwardable,
        handled_by=facts.handled_by,
        error=facts.error,
    )


APIS: Final[Mapping[int, Api]] = {schema[0]: _api(schema) for schema in API_SCHEMAS}
"""Every API by its key, in the order of keys."""

CONTROLLER_APIS: Final[Mapping[int, Api]] = {
    key: api for key, api in APIS.items() if ListenerType.CONTROLLER in api.listeners
}
"""The APIs that Kafka accepts on a controller's listener."""

SERVED_APIS: Final[Mapping[int, Api]] = {key: api for key, api in APIS.items() if api.handled_by is not None}
"""The APIs that our controllers answer and that their ApiVersions response lists.

A broker offers its clients only those forwardable APIs that are among these.
"""


CONTROLLER_READ_APIS: Final[Mapping[int, Api]] = {
    key: replace(APIS[key], handled_by=HandledBy.ANY_CONTROLLER)
    for key in (
        ApiKey.DESCRIBE_DELEGATION_TOKEN,
        ApiKey.DESCRIBE_CLIENT_QUOTAS,
        ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS,
        ApiKey.DESCRIBE_TOPIC_PARTITIONS,
    )
}
"""The reads that only brokers serve in Kafka, and that our controllers serve from their image (KIP-919, ADR 43).

They are offered to clients that ask for them (`wire.versions.READER_SOFTWARE_NAME`). Kafka's controllers list two of
them, which they cannot answer: only a controller that lists all of them serves them.
"""

EXTENSION_APIS: Final[Mapping[int, Api]] = {
    ExtensionKey.CONTROLLER_HEARTBEAT: Api(
        key=ExtensionKey.CONTROLLER_HEARTBEAT,
        name="ControllerHeartbeat",
        version_min=0,
        version_max=0,
        flexible_since=0,
        listeners=frozenset({ListenerType.CONTROLLER}),
        handled_by=HandledBy.ACTIVE_CONTROLLER,
    )
}
"""The APIs that our controllers have and Kafka's do not. They are offered to our controllers alone."""


def find_api(key: int) -> Api:
    """Return the API with this key.

    Raises:
        UnknownApi: there is no such API.
    """
    api = APIS.get(key) or EXTENSION_APIS.get(key)
    if api is None:
        raise UnknownApi(f"API key {key} is not known")
    return api


def api_of(message: object) -> Api:
    """Return the API of a request or response."""
    key: int = type(message).__api_key__  # type: ignore[attr-defined]
    return find_api(key)
