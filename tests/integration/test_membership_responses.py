"""Responses about members, of a stock Kafka controller and of ours, side by side.

A controller of each kind gets the same requests in the same order, since later responses depend on earlier ones.
"""

import socket
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, fields, is_dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
from kit.cluster import Cluster, manifests
from kit.waiting import eventually
from quorate_protocol.errors import ErrorCode
from quorate_protocol.kafka.apis import api_of
from quorate_protocol.kafka.generated import add_raft_voter_request as add
from quorate_protocol.kafka.generated import controller_registration_request as registration
from quorate_protocol.kafka.generated import update_features_request as features
from quorate_protocol.kafka.generated import update_raft_voter_request as update
from quorate_protocol.kafka.generated.describe_cluster_request import DescribeClusterRequest
from quorate_protocol.kafka.generated.remove_raft_voter_request import RemoveRaftVoterRequest
from quorate_protocol.wire.client import ClientConnection

pytestmark = pytest.mark.integration

NODE_ID = 3000
GHOST = 3009
NEWCOMER = 3005
OTHER_DIRECTORY = UUID(int=7 << 80 | 4 << 76 | 7)
TIMEOUT_S = 30
RECEIVE_BYTES = 1 << 16
START_LEVEL, NEXT_LEVEL = 28, 30
NOT_LISTENING = 1
"""A port of this machine without a listener."""


