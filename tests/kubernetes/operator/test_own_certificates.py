"""TLS between all nodes without a certificate in the manifests: the operator issues them, and renews them."""

import base64
import socket
import ssl

import pytest
from cryptography import x509
from kit.operators.operated import BROKER_PORT, BROKERS, CONTROLLERS_FIRST, QUORUM, Operated
from quorate_operator.planning.cluster import Address

FIRST, SECOND, THIRD = range(CONTROLLERS_FIRST, CONTROLLERS_FIRST + 3)
CONTROLLERS_SECRET, BROKERS_SECRET = f"{QUORUM}-controller-tls", f"{BROKERS}-in-tls"
AUTHORITY, FOR_CLIENTS = f"{QUORUM}-ca", f"{QUORUM}-ca-cert"
FORMED_TIMEOUT_S = 300
RENEWED_TIMEOUT_S = 300
REPLACED_TIMEOUT_S = 900
CONNECT_TIMEOUT_S = 30
OTHER_HOST = "kafka.example.com"


@pytest.fixture
def secured(operated: Operated) -> Operated:
    """Three controllers and a broker on SSL listeners that name neither a Secret nor an issuer."""
    listener = {"name": "CONTROLLER", "port": operated.port, "protocol": "SSL"}
    # No client has to follow a new authority.
    operated.create(listeners=[{**listener, "tls": {"clientAuth": "required"}}], authority={"leadTime": "0s"})
    inside = {**operated.internal_listener(), "name": "IN", "protocol": "SSL"}
    operated.create_brokers(listeners=[inside])
    operated.start_operator()
    operated.wait(
        lambda: operated.settled(FIRST, SECOND, THIRD) and operated.brokers_settled(0),
        "the cluster",
        FORMED_TIMEOUT_S,
    )
    return operated


def secret_of(operated: Operated, name: str) -> dict[str, str]:
    data = operated.core.read_namespaced_secret(name, operated.namespace).data
    return {key: base64.b64decode(value).decode() for key, value in data.items()}


def authorities_for_clients(operated: Operated) -> str:
    return str(operated.core.read_namespaced_config_map(FOR_CLIENTS, operated.namespace).data["ca.crt"])


def shown_by(operated: Operated, address: Address) -> str | None:
    """The certificate of a node, in PEM, if it is one that clients trust; None if the node does not answer."""
    trusting = ssl.create_default_context(cadata=authorities_for_clients(operated))
    trusting.check_hostname = False  # the node has a name in no DNS
    try:
        with (
            socket.create_connection((address.host, address.port), CONNECT_TIMEOUT_S) as connection,
            trusting.wrap_socket(connection) as secured,
        ):
            shown = secured.getpeercert(binary_form=True)
    except (ConnectionError, TimeoutError):
        return None
    assert shown is not None
    return ssl.DER_cert_to_PEM_cert(shown)


def hosts_of(certificate: str) -> set[str]:
    parsed = x509.load_pem_x509_certificate(certificate.encode())
    names = parsed.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    return {*names.get_values_for_type(x509.DNSName), *map(str, names.get_values_for_type(x509.IPAddress))}


def test_a_cluster_runs_and_renews_with_certificates_of_its_own(secured: Operated) -> None:
    operated, namespace = secured, secured.namespace
    owners = {
        name: operated.core.read_namespaced_secret(name, namespace).metadata.owner_references[0].name
        for name in (AUTHORITY, CONTROLLERS_SECRET, BROKERS_SECRET)
    }
    assert owners == {AUTHORITY: QUORUM, CONTROLLERS_SECRET: QUORUM, BROKERS_SECRET: BROKERS}
    assert authorities_for_clients(operated) == secret_of(operated, BROKERS_SECRET)["ca.crt"]
    status = (operated.brokers() or {})["status"]
    assert status["listeners"][0]["authorities"] == authorities_for_clients(operated)
    mounted = {
        volume.secret.secret_name
        for pod in operated.core.list_namespaced_pod(namespace).items
        for volume in pod.spec.volumes
        if volume.secret is not None
    }
    assert mounted == {CONTROLLERS_SECRET, BROKERS_SECRET}
    broker = Address(operated.agent.address_of(f"{BROKERS}-0"), BROKER_PORT)
    controller = Address(operated.agent.address_of(f"{QUORUM}-{FIRST}"), operated.port)
    first = {address: secret_of(operated, name)["tls.crt"] for address, name in places(broker, controller)}
    assert f"*.{BROKERS}.{namespace}.svc" in hosts_of(first[broker])
    assert shown_by(operated, broker) == first[broker]

    pods, leader = operated.pod_uids(), operated.status()["quorum"]["leaderId"]
    inside = {**operated.internal_listener(), "name": "IN", "protocol": "SSL"}
    # In a DNS that the operator does not have.
    outside = {"name": "OUT", "port": BROKER_PORT + 1, "advertisedHost": OTHER_HOST, "protocol": "SSL"}
    outside["exposure"] = {"verification": "None"}
    operated.patch_brokers(listeners=[{**inside, "tls": {"duration": "48h"}}, outside])
    operated.patch(
        listeners=[
            {
                "name": "CONTROLLER",
                "port": operated.port,
                "protocol": "SSL",
                "tls": {"clientAuth": "required", "duration": "48h"},
            }
        ]
    )
    for address, name in places(broker, controller):
        operated.wait(
            lambda name=name, address=address: secret_of(operated, name)["tls.crt"] != first[address],
            "another certificate",
            RENEWED_TIMEOUT_S,
        )
    for address, name in places(broker, controller):
        renewed = secret_of(operated, name)["tls.crt"]
        operated.wait(
            lambda address=address, renewed=renewed: shown_by(operated, address) == renewed,
            "a node that shows it",
            RENEWED_TIMEOUT_S,
        )
    operated.wait(lambda: operated.brokers_settled(0), "the broker to be settled", RENEWED_TIMEOUT_S)
    operated.wait(lambda: operated.settled(FIRST, SECOND, THIRD), "the controllers", RENEWED_TIMEOUT_S)
    assert OTHER_HOST in hosts_of(secret_of(operated, f"{BROKERS}-out-tls")["tls.crt"])
    assert operated.status()["quorum"]["leaderId"] == leader
    controllers = set(uids_of_controllers(operated).values())
    assert controllers <= pods, "controllers follow a renewed certificate without a restart"
    assert not operated.operators[-1].errors()
    assert "PRIVATE KEY" not in operated.operators[-1].log.read_text()


