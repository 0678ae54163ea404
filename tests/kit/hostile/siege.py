"""Three controllers of which the leader is attacked, and the figures of each attack."""

import asyncio
import json
import os
import re
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Final, Self

import psutil
from kit.cluster import Cluster, free_ports, manifests
from kit.hostile.attacks import ATTACKS
from kit.hostile.long_requests import fill
from kit.hostile.probe import Administrator, Broker, LargeBroker, Memory, Newcomer, Scraper, Seen
from kit.hostile.victim import Session, Victim, properties_of
from kit.waiting import eventually
from quorate_admin.client import AdminClient
from quorate_admin.security.config import SecurityConfig
from quorate_admin.types.quotas import ClientQuotaAlteration, ClientQuotaEntity

if TYPE_CHECKING:
    from kit.ledger import Worker

PROTOCOLS: Final = ("PLAINTEXT", "SSL", "SASL_SSL")
HOSTILE_CLIENT_ID: Final = "hostile"
MUTATION_RATE: Final = 5.0
WARM_UP_ANSWERS: Final = 8
"""What each client that behaves gets before anything is measured: the first answers also pay for what is lazy."""
WARM_UP_TIMEOUT_S: Final = 60
UNFENCED_TIMEOUT_S: Final = 30
END_GRACE_S: Final = 60
_LIMITED: Final = re.compile(r'^quorate_limited_connections_total\{limit="([^"]+)"\} (\S+)', re.MULTILINE)
_TESTS: Final = Path(__file__).parents[2]


@dataclass(frozen=True, slots=True, kw_only=True)
class Figures:
    """The effects of one attack on the leader. Times are in seconds."""

    attack: str
    """A key of ATTACKS; empty: no attack."""
    protocol: str
    seconds: float
    did: Mapping[str, int]
    limited: Mapping[str, int]
    """Limit -> number of limited connections, from quorate_limited_connections_total."""
    heartbeats_s: list[float] = field(repr=False)
    creates_s: list[float] = field(repr=False)
    connects_s: list[float] = field(repr=False)
    large_s: list[float] = field(repr=False)
    """Requests of 40 kB of a broker."""
    scrapes_s: list[float] = field(repr=False)
    is_scraped: bool
    """Whether the controllers have an HTTP listener for metrics, as those of Kafka do not."""
    rss_before_bytes: int
    rss_max_bytes: int
    processors: float
    """The average number of processors that the leader's process used."""
    elections: int
    """Epochs that passed."""
    failures: list[str]
    """The errors that well-behaved clients got."""


def quantile(values: list[float], share: float) -> float:
    """The value that this share of the values does not exceed."""
    return sorted(values)[min(len(values) - 1, int(share * len(values)))]


