"""The client among several nodes: who is asked, who is followed, and what happens when nodes are lost or replaced."""

import asyncio
import logging
import threading
from http.server import BaseHTTPRequestHandler, HTTPServer

import pytest
from kit.fake_cluster import CLUSTER_ID, HANG_UP, SILENCE, FakeCluster, response_to
from kit.waiting import HANG_S
from quorate_admin.client import AdminClient
from quorate_admin.config import MetadataRecoveryStrategy
from quorate_admin.errors import (
    MismatchedEndpointError,
    RequestTimeoutError,
    ServerError,
    UnreachableError,
    UnsupportedEndpointError,
)
from quorate_admin.network.transport import Transport
from quorate_protocol.errors import ErrorCode
from quorate_protocol.wire.server import Request

REFUSED = response_to("UnregisterBroker", error_code=ErrorCode.not_controller)
DONE = response_to("UnregisterBroker")


def quick(**overrides: object) -> dict[str, object]:
    """Settings under which what fails is soon tried again."""
    return {"retry_backoff_ms": 1, "reconnect_backoff_ms": 1, **overrides}


async def test_writes_go_to_the_active_controller() -> None:
    async with FakeCluster((1, 2, 3), is_controllers=True) as cluster:
        cluster.controller_id = 3
        cluster.handle("UnregisterBroker", lambda _: DONE)
        async with AdminClient(bootstrap_controllers=cluster.bootstrap[:1]) as admin:
            await admin.unregister_broker(7)
        assert [len(node.received("UnregisterBroker")) for node in cluster.nodes.values()] == [0, 0, 1]


async def test_a_new_controller_is_followed() -> None:
    async with FakeCluster((1, 2), is_controllers=True) as cluster:

        def hand_over(_: object) -> object:
            cluster.controller_id = 2
            return REFUSED

        cluster.nodes[1].handlers["UnregisterBroker"] = hand_over
        cluster.nodes[2].handlers["UnregisterBroker"] = lambda _: DONE
        async with AdminClient(bootstrap_controllers=cluster.bootstrap, **quick()) as admin:
            await admin.unregister_broker(7)
        assert len(cluster.received("UnregisterBroker")) == 2


async def test_a_node_that_believes_in_a_dead_controller_is_not_the_only_one_asked() -> None:
    async with FakeCluster((1, 2, 3), is_controllers=True) as cluster:
        cluster.nodes[3].handlers["UnregisterBroker"] = lambda _: DONE
        bootstrap = cluster.bootstrap
        await cluster.nodes[1].stop()

        def itself(request: object) -> object:
            cluster.controller_id = 3
            try:
                return cluster.nodes[3].describe_cluster(request)  # type: ignore[arg-type]
            finally:
                cluster.controller_id = 1

        cluster.nodes[3].handlers["DescribeCluster"] = itself
        async with AdminClient(bootstrap_controllers=bootstrap[1:2], **quick()) as admin:
            await admin.unregister_broker(7)
        assert len(cluster.nodes[3].received("UnregisterBroker")) == 1


async def test_a_lost_connection_is_made_again() -> None:
    responses = iter((HANG_UP, DONE))
    async with FakeCluster() as cluster:
        cluster.handle("UnregisterBroker", lambda _: next(responses))
        async with AdminClient(bootstrap_servers=cluster.bootstrap, **quick()) as admin:
            await admin.unregister_broker(7)
        assert cluster.nodes[1].connections == 2


async def test_when_no_node_answers_each_address_has_its_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    now_ms, later_ms = Transport._now_ms, [0]
    monkeypatch.setattr(Transport, "_now_ms", lambda transport: now_ms(transport) + later_ms[-1])

    def silent_until_late(_: Request) -> object:
        later_ms.append(3_600_000)
        return SILENCE

    async with FakeCluster((1, 2)) as cluster:
        await cluster.nodes[1].stop()
        cluster.handle("ApiVersions", silent_until_late)
        gone, silent = cluster.bootstrap
        settings = quick(request_timeout_ms=50)
        async with AdminClient(bootstrap_servers=[gone, silent], **settings) as admin:
            with pytest.raises(UnreachableError) as failed:
                await admin.describe_cluster()
    assert failed.value.reasons[gone].startswith(f"no connection to {gone}")
    assert failed.value.reasons[silent].startswith(f"no response from {silent} in ")


