"""Answers of other nodes, behind the decoder: raft's translation, an observer, the choice of versions."""

from collections.abc import Callable, Iterator
from typing import Any, Final

from kit.captured import captured_exchanges, decode_response
from kit.fuzz.target import Target
from quorate_controller.server.raft_wire import response_from_wire
from quorate_protocol.errors import ProtocolError
from quorate_protocol.kafka.apis import APIS, Api, ApiKey
from quorate_protocol.observer import Endpoint, Observer, ObserverConfig
from quorate_protocol.wire.client import ClientConnection
from quorate_protocol.wire.convert import convert
from quorate_protocol.wire.frames import encode_frame
from quorate_protocol.wire.versions import Negotiation

_API_VERSIONS: Final = APIS[ApiKey.API_VERSIONS]
_ROUNDS_MAX: Final = 3


def _answered(data: bytes) -> tuple[Api, Any] | None:
    """The canonical response; the first two bytes are API and version. None if there is no such version."""
    api = APIS.get(data[0]) if len(data) > 1 else None
    if api is None or not api.is_supported(data[1]):
        return None
    _, response = decode_response(api, data[1], data[2:])
    return api, convert(response, api.canonical_response)


def _translate(data: bytes) -> None:
    """Any of its exceptions fails the request of the peer, and only that."""
    found = _answered(data)
    if found is not None and found[0].key in _RAFT:
        response_from_wire(found[1])


_RAFT: Final = frozenset(
    (
        *(ApiKey.VOTE, ApiKey.BEGIN_QUORUM_EPOCH, ApiKey.END_QUORUM_EPOCH, ApiKey.FETCH),
        *(ApiKey.FETCH_SNAPSHOT, ApiKey.UPDATE_RAFT_VOTER, ApiKey.API_VERSIONS),
    )
)


def _observe(data: bytes) -> None:
    """The same answer again and again, as a controller that went mad gives it."""
    found = _answered(data)
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
    """The class of the answer to a request."""
    fetched = APIS[ApiKey.FETCH]
    return (
        fetched.canonical_response
        if isinstance(request, fetched.canonical_request)
        else (APIS[ApiKey.FETCH_SNAPSHOT].canonical_response)
    )


def _negotiate(data: bytes) -> None:
    """A peer that answers each ApiVersions with the same bytes behind the right correlation id."""
    connection, negotiation = ClientConnection("c"), Negotiation("cluster", 3)
    for _ in range(_ROUNDS_MAX):
        correlation_id = connection.next_correlation_id
        connection.send(negotiation.request, negotiation.version)
        answers = connection.receive_data(encode_frame(correlation_id.to_bytes(4, "big") + data))
        for _, response in answers:
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


def _answers_of(keys: frozenset[ApiKey]) -> Callable[[], Iterator[bytes]]:
    def good() -> Iterator[bytes]:
        for one in captured_exchanges():
            if one.api.key in keys:
                yield bytes([one.api.key, one.version]) + one.response

    return good


def _version_lists() -> Iterator[bytes]:
    for one in captured_exchanges():
        if one.api.key == ApiKey.API_VERSIONS:
            yield one.response[4:]


def answer_targets() -> Iterator[Target]:
    """Answers, as a controller, an observer and a client take them."""
    refusals = (ProtocolError,)
    yield Target(name="peers", read=_translate, good=_answers_of(_RAFT), refusals=refusals)
    yield Target(
        name="observers",
        read=_observe,
        good=_answers_of(frozenset((ApiKey.FETCH, ApiKey.FETCH_SNAPSHOT))),
        refusals=refusals,
    )
    yield Target(name="negotiations", read=_negotiate, good=_version_lists, refusals=refusals)
