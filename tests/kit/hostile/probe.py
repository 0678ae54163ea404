"""What brokers, an administrator, a newcomer and a scraper see of a controller; what its process takes meanwhile."""

import threading
import time
import urllib.request
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any, Final
from uuid import UUID, uuid4

import psutil
from kit.hostile.victim import Session, Victim
from kit.ledger import Worker
from quorate_protocol.errors import ErrorCode
from quorate_protocol.features import SUPPORTED_FEATURES
from quorate_protocol.kafka.generated.broker_heartbeat_request import BrokerHeartbeatRequest
from quorate_protocol.kafka.generated.broker_registration_request import (
    BrokerRegistrationRequest,
    Feature,
    Listener,
)
from quorate_protocol.kafka.generated.create_topics_request import CreatableTopic, CreateTopicsRequest
from quorate_protocol.kafka.generated.describe_cluster_request import DescribeClusterRequest

BROKER_ID: Final = 1
HEARTBEAT_EVERY_S: Final = 0.05
CREATE_EVERY_S: Final = 0.1
CONNECT_EVERY_S: Final = 0.25
LARGE_EVERY_S: Final = 0.25
LARGE_BYTES: Final = 40_000
SCRAPE_EVERY_S: Final = 0.5
SCRAPE_TIMEOUT_S: Final = 10
SAMPLE_EVERY_S: Final = 0.05
CONTROLLERS: Final = 2
"""DescribeClusterRequest.endpoint_type"""
_CAUGHT_UP: Final = 1 << 40


@dataclass(slots=True)
class Seen:
    """Latencies in seconds, and the process."""

    heartbeats_s: list[float] = field(default_factory=list)
    creates_s: list[float] = field(default_factory=list)
    connects_s: list[float] = field(default_factory=list)
    large_s: list[float] = field(default_factory=list)
    scrapes_s: list[float] = field(default_factory=list)
    rss_bytes: list[int] = field(default_factory=list)
    failures: list[str] = field(default_factory=list)


class Broker(Worker):
    """A broker that registers, and sends heartbeats more often than brokers do."""

    def __init__(self, victim: Victim, cluster_id: str) -> None:
        super().__init__("broker")
        self._session = Session(victim, client_id="broker")
        response = self._session.ask(_registration(cluster_id))
        assert response.error_code is ErrorCode.none, response
        self.epoch = response.broker_epoch
        self.seen = Seen()
        self.unfenced = threading.Event()

    def _work(self) -> None:
        seconds, response = self._session.timed_ask(_heartbeat(self.epoch))
        self.seen.heartbeats_s.append(seconds)
        if response.error_code is not ErrorCode.none:
            self.seen.failures.append(f"heartbeat: {response.error_code.name}")
        if not response.is_fenced:
            self.unfenced.set()
        self._ended.wait(HEARTBEAT_EVERY_S)

    def _close(self) -> None:
        self._session.close()


class LargeBroker(Worker):
    """A broker whose heartbeats are large, because it reports thousands of directories."""

    def __init__(self, victim: Victim, epoch: int, seen: Callable[[], Seen]) -> None:
        super().__init__("large broker")
        self._session = Session(victim, client_id="broker")
        self._request = _heartbeat(epoch, tuple(uuid4() for _ in range(LARGE_BYTES // 16)))
        self._seen = seen

    def _work(self) -> None:
        seconds, response = self._session.timed_ask(self._request)
        self._seen().large_s.append(seconds)
        if response.error_code is not ErrorCode.none:
            self._seen().failures.append(f"large heartbeat: {response.error_code.name}")
        self._ended.wait(LARGE_EVERY_S)

    def _close(self) -> None:
        self._session.close()


def _heartbeat(epoch: int, offline_log_dirs: tuple[UUID, ...] = ()) -> BrokerHeartbeatRequest:
    return BrokerHeartbeatRequest(
        broker_id=BROKER_ID,
        broker_epoch=epoch,
        current_metadata_offset=_CAUGHT_UP,
        want_fence=False,
        want_shut_down=False,
        offline_log_dirs=offline_log_dirs,
    )


class Administrator(Worker):
    """Creates topics on one connection."""

    def __init__(self, victim: Victim, seen: Callable[[], Seen]) -> None:
        super().__init__("administrator")
        self._session = Session(victim, client_id="administrator")
        self._seen = seen
        self._number = 0

    def _work(self) -> None:
        topic = CreatableTopic(
            name=f"probed-{self._number}", num_partitions=1, replication_factor=1, assignments=(), configs=()
        )
        self._number += 1
        seconds, response = self._session.timed_ask(
            CreateTopicsRequest(topics=(topic,), timeout=timedelta(seconds=20), validate_only=False)
        )
        self._seen().creates_s.append(seconds)
        error_code = response.topics[0].error_code
        if error_code is not ErrorCode.none:
            self._seen().failures.append(f"CreateTopics: {error_code.name}")
        self._ended.wait(CREATE_EVERY_S)

    def _close(self) -> None:
        self._session.close()


class Newcomer(Worker):
    """Connects, logs in, asks one thing and leaves: a controller or broker that starts does the same."""

    def __init__(self, victim: Victim, seen: Callable[[], Seen]) -> None:
        super().__init__("newcomer")
        self._victim = victim
        self._seen = seen

    def _work(self) -> None:
        began_s = time.perf_counter()
        try:
            with Session(self._victim, client_id="newcomer") as session:
                session.ask(_WHO)
            self._seen().connects_s.append(time.perf_counter() - began_s)
        except OSError as error:
            self._seen().failures.append(f"newcomer: {error}")
        self._ended.wait(CONNECT_EVERY_S)


_WHO: Final = DescribeClusterRequest(
    include_cluster_authorized_operations=False, endpoint_type=CONTROLLERS, include_fenced_brokers=False
)


class Scraper(Worker):
    """Prometheus."""

    def __init__(self, port: int, seen: Callable[[], Seen]) -> None:
        super().__init__("scraper")
        self._url = f"http://127.0.0.1:{port}/metrics"
        self._seen = seen

    def _work(self) -> None:
        began_s = time.perf_counter()
        try:
            with urllib.request.urlopen(self._url, timeout=SCRAPE_TIMEOUT_S) as page:
                page.read()
            self._seen().scrapes_s.append(time.perf_counter() - began_s)
        except OSError as error:
            self._seen().failures.append(f"scraper: {error}")
        self._ended.wait(SCRAPE_EVERY_S)


class Memory(Worker):
    """Samples the resident memory of a process."""

    def __init__(self, pid: int, seen: Callable[[], Seen]) -> None:
        super().__init__("memory")
        self._process = psutil.Process(pid)
        self._seen = seen

    def _work(self) -> None:
        self._seen().rss_bytes.append(self._process.memory_info().rss)
        self._ended.wait(SAMPLE_EVERY_S)


def _registration(cluster_id: str) -> Any:
    features = [
        Feature(name=name, min_supported_version=lowest, max_supported_version=highest)
        for name, (lowest, highest) in SUPPORTED_FEATURES.items()
    ]
    return BrokerRegistrationRequest(
        broker_id=BROKER_ID,
        cluster_id=cluster_id,
        incarnation_id=uuid4(),
        listeners=(Listener(name="PLAINTEXT", host="127.0.0.1", port=9092, security_protocol=0),),
        features=tuple(features),
        rack=None,
        log_dirs=(uuid4(),),
    )
