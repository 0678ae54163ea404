"""Parts of a controller for tests without a cluster: its file, a caller, and a request with its response."""

from collections.abc import Mapping
from datetime import timedelta
from pathlib import Path

from kio.schema.broker_heartbeat.v2.request import BrokerHeartbeatRequest
from kio.schema.broker_heartbeat.v2.response import BrokerHeartbeatResponse
from kio.schema.errors import ErrorCode
from quorate_controller.node.events import Caller, Principal
from quorate_protocol.properties import format_properties

BOOTSTRAP_SERVERS = {"controller.quorum.bootstrap.servers": "localhost:9093"}


def write_controller_properties(
    directory: Path, more: Mapping[str, str] = BOOTSTRAP_SERVERS, *, node_id: int = 3000
) -> Path:
    """Writes `controller.properties` of a node whose data lies in `data` beside it. Returns the file."""
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
    """A client on this machine that nobody has authenticated."""
    return Caller(
        principal=Principal(),
        client_host="127.0.0.1",
        client_id=None,
        listener="CONTROLLER",
        api_version=1,
        request_timeout_ms=request_timeout_ms,
    )


def heartbeat(broker_id: int = 1) -> BrokerHeartbeatRequest:
    """A heartbeat of a broker that wants nothing."""
    return BrokerHeartbeatRequest(
        broker_id=broker_id,
        broker_epoch=1,
        current_metadata_offset=1,
        want_fence=False,
        want_shut_down=False,
        cordoned_log_dirs=None,
    )


def heartbeat_answer(*, is_fenced: bool = False) -> BrokerHeartbeatResponse:
    """The response to it."""
    return BrokerHeartbeatResponse(
        throttle_time=timedelta(), error_code=ErrorCode.none, is_fenced=is_fenced, should_shut_down=False
    )
