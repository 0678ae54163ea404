"""Which node answers at an address, with and without KIP-1242 and TLS."""

import asyncio
import ssl
import subprocess
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
from kit.fake_cluster import CLUSTER_ID, HANG_UP, SILENCE, FakeCluster, FakeNode, nested, response_to
from kit.java.tls import Certificates
from kit.waiting import HANG_S
from quorate_admin.security.config import SecurityConfig
from quorate_operator.gateway import probes
from quorate_operator.models.listeners import BrokerListener, Listener
from quorate_operator.models.secrets import Secret
from quorate_operator.planning.cluster import Address, Reached
from quorate_operator.security import security_config
from quorate_protocol.errors import ErrorCode

TLS_HANDSHAKE = 22
TLS_ALERT = bytes((21, 3, 3, 0, 2, 2, 70))
"""A fatal alert, protocol_version: Java's response to a client without TLS."""
NODES = frozenset({0, 1, 2, 3000})


@pytest.fixture(autouse=True)
def patience(monkeypatch: pytest.MonkeyPatch) -> None:
    """No probe of a node that answers times out."""
    monkeypatch.setattr(probes, "PROBE_TIMEOUT_MS", HANG_S * 1000)


def configured_as(node_id: int) -> Any:
    """A handler of DescribeConfigs: a node describes its own configuration, and refuses others."""

    def handle(request: Any) -> Any:
        results = tuple(
            nested(
                "DescribeConfigs",
                "DescribeConfigsResult",
                resource_type=resource.resource_type,
                resource_name=resource.resource_name,
                error_code=ErrorCode.none
                if resource.resource_name == str(node_id)
                else ErrorCode.invalid_request,
            )
            for resource in request.body.resources
        )
        return response_to("DescribeConfigs", results=results)

    return handle


def address_of(node: FakeNode) -> Address:
    """Where a node listens."""
    host, _, port = node.address.rpartition(":")
    return Address(host, int(port))


async def probe(
    *addresses: Address, node_ids: frozenset[int] = NODES, security: SecurityConfig | None = None
) -> list[Reached]:
    """What is reached at each address."""
    reached = await probes.probe(addresses, node_ids, lambda _: security)
    return [reached[address] for address in addresses]


def said(reached: Reached) -> tuple[str | None, int | None, str | None]:
    """Without the time."""
    return reached.cluster_id, reached.node_id, reached.error


@pytest.mark.parametrize("is_controllers", [False, True])
@pytest.mark.parametrize("api_versions_max", [4, 5])
async def test_a_node_is_told_by_what_it_says_of_itself(is_controllers: bool, api_versions_max: int) -> None:
    cluster = FakeCluster((1, 2), is_controllers=is_controllers, api_versions_max=api_versions_max)
    for node_id, node in cluster.nodes.items():
        node.handlers["DescribeConfigs"] = configured_as(node_id)
    async with cluster:
        nodes = list(cluster.nodes.values())
        reached = await probe(*map(address_of, nodes))
        assert [said(result) for result in reached] == [(CLUSTER_ID, 1, None), (CLUSTER_ID, 2, None)]
        checked = [request.body.node_id for request in nodes[0].received("ApiVersions")]
        assert (1 in checked) == (api_versions_max == 5)


async def test_a_node_whose_peers_stand_in_for_it_is_found_out() -> None:
    async with FakeCluster((1, 2)) as cluster:
        first, second = cluster.nodes.values()
        first.advertised, second.advertised = second.address, first.address
        second.handlers["DescribeConfigs"] = configured_as(2)
        (reached,) = await probe(address_of(second))
    assert said(reached) == (CLUSTER_ID, 2, None)


async def test_a_node_that_nobody_knows_has_no_id() -> None:
    async with FakeCluster((7,), cluster_id="another") as cluster:
        (node,) = cluster.nodes.values()
        node.handlers["DescribeConfigs"] = configured_as(7)
        (reached,) = await probe(address_of(node))
    assert said(reached) == ("another", None, None)


