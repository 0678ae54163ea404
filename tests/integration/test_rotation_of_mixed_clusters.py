"""Certificates, authorities and passwords of a mixed cluster are exchanged while clients ask without pause.

A Java controller, two of ours, and two stock brokers, all with SASL_SSL. Ours read changed files by themselves.
Java's nodes read a key store again when a dynamic config names it; for what they trust, and for logins, they restart.
"""

import asyncio
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from kit.cluster import Cluster, manifests
from kit.java.cluster import PLAIN, SCRAM
from kit.java.tls import Certificates, signed
from kit.ledger import SteadyProducer, consume_numbers
from kit.rotation import (
    AdminRequests,
    BrokerRequests,
    ControllerRequests,
    NodeStores,
    certificate_in,
    lets_in,
    retries_counted,
    served_at,
)
from kit.secured import allow
from kit.waiting import HANG_S, eventually
from quorate_admin.client import AdminClient
from quorate_admin.errors import AuthenticationError
from quorate_admin.security.config import SecurityConfig
from quorate_admin.types.configs import AlterConfigOp, ConfigResource
from quorate_admin.types.credentials import UserScramCredentialUpsertion
from quorate_admin.types.topics import NewTopic
from quorate_protocol.kafka.enums import AclOperation, ConfigResourceType, ScramMechanism

pytestmark = [pytest.mark.integration, pytest.mark.timeout(600)]

CLIENT, TOPIC = "client", "produced"
LISTENERS = ("controller", "plaintext")
ANSWERS = 6
"""The requests of each client, begun after a step, that have to complete before the next step."""


