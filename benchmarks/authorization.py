"""What 10,000 ACLs cost clients that are no super users: CreateTopics and heartbeats, also without an authorizer."""

from __future__ import annotations

import statistics
import time
from contextlib import ExitStack
from dataclasses import dataclass, field
from random import Random
from typing import TYPE_CHECKING, Any, Final
from uuid import uuid4

from quorate_protocol.errors import ErrorCode
from quorate_protocol.kafka.enums import AclOperation, AclPermissionType, PatternType, ResourceType
from quorate_protocol.kafka.generated.create_acls_request import AclCreation, CreateAclsRequest
from quorate_protocol.security.jaas import format_jaas

from benchmarks.broker import HeartbeatingBroker, heartbeat_request, registration_request
from benchmarks.client import Connection, Login
from benchmarks.quorum import Quorum
from benchmarks.topics import check_created, create_topics, new_topic

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from pathlib import Path

    from quorate_protocol.kafka.apis import Payload

    from benchmarks.quorum import Implementation

ACLS: Final = 10_000
ACLS_PER_REQUEST: Final = 500
TEAMS: Final = 100
DOMAINS: Final = (
    "web",
    "risk",
    "sales",
    "mobile",
    "billing",
    "shipping",
    "logistics",
    "compliance",
    "procurement",
)
"""Names of teams begin with these, so that prefixes have as many lengths as they have in a company."""
APPLICATIONS: Final = 600
LISTENER: Final = "CLIENTS"
PASSWORD: Final = "secret"
APPLICATION: Final = "app-042"
"""The principal that creates topics, by prefixed ACLs of its team."""
BROKER: Final = "brokers"
"""The principal of the broker whose heartbeats are measured."""
BROKER_ID: Final = 7

BLOCKS: Final = 12
TOPICS_PER_BLOCK: Final = 60
HEARTBEATS_PER_BLOCK: Final = 4_000
IN_FLIGHT: Final = 20
"""Heartbeats on their way at once where the processor time is measured: little else is done for them then."""
UNFENCE_TIMEOUT_SECONDS: Final = 60.0


def acls_of_a_company() -> list[AclCreation]:
    """10,000 ACLs of 100 teams and 600 applications, in the order in which they were given; the same in each run."""
    rng = Random(10_000)
    acls = [
        _acl(ResourceType.CLUSTER, "kafka-cluster", BROKER, AclOperation.CLUSTER_ACTION),
        _acl(ResourceType.CLUSTER, "kafka-cluster", "*", AclOperation.DESCRIBE),
        _acl(ResourceType.TOPIC, "*", "monitoring", AclOperation.DESCRIBE),
        _acl(ResourceType.TOPIC, "*", "*", AclOperation.DELETE, host="203.0.113.0/24", allows=False),
    ]
    # Each team's lead may alter the cluster from the team's subnet, but not its configs from one host.
    for team in range(TEAMS):
        acls.append(
            _acl(ResourceType.CLUSTER, "kafka-cluster", _lead(team), AclOperation.ALTER, host=_subnet(team))
        )
        acls.append(
            _acl(
                ResourceType.CLUSTER,
                "kafka-cluster",
                _lead(team),
                AclOperation.ALTER_CONFIGS,
                host="198.51.100.7",
                allows=False,
            )
        )
        acls += _acls_of_team(team)
    while len(acls) < ACLS:
        acls += _acls_of_application(rng)
    return acls[:ACLS]


def _acls_of_team(team: int) -> Iterator[AclCreation]:
    """Each application of a team may create topics with the team's prefixes; what is secret is denied."""
    prefixes = (f"{_team(team)}.", f"{_team(team)}.orders-", f"shared.{_team(team)}.", f"{_team(team)}-")
    for prefix in prefixes:
        for application in range(team, APPLICATIONS, TEAMS):
            for operation in (AclOperation.CREATE, AclOperation.WRITE):
                yield _acl(
                    ResourceType.TOPIC,
                    prefix,
                    _application(application),
                    operation,
                    pattern=PatternType.PREFIXED,
                )
    for operation in (AclOperation.READ, AclOperation.DELETE):
        yield _acl(
            ResourceType.TOPIC,
            f"{_team(team)}.",
            "*",
            operation,
            pattern=PatternType.PREFIXED,
            host=_subnet(team + 1),
            allows=False,
        )


