"""CreateTopics with a timeout of 0 or less: at a stock controller, and at ours, which follow the words of KIP-4."""

from datetime import timedelta
from pathlib import Path

import pytest
from kit.differential.nodes import Node, started
from kit.releases import RELEASE
from quorate_protocol.errors import ErrorCode
from quorate_protocol.kafka.generated import create_topics_request as create

pytestmark = pytest.mark.integration


def codes(node: Node, *names: str, timeout_ms: int, validate_only: bool = False) -> dict[str, ErrorCode]:
    """The error of each topic."""
    topics = tuple(
        create.CreatableTopic(name=name, num_partitions=1, replication_factor=1, assignments=(), configs=())
        for name in names
    )
    timeout = timedelta(milliseconds=timeout_ms)
    response = node.ask(
        create.CreateTopicsRequest(topics=topics, timeout=timeout, validate_only=validate_only)
    )
    return {topic.name: topic.error_code for topic in response.topics}


@pytest.mark.parametrize("timeout_ms", [0, -1])
def test_errors_of_validation_win_at_ours_and_everything_times_out_at_kafkas(
    tmp_path: Path, timeout_ms: int
) -> None:
    """The difference is the one that docs/protocol-differences.md describes."""
    names = ("new", "there", "no such")
    for name in (RELEASE, "Quorate"):
        with started(name, tmp_path / name) as node:
            assert codes(node, "there", timeout_ms=30_000) == {"there": ErrorCode.none}
            given = codes(node, *names, timeout_ms=timeout_ms)
            (exists,) = codes(node, "new", timeout_ms=30_000, validate_only=True).values()
        if name == RELEASE:
            assert given == dict.fromkeys(names, ErrorCode.request_timed_out)
            assert exists is ErrorCode.none
        else:
            assert given == {
                "new": ErrorCode.request_timed_out,
                "there": ErrorCode.topic_already_exists,
                "no such": ErrorCode.invalid_topic_exception,
            }
            assert exists is ErrorCode.topic_already_exists