def test_a_deleted_authority_is_replaced_while_all_nodes_trust_each_other(secured: Operated) -> None:
    operated, namespace = secured, secured.namespace
    broker = Address(operated.agent.address_of(f"{BROKERS}-0"), BROKER_PORT)
    former, shown = authorities_for_clients(operated), secret_of(operated, BROKERS_SECRET)["tls.crt"]
    operated.core.delete_namespaced_secret(AUTHORITY, namespace)
    operated.wait(lambda: authorities_for_clients(operated) != former, "another authority", RENEWED_TIMEOUT_S)
    assert former in authorities_for_clients(operated)
    assert shown_by(operated, broker) in (shown, None)

    operated.wait(
        lambda: former not in authorities_for_clients(operated),
        "the end of the former one",
        REPLACED_TIMEOUT_S,
    )
    operated.wait(
        lambda: operated.settled(FIRST, SECOND, THIRD) and operated.brokers_settled(0),
        "the cluster to be settled",
        REPLACED_TIMEOUT_S,
    )
    assert shown_by(operated, broker) == secret_of(operated, BROKERS_SECRET)["tls.crt"] != shown
    assert not operated.events("CertificateNotIssued")
    assert not operated.operators[-1].errors()


def places(broker: Address, controller: Address) -> list[tuple[Address, str]]:
    return [(broker, BROKERS_SECRET), (controller, CONTROLLERS_SECRET)]


def test_a_java_controller_runs_with_a_certificate_of_the_cluster(operated: Operated) -> None:
    """It connects to controllers of Quorate and they to it; a renewal restarts it, and not the others."""
    listener = {"name": "CONTROLLER", "port": operated.port, "protocol": "SSL"}
    settings = {"nodes": [{"nodeId": FIRST, "implementation": "java"}], "authority": {"leadTime": "0s"}}
    operated.create(listeners=[{**listener, "tls": {"clientAuth": "required"}}], **settings)
    operated.start_operator()
    operated.wait(lambda: operated.settled(FIRST, SECOND, THIRD), "the quorum", FORMED_TIMEOUT_S)
    java = Address(operated.agent.address_of(f"{QUORUM}-{FIRST}"), operated.port)
    first, pods = secret_of(operated, CONTROLLERS_SECRET)["tls.crt"], uids_of_controllers(operated)
    assert shown_by(operated, java) == first

    operated.patch(listeners=[{**listener, "tls": {"clientAuth": "required", "duration": "48h"}}])
    operated.wait(
        lambda: shown_by(operated, java) not in (first, None), "another certificate", RENEWED_TIMEOUT_S
    )
    operated.wait(lambda: operated.settled(FIRST, SECOND, THIRD), "the quorum", RENEWED_TIMEOUT_S)
    assert shown_by(operated, java) == secret_of(operated, CONTROLLERS_SECRET)["tls.crt"]
    restarted = {name for name, uid in uids_of_controllers(operated).items() if pods[name] != uid}
    assert restarted == {f"{QUORUM}-{FIRST}"}
    assert not operated.operators[-1].errors()


def uids_of_controllers(operated: Operated) -> dict[str, str]:
    return {
        str(pod.metadata.name): str(pod.metadata.uid)
        for pod in operated.core.list_namespaced_pod(operated.namespace).items
        if pod.metadata.name.startswith(f"{QUORUM}-")
    }
