"""A cluster of servers on loopback that answer canonical requests as a test says.

`async with FakeCluster() as cluster, AdminClient(bootstrap_servers=cluster.bootstrap) as admin: ...` is all that a
test of an operation needs: the cluster answers ApiVersions and DescribeCluster by itself, and a handler that the
test gives answers the rest:

    cluster.handle("CreateTopics", lambda request: response_to("CreateTopics", topics=...))

A handler gets the parsed `Request` (`request.body` is the canonical class, `request.version` what was spoken) and
returns a canonical response, or `SILENCE` or `HANG_UP` in its place.
"""

import asyncio
import importlib
import ssl
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from types import TracebackType
from typing import Any, Self

from quorate_protocol.errors import ErrorCode, ProtocolError
from quorate_protocol.kafka.apis import APIS, CONTROLLER_APIS, CONTROLLER_READ_APIS, Api, ApiKey
from quorate_protocol.kafka.metadata_log import METADATA_TOPIC
from quorate_protocol.wire.frames import FrameDecoder
from quorate_protocol.wire.schema import zero_entity
from quorate_protocol.wire.server import Request, parse_request, serialize_response
from quorate_protocol.wire.versions import READER_SOFTWARE_NAME

CLUSTER_ID = "fake-cluster-1234567-A"
SILENCE = object()
"""The request is never answered."""
HANG_UP = object()
"""The connection is closed instead of a response."""

Handler = Callable[[Request], Any]

_BY_NAME = {api.name: api for api in APIS.values()}
_CONTROLLERS_ONLY = frozenset(
    {
        *("Vote", "BeginQuorumEpoch", "EndQuorumEpoch", "UpdateRaftVoter", "FetchSnapshot", "Envelope"),
        *("BrokerRegistration", "BrokerHeartbeat", "ControllerRegistration", "AlterPartition"),
        *("AllocateProducerIds", "AssignReplicasToDirs"),
    }
)
_BROKERS = 1
_CONTROLLERS = 2


def response_to(api_name: str, **fields: Any) -> Any:
    """A canonical response with these fields, and zero, false, empty or none in the others."""
    return replace(zero_entity(_BY_NAME[api_name].canonical_response), **fields)


def nested(api_name: str, class_name: str, **fields: Any) -> Any:
    """A struct inside a canonical response, such as `nested("CreateTopics", "CreatableTopicResult", name="a")`."""
    module = importlib.import_module(_BY_NAME[api_name].canonical_response.__module__)
    return replace(zero_entity(getattr(module, class_name)), **fields)


def replica_state(node_id: int, **fields: Any) -> Any:
    """A voter or observer in a response to DescribeQuorum."""
    return nested("DescribeQuorum", "ReplicaState", replica_id=node_id, **fields)


def quorum_response(
    *voters: Any, observers: Sequence[Any] = (), endpoints: Mapping[int, str] | None = None, **partition: Any
) -> Any:
    """A response to DescribeQuorum: `host:port` of voters by id, and fields of the partition."""
    described = nested(
        "DescribeQuorum", "PartitionData", current_voters=voters, observers=tuple(observers), **partition
    )
    topic = nested("DescribeQuorum", "TopicData", topic_name=METADATA_TOPIC, partitions=(described,))
    nodes = []
    for node_id, endpoint in (endpoints or {}).items():
        host, _, port = endpoint.rpartition(":")
        listener = nested("DescribeQuorum", "Listener", name="CONTROLLER", host=host, port=int(port))
        nodes.append(nested("DescribeQuorum", "Node", node_id=node_id, listeners=(listener,)))
    return response_to("DescribeQuorum", topics=(topic,), nodes=tuple(nodes))


