"""The metrics page: Kafka's names where Kafka has the metric, ours (`quorate_...`, base units) elsewhere.

Everything is read from one status snapshot and from plain counters on a scrape; nothing is
done per request. Rates are over the time since the oldest scrape of the last minute. Only a configured
metrics listener loads this module.
"""

from __future__ import annotations

import time
from collections import deque
from dataclasses import field
from typing import TYPE_CHECKING, Final

from prometheus_client import CollectorRegistry, ProcessCollector, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.registry import Collector
from quorate_protocol.bounded_http.places import HttpLimit
from quorate_protocol.errors import ErrorCode
from quorate_protocol.kafka.apis import ApiKey, find_api
from quorate_protocol.plain_data import dataclass
from quorate_protocol.wire.codec.native import CODEC
from quorate_protocol.wire.versions import SOFTWARE_VERSION

from quorate_controller.server.counters import Limit
from quorate_controller.server.misrouting import Misrouting

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

    from quorate_controller.node.measurements import LatencyHistogram
    from quorate_controller.node.port import NodePort
    from quorate_controller.node.status import NodeStatus
    from quorate_controller.server.counters import RequestCounters

RAFT: Final = "kafka_server_raftmetrics_"
CONTROLLER: Final = "kafka_controller_kafkacontroller_"
MISROUTED_CONNECTIONS: Final = "kafka_network_socketserver_misroutedconnectioncount"
MISROUTED_PEER_CONNECTIONS: Final = "kafka_server_raftchannelmetrics_misrouted_connection_count"
RATE_WINDOW_S: Final = 60.0

_GAUGES: Final[tuple[tuple[str, str, Callable[[NodeStatus], float]], ...]] = (
    (RAFT + "current_leader", "Id of the quorum's leader, -1 unknown", lambda s: s.leader_id),
    (RAFT + "current_epoch", "Current epoch of the quorum", lambda s: s.leader_epoch),
    (RAFT + "current_vote", "Id voted for in this epoch, -1 none", lambda s: s.voted_id),
    (RAFT + "high_watermark", "High watermark, -1 unknown", lambda s: s.high_watermark),
    (RAFT + "log_end_offset", "End offset of the metadata log", lambda s: s.log_end_offset),
    (RAFT + "number_of_voters", "Voters of the quorum", lambda s: len(s.voter_ids)),
    (RAFT + "number_of_observers", "Observers that fetch from this leader", lambda s: s.observer_count),
    (CONTROLLER + "activecontrollercount", "1 on the active controller", lambda s: int(s.is_active)),
    (CONTROLLER + "offlinepartitionscount", "Partitions without leader", lambda s: s.offline_partition_count),
    (CONTROLLER + "activebrokercount", "Registered and not fenced brokers", lambda s: s.active_broker_count),
    (CONTROLLER + "fencedbrokercount", "Registered and fenced brokers", lambda s: s.fenced_broker_count),
    (
        CONTROLLER + "controlledshutdownbrokercount",
        "Brokers in controlled shutdown",
        lambda s: s.controlled_shutdown_broker_count,
    ),
    (CONTROLLER + "globaltopiccount", "Topics", lambda s: s.topic_count),
    (CONTROLLER + "globalpartitioncount", "Partitions", lambda s: s.partition_count),
    (
        CONTROLLER + "preferredreplicaimbalancecount",
        "Partitions that another than their preferred replica leads",
        lambda s: s.preferred_replica_imbalance_count,
    ),
    (
        CONTROLLER + "lastappliedrecordoffset",
        "Offset of the last record in the image",
        lambda s: s.last_applied_offset,
    ),
    (
        CONTROLLER + "lastappliedrecordtimestamp",
        "Time of the last record in the image, Unix milliseconds",
        lambda s: s.last_applied_timestamp_ms,
    ),
    (
        CONTROLLER + "lastcommittedrecordoffset",
        "Offset of the last committed record",
        lambda s: max(s.high_watermark - 1, -1),
    ),
    (
        CONTROLLER + "newactivecontrollerscount",
        "Times that this node saw a controller become active",
        lambda s: s.new_active_controller_count,
    ),
    (
        CONTROLLER + "metadatalag",
        "Committed records that are not in the image yet (KIP-631)",
        lambda s: max(0, s.high_watermark - 1 - s.last_applied_offset),
    ),
    (
        CONTROLLER + "metadatasnapshotlag",
        "Committed records after the latest snapshot, 0 without one (KIP-631)",
        lambda s: (
            max(0, s.high_watermark - s.latest_snapshot_end_offset) if s.latest_snapshot_end_offset > 0 else 0
        ),
    ),
    (
        "kafka_server_snapshotemitter_latestsnapshotgeneratedbytes",
        "Size of the latest snapshot",
        lambda s: s.latest_snapshot_size_bytes,
    ),
    (
        "kafka_server_metadataloader_currentmetadataversion",
        "Level of the finalized metadata.version",
        lambda s: s.metadata_version,
    ),
    ("quorate_kraft_version", "Level of the finalized kraft.version", lambda s: s.kraft_version),
    ("quorate_log_start_offset", "Start offset of the metadata log", lambda s: s.log_start_offset),
    (
        "quorate_unreadable_checkpoints",
        "Older checkpoints of this node that were found damaged",
        lambda s: s.unreadable_snapshot_count,
    ),
    (
        "quorate_caught_up",
        "1 when all records up to the high watermark are applied",
        lambda s: s.is_caught_up,
    ),
    (
        "quorate_registered",
        "1 while the metadata has the registration of this process (KIP-919)",
        lambda s: int(s.is_registered),
    ),
    ("quorate_registered_controllers", "Registered controllers", lambda s: s.controller_count),
    ("quorate_voter", "1 on a voter, 0 on an observer", lambda s: s.is_voter),
)


