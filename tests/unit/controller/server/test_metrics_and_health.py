"""The pages for scrapers and probes, and the assembly of all listeners."""

import asyncio
import dataclasses
import logging
import re
import socket
import subprocess
import sys
from collections.abc import AsyncIterator
from typing import Any

import aiohttp
import pytest
from prometheus_client.parser import text_string_to_metric_families
from quorate_controller.config import ControllerConfig, parse_config
from quorate_controller.node.measurements import LatencyHistogram
from quorate_controller.server.counters import RequestCounters
from quorate_controller.server.http import readiness
from quorate_controller.server.metrics import MetricsPage, Usage
from quorate_controller.server.server import ControllerServer, listener_limits
from quorate_protocol.bounded_http.places import DEFAULT_BOUNDS, HttpLimit
from quorate_protocol.errors import ErrorCode
from quorate_protocol.kafka.generated.api_versions_request import ApiVersionsRequest
from quorate_protocol.wire.client import ClientConnection
from quorate_protocol.wire.codec.native import CODEC
from quorate_protocol.wire.versions import SOFTWARE_VERSION

RAFT_NAMES = (
    "current_leader current_epoch current_vote current_state high_watermark log_end_offset "
    "append_records_rate fetch_records_rate commit_latency_avg"
)
CONTROLLER_NAMES = (
    "activecontrollercount offlinepartitionscount fencedbrokercount activebrokercount globaltopiccount "
    "globalpartitioncount preferredreplicaimbalancecount metadataerrorcount lastappliedrecordoffset "
    "lastcommittedrecordoffset timedoutbrokerheartbeatcount eventqueuetimems newactivecontrollerscount "
    "metadatalag metadatacommitlatencyms metadatacommitrate metadatasnapshotlag controllerrequestsrate"
)
KAFKA_NAMES = {
    *(f"kafka_server_raftmetrics_{name}" for name in RAFT_NAMES.split()),
    *(f"kafka_controller_kafkacontroller_{name}" for name in CONTROLLER_NAMES.split()),
}


class Scraper:
    """Renders the page of a fake node at times that the test sets."""

    def __init__(self, rig: Any) -> None:
        self.rig = rig
        self.now_s = 1_000.0
        self.counters = RequestCounters()
        self.page = MetricsPage(
            rig.node, self.counters, usage=lambda: Usage(7, {"nodes": 8}, 9), unix_time_s=lambda: self.now_s
        )

    def set_status(self, **changes: Any) -> None:
        self.rig.node.node_status = dataclasses.replace(self.rig.node.node_status, **changes)

    def scrape(self) -> dict[str, float]:
        """Samples by name and, in braces, the values of their labels."""
        samples = {}
        for family in text_string_to_metric_families(self.page.render().decode()):
            for sample in family.samples:
                labels = ",".join(sample.labels.values())
                samples[f"{sample.name}{{{labels}}}" if labels else sample.name] = sample.value
        return samples


@pytest.fixture
def scraper(rig: Any) -> Scraper:
    """A metrics page."""
    return Scraper(rig)


async def test_the_names_that_dashboards_know_are_there(scraper: Scraper) -> None:
    histogram = LatencyHistogram()
    scraper.set_status(commit_latency=histogram, event_queue_time=histogram)
    families = {family.name for family in text_string_to_metric_families(scraper.page.render().decode())}
    assert not KAFKA_NAMES - families


async def test_gauges_show_the_status(scraper: Scraper) -> None:
    scraper.set_status(
        is_active=True,
        current_state="leader",
        high_watermark=110,
        last_applied_offset=105,
        latest_snapshot_end_offset=100,
        latest_snapshot_timestamp_ms=400_000,
        broker_states={5: 30},
        last_snapshot_offsets={3000: 100, 3001: -1},
    )
    samples = scraper.scrape()
    assert samples["kafka_controller_kafkacontroller_activecontrollercount"] == 1
    assert samples["kafka_server_raftmetrics_current_state{leader}"] == 1
    assert samples["kafka_controller_kafkacontroller_metadatalag"] == 4
    assert samples["kafka_controller_kafkacontroller_metadatasnapshotlag"] == 10
    assert samples["kafka_server_snapshotemitter_latestsnapshotgeneratedagems"] == 600_000
    assert samples["kafka_controller_kafkacontroller_brokerregistrationstate{5}"] == 30
    assert samples["quorate_open_connections"] == 7
    assert samples["quorate_last_snapshot_offset{3000}"] == 100
    assert samples["quorate_last_snapshot_offset{3001}"] == -1


