"""Where topics and users are reached, and what is refused of a connection that a manifest asks for."""

import base64
from dataclasses import replace
from types import SimpleNamespace
from typing import Any, cast

import pytest
from kit.reconciles import resource
from quorate_admin.config import Address
from quorate_admin.security.config import Mechanism, SecurityConfig
from quorate_operator.handlers.entities.claims import Claims
from quorate_operator.handlers.entities.targets import TargetKey, Targets, config_of_nodes
from quorate_operator.handlers.resources import ResourceStore
from quorate_operator.models.manifests import load_entity
from quorate_operator.models.secrets import FOR_SERVERS
from quorate_operator.models.selectors import EVERYTHING, LabelSelector
from quorate_operator.models.tenant_policy import TenantPolicy
from quorate_operator.planning.cluster import Address as NodeAddress
from quorate_operator.runtime.kubernetes.api import CONTROLLERS, Kind
from quorate_operator.security import client_security
from quorate_operator.web.snapshots import SnapshotRegistry
from quorate_protocol.kafka.enums import SecurityProtocol

Object = dict[str, Any]
PASSWORD = "a-kept-secret"


class Server:
    """An API server with some objects."""

    def __init__(self, **objects: Object) -> None:
        self.objects = objects
        self.asked: list[str] = []

    async def get(self, kind: Kind, _: str, name: str) -> Object | None:
        self.asked.append(f"{kind.name} {name}")
        return self.objects.get(name)


def quorum(**spec: Any) -> Object:
    """A KafkaController."""
    return resource(CONTROLLERS, "quorum", **spec)


def topic(**spec: Any) -> Object:
    """A KafkaTopic."""
    metadata = {"name": "orders", "namespace": "kafka", "uid": "t"}
    body = {"apiVersion": "quorate.dev/v1alpha1", "kind": "KafkaTopic", "metadata": metadata}
    return {**body, "spec": spec}


async def find(
    server: Server,
    body: Object,
    store: ResourceStore | None = None,
    selector: LabelSelector = EVERYTHING,
) -> Any:
    """The target of a resource."""
    targets = Targets(cast("Any", server), store or ResourceStore(), SnapshotRegistry(), selector)
    return await targets.find(TargetKey.of(body), load_entity(body, "here").spec)


def secret(**values: str) -> Object:
    """A Secret for bootstrap servers; `_` stands for `.`."""
    data = {key.replace("_", "."): base64.b64encode(text.encode()).decode() for key, text in values.items()}
    return {"metadata": {"uid": "s", "labels": {FOR_SERVERS: "true"}}, "data": data}