@dataclass(frozen=True, slots=True)
class ServedCertificate:
    """The certificate that a listener presents to clients."""

    not_after_s: float
    """Unix time."""
    refuses_files: bool
    """Whether its files have new content that was refused."""


@dataclass(frozen=True, slots=True)
class Usage:
    """The connections and the memory that all listeners use."""

    connections: int
    request_bytes: Mapping[str, int]
    """Class of service -> its requests."""
    response_bytes: int
    certificates: Mapping[str, ServedCertificate] = field(default_factory=dict)
    """Listener name -> its certificate."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Sample:
    """Totals at one scrape, for rates."""

    at_s: float
    high_watermark: int
    log_end_offset: int
    requests: int
    commits: int
    commits_ms: float
    is_leader: bool


class MetricsPage(Collector):
    """Renders the page; one per process."""

    def __init__(
        self,
        node: NodePort,
        counters: RequestCounters,
        *,
        usage: Callable[[], Usage],
        unix_time_s: Callable[[], float] = time.time,
    ) -> None:
        self._node = node
        self._counters = counters
        self._usage = usage
        self._unix_time_s = unix_time_s
        self._samples: deque[_Sample] = deque()
        self._registry = CollectorRegistry(auto_describe=False)
        self._registry.register(self)
        ProcessCollector(registry=self._registry)

    def render(self) -> bytes:
        """The page in Prometheus' text format."""
        return generate_latest(self._registry)

    def describe(self) -> Iterable[Metric]:
        """Describe nothing in advance: the names are known on a scrape only."""
        return ()

    def collect(self) -> Iterator[Metric]:
        """All metrics, from one status snapshot."""
        status = self._node.status()
        now_s = self._unix_time_s()
        build = GaugeMetricFamily(
            "quorate_build_info",
            "Always 1; the labels are the version and the codec",
            labels=["version", "codec"],
        )
        build.add_metric([SOFTWARE_VERSION, CODEC], 1)
        yield build
        for name, text, value in _GAUGES:
            yield GaugeMetricFamily(name, text, value=value(status))
        yield GaugeMetricFamily(
            CONTROLLER + "timedoutbrokerheartbeatcount",
            "Heartbeats without a response in time",
            value=self._counters.errors.get((ApiKey.BROKER_HEARTBEAT, ErrorCode.request_timed_out), 0),
        )
        yield GaugeMetricFamily(
            CONTROLLER + "metadataerrorcount",
            "Always 0: a committed record that can't be replayed ends the process",
            value=0,
        )
        state = GaugeMetricFamily(RAFT + "current_state", "1 for the current state", labels=["current_state"])
        state.add_metric([status.current_state], 1)
        yield state
        yield from self._ages(status, now_s)
        yield from self._rates(status, now_s)
        yield from self._histograms(status)
        yield from self._requests()
        yield from self._refusals()
        yield from self._misrouting()
        yield from self._listeners()
        brokers = GaugeMetricFamily(
            CONTROLLER + "brokerregistrationstate",
            "10 fenced, 20 controlled shutdown, 30 active",
            labels=["broker"],
        )
        for broker_id, broker_state in status.broker_states.items():
            brokers.add_metric([str(broker_id)], broker_state)
        yield brokers
        snapshots = GaugeMetricFamily(
            "quorate_last_snapshot_offset",
            "End offset of each controller's last snapshot, -1 without one, on the active controller (KIP-631)",
            labels=["controller"],
        )
        for node_id, offset in status.last_snapshot_offsets.items():
            snapshots.add_metric([str(node_id)], offset)
        yield snapshots
        yield CounterMetricFamily(
            "quorate_elections", "Elections that this node stood for", value=status.election_count
        )
        yield CounterMetricFamily(
            "quorate_overdue_responses",
            "Responses that left before a broker that they waited for was known to have their records",
            value=status.overdue_response_count,
        )

    def _ages(self, status: NodeStatus, now_s: float) -> Iterator[Metric]:
        now_ms = round(now_s * 1000)
        if status.last_applied_timestamp_ms > 0:
            yield GaugeMetricFamily(
                CONTROLLER + "lastappliedrecordlagms",
                "Age of the last record in the image; 0 on the active controller",
                value=0 if status.is_active else max(0, now_ms - status.last_applied_timestamp_ms),
            )
        if status.latest_snapshot_timestamp_ms > 0:
            yield GaugeMetricFamily(
                "kafka_server_snapshotemitter_latestsnapshotgeneratedagems",
                "Age of the latest snapshot",
                value=max(0, now_ms - status.latest_snapshot_timestamp_ms),
            )

    def _rates(self, status: NodeStatus, now_s: float) -> Iterator[Metric]:
        latency = status.commit_latency
        now = _Sample(
            at_s=now_s,
            high_watermark=max(0, status.high_watermark),
            log_end_offset=status.log_end_offset,
            requests=sum(self._counters.requests.values()),
            commits=0 if latency is None else latency.count,
            commits_ms=0.0 if latency is None else latency.sum_ms,
            is_leader=status.current_state == "leader",
        )
        samples = self._samples
        samples.append(now)
        while len(samples) > 2 and samples[1].at_s <= now_s - RATE_WINDOW_S:
            samples.popleft()
        then = samples[0]
        elapsed_s = max(now.at_s - then.at_s, 1e-9)
        # A truncation makes the log shorter, which is no negative rate.
        written = max(0, now.log_end_offset - then.log_end_offset) / elapsed_s
        commits = now.commits - then.commits
        for name, text, value in (
            (RAFT + "append_records_rate", "Records appended per second as leader", written * now.is_leader),
            (RAFT + "fetch_records_rate", "Records fetched per second", written * (not now.is_leader)),
            (
                RAFT + "commit_latency_avg",
                "Average milliseconds to commit",
                (now.commits_ms - then.commits_ms) / commits if commits else 0.0,
            ),
            (
                CONTROLLER + "metadatacommitrate",
                "Records committed per second (KIP-631)",
                (now.high_watermark - then.high_watermark) / elapsed_s,
            ),
            (
                CONTROLLER + "controllerrequestsrate",
                "Requests received per second (KIP-631)",
                (now.requests - then.requests) / elapsed_s,
            ),
        ):
            yield GaugeMetricFamily(name, text, value=value)

    def _histograms(self, status: NodeStatus) -> Iterator[Metric]:
        if status.commit_latency is not None:
            yield _milliseconds(
                CONTROLLER + "metadatacommitlatencyms",
                "Milliseconds from append to commit, on the active controller (KIP-631)",
                status.commit_latency,
            )
        if status.event_queue_time is not None:
            yield _milliseconds(
                CONTROLLER + "eventqueuetimems",
                "Milliseconds that events waited for their turn",
                status.event_queue_time,
            )

    def _requests(self) -> Iterator[Metric]:
        counters = self._counters
        requests = CounterMetricFamily("quorate_requests", "Requests received", labels=["api"])
        for api_key, count in counters.requests.items():
            requests.add_metric([find_api(api_key).name], count)
        yield requests
        errors = CounterMetricFamily(
            "quorate_request_errors", "Requests refused as a whole", labels=["api", "error"]
        )
        for (api_key, error_code), count in counters.errors.items():
            errors.add_metric([find_api(api_key).name, error_code.name], count)
        yield errors
        seconds = HistogramMetricFamily(
            "quorate_request_duration_seconds",
            "From a control request to its committed response",
            labels=["api"],
        )
        for api_key, histogram in counters.seconds.items():
            seconds.add_metric([find_api(api_key).name], histogram.cumulative(), histogram.sum_ms / 1000)
        yield seconds

    def _refusals(self) -> Iterator[Metric]:
        counters = self._counters
        denied = CounterMetricFamily(
            "quorate_denied_authorizations", "Actions that the authorizer denied", labels=["api"]
        )
        for api, count in counters.denied.items():
            denied.add_metric([api], count)
        yield denied
        yield CounterMetricFamily(
            "quorate_failed_authentications",
            "Clients that SASL refused",
            value=counters.failed_authentications,
        )
        yield CounterMetricFamily(
            "quorate_failed_handshakes",
            "Connections whose TLS handshake failed",
            value=counters.failed_handshakes,
        )
        limited = CounterMetricFamily(
            "quorate_limited_connections",
            "Connections that a limit refused, closed or held back",
            labels=["limit"],
        )
        for limit in (*Limit, *HttpLimit):
            limited.add_metric([limit.value], counters.limited[limit])
        yield limited
        yield CounterMetricFamily(
            "quorate_refused_connections",
            "Connections closed for what they sent",
            value=counters.refused_connections,
        )
        yield CounterMetricFamily(
            "quorate_dropped_responses",
            "Responses to requests that had one already",
            value=counters.dropped_responses,
        )

    def _misrouting(self) -> Iterator[Metric]:
        counters = self._counters
        misrouted = GaugeMetricFamily(
            MISROUTED_CONNECTIONS,
            "Connections of clients and controllers that meant another node or cluster",
            labels=["meant"],
        )
        for meant in Misrouting:
            misrouted.add_metric([meant.value], counters.misrouted_connections[meant.value])
        yield misrouted
        yield GaugeMetricFamily(
            MISROUTED_PEER_CONNECTIONS,
            "Connections to other controllers that ended at another node or cluster",
            value=counters.misrouted_peer_connections,
        )

    def _listeners(self) -> Iterator[Metric]:
        usage = self._usage()
        yield GaugeMetricFamily("quorate_open_connections", "Accepted connections", value=usage.connections)
        requests = GaugeMetricFamily(
            "quorate_request_memory_bytes", "Requests without a response yet", labels=["class"]
        )
        for service_class, size_bytes in usage.request_bytes.items():
            requests.add_metric([service_class], size_bytes)
        yield requests
        yield GaugeMetricFamily(
            "quorate_response_memory_bytes", "Responses that clients do not read", value=usage.response_bytes
        )
        expiry = GaugeMetricFamily(
            "quorate_certificate_expiry_timestamp_seconds",
            "End of the validity of the certificate that is served, Unix seconds",
            labels=["listener"],
        )
        refused = GaugeMetricFamily(
            "quorate_certificate_files_refused",
            "1 while the files of a listener have a content that is not used",
            labels=["listener"],
        )
        for listener, served in usage.certificates.items():
            expiry.add_metric([listener], served.not_after_s)
            refused.add_metric([listener], int(served.refuses_files))
        yield expiry
        yield refused


def _milliseconds(name: str, text: str, histogram: LatencyHistogram) -> Metric:
    buckets = [
        (bound if bound == "+Inf" else repr(float(bound) * 1000), count)
        for bound, count in histogram.cumulative()
    ]
    return HistogramMetricFamily(name, text, buckets=buckets, sum_value=histogram.sum_ms)