@dataclass(slots=True)
class Rotated:
    """The cluster, and what its nodes and clients have at the moment."""

    cluster: Cluster
    certificates: Certificates
    stores: dict[int, NodeStores]
    logins: dict[str, str] = field(default_factory=lambda: {"node": "node-secret"})
    """The passwords of the users that nodes may log in as."""
    login: str = "node"
    password: str = "client-secret"
    """The principal of the client."""
    count: int = 0

    def configure(self, node_id: int) -> None:
        """From its next start on, the node has the logins of now."""
        login = f'username="{self.login}" password="{self.logins[self.login]}"'
        users = " ".join(f'user_{user}="{password}"' for user, password in self.logins.items())
        of_listeners = {}
        for listener in LISTENERS:
            of_listeners[f"listener.name.{listener}.plain.sasl.jaas.config"] = (
                f"{PLAIN} required {login} {users};"
            )
            of_listeners[f"listener.name.{listener}.scram-sha-512.sasl.jaas.config"] = f"{SCRAM} required;"
            of_listeners[f"listener.name.{listener}.ssl.client.auth"] = "requested"
        self.cluster.configure(
            node_id,
            {
                **of_listeners,
                "listener.security.protocol.map": "CONTROLLER:SASL_SSL,PLAINTEXT:SASL_SSL",
                "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-512",
                "sasl.mechanism.controller.protocol": "PLAIN",
                "sasl.mechanism.inter.broker.protocol": "PLAIN",
                "ssl.keystore.type": "PEM",
                "ssl.keystore.location": str(self.stores[node_id].keystore),
                "ssl.truststore.type": "PEM",
                "ssl.truststore.location": str(self.stores[node_id].truststore),
                "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
                "super.users": ";".join(f"User:{user}" for user in self.logins),
            },
        )

    @property
    def authorities(self) -> Path:
        """What clients trust: both authorities."""
        both = self.certificates.authority.parent / "both.pem"
        both.write_text(
            self.certificates.authority.read_text() + self.certificates.other_authority.read_text()
        )
        return both

    def as_node(self) -> SecurityConfig:
        """The security of a client that logs in as nodes do."""
        return self._client("PLAIN", PLAIN, self.login, self.logins[self.login])

    def as_client(self, password: str) -> SecurityConfig:
        """The security of the client with SCRAM."""
        return self._client("SCRAM-SHA-512", SCRAM, CLIENT, password)

    def _client(self, mechanism: str, module: str, user: str, password: str) -> SecurityConfig:
        return SecurityConfig.from_properties(
            {
                "security.protocol": "SASL_SSL",
                "ssl.truststore.type": "PEM",
                "ssl.truststore.location": str(self.authorities),
                "sasl.mechanism": mechanism,
                "sasl.jaas.config": f'{module} required username="{user}" password="{password}";',
            }
        )

    def producer(self) -> SteadyProducer:
        """The client as a producer that begins now."""
        properties = self._librdkafka("SCRAM-SHA-512", CLIENT, self.password)
        return SteadyProducer(self.cluster.bootstrap_servers, TOPIC, properties)

    def consumed(self) -> list[int]:
        """What producers have produced, read with the login of nodes: the client may use no groups."""
        properties = self._librdkafka("PLAIN", self.login, self.logins[self.login])
        return consume_numbers(self.cluster.bootstrap_servers, TOPIC, [0], properties)

    def _librdkafka(self, mechanism: str, user: str, password: str) -> dict[str, str]:
        return {
            "security.protocol": "SASL_SSL",
            "ssl.ca.location": str(self.authorities),
            "sasl.mechanisms": mechanism,
            "sasl.username": user,
            "sasl.password": password,
        }

    def observe_as_node(self) -> None:
        """Have the cluster's own questions asked by the login of now."""
        self.cluster.controller_security = self.cluster.broker_security = self.as_node()

    def restart(self, *node_ids: int) -> None:
        """Restart nodes one by one, each when the one before it serves."""
        for node_id in node_ids:
            self.configure(node_id)
            self.cluster.terminate(node_id)
            self.cluster.start(node_id)
            self.cluster.await_quorum()
            self.cluster.await_unfenced(*self.cluster.brokers)

    @property
    def java(self) -> list[int]:
        """Nodes that read no file by themselves."""
        return [*self.cluster.controllers_in("java"), *self.cluster.brokers]

    def renew(self, authority: str) -> None:
        """Give all nodes new certificates, and wait until they show them."""
        self.count += 1
        for node_id, files in self.stores.items():
            files.show(self.certificates, f"{node_id}-{self.count}", authority)
        for node_id in self.java:
            asyncio.run(self._read_key_store_again(node_id))
        for node_id, files in self.stores.items():
            eventually(
                lambda files=files, node_id=node_id: (
                    served_at(self.cluster.address(node_id)) == certificate_in(files.keystore)
                ),
                HANG_S,
                f"the new certificate of {node_id}",
                lambda: self.cluster.describe("not shown"),
            )

    async def _read_key_store_again(self, node_id: int) -> None:
        listener = LISTENERS[node_id in self.cluster.brokers]
        key = f"listener.name.{listener}.ssl.keystore.location"
        change = AlterConfigOp(name=key, value=str(self.stores[node_id].keystore))
        resource = ConfigResource(ConfigResourceType.BROKER, str(node_id))
        async with self._at_controllers() as admin:
            (await admin.incremental_alter_configs({resource: [change]})).raise_any()

    def trust(self, *authorities: Path) -> None:
        """Have all nodes trust these authorities, those of Java by a restart, and wait until they do."""
        for files in self.stores.values():
            files.trust(*authorities)
        self.restart(*self.java)

    def await_let_in(self, shown: Path, *, is_let_in: bool) -> None:
        """Wait until all nodes let a client with a certificate in, or none does."""
        for node_id in self.stores:
            address = self.cluster.address(node_id)
            eventually(
                lambda address=address: lets_in(address, self.authorities, shown) is is_let_in,
                HANG_S,
                f"{node_id} to {'trust' if is_let_in else 'refuse'} {shown.name}",
                lambda: self.cluster.describe("as before"),
            )

    def _at_controllers(self) -> AdminClient:
        return AdminClient(
            bootstrap_controllers=self.cluster.bootstrap_controllers.split(","), security=self.as_node()
        )

    def _at_brokers(self) -> AdminClient:
        return AdminClient(
            bootstrap_servers=self.cluster.bootstrap_servers.split(","), security=self.as_node()
        )

    def set_password(self, password: str) -> None:
        """Give the client's user a password."""

        async def alter() -> None:
            credential = UserScramCredentialUpsertion(
                user=CLIENT, mechanism=ScramMechanism.SCRAM_SHA_512, password=password.encode()
            )
            async with self._at_brokers() as admin:
                (await admin.alter_user_scram_credentials([credential])).raise_any()

        asyncio.run(alter())
        self.password = password

    def is_let_in(self, security: SecurityConfig, node_id: int) -> bool:
        """Whether a node takes a login."""
        role = "servers" if node_id in self.cluster.brokers else "controllers"

        async def observed() -> bool:
            async with AdminClient(
                **{f"bootstrap_{role}": [self.cluster.address(node_id)]},
                security=security,
                follow_advertised=False,
                retries=0,
            ) as admin:
                try:
                    await admin.describe_cluster()
                except AuthenticationError:
                    return False
                return True

        return asyncio.run(observed())

    def topics(self) -> set[str]:
        """The topics that brokers know."""

        async def list_them() -> set[str]:
            async with self._at_brokers() as admin:
                return set(await admin.list_topics())

        return asyncio.run(list_them())

    def create_topic(self) -> None:
        async def create() -> None:
            topic = NewTopic(name=TOPIC, partitions=1, replication_factor=len(self.cluster.brokers))
            async with self._at_brokers() as admin:
                (await admin.create_topics([topic])).raise_any()

        asyncio.run(create())


