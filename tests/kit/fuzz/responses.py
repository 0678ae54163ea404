"""Responses of other nodes, behind the decoder: to raft, an observer, a client, and the choice of versions."""

import asyncio
from collections.abc import Awaitable, Callable, Iterator, Mapping
from functools import cache
from typing import Any, Final

from kit.captured import captured_exchanges, decode_response
from kit.fuzz.target import Target
from quorate_admin import AdminClient
from quorate_admin.errors import AdminError, UnreachableError
from quorate_admin.types.configs import ConfigResource
from quorate_admin.types.topics import NewTopic
from quorate_controller.server.raft_wire import response_from_wire
from quorate_protocol.errors import ProtocolError
from quorate_protocol.kafka.apis import APIS, Api, ApiKey, api_of
from quorate_protocol.kafka.enums import ConfigResourceType, ElectionType
from quorate_protocol.observer import Endpoint, Observer, ObserverConfig
from quorate_protocol.wire.client import ClientConnection
from quorate_protocol.wire.convert import convert
from quorate_protocol.wire.frames import encode_frame
from quorate_protocol.wire.versions import Negotiation

_ROUNDS_MAX: Final = 3


def _response_of(data: bytes) -> tuple[Api, Any] | None:
    """The canonical response; the first two bytes are API and version. None if there is no such version."""
    api = APIS.get(data[0]) if len(data) > 1 else None
    if api is None or not api.is_supported(data[1]):
        return None
    _, response = decode_response(api, data[1], data[2:])
    return api, convert(response, api.canonical_response)


def _translate(data: bytes) -> None:
    """Any of its exceptions fails the request of the peer, and only that."""
    found = _response_of(data)
    if found is not None and found[0].key in _RAFT:
        response_from_wire(found[1])


_RAFT: Final = frozenset(
    (
        *(ApiKey.VOTE, ApiKey.BEGIN_QUORUM_EPOCH, ApiKey.END_QUORUM_EPOCH, ApiKey.FETCH),
        *(ApiKey.FETCH_SNAPSHOT, ApiKey.UPDATE_RAFT_VOTER, ApiKey.API_VERSIONS),
    )
)


def _observe(data: bytes) -> None:
    """The same response to each request, as from a defective controller."""
    found = _response_of(data)
    if found is None or found[0].key not in (ApiKey.FETCH, ApiKey.FETCH_SNAPSHOT):
        return
    observer = Observer((Endpoint("h", 9092),), ObserverConfig())
    for _ in range(_ROUNDS_MAX):
        ask = observer.next_ask(500)
        if type(found[1]) is not ask_response(ask.request):
            break
        observer.receive(found[1])
        assert observer.held_size_bytes <= len(data)


def ask_response(request: object) -> type:
    """The class of the response to a request."""
    fetched = APIS[ApiKey.FETCH]
    return (
        fetched.canonical_response
        if isinstance(request, fetched.canonical_request)
        else (APIS[ApiKey.FETCH_SNAPSHOT].canonical_response)
    )


def _negotiate(data: bytes) -> None:
    """A peer that responds to each ApiVersions with the same bytes behind the right correlation id."""
    connection, negotiation = ClientConnection("c"), Negotiation("cluster", 3)
    for _ in range(_ROUNDS_MAX):
        correlation_id = connection.next_correlation_id
        connection.send(negotiation.request, negotiation.version)
        responses = connection.receive_data(encode_frame(correlation_id.to_bytes(4, "big") + data))
        for _, response in responses:
            versions = negotiation.receive(response)
            if versions is not None:
                for api in APIS.values():
                    if api.key in versions:
                        _version_for(versions.version_for, api)
                return


def _version_for(choose: Callable[[Api], int], api: Api) -> None:
    try:
        version = choose(api)
    except ProtocolError:
        return
    assert api.is_supported(version)


def _responses_to(keys: frozenset[ApiKey]) -> Callable[[], Iterator[bytes]]:
    def good() -> Iterator[bytes]:
        for captured_exchange in captured_exchanges():
            if captured_exchange.api.key in keys:
                yield (
                    bytes([captured_exchange.api.key, captured_exchange.version]) + captured_exchange.response
                )

    return good