class Asked:
    """A quorum of one controller, and a connection to it."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        quorum = cluster.await_quorum()
        (voter,) = quorum.voters
        assert voter.directory_id is not None
        self.directory_id = voter.directory_id
        self.leader_epoch = quorum.leader_epoch
        self.cluster_id = cluster.layout.identity.cluster_id
        host, _, port = cluster.address(NODE_ID).rpartition(":")
        self.host, self.port = host, int(port)
        self._socket = socket.create_connection((host, self.port), timeout=TIMEOUT_S)
        self._codec = ClientConnection("asking")
        eventually(lambda: self.described().brokers, TIMEOUT_S, "the controller to register")

    def ask(self, request: Any, version: int | None = None) -> Any:
        """The response to a request, by default in its highest version."""
        self._socket.sendall(
            self._codec.send(request, api_of(request).version_max if version is None else version)
        )
        while True:
            data = self._socket.recv(RECEIVE_BYTES)
            assert data, self.cluster.describe(f"the connection ended upon {request}")
            if responses := self._codec.receive_data(data):
                ((_, response),) = responses
                return response

    def described(self) -> Any:
        return self.ask(describe())

    def close(self) -> None:
        self._socket.close()


@dataclass(frozen=True)
class Pair:
    """A cluster of each implementation."""

    java: Asked
    python: Asked


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory, kafka_jars: Path) -> Iterator[Pair]:
    """A quorum of one Java controller and one of one Python controller, at the same metadata.version."""
    clusters = [
        Cluster.create(
            tmp_path_factory.mktemp(name) / "cluster",
            kafka_jars,
            manifests(controllers=1, java=java, brokers=0, metadata_version="4.2-IV0"),
        )
        for name, java in (("java", (NODE_ID,)), ("python", ()))
    ]
    asked: list[Asked] = []
    try:
        for cluster in clusters:
            cluster.start_all()
            asked.append(Asked(cluster))
        yield Pair(*asked)
    finally:
        for side in asked:
            with suppress(OSError):
                side.close()
        for cluster in clusters:
            cluster.close()


def describe(endpoint_type: int = 2, *, operations: bool = False) -> DescribeClusterRequest:
    return DescribeClusterRequest(
        include_cluster_authorized_operations=operations,
        endpoint_type=endpoint_type,
        include_fenced_brokers=False,
    )


def register(highest: int, *, incarnation: int, host: str | None = "ghost") -> Any:
    listeners = () if host is None else ((host, 9),)
    return registration.ControllerRegistrationRequest(
        controller_id=GHOST,
        incarnation_id=UUID(int=incarnation),
        zk_migration_ready=False,
        listeners=tuple(
            registration.Listener(name="CONTROLLER", host=name, port=port, security_protocol=0)
            for name, port in listeners
        ),
        features=(
            registration.Feature(
                name="metadata.version", min_supported_version=7, max_supported_version=highest
            ),
        ),
    )


def upgrade(level: int = NEXT_LEVEL) -> Any:
    key = features.FeatureUpdateKey(feature="metadata.version", max_version_level=level, upgrade_type=1)
    return features.UpdateFeaturesRequest(feature_updates=(key,), validate_only=False)


def add_voter(asked: Asked, node_id: int = NEWCOMER, **changes: Any) -> Any:
    values: dict[str, Any] = {
        "cluster_id": asked.cluster_id,
        "timeout": timedelta(seconds=5),
        "voter_id": node_id,
        "voter_directory_id": OTHER_DIRECTORY,
        "listeners": (add.Listener(name="CONTROLLER", host="127.0.0.1", port=NOT_LISTENING),),
    }
    return add.AddRaftVoterRequest(**(values | changes))


def remove_voter(asked: Asked, node_id: int = NODE_ID, **changes: Any) -> Any:
    values: dict[str, Any] = {
        "cluster_id": asked.cluster_id,
        "voter_id": node_id,
        "voter_directory_id": asked.directory_id,
    }
    return RemoveRaftVoterRequest(**(values | changes))


def update_voter(asked: Asked, node_id: int = NODE_ID, **changes: Any) -> Any:
    values: dict[str, Any] = {
        "cluster_id": asked.cluster_id,
        "current_leader_epoch": asked.leader_epoch,
        "voter_id": node_id,
        "voter_directory_id": asked.directory_id,
        "listeners": (update.Listener(name="CONTROLLER", host=asked.host, port=asked.port),),
        "k_raft_version_feature": update.KRaftVersionFeature(
            min_supported_version=0, max_supported_version=1
        ),
    }
    return update.UpdateRaftVoterRequest(**(values | changes))


def comparable(value: Any, asked: Asked) -> Any:
    """A response without what differs from one cluster to the next."""
    if is_dataclass(value) and not isinstance(value, type):
        return {field.name: comparable(getattr(value, field.name), asked) for field in fields(value)}
    if isinstance(value, tuple):
        return sorted((comparable(item, asked) for item in value), key=repr)
    unstable = {asked.cluster_id: "<cluster>", asked.port: "<port>", asked.directory_id: "<directory>"}
    if isinstance(value, str):
        return value.replace(asked.cluster_id, "<cluster>")
    return unstable.get(value, value) if type(value) in (int, UUID) else value


def both(pair: Pair, build: Callable[[Asked], Any], version: int | None = None) -> tuple[Any, Any]:
    """Java's response and ours."""
    return tuple(  # type: ignore[return-value]
        comparable(side.ask(build(side), version), side) for side in (pair.java, pair.python)
    )


@pytest.mark.parametrize("version", [0, 1, 2])
@pytest.mark.parametrize("endpoint_type", [1, 2, 3])
@pytest.mark.parametrize("operations", [False, True])
def test_describe_cluster(pair: Pair, version: int, endpoint_type: int, operations: bool) -> None:
    """Clients of controllers get what they know (KIP-919, KIP-1073)."""
    if version == 0:
        endpoint_type = 1
    java, python = both(pair, lambda _: describe(endpoint_type, operations=operations), version)
    assert python == java


def test_a_ghost_blocks_a_level_until_it_is_refreshed(pair: Pair) -> None:
    """The way out for clusters below metadata.version 33 works alike, word for word."""
    steps: list[Callable[[Asked], Any]] = [
        lambda _: register(START_LEVEL, incarnation=1),
        lambda _: describe(),
        lambda _: upgrade(),
        lambda _: register(NEXT_LEVEL, incarnation=2, host=None),
        lambda _: describe(),
        lambda _: upgrade(),
    ]
    responses = [both(pair, step) for step in steps]
    assert [python for _, python in responses] == [java for java, _ in responses]
    codes = [python["error_code"] for _, python in responses]
    assert codes == [ErrorCode.none] * 2 + [ErrorCode.invalid_update_version] + [ErrorCode.none] * 3
    assert [len(responses[at][1]["brokers"]) for at in (1, 4)] == [2, 1]
    assert f"Controller {GHOST} only supports versions 7-{START_LEVEL}" in responses[2][1]["error_message"]


