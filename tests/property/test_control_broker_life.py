"""Brokers come, go, fall silent and conflict in any order: what the controller writes always fits.

The model knows of each broker id only when its registered incarnation last sent a heartbeat to this controller.
"""

from datetime import timedelta
from random import Random
from typing import Any
from unittest import mock
from uuid import UUID

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from kit.controller_parts import LoneQuorum
from quorate_controller.control import broker_transitions
from quorate_controller.control.api import ControlConfig, ControlError, ControlResult, RequestContext
from quorate_controller.control.controller import QuorumController
from quorate_protocol.errors import ErrorCode
from quorate_protocol.features import SUPPORTED_FEATURES
from quorate_protocol.image import MetadataImage
from quorate_protocol.kafka.generated.broker_heartbeat_request import BrokerHeartbeatRequest
from quorate_protocol.kafka.generated.broker_registration_request import (
    BrokerRegistrationRequest,
    Feature,
    Listener,
)
from quorate_protocol.kafka.generated.create_topics_request import CreatableTopic, CreateTopicsRequest
from quorate_protocol.kafka.generated.unregister_broker_request import UnregisterBrokerRequest
from quorate_protocol.records.framing import decode_record, encode_record, record_version_for

SESSION_MS = 9_000

broker_ids = st.integers(1, 3)
incarnations = st.integers(1, 3)


