"""Requests with a timeout of 0 or less (KIP-4): decided at once, answered before the commit."""

from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from kit.led_node import LedNode, creation
from quorate_controller.node.events import NotAwaited
from quorate_controller.server.error_responses import not_awaited
from quorate_protocol.errors import ErrorCode
from quorate_protocol.kafka.generated.delete_topics_request import DeleteTopicsRequest, DeleteTopicState


@pytest.fixture
def led(open_led: Callable[[dict[str, str]], LedNode]) -> LedNode:
    """The active controller of a cluster with a broker and a topic."""
    started = open_led({})
    started.lead()
    started.register_broker(1)
    started.create_topics("there", broker_ids=(1,))
    return started


def codes(response: Any) -> dict[str, ErrorCode]:
    """The error of each topic."""
    items = getattr(response, "topics", None) or response.responses
    return {topic.name: topic.error_code for topic in items}


def test_errors_of_validation_win_over_the_timeout(led: LedNode) -> None:
    """REQUEST_TIMED_OUT means that a topic is valid and will be created."""
    event = led.asked(creation("new", "there", "no such", broker_ids=(1,)), request_timeout_ms=0)
    led.turn(event)
    response = led.responses[event.token]
    assert isinstance(response, NotAwaited)
    assert codes(not_awaited(response.response)) == {
        "new": ErrorCode.request_timed_out,
        "there": ErrorCode.topic_already_exists,
        "no such": ErrorCode.invalid_topic_exception,
    }
    led.commit()
    assert "new" in led.node.metadata.image.topics.by_name


def test_what_changes_nothing_is_answered_as_ever(led: LedNode) -> None:
    only = replace(creation("new", "there", broker_ids=(1,)), validate_only=True)
    for request, expected in (
        (only, {"new": ErrorCode.none, "there": ErrorCode.topic_already_exists}),
        (creation("there", broker_ids=(1,)), {"there": ErrorCode.topic_already_exists}),
    ):
        assert codes(led.apply(request, request_timeout_ms=0)) == expected


def test_deletions_are_answered_likewise(led: LedNode) -> None:
    """KIP-4 says the same of DeleteTopics."""
    request = DeleteTopicsRequest(
        topics=tuple(DeleteTopicState(name=name, topic_id=None) for name in ("there", "absent")),
        timeout=timedelta(0),
    )
    event = led.asked(request, request_timeout_ms=0)
    led.turn(event)
    response = led.responses[event.token]
    assert codes(not_awaited(response.response)) == {
        "there": ErrorCode.request_timed_out,
        "absent": ErrorCode.unknown_topic_or_partition,
    }
    led.commit()
    assert "there" not in led.node.metadata.image.topics.by_name
