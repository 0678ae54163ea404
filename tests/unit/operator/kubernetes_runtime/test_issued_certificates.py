"""Secrets of a cluster's own authority: written at the version that was read, and only if they are the cluster's."""

import logging
from typing import Any, cast

import pytest
from kit.desired_cluster import Cluster, completed
from quorate_operator.models.secrets import FOR_LISTENERS
from quorate_operator.resources.completion import complete
from quorate_operator.resources.facts import Context, Images
from quorate_operator.resources.secrets import described_secret
from quorate_operator.runtime.kubernetes.api import ApiError, Kind
from quorate_operator.runtime.kubernetes.cache import ObjectCache
from quorate_operator.runtime.kubernetes.facts_source import FactsSource
from quorate_operator.runtime.kubernetes.issued_certificates import IssuedCertificates
from quorate_operator.runtime.kubernetes.objects import ClusterObjects

Object = dict[str, Any]
AUTHORITY, CONTROLLERS, BROKERS = "quorum-ca", "quorum-controller-tls", "brokers-out-tls"
OURS, POOLS = "uid-of-the-quorum", "uid-of-the-pool"


class _Api:
    """Secrets with versions, as the API server has them; requests with a verb in `forbidden` are refused."""

    def __init__(self) -> None:
        self.secrets: dict[str, Object] = {}
        self.forbidden: set[str] = set()
        self.requests: list[tuple[str, str]] = []
        self._version = 0

    async def get(self, _kind: Kind, _namespace: str, name: str) -> Object | None:
        self._check("get", name)
        return self.secrets.get(name)

    async def create(self, _kind: Kind, _namespace: str, body: Object) -> Object:
        name = body["metadata"]["name"]
        self._check("create", name)
        if name in self.secrets:
            raise ApiError(409, "AlreadyExists", f"secrets {name} already exists")
        return self.store(body)

    async def replace(self, _kind: Kind, _namespace: str, body: Object) -> Object:
        name = body["metadata"]["name"]
        self._check("update", name)
        if body["metadata"]["resourceVersion"] != self.secrets[name]["metadata"]["resourceVersion"]:
            raise ApiError(409, "Conflict", "the object has been modified")
        return self.store(body)

    def store(self, body: Object) -> Object:
        self._version += 1
        name = body["metadata"]["name"]
        metadata = {**body["metadata"], "uid": name, "resourceVersion": f"{self._version}"}
        self.secrets[name] = {**body, "metadata": metadata}
        return self.secrets[name]

    def _check(self, verb: str, name: str) -> None:
        self.requests.append((verb, name))
        if verb in self.forbidden:
            raise ApiError(403, "Forbidden", "secrets is forbidden")


@pytest.fixture
def cluster() -> Cluster:
    """A quorum and a pool whose certificates the operator issues."""
    return cluster_with("")


def cluster_with(tls: str) -> Cluster:
    return completed(
        "apiVersion: quorate.dev/v1alpha1\nkind: KafkaController\n"
        f"metadata: {{name: quorum, uid: {OURS}}}\n"
        "spec: {listeners: [{name: CONTROLLER, protocol: SSL}]}\n"
        "---\napiVersion: quorate.dev/v1alpha1\nkind: KafkaBroker\n"
        f"metadata: {{name: brokers, uid: {POOLS}}}\n"
        f"spec: {{controllers: quorum, listeners: [{{name: OUT, protocol: SSL{tls}}}]}}\n"
    )


def objects_of(api: _Api) -> ClusterObjects:
    return ClusterObjects(cast("Any", api), ObjectCache(), namespace="kafka", cluster="quorum")


def issuer(api: _Api) -> IssuedCertificates:
    return IssuedCertificates(cast("Any", api), objects_of(api))


async def apply(issued: IssuedCertificates, cluster: Cluster) -> frozenset[str]:
    return await issued.apply(cluster.context, cluster.desired, {})


