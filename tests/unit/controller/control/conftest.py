"""A controller to ask: what it decides is replayed at once, through the bytes of the log."""

from dataclasses import dataclass, field
from random import Random
from typing import Any
from uuid import UUID

import pytest
from kio.schema.broker_heartbeat.v2.request import BrokerHeartbeatRequest
from kio.schema.broker_heartbeat.v2.response import BrokerHeartbeatResponse
from kio.schema.broker_registration.v4.request import BrokerRegistrationRequest, Feature, Listener
from kio.schema.controller_registration.v0 import request as controller_registration
from quorate_controller.control.api import ControlConfig, ControlError, ControlResult, RequestContext
from quorate_controller.control.controller import QuorumController
from quorate_protocol.image import BrokerRegistration, MetadataImage
from quorate_protocol.records.framing import decode_record, encode_record, record_version_for
from quorate_protocol.records.generated import FeatureLevelRecord, PartitionRecord, TopicRecord

CLUSTER_ID = "4L6g3nShT-eMCtK--X86sw"
NODE_ID = 3000
FEATURES = {
    "metadata.version": (7, 30),
    "kraft.version": (0, 1),
    "transaction.version": (0, 2),
    "group.version": (0, 1),
    "eligible.leader.replicas.version": (0, 1),
    "share.version": (0, 1),
    "streams.version": (0, 1),
}
"""What a broker of Kafka 4.3.1 supports."""


@dataclass
class FakeQuorum:
    """Raft as control sees it; ``refusal`` is what it says to an upgrade of kraft.version."""

    kraft_version: int = 1
    leader_id: int = NODE_ID
    voter_ids: frozenset[int] = frozenset({NODE_ID})
    refusal: ControlError | None = None
    upgrades: list[int] = field(default_factory=list)

    def check_kraft_upgrade(self, level: int) -> None:
        if self.refusal:
            raise self.refusal
        self.upgrades.append(level)