@pytest.fixture(scope="module")
def rotated(tmp_path_factory: pytest.TempPathFactory, kafka_jars: Path) -> Iterator[Rotated]:
    """The running cluster with its client's user."""
    directory = tmp_path_factory.mktemp("rotated")
    certificates = Certificates.create(directory / "certificates")
    cluster = Cluster.settle(directory / "cluster", kafka_jars, manifests(java=(3000,), brokers=2))
    try:
        nodes = (*cluster.controllers, *cluster.brokers)
        stores = {node: NodeStores.create(directory / "stores" / str(node), certificates) for node in nodes}
        made = Rotated(cluster, certificates, stores)
        for node_id in nodes:
            made.configure(node_id)
        made.observe_as_node()
        cluster.format(*nodes)
        cluster.start(*nodes)
        cluster.await_quorum()
        allow(cluster, made.as_node(), f"User:{CLIENT}", AclOperation.ALL)
        cluster.start_all()
        made.set_password(made.password)
        made.create_topic()
        yield made
    finally:
        cluster.close()


@dataclass(frozen=True, slots=True)
class Clients:
    """Clients that ask without pause."""

    admins: tuple[AdminRequests, ...]
    producer: SteadyProducer

    def await_responses(self) -> None:
        """Wait until each has got answers to requests that it began from now on."""
        counts = [admin.tally.succeeded for admin in self.admins]
        produced = len(self.producer.acknowledged)

        def observed() -> bool:
            responses = [admin.tally.succeeded for admin in self.admins]
            return (
                all(now > then + ANSWERS for now, then in zip(responses, counts, strict=True))
                and len(self.producer.acknowledged) > produced + ANSWERS
            )

        eventually(observed, 2 * HANG_S, "more answers", lambda: [admin.tally for admin in self.admins])


@contextmanager
def clients(rotated: Rotated) -> Iterator[Clients]:
    """Clients of controllers and brokers, none of whose requests may be lost."""
    cluster, security = rotated.cluster, rotated.as_client(rotated.password)
    at_controllers = ControllerRequests(cluster.bootstrap_controllers, security)
    at_brokers = BrokerRequests(cluster.bootstrap_servers, security)
    producer = rotated.producer()
    with retries_counted(), at_controllers, at_brokers, producer:
        asking = Clients((at_controllers, at_brokers), producer)
        asking.await_responses()
        yield asking
        asking.await_responses()
    sys.stdout.write(
        f"\ncontrollers: {at_controllers.tally}; brokers: {at_brokers.tally}, not known at once: "
        f"{[round(gap_s, 3) for gap_s in at_brokers.unknown_s]}; produced {len(producer.acknowledged)}\n"
    )
    assert at_controllers.tally.failed == at_brokers.tally.failed == producer.failures == []
    assert set(producer.acknowledged) <= set(rotated.consumed())
    assert set(at_brokers.acknowledged) <= rotated.topics()


def test_certificates_are_renewed(rotated: Rotated) -> None:
    """Clients and nodes see no failure while the certificates of running nodes change."""
    cluster = rotated.cluster
    pids = [cluster.pid(store) for store in rotated.stores]
    quorum = cluster.await_quorum()
    with clients(rotated):
        rotated.renew("ca")
    assert [cluster.pid(store) for store in rotated.stores] == pids
    assert cluster.await_quorum().leader_epoch == quorum.leader_epoch


def test_the_authority_is_exchanged(rotated: Rotated) -> None:
    """The three steps of docs/operations/security.md lose nothing."""
    certificates = rotated.certificates
    other = signed(certificates.authority.parent, "other-client", authority="other-ca")
    with clients(rotated) as asking:
        rotated.trust(certificates.authority, certificates.other_authority)
        rotated.await_let_in(other, is_let_in=True)
        asking.await_responses()
        rotated.renew("other-ca")
        asking.await_responses()
        rotated.trust(certificates.other_authority)
        rotated.await_let_in(certificates.client, is_let_in=False)
        rotated.await_let_in(other, is_let_in=True)


def test_the_password_of_a_client_is_exchanged(rotated: Rotated) -> None:
    cluster, old, new = rotated.cluster, rotated.password, "another-client-secret"
    with clients(rotated) as asking:
        rotated.set_password(new)
        for node_id in rotated.stores:
            eventually(
                lambda node_id=node_id: rotated.is_let_in(rotated.as_client(new), node_id),
                HANG_S,
                f"{node_id} to take the new password",
            )
            assert not rotated.is_let_in(rotated.as_client(old), node_id)
        asking.await_responses()
        for admin in asking.admins:
            admin.security = rotated.as_client(new)
        asking.producer.log_in(CLIENT, new)
        rotated.restart(*cluster.brokers)  # all connected clients log in again


def test_the_login_of_nodes_is_exchanged(rotated: Rotated) -> None:
    """The three rolls of docs/operations/security.md lose nothing."""
    former = rotated.as_node()
    with clients(rotated) as asking:
        rotated.logins["node2"] = "node2-secret"
        rotated.restart(*rotated.stores)
        asking.await_responses()
        rotated.login = "node2"
        rotated.observe_as_node()
        rotated.restart(*rotated.stores)
        asking.await_responses()
        del rotated.logins["node"]
        rotated.restart(*rotated.stores)
    for node_id in rotated.stores:
        assert rotated.is_let_in(rotated.as_node(), node_id)
        assert not rotated.is_let_in(former, node_id)
