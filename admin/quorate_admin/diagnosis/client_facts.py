"""What the metrics of brokers have about their clients."""

import math
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import field
from typing import Final

from quorate_protocol.plain_data import dataclass

from quorate_admin.diagnosis.known_clients import UNNAMED, Rebootstraps, judge_client

# Names that the rules of operator/quorate_operator/resources/jmx-exporter.yaml give to the MBeans
# kafka.server:type=socket-server-metrics and kafka.network:type=RequestMetrics.
CONNECTIONS: Final = "kafka_server_socketservermetrics_connections"
CONNECTION_COUNT: Final = "kafka_server_socketservermetrics_connection_count"
REQUESTS: Final = "kafka_network_requestmetrics_requests_total"
ERRORS: Final = "kafka_network_requestmetrics_errors_total"
READ_METRICS: Final = (CONNECTIONS, CONNECTION_COUNT, REQUESTS, ERRORS)

_VERSION: Final = re.compile(r"[0-9]{1,5}")
API_VERSIONS: Final = "ApiVersions"
MISROUTED: Final = "REBOOTSTRAP_REQUIRED"


@dataclass(frozen=True, slots=True)
class BrokerSample:
    """A sample of a broker's metrics."""

    name: str
    labels: Mapping[str, str]
    value: float


@dataclass(frozen=True, slots=True, kw_only=True)
class ConnectedClient:
    """The open connections of one release of a client to a listener, on all examined brokers."""

    name: str
    version: str
    listener: str
    connections: int

    def __str__(self) -> str:
        software = "unnamed" if self.is_unnamed else f"{self.name} {self.version}"
        return f"{software} on {self.listener}"

    @property
    def is_unnamed(self) -> bool:
        """Whether it has sent no name, as brokers that fetch from other brokers."""
        return self.name == UNNAMED

    def judge(self) -> tuple[Rebootstraps, str]:
        """Return whether it starts again at its bootstrap servers, and the reason."""
        return judge_client(self.name, self.version)


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientFacts:
    """What brokers publish about their clients.

    `api_versions` has the number of ApiVersions requests by version, and `misrouted` by URL the number of those that
    a broker refused because they expected another node or cluster (KIP-1242), both since the brokers started.
    `examined` are the URLs with a broker's metrics, `problems` has the reason for each of the others.
    """

    clients: tuple[ConnectedClient, ...] = ()
    api_versions: Mapping[int, int] = field(default_factory=dict)
    misrouted: Mapping[str, int] = field(default_factory=dict)
    examined: tuple[str, ...] = ()
    problems: Mapping[str, str] = field(default_factory=dict)

    @property
    def urls(self) -> tuple[str, ...]:
        """All URLs that were requested."""
        return (*self.examined, *self.problems)


def clients_of_pages(
    pages: Mapping[str, Sequence[BrokerSample]], problems: Mapping[str, str] | None = None
) -> ClientFacts:
    """Sum up the samples of brokers, by the URL of each. `problems` has the reason for each URL without samples."""
    connections: Counter[tuple[str, str, str]] = Counter()
    api_versions: Counter[int] = Counter()
    misrouted: dict[str, int] = {}
    examined, lacking = [], dict(problems or {})
    for url, samples in pages.items():
        problem = _problem(samples)
        if problem is not None:
            lacking[url] = problem
            continue
        examined.append(url)
        for sample in samples:
            labels, count = sample.labels, _count(sample)
            if sample.name == CONNECTIONS:
                software = (labels.get(f"client_software_{key}") or UNNAMED for key in ("name", "version"))
                name, version = software
                connections[name, version, labels.get("listener", "")] += count
            elif labels.get("request") != API_VERSIONS:
                continue
            elif sample.name == REQUESTS and _VERSION.fullmatch(labels.get("version", "")):
                api_versions[int(labels["version"])] += count
            elif sample.name == ERRORS and labels.get("error") == MISROUTED and count:
                misrouted[url] = misrouted.get(url, 0) + count
    return ClientFacts(
        clients=tuple(
            ConnectedClient(name=name, version=version, listener=listener, connections=count)
            for (name, version, listener), count in sorted(connections.items())
            if count
        ),
        api_versions={version: count for version, count in sorted(api_versions.items()) if count},
        misrouted=misrouted,
        examined=tuple(examined),
        problems=lacking,
    )


def _problem(samples: Sequence[BrokerSample]) -> str | None:
    """Return why these are not the metrics of a broker with its clients."""
    if any(sample.name == CONNECTIONS for sample in samples):
        return None
    counts = [_count(sample) for sample in samples if sample.name == CONNECTION_COUNT]
    if not counts:
        return f"there is no {CONNECTION_COUNT}; these are not a broker's metrics, or have other names"
    return f"there is no {CONNECTIONS}; the exporter has no rule for it" if sum(counts) else None


def _count(sample: BrokerSample) -> int:
    return max(0, int(sample.value)) if math.isfinite(sample.value) else 0
