"""`quorate doctor --clients`: the metrics that it reads, and its text, JSON and exit code."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
from aiohttp import web
from kit.fake_cluster import FakeCluster, quorum_response, replica_state, response_to
from kit.tool_runner import run_tool

NOW_MS = 1_700_000_000_000
CONNECTIONS = "kafka_server_socketservermetrics_connections"
PAGE = f"""\
# TYPE {CONNECTIONS} gauge
{CONNECTIONS}{{client_software_name="apache-kafka-java",client_software_version="3.7.0",listener="CLIENTS"}} 2.0
{CONNECTIONS}{{client_software_name="kgo",client_software_version="v1.21.6",listener="CLIENTS"}} 1.0
# TYPE kafka_network_requestmetrics_requests_total counter
kafka_network_requestmetrics_requests_total{{request="ApiVersions",version="3"}} 7.0
kafka_network_requestmetrics_requests_total{{request="Fetch",version="3"}} 9.0
"""


@pytest.fixture
async def brokers() -> AsyncIterator[FakeCluster]:
    """A broker of a cluster of three voters, in which nothing is wrong."""

    def replica(node_id: int, at_ms: int = NOW_MS) -> object:
        return replica_state(
            node_id, log_end_offset=7, last_fetch_timestamp=at_ms, last_caught_up_timestamp=at_ms
        )

    quorum = quorum_response(
        *map(replica, (3000, 3001, 3002)),
        observers=[replica(1), replica(7777, NOW_MS - 60_000)],  # the leader is not new
        leader_id=3000,
        leader_epoch=1,
        high_watermark=7,
    )
    async with FakeCluster([1]) as cluster:
        cluster.handle("DescribeQuorum", lambda _: quorum)
        cluster.handle("UpdateFeatures", lambda _: response_to("UpdateFeatures"))
        cluster.handle("Metadata", lambda _: response_to("Metadata"))
        yield cluster


@asynccontextmanager
async def metrics(text: str, *, status: int = 200) -> AsyncIterator[tuple[str, list[str]]]:
    """A broker's metrics agent with this page. Yields its URL, and the metrics that were requested."""
    requested: list[str] = []

    async def respond(request: web.Request) -> web.Response:
        requested.extend(request.query.getall("name[]", []))
        return web.Response(text=text, status=status)

    application = web.Application()
    application.router.add_get("/metrics", respond)
    runner = web.AppRunner(application, shutdown_timeout=0)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    try:
        yield f"http://127.0.0.1:{runner.addresses[0][1]}/metrics", requested
    finally:
        await runner.cleanup()


async def test_clients_that_a_change_of_hosts_would_lose(brokers: FakeCluster) -> None:
    async with metrics(PAGE) as (url, requested):
        at = ("-b", brokers.bootstrap[0], "--clients", url)
        ran = await run_tool("doctor", *at)
        reported = (await run_tool("doctor", *at, "-o", "json")).json
    assert ran.exit_code == 1
    assert "WARNING  2 connections of clients that do not start again when all hosts change\n" in ran.stdout
    assert f"  $ quorate doctor --bootstrap-server {brokers.bootstrap[0]} --clients {url}\n" in ran.stdout
    assert ran.stdout.endswith(
        "\nClient             Version  Listener  Connections  Starts again\n"
        "apache-kafka-java  3.7.0    CLIENTS   2            no\n"
        "kgo                v1.21.6  CLIENTS   1            yes\n"
        "\nApiVersions requests since the brokers started: 7 of version 3\n"
    )
    assert [finding["id"] for finding in reported["findings"]] == [
        "clients-do-not-rebootstrap",
        "registrations-not-examined",
    ]
    assert reported["clients"]["connections"][0] == {
        "name": "apache-kafka-java",
        "version": "3.7.0",
        "listener": "CLIENTS",
        "connections": 2,
        "rebootstraps": "no",
        "reason": reported["clients"]["connections"][0]["reason"],
    }
    assert {**reported["clients"], "connections": None} == {
        "brokersExamined": 1,
        "connections": None,
        "apiVersionsRequests": {"3": 7},
        "misrouted": 0,
    }
    assert CONNECTIONS in requested


@pytest.mark.parametrize(
    ("text", "status", "reason"),
    [
        ("", 503, "the response has status 503"),
        ("<html>", 200, "not text of Prometheus"),
        ("", 200, "there is no"),
    ],
)
async def test_metrics_that_cannot_be_read_are_no_health(
    brokers: FakeCluster, text: str, status: int, reason: str
) -> None:
    async with metrics(text, status=status) as (url, _):
        ran = await run_tool("doctor", "-b", brokers.bootstrap[0], "--clients", url, "-o", "json")
    assert ran.exit_code == 1
    assert ran.json["findings"][0]["id"] == "clients-not-examined"
    assert reason in ran.json["findings"][0]["evidence"]


async def test_a_broker_without_a_metrics_agent_is_no_health(brokers: FakeCluster) -> None:
    ran = await run_tool(
        "doctor", "-b", brokers.bootstrap[0], "--clients", "http://127.0.0.1:1/", "-o", "json"
    )
    assert (ran.exit_code, ran.json["findings"][0]["id"]) == (1, "clients-not-examined")


@pytest.mark.parametrize(
    "url", ["broker:9404", "ftp://broker/", "http://", "http://broker/metrics?a=b", "http://b:x/"]
)
async def test_a_url_that_is_none_is_a_usage_error(brokers: FakeCluster, url: str) -> None:
    ran = await run_tool("doctor", "-b", brokers.bootstrap[0], "--clients", url)
    assert ran.exit_code == 2
    assert "--clients" in ran.stderr
    assert repr(url) in ran.stderr


async def test_terminal_codes_of_a_page_are_not_printed(brokers: FakeCluster) -> None:
    async with metrics(PAGE.replace("kgo", "k\x1b[31mgo" + "o" * 500)) as (url, _):
        ran = await run_tool("doctor", "-b", brokers.bootstrap[0], "--clients", url)
    assert "\x1b" not in ran.stdout
    assert "o" * 200 not in ran.stdout
