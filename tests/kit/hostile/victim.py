"""The listener that is attacked, and a blocking client of it that behaves."""

import json
import socket
import ssl
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Self

from kit.java.tls import Certificates
from quorate_protocol.errors import ErrorCode
from quorate_protocol.kafka.apis import APIS
from quorate_protocol.kafka.generated.api_versions_request import ApiVersionsRequest
from quorate_protocol.kafka.generated.sasl_authenticate_request import SaslAuthenticateRequest
from quorate_protocol.kafka.generated.sasl_handshake_request import SaslHandshakeRequest
from quorate_protocol.security.jaas import format_jaas
from quorate_protocol.wire.client import ClientConnection, encode_request

NODE, NODE_PASSWORD = "node", "node-secret"
CLIENT, CLIENT_PASSWORD = "client", "client-secret"
RECEIVE_BYTES = 256 * 1024
TIMEOUT_S = 30.0
API_VERSIONS = ApiVersionsRequest(client_software_name="hostile", client_software_version="1")


@dataclass(frozen=True, slots=True)
class Victim:
    """Where the listener is, and how it is secured: a security protocol of Kafka."""

    host: str
    port: int
    protocol: str
    authority: str | None = None
    """File of the authority that signed its certificate."""
    http_port: int | None = None
    """Where its metrics are; None: it has no such page."""

    @classmethod
    def from_json(cls, text: str) -> Self:
        """Read what `to_json` wrote."""
        return cls(**json.loads(text))

    def to_json(self) -> str:
        """Itself as an argument of a process."""
        return json.dumps(asdict(self))

    @property
    def has_tls(self) -> bool:
        """Whether a TLS handshake comes first."""
        return self.protocol.endswith("SSL")

    @property
    def has_sasl(self) -> bool:
        """Whether clients authenticate with SASL."""
        return self.protocol.startswith("SASL")

    def tls(self) -> ssl.SSLContext | None:
        """The context of a client that trusts it; None without TLS."""
        return ssl.create_default_context(cafile=self.authority) if self.has_tls else None


def frame_of(
    request: Any, version: int | None = None, correlation_id: int = 1, client_id: str = "hostile"
) -> bytes:
    """A request with its length."""
    api = APIS[request.__api_key__]
    body = encode_request(
        api, request.__version__ if version is None else version, correlation_id, client_id, request
    )
    return len(body).to_bytes(4, "big") + body


class Session:
    """A connection of a client that behaves, logged in if the listener asks for it. Raises OSError."""

    def __init__(
        self, victim: Victim, *, user: str = NODE, password: str = NODE_PASSWORD, client_id: str = "probe"
    ) -> None:
        began_s = time.perf_counter()
        self._protocol = ClientConnection(client_id)
        self._socket: socket.socket = socket.create_connection((victim.host, victim.port), timeout=TIMEOUT_S)
        try:
            self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            context = victim.tls()
            if context is not None:
                self._socket = context.wrap_socket(self._socket, server_hostname=victim.host)
            self.ask(API_VERSIONS, 4)
            if victim.has_sasl:
                self._log_in(user, password)
        except BaseException:
            self._socket.close()
            raise
        self.opened_in_s = time.perf_counter() - began_s
        """How long it took until the first request could be sent."""

    def _log_in(self, user: str, password: str) -> None:
        self.ask(SaslHandshakeRequest(mechanism="PLAIN"))
        message = f"\0{user}\0{password}".encode()
        response = self.ask(SaslAuthenticateRequest(auth_bytes=message))
        if response.error_code is not ErrorCode.none:
            raise ConnectionError(response.error_message)

    def ask(self, request: Any, version: int | None = None) -> Any:
        """The response to one request."""
        return self.timed_ask(request, version)[1]

    def timed_ask(self, request: Any, version: int | None = None) -> tuple[float, Any]:
        """Seconds until the response to one request was there, and the response."""
        frame = self._protocol.send(request, request.__version__ if version is None else version)
        began_s = time.perf_counter()
        self._socket.sendall(frame)
        while True:
            data = self._socket.recv(RECEIVE_BYTES)
            if not data:
                raise ConnectionError("closed by the controller")
            responses = self._protocol.receive_data(data)
            if responses:
                return time.perf_counter() - began_s, responses[0][1]

    def close(self) -> None:
        """Close the socket."""
        self._socket.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def properties_of(protocol: str, directory: Path) -> tuple[dict[str, str], str | None]:
    """What a controller's listener with a security protocol needs, and the file of its authority."""
    properties = {
        "listener.security.protocol.map": f"CONTROLLER:{protocol},PLAINTEXT:PLAINTEXT",
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "super.users": f"User:ANONYMOUS;User:{NODE};User:{CLIENT}",
    }
    authority = None
    if protocol.endswith("SSL"):
        certificates = Certificates.create(directory)
        authority = str(certificates.authority)
        properties |= {
            "ssl.truststore.type": "PEM",
            "ssl.truststore.location": authority,
            "ssl.keystore.type": "PEM",
            "ssl.keystore.location": str(certificates.server),
        }
    if protocol.startswith("SASL"):
        users = {f"user_{NODE}": NODE_PASSWORD, f"user_{CLIENT}": CLIENT_PASSWORD}
        properties |= {
            "sasl.enabled.mechanisms": "PLAIN",
            "sasl.mechanism.controller.protocol": "PLAIN",
            "listener.name.controller.plain.sasl.jaas.config": format_jaas(
                "PLAIN", {"username": NODE, "password": NODE_PASSWORD, **users}
            ),
        }
    return properties, authority
