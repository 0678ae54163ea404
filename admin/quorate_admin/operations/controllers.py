"""Operations on the controller quorum, registrations of controllers, and supported versions of single nodes."""

import asyncio
import uuid
from collections.abc import Sequence
from typing import Any

from quorate_protocol.errors import ErrorCode
from quorate_protocol.kafka.identity import is_node, node_question
from quorate_protocol.kafka.metadata_log import METADATA_PARTITION, METADATA_TOPIC

from quorate_admin.config import Address
from quorate_admin.errors import (
    AdminError,
    ConnectionFailedError,
    RebootstrapRequiredError,
    RefreshRefusedError,
    ServerError,
)
from quorate_admin.network.connection import Connection, Identity
from quorate_admin.network.routing import To
from quorate_admin.network.transport import describe_cluster_request
from quorate_admin.operations.cluster import ClusterOperations, api_versions_of
from quorate_admin.types.cluster import (
    ControllerRegistration,
    NodeApiVersions,
    QuorumDescription,
    RaftVoterEndpoint,
    ReplicaDescription,
)

PROBE_TIMEOUT_MS = 5_000
ELECTIONS_MAX = 3
"""The number of elections that a refresh waits out. After each, it gives nodes time to fetch from the new leader."""


class ControllerOperations(ClusterOperations):
    """The quorum and its voters, registrations of controllers, and ApiVersions of single nodes."""

    # The quorum (KIP-595, KIP-836, KIP-853)

    async def describe_metadata_quorum(self, *, timeout_ms: int | None = None) -> QuorumDescription:
        """The controller quorum, as its leader reports it (DescribeQuorum)."""
        response = await self._ask(
            describe_quorum_request(),
            To.LEADER_OF_QUORUM,
            failures=lambda response: [
                response.error_code,
                *(partition.error_code for partition in metadata_partitions(response)),
            ],
            timeout_ms=timeout_ms,
        )
        for partition in metadata_partitions(response):
            if partition.error_code is not ErrorCode.none:
                raise ServerError(partition.error_code, partition.error_message)
            return _quorum(partition, response.nodes)
        raise ServerError(
            ErrorCode.unknown_server_error, f"the response has no partition 0 of {METADATA_TOPIC}"
        )

    async def add_raft_voter(
        self,
        node_id: int,
        directory_id: uuid.UUID,
        endpoints: Sequence[RaftVoterEndpoint],
        *,
        cluster_id: str | None = None,
        ack_when_committed: bool = True,
        timeout_ms: int | None = None,
    ) -> None:
        """Make an observer of the metadata log a voter (AddRaftVoter, KIP-853).

        With `cluster_id`, a leader of another cluster refuses. With `ack_when_committed=False` (KIP-1186) the leader
        answers when it has written the new voter set, not when the set is committed.
        """
        from quorate_protocol.kafka.generated.add_raft_voter_request import AddRaftVoterRequest, Listener

        request = AddRaftVoterRequest(
            cluster_id=cluster_id,
            timeout=self._server_timeout(timeout_ms),
            voter_id=node_id,
            voter_directory_id=directory_id,
            listeners=tuple(
                Listener(name=endpoint.name, host=endpoint.host, port=endpoint.port) for endpoint in endpoints
            ),
            ack_when_committed=ack_when_committed,
        )
        await self._ask(request, To.LEADER_OF_QUORUM, timeout_ms=timeout_ms)

    async def remove_raft_voter(
        self,
        node_id: int,
        directory_id: uuid.UUID,
        *,
        cluster_id: str | None = None,
        timeout_ms: int | None = None,
    ) -> None:
        """Remove a voter from the quorum (RemoveRaftVoter, KIP-853)."""
        from quorate_protocol.kafka.generated.remove_raft_voter_request import RemoveRaftVoterRequest

        request = RemoveRaftVoterRequest(
            cluster_id=cluster_id, voter_id=node_id, voter_directory_id=directory_id
        )
        await self._ask(request, To.LEADER_OF_QUORUM, timeout_ms=timeout_ms)

    # Registrations (KIP-919, KIP-1312)

    async def register_controller(
        self, registration: ControllerRegistration, *, timeout_ms: int | None = None
    ) -> None:
        """Register a controller on its behalf (ControllerRegistration, KIP-919).

        This is the plain request, which controllers send for themselves; `refresh_controller` adds the checks.
        """
        from quorate_protocol.kafka.generated.controller_registration_request import (
            ControllerRegistrationRequest,
            Feature,
            Listener,
        )

        self._controllers_only("registering a controller")
        request = ControllerRegistrationRequest(
            controller_id=registration.controller_id,
            incarnation_id=registration.incarnation_id,
            zk_migration_ready=False,
            listeners=tuple(
                Listener(
                    name=listener.name,
                    host=listener.host,
                    port=listener.port,
                    security_protocol=listener.security_protocol,
                )
                for listener in registration.listeners
            ),
            features=tuple(
                Feature(name=name, min_supported_version=low, max_supported_version=high)
                for name, (low, high) in sorted(registration.features.items())
            ),
        )
        await self._ask(request, timeout_ms=timeout_ms)

    async def unregister_controller(self, controller_id: int, *, timeout_ms: int | None = None) -> None:
        """Unregister a controller that is stopped for good (UnregisterController, KIP-1312).

        Raises:
            UnsupportedByServerError: the cluster is older than Kafka 4.4.
            ServerError: UNSUPPORTED_VERSION below metadata.version 4.4-IV2; CONTROLLER_ID_NOT_REGISTERED;
                INVALID_REQUEST for a current voter.
            AdminError: no node answered.
        """
        from quorate_protocol.kafka.generated.unregister_controller_request import UnregisterControllerRequest

        await self._ask(UnregisterControllerRequest(controller_id=controller_id), timeout_ms=timeout_ms)

    async def refresh_controller(
        self,
        controller_id: int,
        *,
        allow_unlisted: bool = False,
        validate_only: bool = False,
        timeout_ms: int | None = None,
    ) -> ControllerRegistration:
        """Replace the registration of a stopped controller: the feature levels of the active one, and no endpoints.

        The registration of a controller that is stopped for good stays, and its old levels block upgrades of
        features; below metadata.version 4.4-IV2 it can't be removed. After a refresh it blocks no upgrade, and
        clients do not connect to it. A controller that is started again registers itself again.

        The controller must not have fetched in the last 5 s, and must not answer at its registered endpoints. A
        leader that may have been elected in that time is asked again after it.
        `allow_unlisted` accepts a controller without known endpoints: one that was refreshed before, or a node id
        that never was a controller's and would become one. With `validate_only` everything is checked, and nothing is
        registered.

        Returns:
            The new registration of the controller, or with `validate_only` the one that it would get.

        Raises:
            RefreshRefusedError: the controller may be running, or is not registered; the message has the observation.
            AdminError: a request was not answered, or refused.
        """
        self._controllers_only("refreshing a controller's registration")
        cluster = await self.describe_cluster(timeout_ms=timeout_ms)
        listed = [node for node in cluster.nodes if node.node_id == controller_id]
        if not listed and not allow_unlisted:
            raise RefreshRefusedError(
                f"controller {controller_id} is not refreshed: it has no registration with endpoints; controllers "
                f"with endpoints are {', '.join(str(node.node_id) for node in cluster.nodes)}. Allow a controller "
                "without endpoints, for instance one that was refreshed before, with allow_unlisted "
                "(--allow-unlisted)"
            )
        await self._check_quiet(controller_id, timeout_ms)
        identity = Identity(cluster.cluster_id, controller_id)
        for node in listed:
            seen = await self._seen_at(Address(node.host, node.port), identity)
            if seen is not None:
                raise RefreshRefusedError(f"controller {controller_id} is not refreshed: {seen}")
        active = await self._api_versions(To.CONTROLLER, timeout_ms=timeout_ms)
        registration = ControllerRegistration(
            controller_id=controller_id,
            incarnation_id=uuid.uuid4(),
            listeners=(),
            features=api_versions_of(active).supported_features,
        )
        if not validate_only:
            await self.register_controller(registration, timeout_ms=timeout_ms)
        return registration

    async def _check_quiet(self, controller_id: int, timeout_ms: int | None) -> None:
        """Raise RefreshRefusedError if the controller follows the log, or if leaders change too often to find out."""
        from quorate_admin.diagnosis import judgement

        refused = f"controller {controller_id} is not refreshed"
        epoch: int | None = None
        for attempt in range(ELECTIONS_MAX + 1):
            if attempt > 0:
                # No node has fetched from a newly elected leader yet: give the controller time to do so.
                await asyncio.sleep((judgement.FETCH_SILENCE_MS_MAX + 1) / 1000)
            quorum = await self.describe_metadata_quorum(timeout_ms=timeout_ms)
            if quorum.leader_id == controller_id:
                raise RefreshRefusedError(f"{refused}: it leads the quorum")
            view = judgement.LeaderView.of(quorum)
            if view.node_follows(controller_id):
                limit_ms = judgement.FETCH_SILENCE_MS_MAX
                raise RefreshRefusedError(f"{refused}: it fetched in the last {limit_ms} ms")
            if quorum.leader_epoch == epoch or not view.is_new:
                return
            epoch = quorum.leader_epoch
        raise RefreshRefusedError(
            f"{refused}: the quorum elected {ELECTIONS_MAX} leaders meanwhile; try again"
        )

    async def _seen_at(self, address: Address, identity: Identity) -> str | None:
        """Describe the server at an address if it may be the given node.

        Returns None if it is not, or nothing answers.
        """
        try:
            connection = await self._transport.open_separate(address, identity, timeout_ms=PROBE_TIMEOUT_MS)
        except (ConnectionFailedError, OSError):
            return None  # nothing listens there, or it reported another identity
        except AdminError as error:
            return f"a server listens at {address}, and it is unknown whether it is this controller: {error}"
        try:
            return f"it answers at {address}" if await self._is_node(connection, identity) else None
        except AdminError as error:
            return f"a server answers at {address}, and it is unknown whether it is this controller: {error}"
        finally:
            await connection.close()

    async def is_node_at(
        self, address: Address, node_id: int, cluster_id: str, *, timeout_ms: int = PROBE_TIMEOUT_MS
    ) -> bool | None:
        """Whether a node of a cluster answers at an address. None if that is unknown."""
        identity = Identity(cluster_id, node_id)
        try:
            connection = await self._transport.open_separate(address, identity, timeout_ms=timeout_ms)
        except RebootstrapRequiredError:
            return False
        except (AdminError, OSError):
            return None
        try:
            return await self._is_node(connection, identity, timeout_ms)
        except AdminError:
            return None
        finally:
            await connection.close()

    async def _is_node(
        self, connection: Connection, identity: Identity, timeout_ms: int = PROBE_TIMEOUT_MS
    ) -> bool:
        """Whether a server identifies itself as this node. Raises AdminError if it does not identify itself.

        That it accepts an identity in ApiVersions proves nothing: Java controllers of Kafka 4.4 accept any.
        """
        described = await connection.request(
            describe_cluster_request(is_to_controllers=self._to_controllers), timeout_ms
        )
        if described.error_code is ErrorCode.none and described.cluster_id != identity.cluster_id:
            return False
        response = await connection.request(node_question([identity.node_id]), timeout_ms)
        code = response.results[0].error_code if response.results else ErrorCode.unknown_server_error
        is_this_node = is_node(code)
        if is_this_node is None:
            raise ServerError(code, response.results[0].error_message if response.results else None)
        return is_this_node

    async def node_api_versions(
        self, node: int | Address, *, timeout_ms: int | None = None
    ) -> NodeApiVersions:
        """The API versions and feature levels of one node (ApiVersions), by node id or by address."""
        to = To.at(node) if isinstance(node, Address) else To.node(node)
        response = await self._api_versions(to, timeout_ms=timeout_ms)
        return api_versions_of(response)


