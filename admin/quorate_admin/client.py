"""AdminClient: asks a cluster for its state and for changes, through brokers or its controllers."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from datetime import timedelta
from typing import Any, Self, TypeVar

from kio.schema.create_topics.v7.request import CreatableTopic, CreatableTopicConfig, CreateTopicsRequest
from kio.schema.describe_cluster.v2.request import DescribeClusterRequest
from kio.schema.describe_quorum.v2.request import DescribeQuorumRequest, PartitionData, TopicData
from quorate_protocol.errors import ErrorCode

from quorate_admin.connection import Address, Connection
from quorate_admin.errors import AdminError, ConnectionFailedError, ServerError, UnreachableError
from quorate_admin.results import (
    ClusterDescription,
    FeatureDescription,
    NewTopic,
    NodeDescription,
    QuorumDescription,
    ReplicaDescription,
    TopicCreation,
)

CONNECT_TIMEOUT_MS = 5_000
REQUEST_TIMEOUT_MS = 30_000
METADATA_TOPIC = "__cluster_metadata"
ENDPOINTS_OF_BROKERS = 1
ENDPOINTS_OF_CONTROLLERS = 2

_NOT_HERE = (ErrorCode.not_controller, ErrorCode.not_leader_or_follower)
_Answer = TypeVar("_Answer")


class AdminClient:
    """A client of one cluster; its connections are opened when they are first needed and kept.

    Give `bootstrap_servers` to go through brokers, or `bootstrap_controllers` to go straight to the
    controllers, which works when no broker does. Each is a list of `host:port`. Several tasks may use one
    client.
    """

    def __init__(
        self,
        *,
        bootstrap_servers: Sequence[str] = (),
        bootstrap_controllers: Sequence[str] = (),
        client_id: str = "quorate-admin",
        request_timeout_ms: int = REQUEST_TIMEOUT_MS,
    ) -> None:
        if bool(bootstrap_servers) == bool(bootstrap_controllers):
            raise ValueError("give either bootstrap_servers or bootstrap_controllers")
        self._addresses = [Address.parse(text) for text in bootstrap_servers or bootstrap_controllers]
        self._to_controllers = bool(bootstrap_controllers)
        self._client_id = client_id
        self._request_timeout_ms = request_timeout_ms
        self._connections: dict[Address, Connection] = {}
        self._opening = {address: asyncio.Lock() for address in self._addresses}

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        """Close every connection."""
        connections = list(self._connections.values())
        self._connections.clear()
        await asyncio.gather(*(connection.close() for connection in connections))

    async def describe_quorum(self) -> QuorumDescription:
        """The controller quorum, as its leader sees it (DescribeQuorum). Raises AdminError."""
        partitions = (PartitionData(partition_index=0),)
        request = DescribeQuorumRequest(topics=(TopicData(topic_name=METADATA_TOPIC, partitions=partitions),))

        async def describe(connection: Connection) -> QuorumDescription:
            response = await connection.request(request, self._request_timeout_ms)
            _raise_for(response.error_code, response.error_message)
            partition = _metadata_partition(response, connection)
            _raise_for(partition.error_code, partition.error_message)
            return QuorumDescription(
                leader_id=partition.leader_id,
                leader_epoch=partition.leader_epoch,
                high_watermark=partition.high_watermark,
                voters=tuple(_replica(replica) for replica in partition.current_voters),
                observers=tuple(_replica(replica) for replica in partition.observers),
            )

        return await self._ask(describe)

    async def describe_cluster(self) -> ClusterDescription:
        """The cluster with its brokers, or its controllers (DescribeCluster). Raises AdminError."""
        request = DescribeClusterRequest(
            include_cluster_authorized_operations=False,
            endpoint_type=ENDPOINTS_OF_CONTROLLERS if self._to_controllers else ENDPOINTS_OF_BROKERS,
            include_fenced_brokers=not self._to_controllers,
        )

        async def describe(connection: Connection) -> ClusterDescription:
            response = await connection.request(request, self._request_timeout_ms)
            _raise_for(response.error_code, response.error_message)
            return ClusterDescription(
                cluster_id=response.cluster_id,
                controller_id=response.controller_id,
                nodes=tuple(
                    NodeDescription(
                        node_id=node.broker_id,
                        host=node.host,
                        port=node.port,
                        rack=node.rack,
                        fenced=node.is_fenced,
                    )
                    for node in response.brokers
                ),
            )

        return await self._ask(describe)

    async def describe_features(self) -> FeatureDescription:
        """Feature levels as the first node that answers knows them (ApiVersions). Raises AdminError."""

        async def describe(connection: Connection) -> FeatureDescription:
            response = await connection.negotiate(self._request_timeout_ms)
            return FeatureDescription(
                finalized={key.name: key.max_version_level for key in response.finalized_features},
                finalized_epoch=response.finalized_features_epoch,
                supported={
                    key.name: (key.min_version, key.max_version) for key in response.supported_features
                },
            )

        return await self._ask(describe)

    async def create_topics(
        self, topics: Sequence[NewTopic], *, validate_only: bool = False
    ) -> tuple[TopicCreation, ...]:
        """Create topics (CreateTopics); each has a result of its own. Raises AdminError."""
        request = CreateTopicsRequest(
            topics=tuple(
                CreatableTopic(
                    name=topic.name,
                    num_partitions=topic.partitions,
                    replication_factor=topic.replication_factor,
                    assignments=(),
                    configs=tuple(
                        CreatableTopicConfig(name=name, value=value) for name, value in topic.configs.items()
                    ),
                )
                for topic in topics
            ),
            timeout=timedelta(milliseconds=self._request_timeout_ms),
            validate_only=validate_only,
        )

        async def create(connection: Connection) -> tuple[TopicCreation, ...]:
            response = await connection.request(request, self._request_timeout_ms)
            for topic in response.topics:
                if topic.error_code in _NOT_HERE:
                    raise ServerError(topic.error_code, topic.error_message)
            return tuple(_creation(topic) for topic in response.topics)

        return await self._ask(create)

    async def _ask(self, ask: Callable[[Connection], Awaitable[_Answer]]) -> _Answer:
        """The answer of the first node that gives one; one that is not in charge sends us to the next."""
        reasons: dict[str, str] = {}
        for address in list(self._addresses):
            try:
                answer = await ask(await self._connection_to(address))
            except ServerError as error:
                if error.error_code not in _NOT_HERE:
                    raise
                reasons[str(address)] = str(error)
            except AdminError as error:
                reasons[str(address)] = str(error)
            else:
                self._prefer(address)
                return answer
        raise UnreachableError(reasons)

    async def _connection_to(self, address: Address) -> Connection:
        async with self._opening[address]:
            connection = self._connections.get(address)
            if connection is None or not connection.is_open:
                if connection is not None:
                    await connection.close()
                connection = await Connection.open(
                    address, client_id=self._client_id, timeout_ms=CONNECT_TIMEOUT_MS
                )
                self._connections[address] = connection
            return connection

    def _prefer(self, address: Address) -> None:
        """Ask this one first from now on: it leads, or at least it answers."""
        self._addresses.remove(address)
        self._addresses.insert(0, address)


def _metadata_partition(response: Any, connection: Connection) -> Any:
    for topic in response.topics:
        for partition in topic.partitions:
            if topic.topic_name == METADATA_TOPIC and partition.partition_index == 0:
                return partition
    raise ConnectionFailedError(f"{connection.address}: the answer does not have what was asked for")


def _raise_for(error_code: ErrorCode, message: str | None) -> None:
    if error_code is not ErrorCode.none:
        raise ServerError(error_code, message)


def _replica(replica: Any) -> ReplicaDescription:
    return ReplicaDescription(
        node_id=replica.replica_id,
        directory_id=replica.replica_directory_id,
        log_end_offset=replica.log_end_offset,
        last_fetch_ms=_known_ms(replica.last_fetch_timestamp),
        last_caught_up_ms=_known_ms(replica.last_caught_up_timestamp),
    )


def _known_ms(timestamp: int) -> int | None:
    return None if timestamp < 0 else timestamp


def _creation(topic: Any) -> TopicCreation:
    return TopicCreation(
        name=topic.name,
        topic_id=topic.topic_id,
        partitions=topic.num_partitions,
        replication_factor=topic.replication_factor,
        error_code=topic.error_code,
        error_message=topic.error_message,
    )
