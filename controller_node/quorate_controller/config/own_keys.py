"""The keys `quorate.*`: brokers that must have a change before its response is sent, and handover for snapshots."""

from collections.abc import Mapping
from enum import Enum
from typing import Final

from quorate_protocol.kafka.config_names import RESPONSES_WAIT_FOR, RESPONSES_WAIT_MAX_MS, SNAPSHOT_HANDOVER
from quorate_protocol.plain_data import dataclass

from quorate_controller.config.endpoints import Problems

_LIMIT_MS: Final = 60_000


class ResponsesWaitFor(Enum):
    """The brokers that a response waits for: the values of quorate.responses.wait.for."""

    NONE = "none"
    FORWARDER = "forwarder"
    """The broker that forwarded the request."""
    BROKERS = "brokers"
    """All brokers that are not fenced."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ResponsePolicy:
    """The brokers that responses wait for, and the longest wait."""

    wait_for: ResponsesWaitFor = ResponsesWaitFor.FORWARDER
    max_ms: int = 500


def parse_response_policy(properties: Mapping[str, str], problem: Problems) -> ResponsePolicy:
    """Return the values of both keys, or their defaults after a problem."""
    default = ResponsePolicy()
    wait_for = properties.get(RESPONSES_WAIT_FOR, default.wait_for.value).strip()
    allowed = [policy.value for policy in ResponsesWaitFor]
    if wait_for not in allowed:
        problem(f"{RESPONSES_WAIT_FOR}={wait_for}: must be one of {', '.join(allowed)}")
        return default
    max_ms = properties.get(RESPONSES_WAIT_MAX_MS, str(default.max_ms)).strip()
    if not max_ms.isascii() or not max_ms.isdecimal() or len(max_ms) > 9 or int(max_ms) > _LIMIT_MS:
        problem(f"{RESPONSES_WAIT_MAX_MS}={max_ms}: must be a number from 0 to {_LIMIT_MS}")
        return default
    return ResponsePolicy(wait_for=ResponsesWaitFor(wait_for), max_ms=int(max_ms))


def parse_snapshot_handover(properties: Mapping[str, str], problem: Problems) -> bool:
    """Return whether the active controller hands over before it writes a snapshot; False after a problem."""
    value = properties.get(SNAPSHOT_HANDOVER, "false").strip()
    if value not in ("true", "false"):
        problem(f"{SNAPSHOT_HANDOVER}={value}: must be true or false")
    return value == "true"