def _acls_of_application(rng: Random) -> Iterator[AclCreation]:
    """An application reads or writes a topic of some team, as a group, from anywhere or from its hosts."""
    name = _application(rng.randrange(APPLICATIONS))
    team = rng.randrange(TEAMS)
    host = rng.choice(
        ("*", "*", "*", f"10.{team}.{rng.randrange(256)}.{rng.randrange(1, 255)}", _subnet(team))
    )
    topic = f"{_team(team)}.{rng.choice(('orders', 'payments', 'clicks', 'audit'))}-{rng.randrange(400)}"
    if rng.random() < 0.5:
        yield _acl(ResourceType.TOPIC, topic, name, AclOperation.READ, host=host)
        yield _acl(ResourceType.GROUP, f"{name}.", name, AclOperation.READ, pattern=PatternType.PREFIXED)
    else:
        yield _acl(ResourceType.TOPIC, topic, name, AclOperation.WRITE, host=host)
        yield _acl(ResourceType.TRANSACTIONAL_ID, f"{name}-{team}", name, AclOperation.WRITE, host=host)
    if rng.random() < 0.1:
        yield _acl(ResourceType.TOPIC, topic, name, AclOperation.ALL, host=_subnet(team + 2), allows=False)


def _team(number: int) -> str:
    return f"{DOMAINS[number % len(DOMAINS)]}-{number:03}"


def _lead(team: int) -> str:
    return f"lead-{team:03}"


def _application(number: int) -> str:
    return f"app-{number:03}"


def _subnet(team: int) -> str:
    return f"10.{team % 256}.0.0/16"


