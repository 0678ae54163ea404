"""Two controllers without brokers: one of stock Kafka, one of ours, with the same properties and the same brokers.

The brokers are registrations that the tests send. They stay unfenced without heartbeats: their sessions are long.
"""

import socket
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final
from uuid import UUID

from kit.differential.node_requests import BROKERS, registration_of
from kit.differential.question import DIRECT, At, Caller, Question
from kit.kafka import stock_kafka_of
from kit.metadata import end_offset, image_of
from kit.one_controller import free_address, java_command, quorate_command, running, write_config
from kit.releases import LEVEL
from kit.waiting import eventually
from quorate_protocol.errors import ErrorCode
from quorate_protocol.image.state import ImageState
from quorate_protocol.image.topics import PartitionRegistration
from quorate_protocol.kafka.apis import api_of
from quorate_protocol.kafka.generated.alter_partition_response import AlterPartitionResponse
from quorate_protocol.kafka.generated.broker_heartbeat_request import BrokerHeartbeatRequest
from quorate_protocol.kafka.generated.default_principal_data import DefaultPrincipalData
from quorate_protocol.kafka.generated.envelope_request import EnvelopeRequest
from quorate_protocol.kafka.metadata_log import METADATA_DIRECTORY
from quorate_protocol.kafka.releases import RELEASES
from quorate_protocol.wire.client import ClientConnection, encode_request
from quorate_protocol.wire.codec import decode, encode
from quorate_protocol.wire.convert import convert
from quorate_protocol.wire.headers import read_response_header

CLUSTER_ID: Final = "4L6g3nShT-eMCtK--X86sw"
SETTINGS: Final = (
    "controller.quorum.bootstrap.servers=ADDRESS",
    "broker.session.timeout.ms=3600000",
    "auto.leader.rebalance.enable=false",
    "num.partitions=2",
    "authorizer.class.name=org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "super.users=User:ANONYMOUS;User:alice;User:bob;User:carol",
    "delegation.token.secret.key=the secret of this test's delegation tokens",
)
NOT_CONTROLLER: Final = repr(ErrorCode.not_controller)
DIRECTORIES: Final = 2
"""Log directories of each broker."""
_START_TIMEOUT_S: Final = 90
_ANSWER_TIMEOUT_S: Final = 30


def directories_of(broker_id: int) -> tuple[UUID, ...]:
    """The ids of a broker's log directories."""
    return tuple(UUID(int=(broker_id << 65) + number) for number in range(DIRECTORIES))