async def test_one_that_contradicts_itself() -> None:
    """KIP-1242's answer counts."""
    async with FakeCluster((1,)) as cluster:
        (node,) = cluster.nodes.values()
        node.handlers["DescribeConfigs"] = configured_as(2)
        (reached,) = await probe(address_of(node))
    assert (reached.cluster_id, reached.node_id) == (None, None)
    assert (
        reached.error == "REBOOTSTRAP_REQUIRED: it reports the configuration of node 2, but is another node"
    )


async def test_what_is_not_allowed_is_told() -> None:
    def forbid(request: Any) -> Any:
        results = tuple(
            nested(
                "DescribeConfigs",
                "DescribeConfigsResult",
                resource_name=resource.resource_name,
                error_code=ErrorCode.cluster_authorization_failed,
            )
            for resource in request.body.resources
        )
        return response_to("DescribeConfigs", results=results)

    async with FakeCluster((1,), handlers={"DescribeConfigs": forbid}) as cluster:
        (reached,) = await probe(address_of(cluster.nodes[1]))
    assert "needs DESCRIBE_CONFIGS on the cluster" in (reached.error or "")


async def test_nobody_holds_up_the_others(monkeypatch: pytest.MonkeyPatch) -> None:
    async with FakeCluster((1, 2, 0)) as cluster:
        silent, cut, gone = cluster.nodes.values()
        silent.handlers["DescribeCluster"] = lambda _: SILENCE
        cut.handlers["DescribeCluster"] = lambda _: HANG_UP
        await gone.stop()
        label_too_long = Address(f"{'a' * 70}.invalid", 9092)
        broken = (address_of(cut), address_of(gone), label_too_long)
        reached = await probe(*broken)
        monkeypatch.setattr(probes, "PROBE_TIMEOUT_MS", 50)
        monkeypatch.setattr(probes, "PROBES_AT_ONCE_MAX", 1)
        reached += (await probe(address_of(silent), *broken))[:1]
    errors = ("the server closed the connection", "Connection refused", "label", "no response from")
    for result, error in zip(reached, errors, strict=True):
        assert (result.cluster_id, result.node_id) == (None, None)
        assert error in (result.error or "")


