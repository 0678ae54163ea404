"""The order of requests, when more have come than can be read at once."""

from typing import Any

from kit.controller_parts import heartbeat
from quorate_controller.server.connection import REQUESTS_AT_ONCE
from quorate_protocol.kafka.apis import APIS
from quorate_protocol.kafka.generated.api_versions_request import ApiVersionsRequest
from quorate_protocol.kafka.generated.describe_cluster_request import DescribeClusterRequest
from quorate_protocol.wire.client import encode_request
from quorate_protocol.wire.frames import encode_frame

VERSIONS = ApiVersionsRequest(client_software_name="a", client_software_version="1")
DESCRIBE_CLUSTER = DescribeClusterRequest(
    include_cluster_authorized_operations=False, endpoint_type=2, include_fenced_brokers=False
)


def frame_of(request: Any, version: int, correlation_id: int) -> bytes:
    return encode_frame(encode_request(APIS[request.__api_key__], version, correlation_id, "test", request))


async def test_a_heartbeat_is_read_before_requests_of_clients(rig: Any) -> None:
    await rig.listen()
    await (await rig.connect()).ask(VERSIONS, 4)
    (client,) = rig.listener.context.connections
    await (await rig.connect()).ask(VERSIONS, 4)
    (broker,) = rig.listener.context.connections - {client}
    own = [heartbeat(7) if number == 20 else DESCRIBE_CLUSTER for number in range(100)]
    client.data_received(b"".join(frame_of(request, 1, number) for number, request in enumerate(own)))
    broker.data_received(frame_of(heartbeat(8), 1, 0))
    await rig.node.requests(101)
    asked = [request for request, _, _ in rig.node.controls]
    assert asked.index(heartbeat(8)) == REQUESTS_AT_ONCE
    asked.remove(heartbeat(8))
    assert asked == own
