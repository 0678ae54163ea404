"""What a node publishes and serves, one record before it may: levels, and its image after a start."""

from types import SimpleNamespace
from typing import Any, cast

import pytest
from kit.controller_parts import caller
from kit.led_node import PEERS, creation, level_of
from quorate_controller.node import ControlRequest
from quorate_controller.node.consistency import FirstCatchUp

NOW_MS = 1_000_000


def test_a_level_is_published_with_the_commit_of_its_record(open_led: Any) -> None:
    led = open_led({})
    led.lead()
    for controller_id in PEERS:
        led.register_controller(controller_id)
    led.register_broker(1)
    metadata = led.node.metadata
    assert metadata.finalized_levels["group.version"] == 1
    led.turn(led.asked(creation("t", broker_ids=(1,))))
    offset = led.node.raft.log_end_offset
    led.turn(led.asked(level_of("group.version", 0)))
    assert led.node.raft.log_end_offset == offset + 1
    led.commit(offset)
    assert (metadata.applied_offset, metadata.finalized_levels["group.version"]) == (offset, 1)
    led.commit(offset + 1)
    assert metadata.applied_offset == offset + 1
    assert "group.version" not in metadata.finalized_levels


@pytest.mark.parametrize(
    ("applied_offset", "has_caught_up", "is_held"), [(9, True, True), (10, True, False), (10, False, True)]
)
def test_requests_wait_until_the_image_has_what_the_log_has(
    applied_offset: int, has_caught_up: bool, is_held: bool
) -> None:
    """A restarted controller serves no read from its checkpoint."""
    raft = SimpleNamespace(has_caught_up=has_caught_up, high_watermark=10, is_led=True)
    metadata = SimpleNamespace(applied_offset=applied_offset)
    catch_up = FirstCatchUp(raft=cast("Any", raft), metadata=cast("Any", metadata), now_ms=NOW_MS)
    request: Any = "which topics?"
    event = ControlRequest(token=1, request=request, caller=caller(), deadline_ms=NOW_MS + 1_000)
    assert catch_up.hold(event, NOW_MS) is is_held