async def test_secrets_are_written_once_and_read_by_nodes(
    cluster: Cluster, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    api = _Api()
    issued = issuer(api)
    assert await apply(issued, cluster) == {CONTROLLERS, BROKERS}
    assert issued.unissued == {}
    assert sorted(api.secrets) == [BROKERS, AUTHORITY, CONTROLLERS]
    assert [api.secrets[name]["type"] for name in (AUTHORITY, BROKERS)] == ["Opaque", "kubernetes.io/tls"]
    uids = {name: secret["metadata"]["ownerReferences"][0]["uid"] for name, secret in api.secrets.items()}
    assert uids == {AUTHORITY: OURS, CONTROLLERS: OURS, BROKERS: POOLS}
    assert issued.trusted == described_secret(api.secrets[BROKERS]).values["ca.crt"]
    assert not any(FOR_LISTENERS in secret["metadata"]["labels"] for secret in api.secrets.values())
    before, requests = dict(api.secrets), len(api.requests)
    assert await apply(issued, cluster) == frozenset()
    assert len(api.requests) == requests, "nothing is read twice in half a minute"
    assert await apply(issuer(api), cluster) == frozenset()
    assert api.secrets == before
    assert "PRIVATE KEY" not in caplog.text

    source = FactsSource(cast("Any", api), objects_of(api))
    await source.refresh_secrets(cluster.context.manifests)
    facts = source.facts(cluster.context.manifests, Images(quorate="q"), None)
    assert facts.secrets.keys() == {CONTROLLERS, BROKERS}
    node = complete(cluster.desired, cluster.context.manifests, facts).nodes[-1]
    assert node.revision["authorities"].startswith("trusts ")
    context = Context(manifests=cluster.context.manifests, facts=facts)
    assert context.facts.unlabelled_secrets == frozenset()


async def test_two_operators_agree_on_one_authority(cluster: Cluster) -> None:
    """Both find none; the one that comes second takes that of the other."""

    class Late(_Api):
        async def create(self, kind: Kind, namespace: str, body: Object) -> Object:
            if body["metadata"]["name"] == AUTHORITY and AUTHORITY not in self.secrets:
                await _Api.create(self, kind, namespace, other.secrets[AUTHORITY])
            return await super().create(kind, namespace, body)

    other = _Api()
    await apply(issuer(other), cluster)
    api = Late()
    issued = issuer(api)
    assert await apply(issued, cluster) == {CONTROLLERS, BROKERS}
    assert api.secrets[AUTHORITY]["data"] == other.secrets[AUTHORITY]["data"]
    assert issued.trusted == described_secret(other.secrets[BROKERS]).values["ca.crt"]


async def test_a_secret_that_changed_since_it_was_read_is_not_overwritten(cluster: Cluster) -> None:
    api = _Api()
    await apply(issuer(api), cluster)
    changed = cluster_with(", tls: {duration: 48h}")

    class Busy(_Api):
        async def replace(self, kind: Kind, namespace: str, body: Object) -> Object:
            name = body["metadata"]["name"]
            if name == BROKERS:
                self.store({**self.secrets[name]})
            return await super().replace(kind, namespace, body)

    busy = Busy()
    for secret in api.secrets.values():
        busy.store(secret)
    before = busy.secrets[BROKERS]["data"]
    assert await apply(issuer(busy), changed) == frozenset()
    assert busy.secrets[BROKERS]["data"] == before


@pytest.mark.parametrize("verb", ["get", "create", "update"])
async def test_without_a_right_no_certificate_is_issued_that_could_not_be_renewed(
    cluster: Cluster, verb: str
) -> None:
    api = _Api()
    api.forbidden.add(verb)
    issued = issuer(api)
    assert await apply(issued, cluster) == frozenset()
    assert issued.unissued.keys() == {CONTROLLERS, BROKERS}
    assert "its chart needs rbac.updateSecrets" in issued.unissued[BROKERS]
    assert api.secrets.keys() <= {AUTHORITY}


@pytest.mark.parametrize(
    "metadata",
    [
        {"labels": {FOR_LISTENERS: "true"}},
        {"labels": {"quorate.dev/cluster": "quorum"}},
        {
            "labels": {"quorate.dev/cluster": "quorum"},
            "ownerReferences": [{"uid": "another", "controller": True}],
        },
        {
            "labels": {"quorate.dev/cluster": "other"},
            "ownerReferences": [{"uid": POOLS, "controller": True}],
        },
    ],
)
@pytest.mark.parametrize("name", [AUTHORITY, BROKERS])
async def test_a_secret_of_others_is_neither_used_nor_overwritten(
    cluster: Cluster, name: str, metadata: Object
) -> None:
    """Such as one of that name that its owner has allowed nodes to read."""
    api = _Api()
    theirs = api.store(
        {"metadata": {"name": name, **metadata}, "data": {"tls.crt": "YQ==", "ca.crt": "YQ=="}}
    )
    issued = issuer(api)
    await apply(issued, cluster)
    assert api.secrets[name] == theirs
    assert BROKERS in issued.unissued
    assert ("update", name) not in api.requests
    source = FactsSource(cast("Any", api), objects_of(api))
    await source.refresh_secrets(cluster.context.manifests)
    assert name not in source.secrets()


async def test_listeners_with_secrets_need_no_authority() -> None:
    api = _Api()
    cluster = completed(
        "apiVersion: quorate.dev/v1alpha1\nkind: KafkaController\nmetadata: {name: quorum}\n"
        "spec: {listeners: [{name: CONTROLLER, protocol: SSL, tls: {secretName: own}}]}\n"
    )
    issued = issuer(api)
    assert await apply(issued, cluster) == frozenset()
    assert (api.requests, issued.trusted) == ([], None)