@pytest.mark.parametrize(
    ("greeting", "reason"),
    [
        (b"HTTP/1.1 400 Bad Request\r\n\r\n", "it speaks HTTP, not Kafka's protocol"),
        (b"\x15\x03\x03\x00\x02\x02\x46", "it speaks TLS: security.protocol must be SSL or SASL_SSL"),
    ],
)
async def test_ports_of_other_protocols_are_reported_at_once(greeting: bytes, reason: str) -> None:
    """Not after `default_api_timeout_ms`; and a bootstrap address beside them is found."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(1)
        writer.write(greeting)
        await reader.read()
        writer.close()

    async with await asyncio.start_server(serve, "127.0.0.1", 0) as server, FakeCluster() as cluster:
        host, port = server.sockets[0].getsockname()
        foreign, long_ms = f"{host}:{port}", 10 * HANG_S * 1000
        async with AdminClient(bootstrap_servers=[foreign], default_api_timeout_ms=long_ms) as admin:
            with pytest.raises(UnreachableError, match=reason):
                async with asyncio.timeout(HANG_S):
                    await admin.describe_cluster()
        async with AdminClient(bootstrap_servers=[foreign, *cluster.bootstrap], **quick()) as admin:
            assert (await admin.describe_cluster()).cluster_id == CLUSTER_ID


async def test_a_server_that_reads_lines_is_reported_at_once() -> None:
    """It answers nothing before it has a line, and what is no request without a status line."""
    with HTTPServer(("127.0.0.1", 0), BaseHTTPRequestHandler) as server:
        serving = threading.Thread(target=server.serve_forever)
        serving.start()
        try:
            async with AdminClient(
                bootstrap_servers=[f"127.0.0.1:{server.server_port}"],
                default_api_timeout_ms=10 * HANG_S * 1000,
            ) as admin:
                with pytest.raises(UnreachableError, match="it speaks HTTP, not Kafka's protocol"):
                    async with asyncio.timeout(HANG_S):
                        await admin.describe_cluster()
        finally:
            server.shutdown()
            serving.join()


async def test_a_known_node_whose_port_has_another_protocol_is_left_for_the_others() -> None:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(1)
        writer.write(b"HTTP/1.1 400 Bad Request\r\n\r\n")
        writer.close()

    async with FakeCluster((1, 2)) as cluster:
        cluster.handle("UnregisterBroker", lambda _: DONE)
        host, _, port = cluster.nodes[1].address.rpartition(":")
        async with AdminClient(bootstrap_servers=cluster.bootstrap[:1], **quick()) as admin:
            await admin.describe_cluster()
            await cluster.nodes[1].stop()
            cluster.controller_id = 2
            async with await asyncio.start_server(serve, host, int(port), reuse_address=True):
                await admin.unregister_broker(7)
                assert len(cluster.nodes[2].received("UnregisterBroker")) == 1
                await cluster.nodes[2].stop()
                with pytest.raises(UnreachableError, match="it speaks HTTP, not Kafka's protocol"):
                    async with asyncio.timeout(HANG_S):
                        await admin.unregister_broker(7)


async def test_a_request_that_is_never_answered_is_a_timeout() -> None:
    responses = iter((DONE, SILENCE))
    async with FakeCluster() as cluster:
        cluster.handle("UnregisterBroker", lambda _: next(responses))
        async with AdminClient(bootstrap_servers=cluster.bootstrap, **quick()) as admin:
            await admin.unregister_broker(7)
            with pytest.raises(RequestTimeoutError):
                await admin.unregister_broker(7, timeout_ms=100)


async def test_retries_bound_the_tries() -> None:
    async with FakeCluster() as cluster:
        cluster.handle("UnregisterBroker", lambda _: REFUSED)
        async with AdminClient(bootstrap_servers=cluster.bootstrap, **quick(retries=2)) as admin:
            with pytest.raises(ServerError, match=r"^NOT_CONTROLLER: This is not the correct controller"):
                await admin.unregister_broker(7)
        assert len(cluster.received("UnregisterBroker")) == 3


async def test_other_errors_are_the_servers_word() -> None:
    refusal = response_to(
        "UnregisterBroker", error_code=ErrorCode.broker_id_not_registered, error_message="No broker 7."
    )
    async with FakeCluster((1, 2)) as cluster:
        cluster.handle("UnregisterBroker", lambda _: refusal)
        async with AdminClient(bootstrap_servers=cluster.bootstrap) as admin:
            with pytest.raises(ServerError) as refused:
                await admin.unregister_broker(7)
        assert len(cluster.received("UnregisterBroker")) == 1
    assert refused.value.error_code is ErrorCode.broker_id_not_registered
    assert refused.value.message == "No broker 7."


@pytest.mark.parametrize(
    ("is_controllers", "said"),
    [(False, "is a broker, not a controller"), (True, "is a controller, not a broker")],
)
async def test_nodes_of_the_other_kind_are_reported(is_controllers: bool, said: str) -> None:
    """KIP-919's mistakes are named, at once."""
    async with FakeCluster(is_controllers=is_controllers) as cluster:
        key = "bootstrap_servers" if is_controllers else "bootstrap_controllers"
        async with AdminClient(**{key: cluster.bootstrap}) as admin:
            with pytest.raises(MismatchedEndpointError, match=said):
                await admin.describe_cluster()


