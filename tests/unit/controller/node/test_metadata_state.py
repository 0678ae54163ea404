"""Image and pending records of one node, between decisions and their commit."""

from random import Random
from types import SimpleNamespace
from typing import Any

import pytest
from kit.controller_parts import LoneQuorum
from quorate_controller.control.api import ControlConfig, ControlError, ControlResult
from quorate_controller.control.controller import QuorumController
from quorate_controller.node.metadata import SHARED_BATCH_SIZE_BYTES_MAX, MetadataState, Waiter
from quorate_protocol.errors import ErrorCode
from quorate_protocol.image import MetadataImage
from quorate_protocol.records.batch import RECORD_SIZE_BYTES_MAX, decode_batches
from quorate_protocol.records.generated import ConfigRecord, FeatureLevelRecord, MetadataRecord

EPOCH = 3
NOW_MS = 1_000_000
LEVEL = FeatureLevelRecord(name="metadata.version", feature_level=30)


@pytest.fixture
def state() -> MetadataState:
    """The state of an active controller with a metadata.version, all of it committed."""
    image = MetadataImage()
    config = ControlConfig(node_id=3000, cluster_id="cluster")
    control = QuorumController(config, image, Random(1), LoneQuorum())
    control.activate(NOW_MS)
    state = MetadataState(image, control, clock=lambda: NOW_MS)
    decide(state, [LEVEL])
    state.pop_batch(EPOCH, NOW_MS)
    state.committed(1, NOW_MS)
    return state


def config(name: str, value: str = "v") -> ConfigRecord:
    """One config of a topic."""
    return ConfigRecord(resource_type=2, resource_name="t", name=name, value=value)


def decide(state: MetadataState, records: list[MetadataRecord]) -> None:
    """Decide on records as the node does."""
    result: Any = SimpleNamespace(records=records, atomic=True)
    (values,) = state.encode_decision(result)
    state.apply_decision(records, values, state.image.end_offset, NOW_MS)


def test_decisions_share_a_batch_until_it_is_full(state: MetadataState) -> None:
    full = [bytes(SHARED_BATCH_SIZE_BYTES_MAX)]
    assert state.has_room(full), "nothing is pending: it has a batch of its own"
    decide(state, [config("a")])
    assert state.has_room([b"small"])
    assert not state.has_room(full)
    state.pop_batch(EPOCH, NOW_MS)
    assert state.has_room(full)


def test_pending_records_become_one_batch(state: MetadataState) -> None:
    decide(state, [config("a"), config("b")])
    decide(state, [config("c")])
    assert state.pending_count == 3
    (batch,) = decode_batches(state.pop_batch(EPOCH, NOW_MS))
    assert (batch.base_offset, batch.last_offset, batch.partition_leader_epoch) == (1, 3, EPOCH)
    assert state.pending_count == 0
    assert state.image.end_offset == 4


def test_answers_leave_with_the_commit_of_what_they_saw(state: MetadataState) -> None:
    decide(state, [config("a")])
    state.wait(Waiter(2, 1, "first"))  # type: ignore[arg-type]
    decide(state, [config("b")])
    state.wait(Waiter(3, 2, "second"))  # type: ignore[arg-type]
    state.pop_batch(EPOCH, NOW_MS)
    assert [waiter.token for waiter in state.committed(1, NOW_MS)] == []
    assert [waiter.token for waiter in state.committed(3, NOW_MS)] == [1, 2]
    assert state.applied_offset == 3


def test_what_is_not_committed_is_undone_with_the_leadership(state: MetadataState) -> None:
    decide(state, [config("a"), FeatureLevelRecord(name="group.version", feature_level=1)])
    state.wait(Waiter(3, 7, "answer"))  # type: ignore[arg-type]
    assert [waiter.token for waiter in state.abandon()] == [7]
    assert not state.image.configs
    assert state.image.features == {"metadata.version": 30}
    assert state.finalized_levels == {"metadata.version": 30}
    assert (state.pending_count, state.control.is_active) == (0, False)
    assert state.committed(1, NOW_MS) == []


def test_levels_are_finalized_with_their_commit(state: MetadataState) -> None:
    decide(state, [FeatureLevelRecord(name="group.version", feature_level=1)])
    state.pop_batch(EPOCH, NOW_MS)
    assert state.image.features["group.version"] == 1
    assert "group.version" not in state.finalized_levels
    state.committed(2, NOW_MS)
    assert state.finalized_levels["group.version"] == 1


def test_a_record_that_readers_refuse_changes_nothing(state: MetadataState) -> None:
    records: list[MetadataRecord] = [config("a")] * 2 + [config("b", "v" * 40_000)]
    result = ControlResult(records=tuple(records), response=None)  # type: ignore[arg-type]
    with pytest.raises(ControlError) as caught:
        state.encode_decision(result)
    assert caught.value.error_code is ErrorCode.invalid_config
    assert RECORD_SIZE_BYTES_MAX > 40_000, "the string is refused, not the record"
    assert (state.pending_count, state.image.end_offset) == (0, 1)