def _acl(
    resource_type: ResourceType,
    name: str,
    user: str,
    operation: AclOperation,
    *,
    pattern: PatternType = PatternType.LITERAL,
    host: str = "*",
    allows: bool = True,
) -> AclCreation:
    return AclCreation(
        resource_type=resource_type,
        resource_name=name,
        resource_pattern_type=pattern,
        principal=f"User:{user}",
        host=host,
        operation=operation,
        permission_type=AclPermissionType.ALLOW if allows else AclPermissionType.DENY,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class AuthorizationMeasurements:
    """Measurements of one implementation, each without an authorizer and with the ACLs."""

    create_p50_seconds: tuple[float, float]
    create_cpu_seconds: tuple[float, float]
    heartbeat_p50_seconds: tuple[float, float]
    heartbeat_cpu_seconds: tuple[float, float]


@dataclass(slots=True)
class _Samples:
    """Measurements of one kind of request in one cluster."""

    latencies: list[float] = field(default_factory=list)
    requests: int = 0
    processor_seconds: float = 0.0

    @property
    def p50_seconds(self) -> float:
        return statistics.median(self.latencies)

    @property
    def cpu_seconds(self) -> float:
        return self.processor_seconds / self.requests


class _Cluster(Quorum):
    """Three controllers with a listener of their own for clients, who log in with PLAIN there."""

    def __init__(
        self,
        implementation: Implementation,
        directory: Path,
        ports: Sequence[int],
        *,
        has_acls: bool,
    ) -> None:
        self.has_acls = has_acls
        self._client_ports = dict(enumerate(ports[3:]))
        users = {f"user_{name}": PASSWORD for name in (APPLICATION, BROKER)}
        properties = {
            "controller.listener.names": f"CONTROLLER,{LISTENER}",
            "listener.security.protocol.map": f"CONTROLLER:PLAINTEXT,{LISTENER}:SASL_PLAINTEXT",
            "sasl.enabled.mechanisms": "PLAIN",
            f"listener.name.{LISTENER.lower()}.plain.sasl.jaas.config": format_jaas("PLAIN", users),
            "metadata.max.idle.interval.ms": "0",
        }
        if has_acls:
            properties |= {
                "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
                "super.users": "User:ANONYMOUS",
            }
        super().__init__(implementation, directory, tuple(ports[:3]), properties)

    def properties_of(self, node_id: int) -> dict[str, str]:
        """Add the listener of clients."""
        properties = super().properties_of(node_id)
        listeners = f"{properties['listeners']},{LISTENER}://{self._address_of_clients(node_id)}"
        return {**properties, "listeners": listeners, "advertised.listeners": listeners}

    def _address_of_clients(self, node_id: int) -> str:
        index = list(self.addresses).index(node_id)
        return f"127.0.0.1:{self._client_ports[index]}"

    def connect(self, user: str) -> Connection:
        """A connection of a user to the active controller."""
        host, port = self._address_of_clients(self.active()).split(":")
        return Connection((host, int(port)), login=Login(user, PASSWORD), in_flight_max=IN_FLIGHT)

    def give_acls(self) -> None:
        """Create the ACLs, as a super user."""
        acls = acls_of_a_company()
        with Connection(self.addresses[self.active()]) as connection:
            for start in range(0, len(acls), ACLS_PER_REQUEST):
                response = connection.ask(
                    CreateAclsRequest(creations=tuple(acls[start : start + ACLS_PER_REQUEST]))
                )
                _check(*(result.error_code for result in response.results))


def measure_authorization(
    implementation: Implementation,
    directory: Path,
    ports: Sequence[int],
    progress: Callable[[str], None],
) -> AuthorizationMeasurements:
    """Measure two clusters in turn, one without an authorizer, and end their processes. Needs 12 ports."""
    with ExitStack() as stack:
        clients = []
        for number, has_acls in enumerate((False, True)):
            cluster = _Cluster(
                implementation,
                directory / str(number),
                ports[6 * number : 6 * number + 6],
                has_acls=has_acls,
            )
            stack.callback(cluster.stop)
            progress(f"start {'with' if has_acls else 'without'} ACLs")
            cluster.start()
            cluster.wait_until_registered()
            if has_acls:
                cluster.give_acls()
            broker = HeartbeatingBroker(cluster, cluster.cluster_id)
            stack.callback(broker.close)
            if not broker.unfenced.wait(UNFENCE_TIMEOUT_SECONDS):
                raise TimeoutError(f"{implementation.name}: the broker was not unfenced")
            clients.append(_Clients(cluster, stack))
        for number in range(-1, BLOCKS):  # the first is to warm up
            for client in clients:
                progress(f"block {number + 1} of {BLOCKS}")
                client.run_block()
                if number < 0:
                    client.forget()
    without, with_acls = clients
    return AuthorizationMeasurements(
        create_p50_seconds=(without.created.p50_seconds, with_acls.created.p50_seconds),
        create_cpu_seconds=(without.created.cpu_seconds, with_acls.created.cpu_seconds),
        heartbeat_p50_seconds=(without.heartbeats.p50_seconds, with_acls.heartbeats.p50_seconds),
        heartbeat_cpu_seconds=(without.heartbeats.cpu_seconds, with_acls.heartbeats.cpu_seconds),
    )


class _Clients:
    """An application and a broker of one cluster."""

    def __init__(self, cluster: _Cluster, stack: ExitStack) -> None:
        self._cluster = cluster
        self._active = cluster.active()
        self._application = stack.enter_context(cluster.connect(APPLICATION))
        self._broker = stack.enter_context(cluster.connect(BROKER))
        self._heartbeat = self._join()
        self._number = 0
        self.forget()

    def forget(self) -> None:
        """Drop the samples so far."""
        self.created, self.heartbeats = _Samples(), _Samples()

    def _join(self) -> Payload:
        """Register the broker, and return its heartbeat once it is unfenced."""
        registered = self._broker.ask(
            registration_request(BROKER_ID, self._cluster.cluster_id, uuid4(), uuid4())
        )
        _check(registered.error_code)
        heartbeat = heartbeat_request(BROKER_ID, registered.broker_epoch)
        deadline = time.monotonic() + UNFENCE_TIMEOUT_SECONDS
        while time.monotonic() < deadline:
            response = self._broker.ask(heartbeat)
            _check(response.error_code)
            if not response.is_fenced:
                return heartbeat
            time.sleep(0.02)
        raise TimeoutError("the broker was not unfenced")

    def run_block(self) -> None:
        """One block of each kind of request."""
        self._measured(self.created, TOPICS_PER_BLOCK, self._create)
        for _ in range(HEARTBEATS_PER_BLOCK // 10):
            seconds, response = self._broker.timed_ask(self._heartbeat)
            _check(response.error_code)
            self.heartbeats.latencies.append(seconds)
        self._measured(self.heartbeats, HEARTBEATS_PER_BLOCK // IN_FLIGHT, self._send_heartbeats)

    def _measured(self, samples: _Samples, times: int, send: Callable[[], int]) -> None:
        """Add the processor time of the active controller."""
        before = self._cluster.processor_seconds(self._active)
        samples.requests += sum(send() for _ in range(times))
        samples.processor_seconds += self._cluster.processor_seconds(self._active) - before

    def _create(self) -> int:
        self._number += 1
        request = create_topics([new_topic(f"{_team(42)}.orders-of-region-{self._number}")])
        seconds, response = self._application.timed_ask(request)
        check_created(response)
        self.created.latencies.append(seconds)
        return 1

    def _send_heartbeats(self) -> int:
        for response in self._broker.ask_all([self._heartbeat] * IN_FLIGHT):
            _check(response.error_code)
        return IN_FLIGHT


def _check(*codes: Any) -> None:
    """Raise RuntimeError if something was refused: the figures would not be those of what was asked."""
    refused = {code for code in codes if code is not ErrorCode.none}
    if refused:
        raise RuntimeError(f"refused: {', '.join(sorted(code.name for code in refused))}")