async def test_a_cluster_that_was_not_seen_yet_is_asked_for() -> None:
    """No deletion is let go because resources are seen in no order."""
    body = topic(cluster="quorum")
    server = Server(quorum=quorum())
    found = await find(server, body)
    assert (found.is_gone, found.failure.code, found.failure.is_retried) == (False, "NoBroker", True)
    assert server.asked == ["KafkaController quorum"]
    assert (await find(Server(), body)).is_gone
    going = quorum()
    going["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    assert (await find(Server(quorum=going), body)).is_gone


async def test_a_cluster_lists_the_namespaces_whose_resources_it_admits() -> None:
    """Also while it can't be reached: a hibernated cluster has not shut them out."""
    body = topic(cluster="quorum", clusterNamespace="clusters")
    key = TargetKey.of(body)
    assert (key.namespace, key.cluster) == ("clusters", "quorum")
    for state in ("Running", "Hibernated"):
        listed = await find(Server(quorum=quorum(entityNamespaces=["kafka"], state=state)), body)
        assert listed.admits("kafka", key)
        assert listed.admits("clusters", key)
        assert not listed.admits("other", key)
    assert (await find(Server(quorum=quorum(entityNamespaces=["*"])), body)).admits("other", key)
    for server in (Server(quorum=quorum()), Server()):
        assert not (await find(server, body)).admits("kafka", key)


async def test_a_topic_waits_while_its_cluster_is_another_operators() -> None:
    body, selector = topic(cluster="quorum"), LabelSelector.parse("operator=blue")
    kept = quorum()
    kept["metadata"]["labels"] = {"operator": "green"}
    going = {**kept, "metadata": {**kept["metadata"], "deletionTimestamp": "2026-01-01T00:00:00Z"}}
    for other in (kept, going):
        found = await find(Server(quorum=other), body, selector=selector)
        assert (found.failure.code, found.failure.is_retried, found.is_gone) == ("SplitCluster", True, False)
        assert "those of KafkaController quorum do not match 'operator=blue'" in found.failure.message
    kept["metadata"]["labels"] = {"operator": "blue"}
    assert (await find(Server(quorum=kept), body, selector=selector)).failure.code == "NoBroker"


async def test_a_hibernated_cluster_is_no_alarm() -> None:
    found = await find(Server(quorum=quorum(state="Hibernated")), topic(cluster="quorum"))
    assert (found.failure.code, found.failure.is_retried, found.is_gone) == ("Hibernated", True, False)


async def test_bootstrap_servers_are_the_only_addresses() -> None:
    body = topic(
        bootstrapServers=["a:9092", "[::1]:9093"],
        security={"protocol": "SASL_PLAINTEXT", "mechanism": "PLAIN", "secretName": "login"},
    )
    found = await find(Server(login=secret(username="admin", password=PASSWORD)), body)
    assert found.config.bootstrap_servers == (Address("a", 9092), Address("::1", 9093))
    assert found.config.follow_advertised is False
    assert found.config.security.protocol is SecurityProtocol.SASL_PLAINTEXT
    assert found.reserved == {"User:admin"}
    assert PASSWORD not in repr(found)


@pytest.mark.parametrize(
    ("values", "message"),
    [
        (None, "no such Secret"),
        ({"username": "a"}, "the Secret has no password"),
        ({"username": "a", "password": PASSWORD, "tls_crt": "x"}, "must have both tls.crt and tls.key"),
    ],
)
async def test_a_secret_that_can_not_be_used_is_told(values: dict[str, str] | None, message: str) -> None:
    """The message names the field and the key, and no value."""
    body = topic(
        bootstrapServers=["a:9092"],
        security={"protocol": "SASL_SSL", "mechanism": "SCRAM-SHA-512", "secretName": "login"},
    )
    server = Server() if values is None else Server(login=secret(**values))
    found = await find(server, body)
    assert message in found.failure.message
    assert "spec.security.secretName: 'login'" in found.failure.message
    assert PASSWORD not in found.failure.message
    assert not found.failure.is_retried
    assert found.is_secret_gone is (values is None)


@pytest.mark.parametrize("labels", [None, {}, {FOR_SERVERS: "false"}, {"quorate.dev/for-listeners": "true"}])
async def test_a_secret_is_used_only_if_its_owner_labelled_it(labels: dict[str, str] | None) -> None:
    """A user who may create topics can't find out which Secrets exist."""
    body = topic(
        bootstrapServers=["a:9092"],
        security={"protocol": "SASL_SSL", "mechanism": "SCRAM-SHA-512", "secretName": "login"},
    )
    kept = secret(username="admin", password=PASSWORD)
    kept["metadata"]["labels"] = labels
    found, missing = [(await find(server, body)) for server in (Server(login=kept), Server())]
    assert found.config is None
    assert (found.failure.code, found.failure.is_retried) == ("SecretMissing", False)
    assert found.failure == missing.failure
    assert 'no such Secret with the label quorate.dev/for-bootstrap-servers: "true"' in found.failure.message


def test_a_topic_that_the_policy_refuses_is_named() -> None:
    policy = TenantPolicy(servers=("kafka.example.com:9093",))
    targets = Targets(cast("Any", None), ResourceStore(), SnapshotRegistry(), EVERYTHING, policy)
    assert targets.refusal_of(topic(bootstrapServers=["kafka.example.com:9093"])) is None
    assert targets.refusal_of(topic(cluster="quorum")) is None
    message = targets.refusal_of(topic(bootstrapServers=["kafka.example.com:9093", "evil:1"]))
    assert message is not None
    assert message.startswith("spec.bootstrapServers[1]: 'evil:1': must be one of kafka.example.com:9093; ")


def test_a_secret_names_no_file() -> None:
    spec = load_entity(
        topic(
            bootstrapServers=["a:9092"],
            security={"protocol": "SASL_SSL", "mechanism": "SCRAM-SHA-256", "secretName": "login"},
        ),
        "here",
    ).spec
    values = {
        "username": 'a" tokenauth="true',
        "password": PASSWORD,
        "ca.crt": "-----BEGIN CERTIFICATE-----",
        "ssl.truststore.location": "/etc/passwd",
    }
    config = client_security(spec.security, values)
    assert config.sasl is not None
    assert (config.sasl.mechanism, config.sasl.username) == (Mechanism.SCRAM_SHA_256, values["username"])
    assert not config.sasl.is_token
    assert config.tls.truststore is not None
    assert (config.tls.truststore.location, config.tls.truststore.pem) == (None, values["ca.crt"])


def test_brokers_that_are_secured_alike_are_asked_together() -> None:
    """One client for many pods, whose certificates have different names."""
    plain = SecurityConfig()
    tls = SecurityConfig(protocol=SecurityProtocol.SSL)
    first, second, third = (NodeAddress(f"10.0.0.{host}", 9092) for host in (1, 2, 3))
    secured = {
        first: replace(tls, tls=replace(tls.tls, names={"10.0.0.1": "pod-1"})),
        second: replace(tls, tls=replace(tls.tls, names={"10.0.0.2": "pod-2"})),
        third: plain,
    }
    config = config_of_nodes([first, second, third], secured.get)
    assert config is not None
    assert [bootstrap_server.host for bootstrap_server in config.bootstrap_servers] == [
        "10.0.0.1",
        "10.0.0.2",
    ]
    assert config.security.tls.names == {"10.0.0.1": "pod-1", "10.0.0.2": "pod-2"}
    assert config_of_nodes([], secured.get) is None


async def test_who_may_not_be_kept_by_a_resource_and_who_gets_no_replicas(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Nodes can't be shut out, and brokers that leave stay empty."""
    store = ResourceStore()
    listener = {"name": "A", "sasl": {"username": "node", "secretName": "s"}}
    store.put(quorum(authorization={"superUsers": ["User:root"]}, listeners=[listener], state="Paused"))
    pool = quorum(controllers="quorum", decommission=[3], listeners=[{"sasl": {"username": "broker"}}])
    pool["kind"], pool["metadata"] = "KafkaBroker", {**pool["metadata"], "name": "brokers", "uid": "b"}
    store.put(pool)
    going = quorum(controllers="quorum", nodeIds={"first": 7}, replicas=2, storage={"onDeletion": "Delete"})
    deletion = {"name": "going", "uid": "g", "deletionTimestamp": "2026-01-01T00:00:00Z"}
    going["kind"], going["metadata"] = "KafkaBroker", {**going["metadata"], **deletion}
    store.put(going)
    targets = Targets(cast("Any", Server()), store, SnapshotRegistry())
    broker = NodeAddress("broker", 9092)
    module = "quorate_operator.handlers.entities.targets"
    monkeypatch.setattr(f"{module}._addresses_of_brokers", lambda *_: {1: broker})
    body = topic(cluster="quorum")
    key = TargetKey.of(body)
    targets.put(key.event_key, cast("Any", None))
    assert (await targets.find(key, load_entity(body, "here").spec)).failure is not None
    infrastructure = SimpleNamespace(security_of=lambda _: None)
    monkeypatch.setattr(targets, "_infrastructures", {key.event_key: infrastructure})
    monkeypatch.setattr(
        targets, "_snapshots", SimpleNamespace(find=lambda _: SimpleNamespace(desired=object()))
    )
    found = await targets.find(key, load_entity(body, "here").spec)
    assert found.reserved == {"User:root", "User:node", "User:broker"}
    assert (found.decommissioned, found.is_paused, found.addresses) == ({3, 7, 8}, True, {1: broker})


def test_a_name_has_one_resource_in_all_namespaces() -> None:
    """Two ways to name one cluster do not make two handlers."""
    claims = Claims()

    def body(namespace: str, created: str) -> Object:
        metadata = {"namespace": namespace, "name": "t", "uid": namespace, "creationTimestamp": created}
        return {"kind": "KafkaTopic", "metadata": metadata}

    young, old = body("a", "2026-01-02T00:00:00Z"), body("b", "2026-01-01T00:00:00Z")
    claims.put("c", young, "orders")
    assert claims.other_holder("c", young, "orders") is None
    claims.put("c", old, "orders")
    assert claims.other_holder("c", young, "orders") == "b/t"
    assert claims.other_holder("c", old, "orders") is None
    claims.put("other", old, "orders")
    assert claims.other_holder("c", young, "orders") is None
    claims.release("unknown")
