"""Parts of a controller for tests without a cluster: quorum, file, caller, a request with its response, status."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

from quorate_controller.control.api import ControlError, ControlResult
from quorate_controller.node.events import Caller, Principal
from quorate_controller.node.status import NodeStatus
from quorate_protocol.errors import ErrorCode
from quorate_protocol.kafka.generated.broker_heartbeat_request import BrokerHeartbeatRequest
from quorate_protocol.kafka.generated.broker_heartbeat_response import BrokerHeartbeatResponse
from quorate_protocol.properties import format_properties

BOOTSTRAP_SERVERS = {"controller.quorum.bootstrap.servers": "localhost:9093"}


class LoneQuorum:
    """Raft as control sees it: controller 3000 alone with a dynamic quorum."""

    kraft_version = 1
    leader_id = 3000
    voter_ids = frozenset({3000})

    def check_kraft_upgrade(self, level: int) -> None:
        if level < self.kraft_version:
            raise ControlError(ErrorCode.invalid_update_version, "a downgrade")


def write_controller_properties(
    directory: Path, more: Mapping[str, str] = BOOTSTRAP_SERVERS, *, node_id: int = 3000
) -> Path:
    """Write `controller.properties` of a node whose data lies in `data` beside it. Returns the file."""
    path = directory / "controller.properties"
    properties = {
        "process.roles": "controller",
        "node.id": f"{node_id}",
        "controller.listener.names": "CONTROLLER",
        "listeners": "CONTROLLER://:9093",
        "log.dirs": f"{directory}/data",
        **more,
    }
    path.write_text(format_properties(properties, is_plain=True))
    return path


def caller(request_timeout_ms: int = 1_000) -> Caller:
    """A client on this machine without authentication."""
    return Caller(
        principal=Principal(),
        client_host="127.0.0.1",
        client_id=None,
        listener="CONTROLLER",
        api_version=1,
        request_timeout_ms=request_timeout_ms,
    )


def response_of(result: ControlResult, replay: Callable[[Sequence[Any]], object] | None = None) -> Any:
    """The response of a decision or a read after all its steps; `replay` gets the records of each part."""
    while True:
        if replay is not None and result.records:
            replay(result.records)
        if result.steps is None:
            return result.response
        try:
            following = next(result.steps)
        except StopIteration as ended:
            result = ended.value
            result = result if isinstance(result, ControlResult) else ControlResult(response=result)
        else:
            result = replace(following or ControlResult(), steps=result.steps)


def heartbeat(broker_id: int = 1) -> BrokerHeartbeatRequest:
    """A heartbeat of a broker without a request."""
    return BrokerHeartbeatRequest(
        broker_id=broker_id,
        broker_epoch=1,
        current_metadata_offset=1,
        want_fence=False,
        want_shut_down=False,
        cordoned_log_dirs=None,
    )


def heartbeat_response(*, is_fenced: bool = False) -> BrokerHeartbeatResponse:
    """The response to it."""
    return BrokerHeartbeatResponse(
        throttle_time=timedelta(), error_code=ErrorCode.none, is_fenced=is_fenced, should_shut_down=False
    )


def node_status(**changes: Any) -> NodeStatus:
    """A healthy follower's status, with changes."""
    values: dict[str, Any] = {
        "node_id": 1,
        "cluster_id": "cluster",
        "current_state": "follower",
        "is_voter": True,
        "is_active": False,
        "leader_id": 2,
        "leader_epoch": 3,
        "voted_id": -1,
        "high_watermark": 100,
        "log_start_offset": 0,
        "log_end_offset": 101,
        "latest_snapshot_end_offset": 0,
        "latest_snapshot_timestamp_ms": 0,
        "latest_snapshot_size_bytes": 0,
        "last_applied_offset": 99,
        "last_applied_timestamp_ms": 1_000,
        "is_caught_up": True,
        "voter_ids": (1, 2, 3),
        "observer_count": 0,
        "active_broker_count": 2,
        "fenced_broker_count": 1,
        "controlled_shutdown_broker_count": 0,
        "topic_count": 4,
        "partition_count": 12,
        "offline_partition_count": 0,
        "preferred_replica_imbalance_count": 0,
        "new_active_controller_count": 0,
        "election_count": 0,
    }
    return NodeStatus(**(values | changes))
