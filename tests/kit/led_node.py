"""A real controller node, one voter of three, whose peers a test plays: they vote, fetch, and lead instead."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Final
from uuid import UUID

from kit.controller_parts import caller
from quorate_controller.node import ControlRequest
from quorate_controller.raft.events import RequestReceived, ResponseReceived, Role
from quorate_controller.raft.messages import BeginQuorumEpochRequest, FetchRequest, VoteRequest, VoteResponse
from quorate_controller.raft.model import Endpoint, ReplicaKey
from quorate_protocol.errors import ErrorCode
from quorate_protocol.features import SUPPORTED_FEATURES
from quorate_protocol.kafka.generated import broker_registration_request as broker_registration
from quorate_protocol.kafka.generated import controller_registration_request as controller_registration
from quorate_protocol.kafka.generated import create_topics_request as create
from quorate_protocol.kafka.generated.broker_heartbeat_request import BrokerHeartbeatRequest
from quorate_protocol.kafka.generated.update_features_request import FeatureUpdateKey, UpdateFeaturesRequest

if TYPE_CHECKING:
    from collections.abc import Callable

    from quorate_controller.node import ControllerNode, Effects
    from quorate_controller.node.events import NodeEvent
    from quorate_controller.raft.events import Send
    from quorate_controller.raft.messages import RaftRequest

LISTENER: Final = "CONTROLLER"
NODE_ID: Final = 3000
PEERS: Final = {3001: 9094, 3002: 9095}
"""Ids and ports of the other voters."""
VOTERS: Final = ",".join(f"{node_id}@localhost:{port}" for node_id, port in {NODE_ID: 9093, **PEERS}.items())
FOLLOWER: Final = 3001
NEVER_MS: Final = 1 << 62
_TURNS_MAX: Final = 10_000


class LedNode:
    """Node 3000. Time passes only as a test says; `clock` reads it."""

    def __init__(self, now_ms: int = 1_000_000) -> None:
        self.now_ms = now_ms
        self.node: ControllerNode
        self.responses: dict[int, Any] = {}
        """What requests were answered, by token."""
        self._sends: list[Send] = []
        self._token = 0

    def clock(self) -> int:
        """The time, for `open_node`."""
        return self.now_ms

    def start(self, node: ControllerNode) -> None:
        """Take the first turn."""
        self.node = node
        self._note(node.start(self.now_ms))

    def turn(self, *events: NodeEvent) -> Effects:
        """Take a turn now."""
        return self._note(self.node.turn(events, self.now_ms))

    def _note(self, effects: Effects) -> Effects:
        self._sends += effects.sends
        self.responses |= {
            control_response.token: control_response.result for control_response in effects.control_responses
        }
        return effects

    def wait(self) -> Effects:
        """Take the next turn that no event causes, when it is due."""
        self.now_ms = max(self.now_ms, self.node.deadline_ms)
        return self.turn()

    def wait_until(self, is_so: Callable[[], bool]) -> None:
        """Take turns when they are due, until something is so."""
        for _ in range(_TURNS_MAX):
            if is_so():
                return
            self.wait()
        raise AssertionError(f"{_TURNS_MAX} turns were not enough")

    # Raft

    def lead(self) -> None:
        """Become the leader, whatever that takes, and active."""
        for _ in range(_TURNS_MAX):
            if self.node.is_active:
                return
            sends, self._sends = self._sends, []
            votes = [send for send in sends if isinstance(send.request, VoteRequest)]
            if votes:
                self.turn(*map(self._granted, votes))
            elif self.node.raft.role is Role.LEADER:
                self.commit()
            else:
                self.wait()
        raise AssertionError("it was not elected")

    def _granted(self, send: Send) -> ResponseReceived:
        assert isinstance(send.request, VoteRequest)
        response = VoteResponse(leader_epoch=send.request.replica_epoch, vote_granted=True)
        return ResponseReceived(request_id=send.request_id, response=response)

    def received(self, request: RaftRequest) -> RequestReceived:
        """A request of a peer."""
        self._token += 1
        return RequestReceived(token=self._token, request=request, listener=LISTENER)

    def commit(self, end_offset: int | None = None) -> None:
        """Have a follower fetch from an offset, by default the end of the log, which commits what is before it."""
        raft = self.node.raft
        fetch = FetchRequest(
            cluster_id=None,
            replica=ReplicaKey(node_id=FOLLOWER),
            current_leader_epoch=raft.epoch,
            fetch_offset=raft.log_end_offset if end_offset is None else end_offset,
            last_fetched_epoch=raft.last_epoch,
            max_wait_ms=0,
            max_bytes=1,
        )
        self.turn(self.received(fetch))

    def lead_by_another(self) -> RequestReceived:
        """The event that ends a leadership: another voter leads the next epoch."""
        return self.received(
            BeginQuorumEpochRequest(
                cluster_id=None,
                voter=None,
                leader_id=FOLLOWER,
                leader_epoch=self.node.raft.epoch + 1,
                leader_endpoints=(Endpoint(listener=LISTENER, host="localhost", port=PEERS[FOLLOWER]),),
            )
        )

    # Requests

    def asked(self, request: Any, **known: Any) -> ControlRequest:
        """A request as it reaches the node; `known` is of its caller. Its token is the last one given."""
        self._token += 1
        by = replace(caller(60_000), api_version=type(request).__version__, **known)
        return ControlRequest(token=self._token, request=request, caller=by, deadline_ms=NEVER_MS)

    def apply(self, request: Any, **known: Any) -> Any:
        """Ask the active node, and let everything be committed. Returns the response, None if it has to wait."""
        event = self.asked(request, **known)
        self.turn(event)
        self.commit()
        return self.responses.get(event.token)

    def register_controller(self, controller_id: int) -> None:
        """Register another controller, which supports what we do."""
        response = self.apply(
            controller_registration.ControllerRegistrationRequest(
                controller_id=controller_id,
                incarnation_id=directory_of(controller_id),
                zk_migration_ready=False,
                listeners=(
                    controller_registration.Listener(name=LISTENER, host="h", port=9093, security_protocol=0),
                ),
                features=_features(controller_registration.Feature),
            )
        )
        assert response.error_code is ErrorCode.none

    def register_broker(self, broker_id: int) -> None:
        """Register a broker with one log directory, and unfence it."""
        listener = broker_registration.Listener(name="PLAINTEXT", host="h", port=9092, security_protocol=0)
        self.apply(
            broker_registration.BrokerRegistrationRequest(
                broker_id=broker_id,
                cluster_id=self.node.storage.cluster_id,
                incarnation_id=directory_of(1_000 + broker_id),
                listeners=(listener,),
                features=_features(broker_registration.Feature),
                rack=None,
                log_dirs=(directory_of(broker_id),),
            )
        )
        assert not self.beat(broker_id).is_fenced

    def beat(self, broker_id: int, **changes: Any) -> Any:
        """A heartbeat of a broker that has read everything."""
        fields: dict[str, Any] = {"want_fence": False, "want_shut_down": False, **changes}
        return self.apply(
            BrokerHeartbeatRequest(
                broker_id=broker_id,
                broker_epoch=self.node.metadata.image.cluster.brokers[broker_id].epoch,
                current_metadata_offset=self.node.raft.log_end_offset,
                **fields,
            )
        )

    def create_topics(self, *names: str, broker_ids: tuple[int, ...]) -> None:
        """Create topics of one partition each."""
        response = self.apply(creation(*names, broker_ids=broker_ids))
        assert {topic.error_code for topic in response.topics} == {ErrorCode.none}


def directory_of(broker_id: int) -> UUID:
    """The id of the log directory of a broker."""
    return UUID(int=1_000_000 + broker_id)


def creation(*names: str, broker_ids: tuple[int, ...]) -> create.CreateTopicsRequest:
    """A request that creates topics of one partition each."""
    assignment = create.CreatableReplicaAssignment(partition_index=0, broker_ids=broker_ids)
    return create.CreateTopicsRequest(
        topics=tuple(
            create.CreatableTopic(
                name=name, num_partitions=-1, replication_factor=-1, assignments=(assignment,), configs=()
            )
            for name in names
        )
    )


def level_of(feature: str, level: int) -> UpdateFeaturesRequest:
    """A request for a lower level of a feature."""
    update = FeatureUpdateKey(feature=feature, max_version_level=level, upgrade_type=2)
    return UpdateFeaturesRequest(feature_updates=(update,), timeout=timedelta(minutes=1))


def _features(feature: Callable[..., Any]) -> tuple[Any, ...]:
    return tuple(
        feature(name=name, min_supported_version=low, max_supported_version=high)
        for name, (low, high) in SUPPORTED_FEATURES.items()
    )
