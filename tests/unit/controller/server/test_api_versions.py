"""ApiVersions over a real socket: what is listed for which client, and clients at the wrong node."""

from datetime import timedelta
from typing import Any

import pytest
from quorate_controller.node.port import FinalizedFeatures
from quorate_protocol.errors import ErrorCode
from quorate_protocol.kafka.apis import CONTROLLER_READ_APIS, SERVED_APIS, ExtensionKey
from quorate_protocol.kafka.extensions.controller_heartbeat_request import ControllerHeartbeatRequest
from quorate_protocol.kafka.extensions.controller_heartbeat_response import ControllerHeartbeatResponse
from quorate_protocol.kafka.generated.api_versions_request import ApiVersionsRequest
from quorate_protocol.kafka.generated.describe_user_scram_credentials_request import (
    DescribeUserScramCredentialsRequest,
)
from quorate_protocol.kafka.generated.describe_user_scram_credentials_response import (
    DescribeUserScramCredentialsResponse,
)
from quorate_protocol.wire.versions import (
    CONTROLLER_SOFTWARE_NAME,
    READER_SOFTWARE_NAME,
    SOFTWARE_NAME,
    api_versions_request,
)

HELLO = ApiVersionsRequest(client_software_name="test-client", client_software_version="1.0")


@pytest.mark.parametrize("version", range(6))
async def test_api_versions_lists_what_is_served(rig: Any, version: int) -> None:
    await rig.listen()
    client = await rig.connect()
    response = await client.ask(HELLO, version)
    ranges = {api.api_key: (api.min_version, api.max_version) for api in response.api_keys}
    assert ranges == {key: (api.version_min, api.version_max) for key, api in SERVED_APIS.items()}
    if version >= 3:
        supported = {f.name: (f.min_version, f.max_version) for f in response.supported_features}
        zero_based = {"kraft.version": (0, 1)} if version >= 4 else {}
        assert supported == {"metadata.version": (7, 29), **zero_based}
        (finalized,) = response.finalized_features
        assert (finalized.name, finalized.min_version_level, finalized.max_version_level) == (
            "metadata.version",
            29,
            29,
        )
        assert response.finalized_features_epoch == 77


async def test_only_our_controllers_see_apis_that_kafka_does_not_have(rig: Any) -> None:
    """Java peers, brokers and tools see Kafka's APIs."""
    await rig.listen()
    client = await rig.connect()
    asked = api_versions_request(software_name=CONTROLLER_SOFTWARE_NAME)
    ranges = {api.api_key: api.max_version for api in (await client.ask(asked, 4)).api_keys}
    assert ranges.keys() - SERVED_APIS.keys() == {ExtensionKey.CONTROLLER_HEARTBEAT}
    turn = ControllerHeartbeatResponse(error_code=ErrorCode.none, start_snapshot=True)
    rig.node.decide = lambda _request, _caller: turn
    heartbeat = ControllerHeartbeatRequest(controller_id=2, last_snapshot_offset=-1, snapshot_state=1)
    assert await client.ask(heartbeat, 0) == turn


async def test_only_our_readers_see_the_reads_of_controllers(rig: Any) -> None:
    """Stock clients and tools see Kafka's APIs."""
    await rig.listen()
    client = await rig.connect()
    offered = {}
    for name in (SOFTWARE_NAME, READER_SOFTWARE_NAME):
        response = await client.ask(api_versions_request(software_name=name), 4)
        offered[name] = {api.api_key for api in response.api_keys}
    assert offered[SOFTWARE_NAME] == SERVED_APIS.keys()
    assert offered[READER_SOFTWARE_NAME] == SERVED_APIS.keys() | CONTROLLER_READ_APIS.keys()
    users = DescribeUserScramCredentialsResponse(
        throttle_time=timedelta(0), error_code=ErrorCode.none, error_message=None, results=()
    )
    rig.node.decide = lambda _request, _caller: users
    assert await client.ask(DescribeUserScramCredentialsRequest(users=None), 0) == users


async def test_unknown_features_have_no_epoch(rig: Any) -> None:
    rig.node.feature_levels = FinalizedFeatures(levels={}, epoch=-1, supported={})
    await rig.listen()
    client = await rig.connect()
    response = await client.ask(HELLO, 4)
    assert (response.finalized_features, response.finalized_features_epoch) == ((), -1)


async def test_the_response_to_a_newer_api_versions_has_version_0(rig: Any) -> None:
    """Newer clients fall back (KIP-511)."""
    await rig.listen()
    client = await rig.connect()
    client.writer.write(b"\x00\x00\x00\x0e\x00\x12\x00\x63\x00\x00\x00\x2a\x00\x01c\x00\x01\x02")
    frame = await client.reader.readexactly(20)
    assert frame == (
        b"\x00\x00\x00\x10"  # length
        b"\x00\x00\x00\x2a"  # correlation id, header version 0
        b"\x00\x23"  # UNSUPPORTED_VERSION
        b"\x00\x00\x00\x01\x00\x12\x00\x00\x00\x05"  # ApiVersions, 0 to 5
    )
    assert (await client.ask(HELLO, 4)).error_code is ErrorCode.none


@pytest.mark.parametrize(
    ("request_", "version", "expected"),
    [
        (ApiVersionsRequest(client_software_name="", client_software_version="1"), 3, "invalid_request"),
        (ApiVersionsRequest(client_software_name="-x", client_software_version="1"), 4, "invalid_request"),
        (ApiVersionsRequest(client_software_name="x y", client_software_version="1"), 4, "invalid_request"),
        (ApiVersionsRequest(client_software_name="a-b.c", client_software_version="3.9.0"), 4, "none"),
        (ApiVersionsRequest(), 2, "none"),
    ],
)
async def test_client_software_is_checked_since_version_3(
    rig: Any, request_: Any, version: int, expected: str
) -> None:
    """KIP-511's rule for names."""
    await rig.listen()
    client = await rig.connect()
    assert (await client.ask(request_, version)).error_code is ErrorCode[expected]


@pytest.mark.parametrize(
    ("cluster_id", "node_id", "expected"),
    [
        (None, -1, "none"),
        ("cluster", 1, "none"),
        ("cluster", -1, "invalid_request"),
        (None, 1, "invalid_request"),
        ("other", 1, "rebootstrap_required"),
        ("cluster", 2, "rebootstrap_required"),
        ("cluster", 2**31 - 1 - 1, "none"),
        ("cluster", 2**31 - 1 - 2, "rebootstrap_required"),
    ],
)
async def test_a_client_that_names_another_node_gets_an_error(
    rig: Any, cluster_id: str | None, node_id: int, expected: str
) -> None:
    """KIP-1242."""
    await rig.listen()
    client = await rig.connect()
    hello = ApiVersionsRequest(
        client_software_name="a", client_software_version="1", cluster_id=cluster_id, node_id=node_id
    )
    assert (await client.ask(hello, 5)).error_code is ErrorCode[expected]