class Harness:
    """The active controller of a new cluster, its clock, and the log that it writes."""

    def __init__(
        self, metadata_version: int = 30, *, features: dict[str, int] | None = None, **config: Any
    ) -> None:
        self.image = MetadataImage()
        self.quorum = FakeQuorum()
        self.config = ControlConfig(node_id=NODE_ID, cluster_id=CLUSTER_ID, **config)
        self.control = QuorumController(self.config, self.image, Random(1), self.quorum)
        self.now_ms = 1_000_000
        self.records: list[Any] = []
        """What the last decision wrote, as the log gives it back."""
        levels = {"metadata.version": metadata_version, **(features or {})}
        self.replay(*(FeatureLevelRecord(name=name, feature_level=level) for name, level in levels.items()))
        self.take(self.control.activate(self.now_ms))

    def replay(self, *records: Any) -> None:
        """Appends records, commits them, and tells the controller."""
        version = self.image.metadata_version
        self.records = [
            decode_record(encode_record(record, record_version_for(type(record), version)))
            for record in records
        ]
        if records:
            offset = self.image.end_offset
            self.image.replay_batch(self.records, base_offset=offset, epoch=1, timestamp_ms=self.now_ms)
            self.image.commit(self.image.end_offset)
            self.control.observe(self.records, offset, self.now_ms)

    def take(self, result: ControlResult | None) -> Any:
        """Replays a result; gives its response."""
        self.replay(*(result.records if result else ()))
        return result.response if result else None

    def decide(
        self, request: Any, api_version: int | None = None, *, forwarded: bool = False
    ) -> ControlResult:
        """The decision on a request of the newest version, not yet replayed."""
        context = RequestContext(
            now_ms=self.now_ms,
            next_offset=self.image.end_offset,
            api_version=type(request).__version__ if api_version is None else api_version,
            listener="CONTROLLER",
            forwarded=forwarded,
        )
        return self.control.decide(request, context)

    def apply(self, request: Any, api_version: int | None = None, *, forwarded: bool = False) -> Any:
        """Decides and replays; gives the response."""
        return self.take(self.decide(request, api_version, forwarded=forwarded))

    def refusal(self, request: Any) -> ControlError:
        """The error with which a request is refused as a whole."""
        with pytest.raises(ControlError) as caught:
            self.decide(request)
        return caught.value

    def run_until(self, now_ms: int) -> list[Any]:
        """Ticks whenever the controller wants it, up to a time; gives all records that were written."""
        written = []
        while (deadline_ms := self.control.deadline_ms) is not None and deadline_ms <= now_ms:
            self.now_ms = max(self.now_ms, deadline_ms)
            self.take(self.control.tick(self.now_ms))
            written += self.records
        self.now_ms = now_ms
        return written

    # Brokers

    @staticmethod
    def directory(broker_id: int, number: int = 0) -> UUID:
        """The id of a log directory."""
        return UUID(int=1_000_000 * (broker_id + 1) + number)

    @staticmethod
    def registration(broker_id: int = 1, incarnation: int = 1, **fields: Any) -> BrokerRegistrationRequest:
        """What a stock broker sends; ``features`` maps names to ranges."""
        features = fields.pop("features", FEATURES)
        defaults: dict[str, Any] = {
            "cluster_id": CLUSTER_ID,
            "incarnation_id": UUID(int=10_000 * (broker_id + 1) + incarnation),
            "listeners": (Listener(name="PLAINTEXT", host=f"b{broker_id}", port=9092, security_protocol=0),),
            "features": tuple(
                Feature(name=name, min_supported_version=low, max_supported_version=high)
                for name, (low, high) in features.items()
            ),
            "rack": None,
            "log_dirs": (Harness.directory(broker_id),),
        }
        return BrokerRegistrationRequest(broker_id=broker_id, **(defaults | fields))

    def register(self, broker_id: int = 1, incarnation: int = 1, **fields: Any) -> int:
        """Registers a broker; gives its epoch."""
        epoch: int = self.apply(self.registration(broker_id, incarnation, **fields)).broker_epoch
        return epoch

    def heartbeat(
        self, broker_id: int = 1, *, want_fence: bool = False, offset: int | None = None, **fields: Any
    ) -> BrokerHeartbeatResponse:
        """A heartbeat of a registered broker that has read all of the log, unless ``offset`` says
        otherwise.
        """
        response: BrokerHeartbeatResponse = self.apply(
            BrokerHeartbeatRequest(
                broker_id=broker_id,
                broker_epoch=self.broker(broker_id).epoch,
                current_metadata_offset=self.image.end_offset - 1 if offset is None else offset,
                want_fence=want_fence,
                want_shut_down=fields.pop("want_shut_down", False),
                **fields,
            )
        )
        return response

    def start_broker(self, broker_id: int = 1, incarnation: int = 1, **fields: Any) -> int:
        """Registers and unfences a broker; gives its epoch."""
        epoch = self.register(broker_id, incarnation, **fields)
        assert not self.heartbeat(broker_id).is_fenced
        return epoch

    def broker(self, broker_id: int = 1) -> BrokerRegistration:
        return self.image.cluster.brokers[broker_id]

    def register_controller(self, controller_id: int, **features: tuple[int, int]) -> None:
        """Registers a controller with a listener CONTROLLER; feature names have '_' for '.'."""
        ranges = {name.replace("_", "."): levels for name, levels in features.items()} or {
            **FEATURES,
            "metadata.version": (7, 33),
        }
        self.apply(
            controller_registration.ControllerRegistrationRequest(
                controller_id=controller_id,
                incarnation_id=UUID(int=controller_id),
                zk_migration_ready=False,
                listeners=(
                    controller_registration.Listener(
                        name="CONTROLLER", host=f"c{controller_id}", port=9093, security_protocol=0
                    ),
                ),
                features=tuple(
                    controller_registration.Feature(
                        name=name, min_supported_version=low, max_supported_version=high
                    )
                    for name, (low, high) in ranges.items()
                ),
            )
        )

    def add_topic(self, name: str, *replicas: int, leader: int | None = None) -> UUID:
        """Puts a topic of one partition into the log; all replicas are in sync, the first one leads."""
        topic_id = UUID(int=1_000_000 + len(self.image.topics.by_id))
        self.replay(
            TopicRecord(name=name, topic_id=topic_id),
            PartitionRecord(
                partition_id=0,
                topic_id=topic_id,
                replicas=replicas,
                isr=replicas,
                removing_replicas=(),
                adding_replicas=(),
                leader=replicas[0] if leader is None else leader,
                leader_epoch=0,
                partition_epoch=0,
                directories=tuple(self.broker(replica).directories[0] for replica in replicas),
            ),
        )
        return topic_id


@pytest.fixture
def harness() -> Harness:
    """A cluster at the newest production metadata.version, without brokers; eligible leader replicas are
    off.
    """
    return Harness()


@pytest.fixture(name="new_harness")
def harness_type() -> type[Harness]:
    """For clusters with other levels or settings."""
    return Harness