async def test_controllers_that_do_not_know_each_other_are_reported() -> None:
    """An old metadata.version is named as the reason."""
    refusal = response_to("DescribeCluster", error_code=ErrorCode.unsupported_endpoint_type)
    async with FakeCluster(is_controllers=True) as cluster:
        cluster.handle("DescribeCluster", lambda _: refusal)
        async with AdminClient(bootstrap_controllers=cluster.bootstrap) as admin:
            with pytest.raises(UnsupportedEndpointError, match=r"metadata\.version 3\.7-IV0"):
                await admin.describe_metadata_quorum()


@pytest.mark.parametrize("is_known_by_then", [False, True])
async def test_a_controller_that_has_found_no_leader_yet_is_asked_again(is_known_by_then: bool) -> None:
    levels = {"metadata.version": 7}, -1
    async with FakeCluster(is_controllers=True) as cluster:
        later = cluster.finalized_features, cluster.finalized_features_epoch

        def refuse(_: Request) -> object:
            del cluster.handlers["DescribeCluster"]
            if is_known_by_then:
                cluster.finalized_features, cluster.finalized_features_epoch = later
            return response_to("DescribeCluster", error_code=ErrorCode.unsupported_version)

        cluster.finalized_features, cluster.finalized_features_epoch = levels
        cluster.handle("DescribeCluster", refuse)
        async with AdminClient(bootstrap_controllers=cluster.bootstrap, **quick()) as admin:
            assert (await admin.describe_cluster()).cluster_id == CLUSTER_ID


async def test_a_low_level_is_reported_at_once() -> None:
    refusal = response_to(
        "DescribeCluster", error_code=ErrorCode.unsupported_version, error_message="Too low."
    )
    async with FakeCluster(is_controllers=True) as cluster:
        cluster.finalized_features = {"metadata.version": 14}
        cluster.handle("DescribeCluster", lambda _: refusal)
        async with AdminClient(bootstrap_controllers=cluster.bootstrap) as admin:
            with pytest.raises(ServerError, match=r"UNSUPPORTED_VERSION: Too low\."):
                await admin.describe_cluster()
        assert len(cluster.received("DescribeCluster")) == 1


async def test_servers_before_describe_cluster_are_reported() -> None:
    async with FakeCluster(is_controllers=True) as cluster:
        del cluster.nodes[1].apis[60]
        async with AdminClient(bootstrap_controllers=cluster.bootstrap) as admin:
            with pytest.raises(UnsupportedEndpointError, match=r"since Kafka 3\.7"):
                await admin.describe_metadata_quorum()


