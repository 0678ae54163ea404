"""How the operator connects to pods and names of secured clusters, and whose certificates it takes."""

import ssl
from pathlib import Path

import pytest
from kit.desired_cluster import Make
from kit.fake_cluster import CLUSTER_ID, FakeCluster
from kit.java.tls import Certificates
from quorate_admin.client import AdminClient
from quorate_admin.errors import AdminError, AuthenticationError
from quorate_operator.gateway.node_clients import NodeClients
from quorate_operator.models.secrets import Secret
from quorate_operator.planning.cluster import Address, Role
from quorate_operator.runtime.kubernetes.addresses import SecuredAddresses
from quorate_operator.runtime.kubernetes.observation import NodeObjects
from quorate_protocol.kafka.enums import SecurityProtocol

SECURED = (
    "listeners: [{name: IN, protocol: SSL, port: 9092, tls: {secretName: cert}}, {name: PLAIN, port: 9095}, "
    "{name: OUT, port: 9094, protocol: SASL_SSL, advertisedHost: 'b{nodeId}.example.com', "
    "tls: {secretName: cert}, sasl: {username: broker, secretName: login}}]"
)


def secured(make: Make, authority: str = "x") -> SecuredAddresses:
    """The addresses of a pool, of which broker 0 has a pod."""
    certificate = Secret(values={"tls.crt": "x", "tls.key": "x", "ca.crt": authority})
    secrets = {"cert": certificate, "login": Secret(values={"broker": "hidden"})}
    cluster = make(brokers=SECURED, secrets=secrets)
    pod = {"metadata": {"name": "brokers-0"}, "status": {"podIP": "127.0.0.1"}}
    objects = NodeObjects(node_id=0, role=Role.BROKER, pool="brokers", pod=pod)
    return SecuredAddresses(cluster.context, cluster.desired, [objects])


def test_each_address_has_the_security_of_its_listener(make: Make) -> None:
    addresses = secured(make)
    pod = addresses.security_of(Address("127.0.0.1", 9092))
    assert pod is not None
    assert (pod.protocol, pod.sasl) == (SecurityProtocol.SSL, None)
    assert pod.tls.names == {"127.0.0.1": "brokers-0.brokers.kafka.svc"}
    name = addresses.security_of(Address("b2.example.com", 9094))
    assert name is not None
    assert name.sasl is not None
    assert (name.sasl.username, name.tls.names) == ("broker", {})
    for other in (
        Address("127.0.0.1", 9095),
        Address("b2.example.com", 9092),
        Address("c.example.com", 9094),
    ):
        assert addresses.security_of(other) is None
    assert "hidden" not in repr(name)


@pytest.mark.parametrize(
    ("names", "is_taken"), [("DNS:*.brokers.kafka.svc", True), ("DNS:*.other.kafka.svc,IP:127.0.0.1", False)]
)
async def test_the_certificate_of_a_pod_is_for_its_name(
    make: Make, tmp_path: Path, names: str, is_taken: bool
) -> None:
    made = Certificates.create(tmp_path / "certificates", names)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(made.server)
    addresses = secured(make, made.authority.read_text())
    async with FakeCluster((0,), ssl_context=context) as cluster:
        host, _, port = cluster.nodes[0].address.rpartition(":")
        listener = Address(host, 9092)
        contacts = NodeClients(lambda _: addresses.security_of(listener))
        try:
            client = contacts.client(Role.BROKER, Address(host, int(port)))
            if is_taken:
                assert (await client.describe_cluster()).cluster_id == CLUSTER_ID
            else:
                with pytest.raises(AuthenticationError, match="its certificate is not trusted"):
                    await client.describe_cluster()
        finally:
            await contacts.close()


async def test_a_connection_with_a_former_password_is_closed(make: Make) -> None:
    addresses = secured(make)
    known = [addresses.security_of(Address("127.0.0.1", 9092)), None]
    contacts = NodeClients(lambda _: known[0])
    at = Address("127.0.0.1", 9092)
    first = contacts.client(Role.BROKER, at)
    await contacts.retain({Role.BROKER: [at]})
    assert contacts.client(Role.BROKER, at) is first
    known.pop(0)
    await contacts.retain({Role.BROKER: [at]})
    second = contacts.client(Role.BROKER, at)
    assert isinstance(second, AdminClient)
    assert second is not first
    await contacts.close()
    with pytest.raises(AdminError):
        await first.describe_cluster()