async def test_the_build_is_shown(scraper: Scraper) -> None:
    """It is seen which version and codec a controller runs."""
    assert scraper.scrape()[f"quorate_build_info{{{CODEC},{SOFTWARE_VERSION}}}"] == 1


async def test_no_snapshot_means_no_snapshot_lag(scraper: Scraper) -> None:
    """KIP-631's rule."""
    scraper.set_status(latest_snapshot_end_offset=0)
    samples = scraper.scrape()
    assert samples["kafka_controller_kafkacontroller_metadatasnapshotlag"] == 0
    assert "kafka_server_snapshotemitter_latestsnapshotgeneratedagems" not in samples


async def test_rates_are_over_the_last_minute(scraper: Scraper) -> None:
    latency = LatencyHistogram()
    scraper.set_status(current_state="leader", commit_latency=latency, high_watermark=0, log_end_offset=0)
    scraper.scrape()
    for step in range(1, 5):
        scraper.now_s += 30
        latency.observe_ms(4)
        scraper.counters.requests[19] += 60
        scraper.set_status(high_watermark=step * 300, log_end_offset=step * 300)
        samples = scraper.scrape()
    assert samples["kafka_controller_kafkacontroller_metadatacommitrate"] == 10
    assert samples["kafka_controller_kafkacontroller_controllerrequestsrate"] == 2
    assert samples["kafka_server_raftmetrics_append_records_rate"] == 10
    assert samples["kafka_server_raftmetrics_fetch_records_rate"] == 0
    assert samples["kafka_server_raftmetrics_commit_latency_avg"] == 4


async def test_a_truncated_log_has_no_negative_rate(scraper: Scraper) -> None:
    scraper.set_status(log_end_offset=500)
    scraper.scrape()
    scraper.now_s += 10
    scraper.set_status(log_end_offset=400)
    assert scraper.scrape()["kafka_server_raftmetrics_fetch_records_rate"] == 0


async def test_requests_and_errors_are_told_by_api(scraper: Scraper) -> None:
    scraper.counters.requests[19] = 3
    scraper.counters.errors[19, ErrorCode.not_controller] = 2
    scraper.counters.seconds[19].observe_ms(7)
    scraper.counters.refused_connections = 4
    scraper.counters.dropped_responses = 7
    scraper.counters.failed_authentications = 8
    scraper.counters.misrouted_connections["node"] = 5
    scraper.counters.misrouted_peer_connections = 6
    samples = scraper.scrape()
    assert samples["kafka_network_socketserver_misroutedconnectioncount{node}"] == 5
    assert samples["kafka_network_socketserver_misroutedconnectioncount{cluster}"] == 0
    assert samples["kafka_server_raftchannelmetrics_misrouted_connection_count"] == 6
    assert samples["quorate_requests_total{CreateTopics}"] == 3
    assert samples["quorate_request_errors_total{CreateTopics,not_controller}"] == 2
    assert samples["quorate_request_duration_seconds_bucket{CreateTopics,0.01}"] == 1
    assert samples["quorate_request_duration_seconds_bucket{CreateTopics,0.005}"] == 0
    assert samples["quorate_refused_connections_total"] == 4
    assert samples["quorate_dropped_responses_total"] == 7
    assert samples["quorate_failed_authentications_total"] == 8


def test_a_histogram_counts_bounds_inclusively() -> None:
    histogram = LatencyHistogram()
    for duration_ms in (0.5, 0.6, 1, 20_000):
        histogram.observe_ms(duration_ms)
    buckets = dict(histogram.cumulative())
    assert (buckets["0.0005"], buckets["0.001"], buckets["10.0"], buckets["+Inf"]) == (1, 3, 3, 4)
    assert (histogram.count, histogram.sum_ms) == (4, 20_002.1)


@pytest.mark.parametrize(
    ("changes", "missing"),
    [
        ({}, []),
        ({"is_voter": False}, ["voter"]),
        ({"leader_id": -1, "is_caught_up": False}, ["leaderKnown", "caughtUp"]),
        ({"is_caught_up": False}, ["caughtUp"]),
    ],
)
async def test_ready_means_voter_leader_known_caught_up(
    rig: Any, changes: dict[str, Any], missing: list[str]
) -> None:
    status = dataclasses.replace(rig.node.node_status, **changes)
    assert [name for name, is_met in readiness(status).items() if not is_met] == missing


