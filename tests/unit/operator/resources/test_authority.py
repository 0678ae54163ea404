"""The authority of a cluster: certificates that OpenSSL accepts, and a replacement during which all nodes agree."""

import ssl
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from quorate_operator.resources.authority import (
    AUTHORITY_VALIDITY,
    CERTIFICATE_VALIDITY,
    Authorities,
    KeyPair,
    Names,
    Stage,
    issue,
    new_authorities,
    next_authorities,
    why_replaced,
)

NOW = datetime.now(UTC).replace(microsecond=0)
NAMES = Names(common_name="brokers", hosts=("*.brokers.kafka.svc", "10.0.0.1", "::1"))
HOST = "brokers-0.brokers.kafka.svc"
ROUNDS_MAX = 20


@dataclass(frozen=True, kw_only=True)
class Node:
    """The files of a node."""

    trusted: str
    pair: KeyPair


def context(node: Node, directory: Path, *, is_server: bool) -> ssl.SSLContext:
    """Both sides show a certificate, and verify that of the other."""
    made = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER if is_server else ssl.PROTOCOL_TLS_CLIENT)
    made.verify_mode = ssl.CERT_REQUIRED
    made.verify_flags |= ssl.VERIFY_X509_STRICT
    made.load_verify_locations(cadata=node.trusted)
    file = directory / "pair.pem"
    file.write_text(node.pair.key + node.pair.certificate)
    made.load_cert_chain(file)
    return made


def connect(client: Node, server: Node, directory: Path, host: str = HOST) -> None:
    """A handshake in memory. Raises SSLError."""
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    ends = (
        context(client, directory, is_server=False).wrap_bio(to_client, to_server, server_hostname=host),
        context(server, directory, is_server=True).wrap_bio(to_server, to_client, server_side=True),
    )
    done: set[int] = set()
    for _ in range(ROUNDS_MAX):
        for place, end in enumerate(ends):
            try:
                end.do_handshake()
                done.add(place)
            except ssl.SSLWantReadError:
                continue
        if done == {0, 1}:
            return
    raise AssertionError("the handshake does not end")


def node_of(authorities: Authorities, now: datetime = NOW) -> Node:
    return Node(trusted=authorities.trusted, pair=issue(authorities, NAMES, now))


@pytest.mark.parametrize("host", [HOST, "10.0.0.1", "::1"])
def test_nodes_of_one_authority_trust_each_other(tmp_path: Path, host: str) -> None:
    authorities = new_authorities("quorum", NOW)
    connect(node_of(authorities), node_of(authorities), tmp_path, host)


def test_another_name_and_another_authority_are_refused(tmp_path: Path) -> None:
    first, second = (node_of(new_authorities("quorum", NOW)) for _ in range(2))
    with pytest.raises(ssl.SSLError, match="verify failed"):
        connect(first, second, tmp_path)
    with pytest.raises(ssl.SSLError, match="Hostname mismatch"):
        connect(first, first, tmp_path, "brokers-0.other.kafka.svc")


def test_each_two_nodes_trust_each_other_in_each_stage(tmp_path: Path) -> None:
    """A node has the files of the present stage or of the former one: nodes change one after the other."""
    settled = new_authorities("quorum", NOW - AUTHORITY_VALIDITY * 0.7)
    nodes = [Node(trusted=settled.trusted, pair=issue(settled, NAMES, NOW))]
    old, known = settled.signing.fingerprint, settled
    stages = []
    trusted: set[str] = {old}
    in_use: set[str] = {old}
    while known.stage is not Stage.SETTLED or not stages:
        known = next_authorities("quorum", known, trusted_by_all=trusted, in_use=in_use, now=NOW)
        stages.append(known.stage)
        assert known == next_authorities("quorum", known, trusted_by_all={old}, in_use={old}, now=NOW) or (
            known.stage is Stage.SETTLED
        ), "no stage ends before its nodes have followed"
        nodes.append(Node(trusted=known.trusted, pair=issue(known, NAMES, NOW)))
        for client, server in ((nodes[-1], nodes[-2]), (nodes[-2], nodes[-1])):
            connect(client, server, tmp_path)
        trusted = {pair.fingerprint for pair in (known.signing, known.other) if pair is not None}
        in_use = {known.signing.fingerprint}
    assert stages == [Stage.TRUSTING, Stage.SIGNING, Stage.SETTLED]
    assert old not in trusted
    assert known.other is None
    with pytest.raises(ssl.SSLError):
        connect(nodes[-1], nodes[0], tmp_path)


def test_a_former_authority_signs_nothing_any_more() -> None:
    settled = new_authorities("quorum", NOW - AUTHORITY_VALIDITY * 0.7)
    trusting = next_authorities("quorum", settled, trusted_by_all=(), in_use=(), now=NOW)
    assert trusting.other is not None
    signing = next_authorities(
        "quorum", trusting, trusted_by_all={trusting.other.fingerprint}, in_use=(), now=NOW
    )
    assert signing.other == replace(settled.signing, key="")
    assert "PRIVATE KEY" not in repr(signing)


def test_nothing_is_due_early() -> None:
    authorities = new_authorities("quorum", NOW)
    pair = issue(authorities, NAMES, NOW)
    later = NOW + CERTIFICATE_VALIDITY * 0.6
    assert why_replaced(pair, authorities, NAMES, later) is None
    assert next_authorities("quorum", authorities, trusted_by_all=(), in_use=(), now=later) == authorities


def test_a_certificate_is_replaced_with_its_reason() -> None:
    authorities = new_authorities("quorum", NOW)
    pair = issue(authorities, NAMES, NOW)
    late = NOW + CERTIFICATE_VALIDITY * 0.7
    assert why_replaced(pair, authorities, NAMES, late) == (
        f"it expires at {NOW + CERTIFICATE_VALIDITY:%Y-%m-%dT%H:%M:%SZ}"
    )
    more = replace(NAMES, hosts=(*NAMES.hosts, "kafka.example.com"))
    assert why_replaced(pair, authorities, more, NOW) == "it lacks the names kafka.example.com"
    assert why_replaced(pair, authorities, replace(NAMES, hosts=NAMES.hosts[1:]), NOW) is None
    assert why_replaced(pair, authorities, replace(NAMES, common_name="x"), NOW) == "it has another subject"
    assert why_replaced(pair, new_authorities("quorum", NOW), NAMES, NOW) == "another authority signs"


def test_no_certificate_outlives_its_authority() -> None:
    authorities = new_authorities("quorum", NOW)
    end = authorities.signing.parsed.not_valid_after_utc
    pair = issue(authorities, NAMES, end - timedelta(days=1))
    assert pair.parsed.not_valid_after_utc == end
    with pytest.raises(ValueError, match="at most 64 characters"):
        issue(authorities, replace(NAMES, common_name="x" * 65), NOW)