class BrokerLife(RuleBasedStateMachine):
    """Replaying raises if a record does not fit the image; the rest is asserted."""

    changes_per_slice_max = broker_transitions.CHANGES_PER_SLICE_MAX

    @initialize()
    def start(self) -> None:
        self.small_slices = mock.patch.object(
            broker_transitions, "CHANGES_PER_SLICE_MAX", self.changes_per_slice_max
        )
        self.small_slices.start()
        self.image = MetadataImage()
        config = ControlConfig(
            node_id=3000, cluster_id="c", broker_session_timeout_ms=SESSION_MS, max_idle_interval_ms=0
        )
        self.control = QuorumController(config, self.image, Random(0), LoneQuorum())
        self.now_ms = 0
        self.last_contact_ms: dict[int, int] = {}
        self.highest_epoch = -1
        self.topics = 0
        self.replay(self.control.activate(self.now_ms))

    def teardown(self) -> None:
        if hasattr(self, "small_slices"):
            self.small_slices.stop()

    def replay(self, result: ControlResult | None) -> Any:
        if result and result.records:
            version = self.image.metadata_version
            records = [
                decode_record(encode_record(record, record_version_for(type(record), version)))
                for record in result.records
            ]
            offset = self.image.end_offset
            self.image.replay_batch(records, base_offset=offset, epoch=1, timestamp_ms=0)
            self.image.commit(self.image.end_offset)
            self.control.observe(records, offset, self.now_ms)
        return result.response if result else None

    def ask(self, request: Any) -> Any:
        context = RequestContext(
            now_ms=self.now_ms, next_offset=self.image.end_offset, api_version=type(request).__version__
        )
        return self.replay(self.control.decide(request, context))

    def ask_until_departed(self, request: BrokerRegistrationRequest) -> Any:
        """Register a broker, if need be after slices have taken its previous incarnation out of its partitions."""
        try:
            return self.ask(request)
        except ControlError as error:
            refusal = error.error_code
        assert refusal is ErrorCode.duplicate_broker_registration
        assert self.has_slices_left
        while self.has_slices_left:
            self.let_time_pass(1)
        return self.ask(request)

    @property
    def has_slices_left(self) -> bool:
        return self.control.deadline_ms <= self.now_ms + 1

    def has_session(self, broker_id: int) -> bool:
        contact_ms = self.last_contact_ms.get(broker_id)
        return contact_ms is not None and self.now_ms <= contact_ms + SESSION_MS

    @rule(broker_id=broker_ids, incarnation=incarnations, clean=st.booleans())
    def register(self, broker_id: int, incarnation: int, clean: bool) -> None:
        known = self.image.cluster.brokers.get(broker_id)
        incarnation_id = UUID(int=1_000_000 + 10 * broker_id + incarnation)
        is_new = known is None or known.incarnation_id != incarnation_id
        request = BrokerRegistrationRequest(
            broker_id=broker_id,
            cluster_id="c",
            incarnation_id=incarnation_id,
            listeners=(Listener(name="A", host="h", port=1, security_protocol=0),),
            features=tuple(
                Feature(name=name, min_supported_version=low, max_supported_version=high)
                for name, (low, high) in SUPPORTED_FEATURES.items()
            ),
            rack=None,
            log_dirs=(UUID(int=2_000 + 10 * broker_id), UUID(int=2_001 + 10 * broker_id)),
            previous_broker_epoch=known.epoch if known and clean else -1,
        )
        if known and is_new and self.has_session(broker_id):
            with pytest.raises(ControlError) as refused:
                self.ask(request)
            assert refused.value.error_code is ErrorCode.duplicate_broker_registration
            return
        epoch = self.ask_until_departed(request).broker_epoch
        assert self.image.cluster.brokers[broker_id].epoch == epoch
        if is_new:
            assert epoch > self.highest_epoch
            self.highest_epoch = epoch
            self.last_contact_ms.pop(broker_id, None)
            assert self.image.cluster.brokers[broker_id].fenced

    @rule(
        broker_id=broker_ids,
        lag=st.sampled_from([0, 1, 100]),
        want_fence=st.booleans(),
        want_shut_down=st.booleans(),
        offline=st.sampled_from([0, 0, 0, 1, 2]),
        cordoned=st.sampled_from([None, 0, 1, 2]),
    )
    def heartbeat(self, broker_id: int, lag: int, offline: int, cordoned: int | None, **wants: bool) -> None:
        broker = self.image.cluster.brokers.get(broker_id)
        if broker is None:
            return
        was_fenced, leads = broker.fenced, self.image.index.leaderships(broker_id)
        offset = self.image.end_offset - 1 - lag
        response = self.ask(
            BrokerHeartbeatRequest(
                broker_id=broker_id,
                broker_epoch=broker.epoch,
                current_metadata_offset=offset,
                offline_log_dirs=broker.directories[:offline],
                cordoned_log_dirs=None if cordoned is None else broker.directories[:cordoned],
                **wants,
            )
        )
        self.last_contact_ms[broker_id] = self.now_ms
        now_fenced = self.image.cluster.brokers[broker_id].fenced
        assert response.is_fenced is now_fenced
        if was_fenced and not now_fenced:
            assert response.is_caught_up
            assert offset >= broker.epoch
            assert not wants["want_fence"]
        if response.should_shut_down:
            assert now_fenced
            assert was_fenced or wants["want_fence"] or not leads
            del self.last_contact_ms[broker_id]

    @rule(broker_id=broker_ids)
    def unregister(self, broker_id: int) -> None:
        if broker_id in self.image.cluster.brokers:
            self.ask(UnregisterBrokerRequest(broker_id=broker_id))
            self.last_contact_ms.pop(broker_id, None)

    @precondition(lambda self: self.topics < 5)
    @rule(replication_factor=st.integers(1, 3))
    def create_topic(self, replication_factor: int) -> None:
        self.topics += 1
        topic = CreatableTopic(
            name=f"t{self.topics}",
            num_partitions=2,
            replication_factor=replication_factor,
            assignments=(),
            configs=(),
        )
        self.ask(CreateTopicsRequest(topics=(topic,), timeout=timedelta(seconds=1), validate_only=False))

    @rule(passed_ms=st.sampled_from([1, 4_000, SESSION_MS, SESSION_MS + 1, 400_000]))
    def let_time_pass(self, passed_ms: int) -> None:
        """The clock runs, and everything that is due is done at once, as the node does it."""
        self.now_ms += passed_ms
        self.tick()

    @rule(passed_ms=st.sampled_from([1, SESSION_MS + 1]))
    def stall(self, passed_ms: int) -> None:
        """The clock runs while the node is busy."""
        self.now_ms += passed_ms

    def tick(self) -> None:
        steps = 0
        while self.control.deadline_ms <= self.now_ms:
            self.replay(self.control.tick(self.now_ms))
            steps += 1
            assert steps < 100, "the controller never has enough"
        for broker_id, broker in self.image.cluster.brokers.items():
            assert broker.fenced or self.has_session(broker_id)

    @rule()
    def fail_over(self) -> None:
        self.control.deactivate()
        self.replay(self.control.activate(self.now_ms))
        brokers = self.image.cluster.brokers.items()
        self.last_contact_ms = {broker_id: self.now_ms for broker_id, broker in brokers if not broker.fenced}

    @invariant()
    def leaders_are_unfenced(self) -> None:
        if self.has_slices_left:
            return
        for topic in self.image.topics.by_id.values():
            for partition in topic.partitions.values():
                leader = self.image.cluster.brokers.get(partition.leader)
                assert partition.leader == -1 or (leader is not None and not leader.fenced)


class LargeBrokerLife(BrokerLife):
    """Brokers that come and go in slices of one partition."""

    changes_per_slice_max = 1


TestBrokerLife = BrokerLife.TestCase
TestBrokerLife.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)
TestLargeBrokerLife = LargeBrokerLife.TestCase
TestLargeBrokerLife.settings = TestBrokerLife.settings
