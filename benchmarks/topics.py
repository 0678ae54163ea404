"""CreateTopics requests for measurements."""

from __future__ import annotations

import time
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from quorate_protocol.errors import ErrorCode
from quorate_protocol.kafka.apis import APIS, ApiKey, api_of
from quorate_protocol.kafka.generated.create_topics_request import CreatableTopic, CreateTopicsRequest
from quorate_protocol.kafka.generated.default_principal_data import DefaultPrincipalData
from quorate_protocol.kafka.generated.envelope_request import EnvelopeRequest
from quorate_protocol.wire.client import encode_request
from quorate_protocol.wire.codec import decode, encode
from quorate_protocol.wire.headers import read_response_header

from benchmarks.client import Connection

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from quorate_protocol.kafka.generated.envelope_response import EnvelopeResponse

    from benchmarks.quorum import Quorum

PRINCIPAL_VERSION_0 = b"\x00\x00"
TIMEOUT_SECONDS = 30.0
POLL_SECONDS = 0.002


def new_topic(name: str, *, partitions: int = 1, replicas: int = 1) -> CreatableTopic:
    """A topic whose replicas the controller places."""
    return CreatableTopic(
        name=name, num_partitions=partitions, replication_factor=replicas, assignments=(), configs=()
    )


def create_topics(
    topics: Iterable[CreatableTopic], *, timeout_seconds: float = TIMEOUT_SECONDS
) -> CreateTopicsRequest:
    """The request that creates these topics."""
    return CreateTopicsRequest(topics=tuple(topics), timeout=timedelta(seconds=timeout_seconds))


def forwarded(request: CreateTopicsRequest) -> EnvelopeRequest:
    """The request as a broker forwards it for an unauthenticated client (KIP-590)."""
    principal = DefaultPrincipalData(type_="User", name="ANONYMOUS", token_authenticated=False)
    return EnvelopeRequest(
        request_data=encode_request(api_of(request), request.__version__, 0, "client", request),
        request_principal=PRINCIPAL_VERSION_0 + encode(principal),
        client_host_address=bytes((127, 0, 0, 1)),
    )


def check_forwarded(response: EnvelopeResponse) -> None:
    """Raise RuntimeError if the only topic of a forwarded request was refused."""
    if response.error_code is not ErrorCode.none or response.response_data is None:
        raise RuntimeError(f"the envelope was refused: {response.error_code.name}")
    api = APIS[ApiKey.CREATE_TOPICS]
    _, offset = read_response_header(
        response.response_data, api.response_header_version(CreateTopicsRequest.__version__)
    )
    check_created(decode(api.canonical_response, response.response_data, offset))


def check_created(response: Any) -> None:
    """Raise RuntimeError if the only topic of a request was refused."""
    (topic,) = response.topics
    if topic.error_code is not ErrorCode.none:
        raise RuntimeError(f"CreateTopics was refused: {topic.error_code.name}")


def failover_seconds(
    quorum: Quorum,
    new_request: Callable[[], CreateTopicsRequest],
    *,
    seconds_max: float,
    response_seconds_max: float,
) -> float:
    """Seconds from kill -9 of the active controller until another one has created the topic of a request.

    Raises TimeoutError after `seconds_max`.
    """
    quorum.kill(quorum.active())
    started = time.perf_counter()
    while time.perf_counter() - started < seconds_max:
        for address in quorum.living_addresses():
            try:
                with Connection(address, timeout_seconds=response_seconds_max) as connection:
                    response = connection.ask(new_request())
            except OSError:
                continue
            if response.topics[0].error_code is ErrorCode.none:
                return time.perf_counter() - started
        time.sleep(POLL_SECONDS)
    raise TimeoutError(f"no new active controller in {seconds_max:.0f} s")