def config(**changes: Any) -> ControllerConfig:
    """A controller's configuration with one listener on a free port."""
    parsed = parse_config(
        {
            "process.roles": "controller",
            "node.id": "1",
            "controller.listener.names": "CONTROLLER",
            "listeners": "CONTROLLER://127.0.0.1:9093",
            "controller.quorum.bootstrap.servers": "127.0.0.1:9093",
            "log.dirs": "/nowhere",
            "connections.max.idle.ms": "5000",
            **changes.pop("properties", {}),
        }
    )
    (listener,) = parsed.listeners
    return dataclasses.replace(parsed, listeners=(dataclasses.replace(listener, port=0),), **changes)


@pytest.fixture
async def server(rig: Any) -> AsyncIterator[ControllerServer]:
    """A started server with its HTTP pages."""
    built = ControllerServer(config(http_listener=("127.0.0.1", 0)), rig.node)
    await built.start()
    yield built
    await built.close(grace_s=0)


async def get(server: ControllerServer, path: str) -> tuple[int, Any, str]:
    """Status, JSON or text, and content type of a page."""
    async with (
        aiohttp.ClientSession() as session,
        session.get(f"http://127.0.0.1:{server.http_port}{path}") as response,
    ):
        is_json = response.content_type == "application/json"
        return response.status, await (response.json() if is_json else response.text()), response.content_type


async def test_readyz_says_what_is_missing(rig: Any, server: ControllerServer) -> None:
    code, body, _ = await get(server, "/readyz")
    assert (code, body["ready"], body["missing"]) == (200, True, [])
    assert (body["nodeId"], body["leaderId"], body["highWatermark"]) == (1, 2, 100)
    rig.node.node_status = dataclasses.replace(rig.node.node_status, is_caught_up=False)
    code, body, _ = await get(server, "/readyz")
    assert (code, body["ready"], body["missing"]) == (503, False, ["caughtUp"])


async def test_healthz_means_that_the_node_turns(rig: Any, server: ControllerServer) -> None:
    assert (await get(server, "/healthz"))[0] == 200
    rig.node.turn_age_s = 60
    code, body, _ = await get(server, "/healthz")
    assert (code, body) == (503, {"alive": False, "secondsSinceTurn": 60})


async def test_the_metrics_page_counts_the_listeners_requests(server: ControllerServer) -> None:
    reader, writer = await asyncio.open_connection("127.0.0.1", server.ports["CONTROLLER"])
    codec = ClientConnection("test")
    writer.write(codec.send(ApiVersionsRequest(client_software_name="a", client_software_version="1"), 4))
    assert codec.receive_data(await reader.read(65536))
    code, text, content_type = await get(server, "/metrics")
    writer.close()
    assert (code, content_type) == (200, "text/plain")
    assert 'quorate_requests_total{api="ApiVersions"} 1.0' in text
    assert "quorate_open_connections 1.0" in text
    assert "process_resident_memory_bytes" in text


async def test_limits_of_the_pages_are_counted_and_logged(
    server: ControllerServer, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    writers = []
    for _ in range(DEFAULT_BOUNDS.connections_of_address_max + 1):
        _, writer = await asyncio.open_connection("127.0.0.1", server.http_port)
        writer.write(b"GET /m")
        writers.append(writer)
    _, text, _ = await get(server, "/metrics")
    for writer in writers:
        writer.close()
    limit = HttpLimit.CONNECTIONS_OF_ADDRESS.value
    (counted,) = re.findall(rf'quorate_limited_connections_total{{limit="{limit}"}} (\S+)', text)
    assert float(counted) >= 1
    facts = [record.facts["limit"] for record in caplog.records if record.message == "http_limit_applied"]  # type: ignore[attr-defined]
    assert limit in facts


async def test_a_port_in_use_leaves_nothing_open(rig: Any) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        server = ControllerServer(config(http_listener=("127.0.0.1", taken.getsockname()[1])), rig.node)
        with pytest.raises(OSError, match="address already in use"):
            await server.start()
    assert all(
        listening.fileno() < 0
        for listener in server._listeners
        for listening in listener._acceptor._sockets._sockets
    )


def test_limits_follow_the_configuration() -> None:
    limits = listener_limits(config(properties={"socket.request.max.bytes": "4096"}))
    assert (limits.frame_size_bytes_max, limits.idle_timeout_ms) == (4096, 5000)


def test_metrics_libraries_are_not_loaded_without_need() -> None:
    program = (
        "import sys, quorate_controller.server.server, quorate_controller.server.peers;"
        "print(sorted({'aiohttp', 'prometheus_client'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