VOTER_REQUESTS: dict[str, Callable[[Asked], Any]] = {
    "add, of another cluster": lambda asked: add_voter(asked, cluster_id="other"),
    "add, without a cluster": lambda asked: add_voter(asked, NODE_ID, cluster_id=None),
    "add, without a directory": lambda asked: add_voter(asked, voter_directory_id=None),
    "add, without the default listener": lambda asked: add_voter(
        asked, listeners=(add.Listener(name="OTHER", host="h", port=9),)
    ),
    "add, a voter": lambda asked: add_voter(asked, NODE_ID, voter_directory_id=asked.directory_id),
    "add, a voter with a new disk": lambda asked: add_voter(asked, NODE_ID),
    "add, nobody there": add_voter,
    "add, nobody there, not waiting": lambda asked: add_voter(asked, ack_when_committed=False),
    "add, one that does not follow": lambda asked: add_voter(
        asked, listeners=(add.Listener(name="CONTROLLER", host=asked.host, port=asked.port),)
    ),
    "remove, of another cluster": lambda asked: remove_voter(asked, cluster_id="other"),
    "remove, without a directory": lambda asked: remove_voter(asked, voter_directory_id=None),
    "remove, no voter": lambda asked: remove_voter(asked, NEWCOMER),
    "remove, another directory": lambda asked: remove_voter(asked, voter_directory_id=OTHER_DIRECTORY),
    "remove, the only voter": remove_voter,
    "update, of another cluster": lambda asked: update_voter(asked, cluster_id="other"),
    "update, of a former epoch": lambda asked: update_voter(
        asked, current_leader_epoch=asked.leader_epoch - 1
    ),
    "update, of a later epoch": lambda asked: update_voter(
        asked, current_leader_epoch=asked.leader_epoch + 1
    ),
    "update, without a directory": lambda asked: update_voter(asked, voter_directory_id=None),
    "update, no voter": lambda asked: update_voter(asked, NEWCOMER),
    "update, another directory": lambda asked: update_voter(asked, voter_directory_id=OTHER_DIRECTORY),
    "update, without the default listener": lambda asked: update_voter(
        asked, listeners=(update.Listener(name="OTHER", host="h", port=9),)
    ),
    "update, without kraft.version 1": lambda asked: update_voter(
        asked,
        k_raft_version_feature=update.KRaftVersionFeature(min_supported_version=0, max_supported_version=0),
    ),
    "update, an impossible range": lambda asked: update_voter(
        asked,
        k_raft_version_feature=update.KRaftVersionFeature(min_supported_version=1, max_supported_version=0),
    ),
}
OWN_WORDS = {
    "add, without the default listener",
    "add, a voter",
    "add, without a cluster",
    "add, a voter with a new disk",
    "add, nobody there",
    "add, nobody there, not waiting",
    "add, one that does not follow",
    "remove, no voter",
    "remove, another directory",
    "remove, the only voter",
}
"""Where the message names replicas, which Java prints as Java prints objects, or says more than Java's."""


@pytest.mark.parametrize("name", VOTER_REQUESTS)
def test_requests_about_voters(pair: Pair, name: str) -> None:
    """KIP-853's responses are Kafka's."""
    java, python = both(pair, VOTER_REQUESTS[name])
    if name in OWN_WORDS:
        messages = (java.pop("error_message"), python.pop("error_message"))
        assert all(messages), messages
    assert python == java


def test_a_leader_may_be_told_of_itself(pair: Pair) -> None:
    """A stray UpdateRaftVoter does not end a leader; a Java leader of 4.3.1 ends with a fatal fault."""
    response = pair.python.ask(update_voter(pair.python))
    assert response.error_code is ErrorCode.none
    assert pair.python.described().controller_id == NODE_ID
