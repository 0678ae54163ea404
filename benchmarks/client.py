"""A blocking client for measurements: one socket, no retries, nothing between the clock and the wire."""

from __future__ import annotations

import socket
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from quorate_protocol.errors import ErrorCode
from quorate_protocol.kafka.apis import api_of
from quorate_protocol.kafka.enums import ConfigResourceType
from quorate_protocol.kafka.generated.describe_cluster_request import DescribeClusterRequest
from quorate_protocol.kafka.generated.describe_configs_request import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
)
from quorate_protocol.kafka.generated.describe_quorum_request import (
    DescribeQuorumRequest,
    PartitionData,
    TopicData,
)
from quorate_protocol.kafka.generated.sasl_authenticate_request import SaslAuthenticateRequest
from quorate_protocol.kafka.generated.sasl_handshake_request import SaslHandshakeRequest
from quorate_protocol.kafka.metadata_log import METADATA_PARTITION, METADATA_TOPIC
from quorate_protocol.security.dialogues import PlainDialogue
from quorate_protocol.wire.client import ClientConnection, encode_request
from quorate_protocol.wire.frames import encode_frame

if TYPE_CHECKING:
    from collections.abc import Sequence

    from quorate_protocol.kafka.apis import Payload

CLIENT_ID: Final = "quorate-bench"
RECEIVE_BYTES: Final = 64 * 1024
"""Below the 128 KiB from which glibc maps memory for a block: that takes 15 us for each response."""
CONTROLLER_ENDPOINTS: Final = 2
"""DescribeClusterRequest.EndpointType (KIP-919)."""


def request_frame(request: Payload) -> bytes:
    """The bytes of a request, with their length in front, whose correlation id is 0."""
    return encode_frame(encode_request(api_of(request), request.__version__, 0, CLIENT_ID, request))


def decode_response(request: Payload, frame: bytes) -> Any:
    """The response in a frame with its length in front, to a request of this kind that `request_frame` encoded."""
    connection = ClientConnection(CLIENT_ID)
    connection.send(request, request.__version__)
    ((_, response),) = connection.receive_data(frame)
    return response


@dataclass(frozen=True, slots=True)
class Login:
    """A name and a password for PLAIN."""

    username: str
    password: str = field(repr=False)


class Connection:
    """A connection to one node, with PLAIN if there is a login. Raises OSError when it breaks or times out."""

    def __init__(
        self,
        address: tuple[str, int],
        *,
        timeout_seconds: float = 30.0,
        client_id: str = CLIENT_ID,
        login: Login | None = None,
        in_flight_max: int = 5,
    ) -> None:
        self._socket = socket.create_connection(address, timeout=timeout_seconds)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._protocol = ClientConnection(client_id, in_flight_max=in_flight_max)
        if login is not None:
            self._authenticate(login)

    def _authenticate(self, login: Login) -> None:
        message = PlainDialogue(login.username, login.password).first()
        for request in (SaslHandshakeRequest(mechanism="PLAIN"), SaslAuthenticateRequest(auth_bytes=message)):
            response = self.ask(request)
            if response.error_code is not ErrorCode.none:
                raise PermissionError(f"{login.username} was refused: {response.error_code.name}")

    def ask(self, request: Payload) -> Any:
        """Send one request and wait for its response."""
        return self.timed_ask(request)[1]

    def timed_ask(self, request: Payload) -> tuple[float, Any]:
        """The same, and the seconds on the wire: without those of encoding and decoding here."""
        frame = self._protocol.send(request, request.__version__)
        started = time.perf_counter()
        self._socket.sendall(frame)
        response = bytearray()
        while len(response) < 4 or len(response) < 4 + int.from_bytes(response[:4], "big"):
            received = self._socket.recv(RECEIVE_BYTES)
            if not received:
                raise ConnectionError("closed by the peer")
            response += received
        seconds = time.perf_counter() - started
        ((_, decoded),) = self._protocol.receive_data(bytes(response))
        return seconds, decoded

    def ask_all(self, requests: Sequence[Payload]) -> list[Any]:
        """Send requests, as many as may be in flight, and wait for all their responses."""
        self._socket.sendall(
            b"".join(self._protocol.send(request, request.__version__) for request in requests)
        )
        responses: list[Any] = []
        while len(responses) < len(requests):
            received = self._socket.recv(RECEIVE_BYTES)
            if not received:
                raise ConnectionError("closed by the peer")
            responses += [decoded for _, decoded in self._protocol.receive_data(received)]
        return responses

    def close(self) -> None:
        """Close the socket."""
        self._socket.close()

    def __enter__(self) -> Connection:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def describe_quorum(address: tuple[str, int]) -> Any:
    """What the active controller says of the metadata log: epoch, high watermark, voters. Raises OSError."""
    partition = PartitionData(partition_index=METADATA_PARTITION)
    topic = TopicData(topic_name=METADATA_TOPIC, partitions=(partition,))
    with Connection(address, timeout_seconds=10.0) as connection:
        response = connection.ask(DescribeQuorumRequest(topics=(topic,)))
    (described,) = response.topics[0].partitions
    return described


def knows_topic(address: tuple[str, int], name: str) -> bool:
    """Whether the metadata of a node, a broker or any controller, has a topic (DescribeConfigs). Raises OSError."""
    topic = DescribeConfigsResource(
        resource_type=ConfigResourceType.TOPIC, resource_name=name, configuration_keys=("retention.ms",)
    )
    with Connection(address, timeout_seconds=10.0) as connection:
        response = connection.ask(DescribeConfigsRequest(resources=(topic,)))
    return bool(response.results[0].error_code is ErrorCode.none)


def describe_cluster(address: tuple[str, int], endpoint_type: int) -> Any:
    """The response of a node about brokers (type 1) or controllers (type 2, KIP-919). Raises OSError."""
    request = DescribeClusterRequest(
        include_cluster_authorized_operations=False,
        endpoint_type=endpoint_type,
        include_fenced_brokers=False,
    )
    with Connection(address, timeout_seconds=1.0) as connection:
        return connection.ask(request)
