"""The Secrets of a cluster's own authority over time: what is written, and what waits for a slow node."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta

import pytest
from quorate_operator.models.secrets import Secret
from quorate_operator.planning.cluster import Role
from quorate_operator.resources.authority import (
    AUTHORITY_VALIDITY,
    CERTIFICATE_VALIDITY,
    Names,
    Stage,
    Validity,
    fingerprints_in,
    new_authorities,
)
from quorate_operator.resources.cluster_authority import (
    CertificateRequest,
    Decision,
    StoredSecret,
    authorities_of,
    authority_values,
    carried_of,
    carried_text,
    decide,
)

NOW = datetime(2026, 1, 1, tzinfo=UTC)
CONTROLLERS, BROKERS, CLIENTS = "quorum-controller-tls", "brokers-in-tls", "brokers-out-tls"
ROUNDS_MAX = 5
KEY = "PRIVATE KEY"


def request(secret: str, *clients: Role, hosts: tuple[str, ...] = ("*.svc",)) -> CertificateRequest:
    pool = secret.partition("-")[0]
    names = Names(common_name=pool, hosts=hosts)
    return CertificateRequest(
        secret=secret, pool=pool, names=names, validity=Validity(), clients=frozenset(clients)
    )


REQUESTS = (
    request(CONTROLLERS, Role.CONTROLLER, Role.BROKER),
    request(BROKERS, Role.BROKER),
    request(CLIENTS),
)
MOUNTED = {3000: (CONTROLLERS,), 3001: (CONTROLLERS,), 0: (CONTROLLERS, BROKERS, CLIENTS)}


@dataclass
class Cluster:
    """What the API server has, and the record on each pod."""

    requests: tuple[CertificateRequest, ...] = REQUESTS
    authority: StoredSecret | None = None
    secrets: dict[str, StoredSecret] = field(default_factory=dict)
    records: dict[int, str | None] = field(default_factory=dict)
    unused: dict[int, frozenset[str]] = field(default_factory=dict)
    """The Secrets of listeners by which nodes do not connect."""

    lead_time: timedelta = timedelta()

    def decision(self, now: datetime) -> Decision:
        nodes = [
            carried_of(
                record,
                f"node-{node_id}",
                Role.CONTROLLER if node_id >= 3000 else Role.BROKER,
                self.unused.get(node_id, frozenset()),
            )
            for node_id, record in self.records.items()
        ]
        return decide(
            "quorum",
            self.authority,
            self.requests,
            secrets=self.secrets,
            nodes=nodes,
            now=now,
            lead_time=self.lead_time,
        )

    def write(self, now: datetime = NOW) -> Mapping[str, str]:
        """Write until nothing is left to write; the reasons of the certificates by the name of the Secret."""
        reasons: dict[str, str] = {}
        for _ in range(ROUNDS_MAX):
            decision = self.decision(now)
            if decision.authorities is not None:
                values = authority_values(decision.authorities)
                self.authority = StoredSecret(values=values, is_own=True)
            for issued in decision.issued:
                self.secrets[issued.request.secret] = StoredSecret(values=issued.values, is_own=True)
                reasons[issued.request.secret] = issued.reason
            if decision.authorities is None and not decision.issued:
                return reasons
        raise AssertionError("there is always more to write")

    def restart(self, *node_ids: int) -> None:
        for node_id in node_ids:
            mounted = [Secret(values=self.secrets[name].values) for name in MOUNTED[node_id]]
            self.records[node_id] = carried_text(mounted)

    @property
    def stage(self) -> Stage:
        assert self.authority is not None
        return authorities_of(self.authority.values).stage

    @property
    def signing(self) -> str:
        assert self.authority is not None
        return authorities_of(self.authority.values).signing.fingerprint

    def trusted(self) -> set[frozenset[str]]:
        return {fingerprints_in(secret.values["ca.crt"]) for secret in self.secrets.values()}

    def certificates(self) -> Mapping[str, str]:
        return {name: secret.values["tls.crt"] for name, secret in self.secrets.items()}


@pytest.fixture
def running() -> Cluster:
    """A cluster whose nodes were started with their first certificates."""
    cluster = Cluster()
    assert cluster.write() == {request.secret: "the listener has none" for request in REQUESTS}
    cluster.restart(*MOUNTED)
    assert cluster.write() == {}
    return cluster


def different(before: Mapping[str, str], after: Mapping[str, str]) -> set[str]:
    return {name for name, text in after.items() if before.get(name) != text}


def reasons_of(names: Iterable[str], reason: str) -> dict[str, str]:
    return dict.fromkeys(names, reason)


def test_each_listener_gets_a_certificate_of_one_authority() -> None:
    cluster = Cluster()
    first = cluster.decision(NOW)
    assert first.authorities is not None
    assert not first.issued, "certificates follow from the authority that is stored"
    cluster.write()
    assert {tuple(sorted(secret.values)) for secret in cluster.secrets.values()} == {
        ("ca.crt", "tls.crt", "tls.key")
    }
    assert cluster.trusted() == {frozenset({cluster.signing})}
    assert cluster.decision(NOW).trusted == cluster.secrets[BROKERS].values["ca.crt"]


def test_nothing_shows_a_key(running: Cluster) -> None:
    running.secrets.pop(BROKERS)
    shown = repr((running.decision(NOW), running.authority, Cluster().decision(NOW)))
    assert KEY not in shown
    assert all(record is not None and KEY not in record for record in running.records.values())
    assert running.authority is not None
    assert KEY in running.authority.values["ca.key"]


def test_a_new_host_is_in_the_next_certificate_of_its_listener(running: Cluster) -> None:
    before = running.certificates()
    running.requests = (*REQUESTS[:2], request(CLIENTS, hosts=("*.svc", "kafka.example.com")))
    assert running.write() == {CLIENTS: "it lacks the names kafka.example.com"}
    assert different(before, running.certificates()) == {CLIENTS}


def test_certificates_are_renewed_by_the_same_authority(running: Cluster) -> None:
    before = running.certificates()
    assert running.write(NOW + CERTIFICATE_VALIDITY * 0.6) == {}
    late = NOW + CERTIFICATE_VALIDITY * 0.7
    assert set(running.write(late).values()) == {
        f"it expires at {NOW + CERTIFICATE_VALIDITY:%Y-%m-%dT%H:%M:%SZ}"
    }
    assert different(before, running.certificates()) == set(before)
    assert running.stage is Stage.SETTLED


@pytest.mark.parametrize(
    ("validity", "later", "is_due"),
    [
        (Validity(duration=timedelta(hours=1)), timedelta(), True),
        (Validity(renew_before=timedelta(days=80)), timedelta(days=9), False),
        (Validity(renew_before=timedelta(days=80)), timedelta(days=11), True),
    ],
)
def test_the_manifest_chooses_the_validity(
    running: Cluster, validity: Validity, later: timedelta, is_due: bool
) -> None:
    running.requests = tuple(replace(asked, validity=validity) for asked in REQUESTS)
    assert bool(running.write(NOW + later)) == is_due
    assert running.write(NOW + later) == {}


def test_an_authority_is_replaced_in_stages_that_wait_for_the_slowest_node(running: Cluster) -> None:
    former, now = running.signing, NOW + AUTHORITY_VALIDITY * 0.7
    running.write(now - timedelta(days=200))  # certificates are renewed meanwhile
    before = running.certificates()
    running.write(now)
    running.restart(*MOUNTED)
    stages = []
    while running.stage is not Stage.SETTLED:
        stages.append((running.stage, running.signing == former, len(next(iter(running.trusted())))))
        fast, slow = (3000, 0), 3001
        running.restart(*fast)
        assert running.stage is stages[-1][0], "it waits for the slow node"
        running.write(now)
        running.restart(slow)
        running.write(now)
        assert len(stages) < ROUNDS_MAX
    assert stages[-1][1] is False
    assert running.trusted() == {frozenset({running.signing})}
    assert running.signing != former
    assert different(before, running.certificates()) == set(before)


def test_each_stage_waits_for_all_nodes(running: Cluster) -> None:
    former, now = running.signing, NOW + AUTHORITY_VALIDITY * 0.7
    running.write(now)
    assert running.stage is Stage.TRUSTING
    running.restart(3000, 0)
    running.write(now)
    assert (running.stage, running.signing) == (Stage.TRUSTING, former)
    running.restart(3001)
    written = running.write(now)
    assert (running.stage, set(written.values())) == (Stage.SIGNING, {"another authority signs"})
    running.restart(3000, 3001)
    running.write(now)
    assert running.stage is Stage.SIGNING, "the broker shows the former certificate"
    assert running.trusted() == {frozenset({former, running.signing})}
    running.restart(0)
    assert set(running.write(now).values()) == {"its nodes are to trust other authorities"}
    assert running.stage is Stage.SETTLED
    assert running.trusted() == {frozenset({running.signing})}


def test_without_pods_nothing_has_to_be_waited_for(running: Cluster) -> None:
    running.records.clear()
    running.write(NOW + AUTHORITY_VALIDITY * 0.7)
    assert running.stage is Stage.SETTLED


def test_a_deleted_authority_is_followed_by_another_one(running: Cluster) -> None:
    """Certificates stay as they are until all nodes trust the new authority."""
    former, before = running.signing, running.certificates()
    running.authority = None
    assert set(running.write().values()) == {"its nodes are to trust other authorities"}
    assert (running.stage, running.signing, running.certificates()) == (Stage.TRUSTING, former, before)
    running.requests = (*REQUESTS[:2], request(CLIENTS, hosts=("more",)), request("brokers-new-tls"))
    assert running.write() == {}, "the key is gone"
    assert (
        "all nodes have to trust it, for spec.authority.leadTime"
        in running.decision(NOW).unissued["brokers-new-tls"]
    )
    assert CLIENTS not in running.decision(NOW).unissued
    running.restart(*MOUNTED)
    assert set(running.write()) == {*before, "brokers-new-tls"}
    assert running.stage is Stage.SIGNING
    running.restart(*MOUNTED)
    running.write()
    assert running.stage is Stage.SETTLED
    assert former not in fingerprints_in(running.secrets[BROKERS].values["ca.crt"])


@pytest.mark.parametrize("stage", [Stage.TRUSTING, Stage.SIGNING])
def test_an_authority_that_is_deleted_in_a_replacement_leaves_all_that_are_in_use(
    running: Cluster, stage: Stage
) -> None:
    former, now = running.signing, NOW + AUTHORITY_VALIDITY * 0.7
    running.write(now)
    if stage is Stage.SIGNING:
        running.restart(*MOUNTED)
        running.write(now)
    assert running.stage is stage
    running.authority = None
    running.write(now)
    assert running.stage is Stage.TRUSTING
    assert all({former, running.signing} <= trusted for trusted in running.trusted())
    running.restart(*MOUNTED)
    running.write(now)
    assert (running.stage, running.signing != former) == (Stage.SIGNING, True)
    assert all(former in trusted for trusted in running.trusted())
    running.restart(*MOUNTED)
    running.write(now)
    assert running.trusted() == {frozenset({running.signing})}


def test_without_any_secret_running_nodes_are_left_as_they_are(running: Cluster) -> None:
    running.authority = None
    running.secrets.clear()
    assert running.write() == {}
    assert "Hibernated" in running.decision(NOW).unissued[BROKERS]
    running.records.clear()
    assert set(running.write()) == {CONTROLLERS, BROKERS, CLIENTS}


def test_nodes_that_would_not_trust_a_certificate_get_none(running: Cluster) -> None:
    """A pool that had a Secret of its own: its nodes trust another authority, and connect to each other."""
    running.secrets.pop(BROKERS)
    running.records[1] = None
    assert running.write() == {}
    assert running.decision(NOW).unissued == {
        BROKERS: "node-1 would not trust it: set spec.state of the KafkaController to Hibernated, and to Running "
        "when its pods have stopped"
    }
    running.secrets.pop(CLIENTS)
    assert running.write() == {CLIENTS: "the listener has none"}, "no node connects there"
    running.unused[1] = frozenset({BROKERS})
    assert running.write() == {BROKERS: "the listener has none"}, "node-1 connects by another listener"


def test_secrets_of_others_are_left_alone(running: Cluster) -> None:
    running.secrets[BROKERS] = StoredSecret(values={"tls.crt": "theirs"}, is_own=False)
    assert running.write() == {}
    assert running.decision(NOW).unissued == {
        BROKERS: f"the Secret {BROKERS} exists and was not made for it: delete it, or name it in tls.secretName"
    }
    values = authority_values(new_authorities("other", NOW))
    running.authority = StoredSecret(values=values, is_own=False)
    assert running.write() == {}
    assert running.decision(NOW).unissued == reasons_of(
        (CONTROLLERS, BROKERS, CLIENTS),
        "the Secret of its authority belongs to another owner: rename the KafkaController",
    )


@pytest.mark.parametrize("values", [{}, {"stage": "x"}, {"ca.crt": "x", "ca.key": "", "stage": "settled"}])
def test_an_authority_that_can_not_be_read_is_not_replaced(running: Cluster, values: dict[str, str]) -> None:
    running.authority = StoredSecret(values=values, is_own=True)
    assert running.write() == {}
    assert "can't be read" in running.decision(NOW).unissued[CONTROLLERS]


@pytest.mark.parametrize("key", ["ca.key", "other.key"])
def test_an_authority_with_the_key_of_another_one_signs_nothing(running: Cluster, key: str) -> None:
    now = NOW + AUTHORITY_VALIDITY * 0.7
    running.write(now)
    assert running.authority is not None
    foreign = new_authorities("other", NOW).signing.key
    running.authority = StoredSecret(values={**running.authority.values, key: foreign}, is_own=True)
    assert running.write(now) == {}
    assert "can't be read" in running.decision(now).unissued[CONTROLLERS]


def test_a_certificate_with_the_key_of_another_one_is_issued_again(running: Cluster) -> None:
    values = {**running.secrets[CLIENTS].values, "tls.key": running.secrets[BROKERS].values["tls.key"]}
    running.secrets[CLIENTS] = StoredSecret(values=values, is_own=True)
    assert running.write() == {CLIENTS: "the listener has none"}


@pytest.mark.parametrize("values", [{}, {"tls.crt": "x", "tls.key": "y", "ca.crt": "z"}])
def test_a_damaged_certificate_is_issued_again(running: Cluster, values: dict[str, str]) -> None:
    running.secrets[CLIENTS] = StoredSecret(values=values, is_own=True)
    assert running.write() == {CLIENTS: "the listener has none"}


def test_a_certificate_is_not_renewed_again_and_again_near_the_end_of_its_authority(running: Cluster) -> None:
    """A replacement waits for a node until the authority expires."""
    end = NOW + AUTHORITY_VALIDITY
    for days in (60, 10, 1):
        running.write(end - timedelta(days=days))
    assert running.stage is Stage.TRUSTING
    before = running.certificates()
    running.write(end - timedelta(hours=1))
    assert running.certificates() == before


@pytest.mark.parametrize("text", [None, "", "x", "trusts", "trusts ; shows ", "shows; trusts"])
def test_a_pod_without_a_record_carries_nothing(text: str | None) -> None:
    carried = carried_of(text, "broker-0", Role.BROKER)
    assert (carried.trusted, carried.shown) == (frozenset(), frozenset())


LEAD_TIME, SECOND = timedelta(hours=24), timedelta(seconds=1)


@pytest.mark.parametrize("is_deleted", [False, True])
def test_clients_have_time_to_trust_a_new_authority(running: Cluster, *, is_deleted: bool) -> None:
    """Nodes trust it already. It is published from the beginning."""
    former, now = running.signing, NOW if is_deleted else NOW + AUTHORITY_VALIDITY * 0.7
    running.lead_time = LEAD_TIME
    if is_deleted:
        running.authority = None
    running.write(now)
    running.restart(*MOUNTED)
    assert len(fingerprints_in(running.decision(now).trusted or "")) == 2
    running.write(now + LEAD_TIME - SECOND)
    assert (running.stage, running.signing) == (Stage.TRUSTING, former)
    running.write(now + LEAD_TIME)
    assert running.stage is Stage.SIGNING


def test_a_certificate_that_is_due_does_not_wait_for_clients(running: Cluster) -> None:
    """Without the key of the former authority no other could renew it."""
    running.lead_time = CERTIFICATE_VALIDITY
    running.authority = None
    running.write(NOW)
    running.restart(*MOUNTED)
    running.write(NOW + CERTIFICATE_VALIDITY * 0.6)
    assert running.stage is Stage.TRUSTING
    running.write(NOW + CERTIFICATE_VALIDITY * 0.7)
    assert running.stage is Stage.SIGNING


def test_the_ends_of_certificates_are_reported(running: Cluster) -> None:
    decision = running.decision(NOW)
    assert decision.authority_times is not None
    assert decision.authority_times.expiry_s == (NOW + AUTHORITY_VALIDITY).timestamp()
    assert decision.authority_times.renewal_s == pytest.approx(
        (NOW + AUTHORITY_VALIDITY * 2 / 3).timestamp(), abs=1
    )
    assert {secret: times.expiry_s for secret, times in decision.times.items()} == {
        request.secret: (NOW + CERTIFICATE_VALIDITY).timestamp() for request in REQUESTS
    }
    assert decision.times[BROKERS].renewal_s == (NOW + CERTIFICATE_VALIDITY * 2 / 3).timestamp()
