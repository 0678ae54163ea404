"""A cluster in plaintext is moved to TLS, with certificates of its own authority, by edits of its listeners."""

import socket

import pytest
from confluent_kafka.admin import AdminClient, NewTopic
from kit.ledger import SteadyProducer, consume_numbers
from kit.operators.operated import BROKER_PORT, BROKERS, CONTROLLERS_FIRST, QUORUM, Object, Operated
from kit.rotation import lets_in

pytestmark = pytest.mark.timeout(1800)

IDS = tuple(range(CONTROLLERS_FIRST, CONTROLLERS_FIRST + 3))
BROKER_IDS = (0, 1)
TLS_PORT = BROKER_PORT + 1
FORMED_TIMEOUT_S = 300
MOVED_TIMEOUT_S = 900
PAUSE_S_MAX = 90


def settled(operated: Operated) -> bool:
    return operated.settled(*IDS) and operated.brokers_settled(*BROKER_IDS)


def of_controllers(operated: Operated, *names: str) -> list[Object]:
    listeners = {
        "CONTROLLER": {"name": "CONTROLLER", "port": operated.port},
        "SECURED": {
            "name": "SECURED",
            "port": operated.port + 1,
            "protocol": "SSL",
            "tls": {"clientAuth": "required"},
        },
    }
    return [listeners[name] for name in names]


def of_brokers(operated: Operated, *names: str) -> list[Object]:
    inside = operated.internal_listener()
    listeners = {
        "PLAINTEXT": inside,
        "TLS": {**inside, "name": "TLS", "port": TLS_PORT, "protocol": "SSL"},
    }
    return [listeners[name] for name in names]


def bootstrap(operated: Operated, port: int) -> str:
    return ",".join(f"{operated.agent.address_of(f'{BROKERS}-{node_id}')}:{port}" for node_id in BROKER_IDS)


def is_open(address: str, port: int) -> bool:
    try:
        socket.create_connection((address, port), timeout=5).close()
    except OSError:
        return False
    return True


def test_a_cluster_moves_from_plaintext_to_tls(operated: Operated) -> None:
    operated.create(listeners=of_controllers(operated, "CONTROLLER"))
    operated.create_brokers(replicas=len(BROKER_IDS), listeners=of_brokers(operated, "PLAINTEXT"))
    operated.start_operator()
    operated.wait(lambda: settled(operated), "the cluster", FORMED_TIMEOUT_S)
    admin = AdminClient({"bootstrap.servers": bootstrap(operated, BROKER_PORT)})
    topics = [NewTopic(name, num_partitions=1, replication_factor=2) for name in ("plain", "secured")]
    for created in admin.create_topics(topics).values():
        created.result()

    with SteadyProducer(bootstrap(operated, BROKER_PORT), "plain") as plain:
        # The new listeners come first at once: the operator goes through the stages.
        operated.patch(listeners=of_controllers(operated, "SECURED", "CONTROLLER"))
        operated.patch_brokers(listeners=of_brokers(operated, "TLS", "PLAINTEXT"))
        operated.wait(lambda: settled(operated), "nodes to connect by TLS", MOVED_TIMEOUT_S)
    properties = operated.core.read_namespaced_config_map(f"{BROKERS}-0", operated.namespace).data[
        "server.properties"
    ]
    assert "inter.broker.listener.name=TLS\n" in properties
    assert "controller.listener.names=SECURED\n" in properties
    authority = operated.directory / "ca.crt"
    trusted = operated.core.read_namespaced_config_map(f"{QUORUM}-ca-cert", operated.namespace)
    authority.write_text(trusted.data["ca.crt"])
    secured = {"security.protocol": "ssl", "ssl.ca.location": str(authority)}
    with SteadyProducer(bootstrap(operated, TLS_PORT), "secured", secured) as producer:
        operated.patch(listeners=of_controllers(operated, "SECURED"))
        operated.patch_brokers(listeners=of_brokers(operated, "TLS"))
        operated.wait(lambda: settled(operated), "no listener in plaintext", MOVED_TIMEOUT_S)
    for each, topic in ((plain, "plain"), (producer, "secured")):
        assert not each.failures
        assert each.acknowledged
        assert each.pauses.longest_s < PAUSE_S_MAX
        kept = set(consume_numbers(bootstrap(operated, TLS_PORT), topic, (0,), secured))
        assert set(each.acknowledged) <= kept, f"records of {topic} are lost"
    for node_id in IDS:
        assert not is_open(operated.agent.address_of(f"{QUORUM}-{node_id}"), operated.port)
    for node_id in BROKER_IDS:
        address = operated.agent.address_of(f"{BROKERS}-{node_id}")
        assert not is_open(address, BROKER_PORT)
        assert lets_in(f"{address}:{TLS_PORT}", authority)
    assert not operated.operators[-1].errors()