async def test_a_node_that_was_replaced_by_another_is_found_out(caplog: pytest.LogCaptureFixture) -> None:
    """KIP-1242 end to end."""
    async with FakeCluster((1, 2)) as cluster:
        cluster.handle("UnregisterBroker", lambda _: DONE)
        first, second = cluster.nodes[1], cluster.nodes[2]
        async with AdminClient(bootstrap_servers=cluster.bootstrap[:1], **quick()) as admin:
            await admin.unregister_broker(7)
            await first.stop()
            await second.stop()
            first.address, second.address = second.address, first.address
            await first.start()
            await second.start()
            cluster.controller_id = 1
            with caplog.at_level(logging.WARNING, "quorate_admin"):
                await admin.unregister_broker(8)
            assert admin.misrouted_connections == 1
            assert admin.rebootstraps == 1
        assert [request.body.broker_id for request in first.received("UnregisterBroker")] == [7, 8]
        expected = f"node 1 of cluster {CLUSTER_ID}"
        assert [record.getMessage() for record in caplog.records] == [
            f"misrouted connection to {second.address}: expected {expected}, found another node",
            f"misrouted connection to {second.address}: expected {expected}, found node 2 of cluster {CLUSTER_ID}",
        ]


@pytest.mark.parametrize(
    "settings",
    [
        {"metadata_cluster_check_enable": False},
        {"metadata_recovery_strategy": MetadataRecoveryStrategy.NONE},
    ],
)
async def test_the_check_can_be_switched_off(settings: dict[str, object]) -> None:
    """The way out that KIP-1242 has."""
    async with FakeCluster((1, 2)) as cluster:
        async with AdminClient(bootstrap_servers=cluster.bootstrap, **settings) as admin:
            await admin.describe_cluster()
        assert {request.body.cluster_id for request in cluster.received("ApiVersions")} == {None}


async def test_another_cluster_at_known_addresses_is_found_out_without_the_servers_help() -> None:
    """Kafka 4.3 checks nothing, but returns its cluster id."""
    async with (
        FakeCluster((1,), api_versions_max=4) as home,
        FakeCluster((1,), cluster_id="another-cluster-1234-A", api_versions_max=4) as stranger,
    ):
        node, other = home.nodes[1], stranger.nodes[1]
        node.advertised = stranger.bootstrap[0]  # as if the name that home advertises had moved

        def move_back(request: Request) -> object:
            node.advertised = None
            return other.describe_cluster(request)

        stranger.handle("DescribeCluster", move_back)
        async with AdminClient(bootstrap_servers=home.bootstrap, **quick()) as admin:
            assert (await admin.describe_cluster()).cluster_id == CLUSTER_ID
            assert (admin.misrouted_connections, admin.rebootstraps) == (1, 1)
        assert len(stranger.received("DescribeCluster")) == 1