class Node:
    """A running controller, and what was created in it."""

    def __init__(self, name: str, address: str, log: Path, cluster_id: str = CLUSTER_ID) -> None:
        """`log` is the directory of the metadata log."""
        self.name = name
        self._cluster_id = cluster_id
        self.epochs: dict[int, int] = {}
        """The epoch of each broker."""
        self._topic_ids: dict[str, UUID] = {}
        self._hmacs: list[bytes] = []
        self._log = log
        self._address = address
        self._connect()

    def move(self, address: str, log: Path) -> None:
        """Go on with another controller of the same quorum."""
        self.close()
        self._address, self._log = address, log
        self._connect()

    def _connect(self) -> None:
        host, _, port = self._address.rpartition(":")
        self._socket = socket.create_connection((host, int(port)), timeout=_ANSWER_TIMEOUT_S)
        self._connections: dict[str, ClientConnection] = {}

    def close(self) -> None:
        """End the connection."""
        self._socket.close()

    @property
    def at(self) -> At:
        """The state that the contents of requests depend on."""
        return At(self._cluster_id, self._topic_ids, self.epochs, self._hmacs, self._partition)

    def put(self, question: Question) -> Any:
        """Send a request, and remember what it creates; None for brokers that are fenced or unfenced."""
        what, _, broker_id = question.what.partition(" ")
        if broker_id:
            self.heartbeat(int(broker_id), is_fenced=what == "fence")
            return None
        response = self.ask(question.make(self.at), question.caller)
        if question.what == "CreateTopics":
            created = {topic.name: topic.topic_id for topic in response.topics if topic.topic_id is not None}
            self._topic_ids.update(created)
        elif question.what == "CreateDelegationToken" and response.hmac:
            self._hmacs.append(response.hmac)
        return response

    def _partition(self, topic: str, index: int) -> PartitionRegistration | None:
        found = self.image().topics.by_name.get(topic)
        return None if found is None else found.partitions.get(index)

    def ask(self, request: Any, caller: Caller = DIRECT) -> Any:
        """Send a canonical request; return the response in the canonical class.

        Stock Kafka is not active for a moment after an unexpected exception: it is asked again then.
        """
        what = f"a response of {self.name} to {caller} {request}"
        return eventually(lambda: self._ask(request, caller), _ANSWER_TIMEOUT_S, what)

    def _ask(self, request: Any, caller: Caller) -> Any:
        """The response; None while the controller is not active."""
        api = api_of(request)
        version = api.version_max if caller.version is None else caller.version
        if caller.user is None:
            response = convert(self._direct(request, caller.client_id, version), api.canonical_response)
            return None if _is_not_active(response) else response
        principal = DefaultPrincipalData(type_="User", name=caller.user, token_authenticated=False)
        envelope = EnvelopeRequest(
            request_data=encode_request(
                api, version, 1, caller.client_id, convert(request, api.request_class(version))
            ),
            request_principal=b"\x00\x00" + encode(principal),
            client_host_address=bytes([127, 0, 0, 1]),
        )
        enveloped = self._direct(envelope, "broker", 0)
        if enveloped.error_code is ErrorCode.not_controller:
            return None
        assert enveloped.response_data is not None, enveloped
        _, offset = read_response_header(enveloped.response_data, api.response_header_version(version))
        response = decode(api.response_class(version), enveloped.response_data, offset)
        return convert(response, api.canonical_response)

    def _direct(self, request: Any, client_id: str, version: int) -> Any:
        connection = self._connections.setdefault(client_id, ClientConnection(client_id))
        wanted = convert(request, api_of(request).request_class(version))
        self._socket.sendall(connection.send(wanted, version))
        responses: list[tuple[int, Any]] = []
        while not responses:
            data = self._socket.recv(1 << 20)
            assert data, f"{self.name} closed the connection after {request}"
            responses = connection.receive_data(data)
        response = responses[0][1]
        if getattr(response, "throttle_time", None):
            # Stock Kafka does not read from the connection for the throttle time (KIP-219).
            self.close()
            self._connect()
        return response

    def image(self) -> ImageState:
        """The image of the whole log."""
        return image_of(self._log, end_offset(self._log))

    # Brokers

    def register_brokers(self) -> bool:
        """Register and unfence the brokers; False on a standby."""
        for broker_id in BROKERS:
            response = self.ask(registration_of(self._cluster_id, broker_id, 0, directories_of(broker_id)))
            if response.error_code:
                return False
            self.epochs[broker_id] = response.broker_epoch
            assert not self.heartbeat(broker_id, is_fenced=False).is_fenced
        return True

    def heartbeat(self, broker_id: int, *, is_fenced: bool) -> Any:
        """Fence a broker, or unfence it."""
        epoch = self.epochs[broker_id]
        return self.ask(
            BrokerHeartbeatRequest(
                broker_id=broker_id,
                broker_epoch=epoch,
                current_metadata_offset=2**40,
                want_fence=is_fenced,
                want_shut_down=False,
            )
        )


def _is_not_active(response: Any) -> bool:
    if isinstance(
        response, AlterPartitionResponse
    ):  # each partition has this code if its leader knows a later epoch
        return response.error_code is ErrorCode.not_controller
    return NOT_CONTROLLER in repr(response)


@contextmanager
def started(name: str, directory: Path, *settings: str) -> Iterator[Node]:
    """A controller, formatted and running, with brokers; stock Kafka's if `name` is a release."""
    directory.mkdir(parents=True)
    address = free_address()
    config = write_config(directory, *SETTINGS, *settings, address=address)
    arguments: Sequence[object] = (
        *("--config", config, "--cluster-id", CLUSTER_ID, "--standalone", "--release-version", LEVEL),
    )
    if name in RELEASES:
        kafka = stock_kafka_of(name)
        format_command = java_command(kafka, "kafka.tools.StorageTool", "format", *arguments)
        command = java_command(kafka, "kafka.Kafka", config)
    else:
        format_command = quorate_command("controller", "format", *arguments)
        command = quorate_command("controller", "run", "--config", config)
    ran = subprocess.run(
        format_command, capture_output=True, text=True, timeout=_START_TIMEOUT_S, check=False
    )
    assert ran.returncode == 0, ran.stdout + ran.stderr
    with running(command, directory / "log") as process:

        def connect() -> Node | None:
            assert process.poll() is None, (directory / "log").read_text()
            try:
                node = Node(name, address, directory / "data" / METADATA_DIRECTORY)
            except OSError:
                return None
            if node.register_brokers():
                return node
            node.close()
            return None

        node = eventually(connect, _START_TIMEOUT_S, f"{name} became active")
        try:
            yield node
        finally:
            node.close()