class Siege:
    """A quorum whose leader is attacked."""

    def __init__(self, cluster: Cluster, victim: Victim, http: Mapping[int, int]) -> None:
        self.cluster = cluster
        self.victim = victim
        self._http = http
        self._seen = Seen()
        quorum = cluster.await_quorum()
        self._leader = quorum.leader_id
        self._epoch = quorum.leader_epoch
        self._process = psutil.Process(cluster.pid(self._leader))
        self._broker = Broker(victim, cluster.layout.identity.cluster_id)
        self._workers = ExitStack()
        self._is_filled = False

    def __enter__(self) -> Self:
        self._workers.enter_context(self._broker)
        assert self._broker.unfenced.wait(UNFENCED_TIMEOUT_S), "the broker stays fenced"
        workers: list[Worker] = [
            LargeBroker(self.victim, self._broker.epoch, lambda: self._seen),
            Administrator(self.victim, lambda: self._seen),
            Newcomer(self.victim, lambda: self._seen),
            Memory(self._process.pid, lambda: self._seen),
        ]
        if self.victim.http_port is not None:
            workers.append(Scraper(self.victim.http_port, lambda: self._seen))
        for worker in workers:
            self._workers.enter_context(worker)
        self._set_quota()
        self._warm_up()
        return self

    def __exit__(self, *raised: object) -> None:
        self._workers.__exit__(*raised)  # type: ignore[arg-type]

    def _set_quota(self) -> None:
        async def alter() -> None:
            async with AdminClient(
                bootstrap_controllers=self.cluster.bootstrap_controllers.split(","),
                security=self.cluster.controller_security,
            ) as admin:
                await admin.alter_client_quotas(
                    [
                        ClientQuotaAlteration(
                            entity=ClientQuotaEntity.of({"client-id": HOSTILE_CLIENT_ID}),
                            values={"controller_mutation_rate": MUTATION_RATE},
                        )
                    ]
                )

        asyncio.run(alter())

    def stand(self, attack: str, seconds: float, size: int | None = None) -> Figures:
        """Attack for some seconds and return the figures; without an attack, those of normal operation."""
        if attack and ATTACKS[attack].needs_metadata:
            self._fill()
        self._seen = self._broker.seen = seen = Seen()
        rss_bytes = self._process.memory_info().rss
        limited, cpu_s, began_s = self._limited(), self._cpu_s(), time.monotonic()
        did = self._attack(attack, seconds, size) if attack else self._rest(seconds)
        took_s = time.monotonic() - began_s
        processors = (self._cpu_s() - cpu_s) / took_s
        epoch = self.cluster.await_quorum().leader_epoch
        elections, self._epoch = epoch - self._epoch, epoch
        self._seen = self._broker.seen = Seen()
        return Figures(
            attack=attack,
            protocol=self.victim.protocol,
            seconds=took_s,
            did=did,
            limited={name: count - limited.get(name, 0) for name, count in self._limited().items()},
            heartbeats_s=seen.heartbeats_s,
            creates_s=seen.creates_s,
            connects_s=seen.connects_s,
            large_s=seen.large_s,
            scrapes_s=seen.scrapes_s,
            is_scraped=self.victim.http_port is not None,
            rss_before_bytes=rss_bytes,
            rss_max_bytes=max(seen.rss_bytes),
            processors=processors,
            elections=elections,
            failures=seen.failures,
        )

    def _fill(self) -> None:
        if not self._is_filled:
            with Session(self.victim, client_id="filling") as session:
                fill(session)
            self._is_filled = True
            self._warm_up()

    def _warm_up(self) -> None:
        """Wait until well-behaved clients are served as in normal operation."""
        self._seen = self._broker.seen = seen = Seen()
        eventually(
            lambda: (
                min(map(len, (seen.heartbeats_s, seen.creates_s, seen.connects_s, seen.large_s)))
                >= WARM_UP_ANSWERS
            ),
            WARM_UP_TIMEOUT_S,
            "the clients that behave to be served",
            lambda: seen,
        )

    def _rest(self, seconds: float) -> dict[str, int]:
        """Measure without an attack."""
        time.sleep(seconds)
        return {}

    def _attack(self, name: str, seconds: float, size: int | None) -> dict[str, int]:
        chosen = ATTACKS[name].size if size is None else size
        command = [
            sys.executable,
            "-m",
            "kit.hostile.attacker",
            name,
            self.victim.to_json(),
            str(chosen),
            str(seconds),
        ]
        ended = subprocess.run(
            command,
            stdout=subprocess.PIPE,
            env={**os.environ, "PYTHONPATH": str(_TESTS)},
            timeout=seconds + END_GRACE_S,
            check=True,
        )
        did: dict[str, int] = json.loads(ended.stdout)
        return did

    def _cpu_s(self) -> float:
        times = self._process.cpu_times()
        return times.user + times.system

    def _limited(self) -> dict[str, int]:
        """The current counters of the leader; empty for a Java controller."""
        port = self._http.get(self._leader)
        if port is None:
            return {}
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=30) as page:
            return {name: int(float(count)) for name, count in _LIMITED.findall(page.read().decode())}


@contextmanager
def besieged(directory: Path, protocol: str, jars: Path | None = None) -> Iterator[Siege]:
    """A quorum of ours, or with `jars` of stock Kafka, whose leader has clients that behave."""
    controllers = (3000, 3001, 3002)
    manifest = manifests(java=controllers if jars else (), brokers=0)
    cluster = Cluster.settle(directory / "cluster", jars, manifest)
    properties, authority = properties_of(protocol, directory / "certificates")
    first = free_ports(len(controllers))
    http = {} if jars else {node_id: first + place for place, node_id in enumerate(controllers)}
    for node_id in controllers:
        page = {"quorate.http.listener": f"127.0.0.1:{http[node_id]}"} if http else {}
        cluster.configure(node_id, {**properties, **page, "broker.session.timeout.ms": "9000"})
    cluster.controller_security = _security(protocol, properties)
    cluster.format(*controllers)
    try:
        cluster.start(*controllers)
        leader_id = cluster.await_quorum().leader_id
        host, _, port = cluster.address(leader_id).rpartition(":")
        victim = Victim(host, int(port), protocol, authority, http.get(leader_id))
        with Siege(cluster, victim, http) as siege:
            yield siege
    finally:
        cluster.close()


def _security(protocol: str, properties: Mapping[str, str]) -> SecurityConfig:
    own = {key: value for key, value in properties.items() if key.startswith("ssl.truststore")}
    if protocol.startswith("SASL"):
        jaas = properties["listener.name.controller.plain.sasl.jaas.config"]
        own |= {"sasl.mechanism": "PLAIN", "sasl.jaas.config": jaas}
    return SecurityConfig.from_properties({"security.protocol": protocol, **own})
