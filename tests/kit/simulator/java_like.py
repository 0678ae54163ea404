"""A controller that keeps time as Java's does, for quorums in which both kinds vote.

It is the code under test, with what can be had of Java's behaviour without another implementation:

- It ignores connections that end or are refused, and waits for its timeouts.
- After a start, and after a lost election, it waits for as long as an election takes, not for 100 ms.
- Its decisions linger for up to 25 ms (`controller.quorum.append.linger.ms`) before they are appended together.
- It handles one event after the other, each with a flush of its own.
- Its connections do not name their node (ApiVersions 4): another node responds to requests that reach it.
- It speaks through the codec, in the versions of its release.

It is not Java: its decisions, its log and its responses are ours. Java's are tested in real quorums
(tests/integration/test_mixed_quorums.py, tests/kit/soak).
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from quorate_controller.raft.events import ConnectionLost, FailureReason, RequestFailed

if TYPE_CHECKING:
    from quorate_controller.node import ControllerNode

LINGER_MS: Final = 25
_UNNOTICED: Final = frozenset(
    (FailureReason.DISCONNECTED, FailureReason.UNREACHABLE, FailureReason.MISROUTED)
)


def as_heard(event: Any) -> Any | None:
    """What it takes an event for; None if it takes no notice of it."""
    if isinstance(event, ConnectionLost):
        return None
    if isinstance(event, RequestFailed) and event.reason in _UNNOTICED:
        return replace(event, reason=FailureReason.TIMED_OUT)
    return event


def take_time(node: ControllerNode) -> None:
    """Set the pauses before elections. Call it before the node starts."""
    replica = node.raft._replica
    config = replica.config
    pause_ms = max(2 * config.election_timeout_ms, config.election_backoff_ms_max)
    replica.config = replace(config, fast_backoff_ms_max=pause_ms)