@dataclass(eq=False)
class FakeNode:
    """One server. A test may change any of these fields while it runs."""

    cluster: "FakeCluster"
    node_id: int
    cluster_id: str
    apis: dict[int, tuple[int, int]]
    """API key -> lowest and highest version, as ApiVersions reports them."""
    handlers: dict[str, Handler] = field(default_factory=dict)
    """Handlers of this node alone, by API name; they go before the cluster's."""
    advertised: str | None = None
    """The `host:port` that DescribeCluster reports, if it is not where the node listens."""
    serves_reads: bool = False
    """Whether it is a controller of Quorate, which offers CONTROLLER_READ_APIS to clients that ask for them."""
    requests: list[Request] = field(default_factory=list)
    """All requests that arrived, in order, including ApiVersions."""
    connections: int = 0
    """The number of connections that were accepted."""
    address: str = ""
    """Where it listens: `host:port`."""
    _server: asyncio.Server | None = None
    _writers: set[asyncio.StreamWriter] = field(default_factory=set)

    def received(self, api_name: str) -> list[Request]:
        """The requests of one API that arrived, in order."""
        return [request for request in self.requests if request.api.name == api_name]

    async def start(self) -> None:
        """Listen: at the same port as before, if it listened before."""
        port = int(self.address.rpartition(":")[2]) if self.address else 0
        self._server = await asyncio.start_server(
            self._serve, "127.0.0.1", port, ssl=self.cluster.ssl_context, reuse_address=True
        )
        self.address = f"127.0.0.1:{self._server.sockets[0].getsockname()[1]}"

    async def stop(self) -> None:
        """Listen no more, and close every connection."""
        if self._server is None:
            return
        self._server.close()
        self.hang_up()
        for writer in list(self._writers):
            with suppress(OSError):
                await writer.wait_closed()
        await self._server.wait_closed()
        self._server = None

    def hang_up(self) -> None:
        """Close every connection, and keep listening."""
        for writer in self._writers:
            writer.close()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._writers.add(writer)
        self.connections += 1
        frames = FrameDecoder()
        try:
            while data := await reader.read(65536):
                for frame in frames.feed(data):
                    request = parse_request(frame, APIS)
                    self.requests.append(request)
                    response = self._response_to(request)
                    if response is HANG_UP:
                        return
                    if response is not SILENCE:
                        writer.write(_serialized(request, response))
                        await writer.drain()
        except (OSError, ProtocolError):
            pass  # as a server, it closes the connection
        finally:
            self._writers.discard(writer)
            writer.close()
            with suppress(OSError):
                await writer.wait_closed()

    def _response_to(self, request: Request) -> Any:
        name = request.api.name
        handler = self.handlers.get(name) or self.cluster.handlers.get(name)
        if handler is not None:
            return handler(request)
        if name == "ApiVersions":
            return self.api_versions(request)
        if name == "DescribeCluster":
            return self.describe_cluster(request)
        if name == "DescribeConfigs":
            return self.describe_configs(request)
        return HANG_UP

    def api_versions(self, request: Request) -> Any:
        """What the node speaks; checks the identity that version 5 may carry (KIP-1242)."""
        _, newest = self.apis[ApiKey.API_VERSIONS]
        apis = dict(self.apis)
        if self.serves_reads and request.body.client_software_name == READER_SOFTWARE_NAME:
            apis |= {key: (api.version_min, api.version_max) for key, api in CONTROLLER_READ_APIS.items()}
        keys = tuple(
            nested("ApiVersions", "ApiVersion", api_key=key, min_version=low, max_version=high)
            for key, (low, high) in apis.items()
        )
        reported = response_to(
            "ApiVersions",
            api_keys=keys,
            supported_features=tuple(
                nested("ApiVersions", "SupportedFeatureKey", name=name, min_version=low, max_version=high)
                for name, (low, high) in self.cluster.supported_features.items()
            ),
            finalized_features=tuple(
                nested(
                    "ApiVersions",
                    "FinalizedFeatureKey",
                    name=name,
                    min_version_level=level,
                    max_version_level=level,
                )
                for name, level in self.cluster.finalized_features.items()
            ),
            finalized_features_epoch=self.cluster.finalized_features_epoch,
        )
        if request.unsupported_version is not None or request.version > newest:
            return replace(reported, error_code=ErrorCode.unsupported_version)
        cluster_id, node_id = request.body.cluster_id, request.body.node_id
        if (cluster_id is None) != (node_id == -1):
            return response_to("ApiVersions", error_code=ErrorCode.invalid_request)
        is_meant = (cluster_id, node_id) == (self.cluster_id, self.node_id)
        if self.cluster.checks_identity and cluster_id is not None and not is_meant:
            return response_to("ApiVersions", error_code=ErrorCode.rebootstrap_required)
        return reported

    def describe_configs(self, request: Request) -> Any:
        """Nothing of its own configuration, and INVALID_REQUEST for that of other nodes."""
        results = tuple(
            nested(
                "DescribeConfigs",
                "DescribeConfigsResult",
                error_code=ErrorCode.none
                if resource.resource_name == str(self.node_id)
                else ErrorCode.invalid_request,
                resource_type=resource.resource_type,
                resource_name=resource.resource_name,
            )
            for resource in request.body.resources
        )
        return response_to("DescribeConfigs", results=results)

    def describe_cluster(self, request: Request) -> Any:
        """The nodes of the cluster, if they are of the kind that was asked for (KIP-919)."""
        cluster = self.cluster
        kind = _CONTROLLERS if cluster.is_controllers else _BROKERS
        if request.body.endpoint_type != kind:
            return response_to(
                "DescribeCluster",
                error_code=ErrorCode.mismatched_endpoint_type,
                error_message="The request was sent to an endpoint of the wrong type.",
                endpoint_type=kind,
            )
        return response_to(
            "DescribeCluster",
            endpoint_type=kind,
            cluster_id=self.cluster_id,
            controller_id=cluster.controller_id,
            brokers=tuple(
                nested(
                    "DescribeCluster",
                    "DescribeClusterBroker",
                    broker_id=node.node_id,
                    host=(node.advertised or node.address).rpartition(":")[0],
                    port=int((node.advertised or node.address).rpartition(":")[2]),
                )
                for node in cluster.nodes.values()
                if node.node_id in cluster.listed
            ),
        )