async def test_without_the_check_the_answer_of_another_cluster_is_taken(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Switched off, but still logged."""
    async with (
        FakeCluster((1,)) as home,
        FakeCluster((1,), cluster_id="another-cluster-1234-A") as stranger,
    ):
        home.nodes[1].advertised = stranger.bootstrap[0]
        settings = quick(metadata_cluster_check_enable=False)
        async with AdminClient(bootstrap_servers=home.bootstrap, **settings) as admin:
            assert (await admin.describe_cluster()).cluster_id == "another-cluster-1234-A"
            assert (admin.misrouted_connections, admin.rebootstraps) == (1, 0)
    assert "expected node 1 of cluster fake-cluster-1234567-A, found a node of cluster another" in caplog.text


async def test_a_replaced_cluster_is_found_from_the_bootstrap_addresses() -> None:
    """KIP-899."""
    async with FakeCluster((1, 2, 3)) as cluster:
        bootstrap, *others = cluster.nodes.values()
        cluster.listed = {2}
        async with AdminClient(bootstrap_servers=[bootstrap.address], **quick()) as admin:
            assert [node.node_id for node in (await admin.describe_cluster()).nodes] == [2]
            await others[0].stop()
            cluster.listed = {3}
            assert [node.node_id for node in (await admin.describe_cluster()).nodes] == [3]
            assert admin.rebootstraps == 1


async def test_with_strategy_none_lost_nodes_stay_lost() -> None:
    async with FakeCluster((1, 2)) as cluster:
        bootstrap, other = cluster.nodes.values()
        cluster.listed = {2}
        settings = quick(metadata_recovery_strategy=MetadataRecoveryStrategy.NONE)
        async with AdminClient(bootstrap_servers=[bootstrap.address], **settings) as admin:
            await admin.describe_cluster()
            asked = len(bootstrap.requests)
            await other.stop()
            with pytest.raises(UnreachableError):
                await admin.describe_cluster(timeout_ms=200)
            assert len(bootstrap.requests) == asked
            assert admin.rebootstraps == 0


async def test_a_server_may_send_everybody_back_to_the_bootstrap_addresses() -> None:
    """KIP-1102's REBOOTSTRAP_REQUIRED in a response."""
    responses = iter((response_to("UnregisterBroker", error_code=ErrorCode.rebootstrap_required), DONE))
    async with FakeCluster() as cluster:
        cluster.handle("UnregisterBroker", lambda _: next(responses))
        async with AdminClient(bootstrap_servers=cluster.bootstrap, **quick()) as admin:
            await admin.unregister_broker(7)
            assert (admin.rebootstraps, admin.misrouted_connections) == (1, 0)


async def test_only_the_bootstrap_addresses_are_asked_if_so_configured() -> None:
    async with FakeCluster((1, 2), is_controllers=True) as cluster:
        for node in cluster.nodes.values():
            node.advertised = "unreachable.invalid:1"
        cluster.nodes[1].handlers["UnregisterBroker"] = lambda _: REFUSED
        cluster.nodes[2].handlers["UnregisterBroker"] = lambda _: DONE
        settings = quick(follow_advertised=False)
        async with AdminClient(bootstrap_controllers=cluster.bootstrap, **settings) as admin:
            for broker_id in (7, 8):
                await admin.unregister_broker(broker_id)
            with pytest.raises(UnreachableError, match="node 2: only bootstrap addresses"):
                await admin.node_api_versions(2)
        assert [len(node.received("UnregisterBroker")) for node in cluster.nodes.values()] == [1, 2]
        assert cluster.received("DescribeCluster") == []
        async with AdminClient(bootstrap_controllers=cluster.bootstrap[1:], **settings) as admin:
            await admin.node_api_versions(2)  # one address is that of the node that is meant


async def test_an_unknown_node_is_waited_for() -> None:
    async with FakeCluster((1, 2)) as cluster:
        cluster.listed = {1}
        patient = quick(retry_backoff_ms=120_000, retry_backoff_max_ms=120_000)
        async with AdminClient(bootstrap_servers=cluster.bootstrap[:1], **patient) as admin:
            with pytest.raises(UnreachableError, match="node 2 is not known"):
                await admin.node_api_versions(2)
        async with AdminClient(bootstrap_servers=cluster.bootstrap[:1], **quick()) as admin:

            def listed_next_time(request: Request) -> object:
                response = cluster.nodes[1].describe_cluster(request)
                cluster.listed = {1, 2}
                return response

            cluster.handle("DescribeCluster", listed_next_time)
            assert (await admin.node_api_versions(2)).finalized_features_epoch == 17


async def test_tasks_share_discoveries_and_connections() -> None:
    async with FakeCluster((1, 2)) as cluster:
        cluster.handle("UnregisterBroker", lambda _: DONE)
        async with AdminClient(bootstrap_servers=cluster.bootstrap) as admin:
            await asyncio.gather(*(admin.unregister_broker(number) for number in range(50)))
        assert len(cluster.received("DescribeCluster")) == 1
        assert [node.connections for node in cluster.nodes.values()] == [1, 0]