def _version_lists() -> Iterator[bytes]:
    for captured_exchange in captured_exchanges():
        if captured_exchange.api.key == ApiKey.API_VERSIONS:
            yield captured_exchange.response[4:]


class _Answering:
    """In place of connections: gives one response to each request that it can belong to, a few times."""

    def __init__(self, response: Any) -> None:
        self._response = response
        self._left = _ROUNDS_MAX

    async def ask(self, request: Any, _to: object, **_options: object) -> Any:
        self._left -= 1
        if self._left < 0 or type(self._response) is not api_of(request).canonical_response:
            raise UnreachableError({})
        return self._response


_TOPIC: Final = "t"
_CALLS: Final[Mapping[ApiKey, Callable[[AdminClient], Awaitable[object]]]] = {
    ApiKey.DESCRIBE_CLUSTER: lambda client: client.describe_cluster(),
    ApiKey.DESCRIBE_CONFIGS: lambda client: client.describe_configs(
        [ConfigResource(ConfigResourceType.TOPIC, _TOPIC), ConfigResource(ConfigResourceType.BROKER, "1")]
    ),
    ApiKey.DESCRIBE_QUORUM: lambda client: client.describe_metadata_quorum(),
    ApiKey.DESCRIBE_ACLS: lambda client: client.describe_acls(),
    ApiKey.DESCRIBE_CLIENT_QUOTAS: lambda client: client.describe_client_quotas(),
    ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS: lambda client: client.describe_user_scram_credentials(),
    ApiKey.DESCRIBE_DELEGATION_TOKEN: lambda client: client.describe_delegation_tokens(),
    ApiKey.DESCRIBE_LOG_DIRS: lambda client: client.describe_log_dirs([1]),
    ApiKey.DESCRIBE_TOPIC_PARTITIONS: lambda client: client.describe_topics([_TOPIC]),
    ApiKey.ELECT_LEADERS: lambda client: client.elect_leaders(ElectionType.PREFERRED),
    ApiKey.LIST_GROUPS: lambda client: client.list_groups(),
    ApiKey.LIST_CONFIG_RESOURCES: lambda client: client.list_config_resources(),
    ApiKey.LIST_PARTITION_REASSIGNMENTS: lambda client: client.list_partition_reassignments(),
    ApiKey.METADATA: lambda client: client.list_topics(),
    ApiKey.CREATE_TOPICS: lambda client: client.create_topics([NewTopic(name=_TOPIC)]),
    ApiKey.DELETE_TOPICS: lambda client: client.delete_topics([_TOPIC]),
}


@cache
def _loop() -> asyncio.AbstractEventLoop:
    return asyncio.new_event_loop()


def release() -> None:
    """Close the event loop of the client's calls, if there is one."""
    if _loop.cache_info().currsize:
        _loop().close()
        _loop.cache_clear()


def _call(data: bytes) -> None:
    """What a method makes of a response that decodes: a value, or an error of the client."""
    found = _response_of(data)
    call = _CALLS.get(ApiKey(found[0].key)) if found is not None else None
    if found is None or call is None:
        return
    client = AdminClient(bootstrap_servers=["h:9092"], request_timeout_ms=1, default_api_timeout_ms=1)
    vars(client)["_transport"] = _Answering(found[1])
    _loop().run_until_complete(_awaited(call(client)))


async def _awaited(result: Awaitable[object]) -> object:
    return await result


def response_targets() -> Iterator[Target]:
    """Responses, as a controller, an observer and a client process them."""
    refusals = (ProtocolError,)
    yield Target(name="peers", read=_translate, good=_responses_to(_RAFT), refusals=refusals)
    yield Target(
        name="observers",
        read=_observe,
        good=_responses_to(frozenset((ApiKey.FETCH, ApiKey.FETCH_SNAPSHOT))),
        refusals=refusals,
    )
    calls = frozenset(_CALLS)
    yield Target(name="calls", read=_call, good=_responses_to(calls), refusals=(*refusals, AdminError))
    yield Target(name="negotiations", read=_negotiate, good=_version_lists, refusals=refusals)