class FakeCluster:
    """Brokers, or controllers with `is_controllers=True`.

    `api_versions_max=4` makes them as old as Kafka 4.3, which checks no identity. `checks_identity=False` makes them
    controllers of Kafka 4.4, which accept any.
    """

    def __init__(
        self,
        node_ids: Sequence[int] = (1,),
        *,
        is_controllers: bool = False,
        cluster_id: str = CLUSTER_ID,
        api_versions_max: int = 5,
        checks_identity: bool = True,
        handlers: Mapping[str, Handler] | None = None,
        ssl_context: ssl.SSLContext | None = None,
    ) -> None:
        self.is_controllers = is_controllers
        self.ssl_context = ssl_context
        self.checks_identity = checks_identity
        self.handlers: dict[str, Handler] = dict(handlers or {})
        self.controller_id = node_ids[0]
        """The controller id of DescribeCluster: the active controller, or the broker that writes go through."""
        self.listed = set(node_ids)
        """The node ids in DescribeCluster."""
        self.supported_features = {"metadata.version": (7, 30), "kraft.version": (0, 1)}
        self.finalized_features = {"metadata.version": 30, "kraft.version": 1}
        self.finalized_features_epoch = 17
        served = CONTROLLER_APIS if is_controllers else _broker_apis()
        apis = {key: (api.version_min, api.version_max) for key, api in served.items()}
        apis[ApiKey.API_VERSIONS] = (0, api_versions_max)
        self.nodes = {node_id: FakeNode(self, node_id, cluster_id, dict(apis)) for node_id in node_ids}

    @property
    def bootstrap(self) -> list[str]:
        """The addresses of all nodes, for `bootstrap_servers` or `bootstrap_controllers`."""
        return [node.address for node in self.nodes.values()]

    def handle(self, api_name: str, handler: Handler) -> None:
        """Answer an API like this, at every node that has no handler of its own."""
        assert api_name in _BY_NAME, api_name
        self.handlers[api_name] = handler

    def received(self, api_name: str) -> list[Request]:
        """The requests of one API that arrived at any node."""
        return [request for node in self.nodes.values() for request in node.received(api_name)]

    async def __aenter__(self) -> Self:
        for node in self.nodes.values():
            await node.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for node in self.nodes.values():
            await node.stop()


def _broker_apis() -> dict[int, Api]:
    return {key: api for key, api in APIS.items() if api.name not in _CONTROLLERS_ONLY}


def _serialized(request: Request, response: Any) -> bytes:
    version = request.version
    if request.api.key is ApiKey.API_VERSIONS and response.error_code is ErrorCode.unsupported_version:
        version = 0  # which a client of an unknown version can read (KIP-511)
    return serialize_response(request.api, version, request.correlation_id, response)