@asynccontextmanager
async def alerting(node: FakeNode) -> AsyncIterator[Address]:
    """A listener in front of a TLS listener that rejects clients without TLS, as Java does."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        first = await reader.read(65536)
        if first[:1] == bytes((TLS_HANDSHAKE,)):
            behind_reader, behind_writer = await asyncio.open_connection(*address_of(node))
            behind_writer.write(first)
            await asyncio.gather(pump(reader, behind_writer), pump(behind_reader, writer))
        else:
            writer.write(TLS_ALERT)
            writer.close()

    async def pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(OSError):
            while data := await reader.read(65536):
                writer.write(data)
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    async with server:
        yield Address(*server.sockets[0].getsockname())


@pytest.fixture
def own_certificate(tmp_path: Path) -> ssl.SSLContext:
    """The security of a listener with a self-signed certificate for another name."""
    subprocess.run(
        [
            *("openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-noenc"),
            *("-days", "2", "-subj", "/CN=elsewhere"),
            *("-keyout", str(tmp_path / "key.pem"), "-out", str(tmp_path / "cert.pem")),
        ],
        check=True,
        capture_output=True,
    )
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(tmp_path / "cert.pem", tmp_path / "key.pem")
    return context


async def test_who_has_to_show_a_certificate_shows_it(tmp_path: Path) -> None:
    made = Certificates.create(tmp_path / "certificates")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(made.server)
    context.load_verify_locations(made.authority)
    context.verify_mode = ssl.CERT_REQUIRED
    tls = {"secretName": "cert", "clientAuth": "required"}
    listener = Listener.model_validate({"name": "A", "protocol": "SSL", "tls": tls})
    values = {"tls.crt": made.client_certificate.read_text(), "tls.key": made.client_key.read_text()}
    whole = {"cert": Secret(values={**values, "ca.crt": made.authority.read_text()})}
    handlers = {"DescribeConfigs": configured_as(1)}
    async with FakeCluster((1,), ssl_context=context, handlers=handlers) as cluster:
        address = address_of(cluster.nodes[1])
        (reached,) = await probe(address, security=security_config(listener, whole))
        (refused,) = await probe(address, security=security_config(listener, {}))
    assert said(reached) == (CLUSTER_ID, 1, None)
    assert (refused.node_id, refused.error is None) == (None, False)


async def test_no_password_is_sent_to_who_has_no_certificate(own_certificate: ssl.SSLContext) -> None:
    sasl = {"username": "node", "secretName": "login", "mechanisms": ["PLAIN"]}
    tls = {"secretName": "cert"}
    listener = BrokerListener.model_validate({"name": "A", "protocol": "SASL_SSL", "tls": tls, "sasl": sasl})
    secrets = {"login": Secret(values={"node": "hunter2"})}
    async with (
        FakeCluster((1,), ssl_context=own_certificate) as false,
        FakeCluster((2,)) as plain,
    ):
        addresses = (address_of(false.nodes[1]), address_of(plain.nodes[2]))
        reached = await probe(*addresses, security=security_config(listener, secrets))
        assert [result.node_id for result in reached] == [None, None]
        assert "its certificate is not trusted" in (reached[0].error or "")
        assert not false.received("SaslHandshake") + plain.received("SaslHandshake")
        assert not false.received("SaslAuthenticate") + plain.received("SaslAuthenticate")


async def test_tokens_alone_leave_the_certificate(own_certificate: ssl.SSLContext, tmp_path: Path) -> None:
    made = Certificates.create(tmp_path / "certificates")
    trusted = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    trusted.load_cert_chain(made.server)
    oauth = {"jwksSecretName": "keys", "issuer": "a", "audiences": ["b"]}
    sasl, tls = {"mechanisms": ["OAUTHBEARER"], "oauth": oauth}, {"secretName": "cert"}
    listener = BrokerListener.model_validate({"name": "A", "protocol": "SASL_SSL", "tls": tls, "sasl": sasl})
    security = security_config(listener, {"cert": Secret(values={"ca.crt": made.authority.read_text()})})
    async with (
        FakeCluster((1,), ssl_context=trusted) as ours,
        FakeCluster((1,), ssl_context=own_certificate) as other,
    ):
        nodes = (ours.nodes[1], other.nodes[1])
        reached, false = await probe(*map(address_of, nodes), security=security)
        assert {request.api.name for node in nodes for request in node.requests} <= {"ApiVersions"}
    assert said(reached) == (None, None, None)
    assert "its certificate is not trusted" in (false.error or "")


async def test_a_listener_with_tls_is_spoken_to_so(own_certificate: ssl.SSLContext) -> None:
    """External listeners are probed whatever authority signed their certificate."""
    handlers = {"DescribeConfigs": configured_as(1)}
    cluster = FakeCluster((1,), ssl_context=own_certificate, handlers=handlers)
    async with cluster, alerting(cluster.nodes[1]) as address:
        (reached,) = await probe(address)
    assert said(reached) == (CLUSTER_ID, 1, None)


async def test_a_name_can_be_resolved_without_a_connection() -> None:
    """Nothing listens at this port; the last two can't be names."""
    good, *bad = (Address("localhost", 1), Address("a..b", 1), Address("x" * 64, 1))
    found = await probes.resolve((good, *bad))
    assert (found[good].is_resolved, found[good].error, found[good].is_anonymous) == (True, None, False)
    for address in bad:
        assert found[address].error
        assert not found[address].is_resolved