def describe_quorum_request() -> Any:
    """The canonical request for the quorum of the metadata log."""
    from quorate_protocol.kafka.generated.describe_quorum_request import (
        DescribeQuorumRequest,
        PartitionData,
        TopicData,
    )

    topic = TopicData(
        topic_name=METADATA_TOPIC, partitions=(PartitionData(partition_index=METADATA_PARTITION),)
    )
    return DescribeQuorumRequest(topics=(topic,))


def metadata_partitions(response: Any) -> list[Any]:
    """The partitions of the metadata log in a response to DescribeQuorum."""
    return [
        partition
        for topic in response.topics
        for partition in topic.partitions
        if topic.topic_name == METADATA_TOPIC and partition.partition_index == METADATA_PARTITION
    ]


def _quorum(partition: Any, nodes: Sequence[Any]) -> QuorumDescription:
    return QuorumDescription(
        leader_id=partition.leader_id,
        leader_epoch=partition.leader_epoch,
        high_watermark=partition.high_watermark,
        voters=tuple(_replica(replica) for replica in partition.current_voters),
        observers=tuple(_replica(replica) for replica in partition.observers),
        nodes={
            node.node_id: tuple(
                RaftVoterEndpoint(name=listener.name, host=listener.host, port=listener.port)
                for listener in node.listeners
            )
            for node in nodes
        },
    )


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
