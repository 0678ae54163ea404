"""What Kubernetes assigned to a cluster, as its objects say."""

from typing import Any, cast

import pytest
from kit.desired_cluster import FORMATION, Make
from quorate_operator.models.secrets import FOR_LISTENERS
from quorate_operator.planning.cluster import Address
from quorate_operator.resources.configs import config_map
from quorate_operator.resources.facts import Facts, Images
from quorate_operator.resources.pods import node_pod
from quorate_operator.runtime.kubernetes.api import ApiError, Kind
from quorate_operator.runtime.kubernetes.cache import ObjectCache
from quorate_operator.runtime.kubernetes.facts_source import FactsSource, store_host_ips
from quorate_operator.runtime.kubernetes.objects import ClusterObjects

Object = dict[str, Any]
ISSUED = "cert-manager.io/certificate-name"
NODE_PORT = "listeners: [{name: IN}, {name: OUT, exposure: {type: NodePort}}]"


class _Api:
    """Takes annotations of one ConfigMap."""

    def __init__(self, config: Object) -> None:
        self.config = config
        self.writes = 0

    async def merge(self, _kind: Kind, _namespace: str, _name: str, patch: Object) -> Object:
        self.writes += 1
        metadata = self.config["metadata"]
        annotations = {**metadata["annotations"], **patch["metadata"]["annotations"]}
        metadata = {**metadata, "annotations": annotations, "resourceVersion": f"{self.writes + 1}"}
        self.config = {**self.config, "metadata": metadata}
        return self.config


def _stored(item: Object) -> Object:
    return {**item, "metadata": {**item["metadata"], "uid": item["kind"], "resourceVersion": "1"}}


def _facts(api: _Api, make: Make, *items: Object) -> tuple[Facts, ClusterObjects]:
    """What an operator finds that has just started."""
    cache = ObjectCache()
    for item in items:
        cache.put(item)
    objects = ClusterObjects(cast("Any", api), cache, namespace="kafka", cluster="quorum")
    manifests = make(brokers=NODE_PORT).context.manifests
    return FactsSource(cast("Any", api), objects).facts(manifests, Images(quorate="q"), FORMATION), objects


async def test_the_last_machine_is_remembered_by_any_operator(make: Make) -> None:
    """A broker that is down keeps the address of its machine, also for an operator that has just started."""
    cluster = make(brokers=NODE_PORT)
    node = cluster.node(0)
    api = _Api(_stored(config_map(cluster.context, cluster.desired, node, {})))
    pod = _stored(node_pod(cluster.context, cluster.desired, node, {}, is_initial=False))
    pod["status"] = {"hostIP": "10.0.0.7"}
    facts, objects = _facts(api, make, api.config, pod)
    assert facts.host_ips == {0: "10.0.0.7"}
    await store_host_ips(objects, objects.nodes().values())
    await store_host_ips(objects, objects.nodes().values())
    assert api.writes == 1
    facts, _ = _facts(api, make, api.config)
    assert facts.host_ips == {0: "10.0.0.7"}
    elsewhere = {**pod, "status": {"hostIP": "10.0.0.8"}}
    facts, _ = _facts(api, make, api.config, elsewhere)
    assert facts.host_ips == {0: "10.0.0.8"}, "where it is wins over where it was"
    known = make(brokers=NODE_PORT, host_ips={0: "10.0.0.7"}, node_ports={(0, "OUT"): 30000}).node(0)
    assert known.advertised["OUT"] == Address("10.0.0.7", 30000)


def _service(name: str, spec: Object, ingress: list[Object]) -> Object:
    metadata = {
        "name": name,
        "namespace": "kafka",
        "labels": {"quorate.dev/cluster": "quorum"},
        "creationTimestamp": "1970-01-01T00:00:05Z",
    }
    status = {"loadBalancer": {"ingress": ingress}}
    return _stored(
        {"apiVersion": "v1", "kind": "Service", "metadata": metadata, "spec": spec, "status": status}
    )


async def test_what_services_were_given_does_not_depend_on_order(make: Make) -> None:
    """An entry may have neither name nor address, and there may be other ports."""
    cluster = make(brokers=NODE_PORT)
    api = _Api(_stored(config_map(cluster.context, cluster.desired, cluster.node(0), {})))
    ports = [{"name": "out", "nodePort": 30000}, {"name": "health", "nodePort": 30001}]
    entries: list[Object] = [{"ip": "203.0.113.7"}, {"ip": "2001:db8::7"}, {"ports": []}]
    for ingress, listed in ((entries, ports), (entries[::-1], ports[::-1])):
        service = _service("brokers-0-out", {"ports": listed, "ipFamilies": ["IPv6", "IPv4"]}, ingress)
        facts, _ = _facts(api, make, api.config, service)
        assert facts.load_balancers == {(0, "OUT"): "2001:db8::7"}
        assert facts.node_ports == {(0, "OUT"): 30000}
        assert facts.requested_ms == {(0, "OUT"): 5_000}


async def test_a_machine_is_reached_by_the_family_of_the_service_also_later(make: Make) -> None:
    """A broker that is down keeps both addresses of its machine."""
    cluster = make(brokers=NODE_PORT)
    node = cluster.node(0)
    api = _Api(_stored(config_map(cluster.context, cluster.desired, node, {})))
    pod = _stored(node_pod(cluster.context, cluster.desired, node, {}, is_initial=False))
    pod["status"] = {"hostIP": "10.0.0.7", "hostIPs": [{"ip": "10.0.0.7"}, {"ip": "2001:db8::7"}]}
    ports = [{"name": "out", "nodePort": 30000}]
    service = _service("brokers-0-out", {"ports": ports, "ipFamilies": ["IPv6"]}, [])
    facts, objects = _facts(api, make, api.config, pod, service)
    assert facts.node_hosts == {(0, "OUT"): "2001:db8::7"}
    await store_host_ips(objects, objects.nodes().values())
    facts, _ = _facts(api, make, api.config, service)
    assert facts.node_hosts == {(0, "OUT"): "2001:db8::7"}
    assert facts.host_ips == {0: "10.0.0.7"}


class _Secrets:
    """An API server with one Secret, which may be forbidden."""

    def __init__(self, status: int | None, **metadata: Any) -> None:
        self.status = status
        self.metadata = metadata or {"labels": {FOR_LISTENERS: "true"}}

    async def get(self, _kind: Kind, _namespace: str, name: str) -> Object:
        if self.status is not None:
            raise ApiError(self.status, "", "secrets is forbidden")
        return {"metadata": {"name": name, "uid": "1", **self.metadata}, "data": {"tls.crt": "YQ=="}}


SECURED = "listeners: [{name: IN}, {name: OUT, protocol: SSL, tls: {%s}}]"


@pytest.mark.parametrize(
    ("tls", "metadata", "is_read"),
    [
        ("secretName: cert", {"labels": {FOR_LISTENERS: "true"}}, True),
        ("secretName: cert", {"labels": {FOR_LISTENERS: "false"}}, False),
        ("secretName: cert", {"labels": None, "annotations": {ISSUED: "cert"}}, False),
        ("issuerRef: {name: ours}", {"annotations": {ISSUED: "brokers-out-tls"}}, True),
        ("issuerRef: {name: ours}", {"annotations": {ISSUED: "theirs"}}, False),
    ],
)
async def test_only_secrets_that_their_owner_labelled_are_read_for_nodes(
    make: Make, tls: str, metadata: Object, is_read: bool
) -> None:
    """A Secret that cert-manager wrote for the listener's own Certificate needs no label."""
    manifests = make(brokers=SECURED % tls).context.manifests
    api = _Secrets(None, **metadata)
    objects = ClusterObjects(cast("Any", api), ObjectCache(), namespace="kafka", cluster="quorum")
    assigned = FactsSource(cast("Any", api), objects)
    for _ in range(2):
        await assigned.refresh_secrets(manifests)
    facts = assigned.facts(manifests, Images(quorate="q"), FORMATION)
    assert bool(facts.secrets) == is_read
    assert bool(facts.unlabelled_secrets) != is_read


async def test_a_secret_that_may_not_be_read_costs_only_its_nodes(make: Make) -> None:
    manifests = make(
        brokers="listeners: [{name: IN}, {name: OUT, protocol: SSL, tls: {secretName: cert}}]"
    ).context.manifests
    api = _Secrets(403)
    objects = ClusterObjects(cast("Any", api), ObjectCache(), namespace="kafka", cluster="quorum")
    for status, unreadable in ((403, {"cert"}), (None, set())):
        api.status = status
        assigned = FactsSource(cast("Any", api), objects)
        await assigned.refresh_secrets(manifests)
        facts = assigned.facts(manifests, Images(quorate="q"), FORMATION)
        assert facts.unreadable_secrets == unreadable
        assert ("cert" in facts.secrets) == (status is None)
    api.status = 503
    with pytest.raises(ApiError):
        await FactsSource(cast("Any", api), objects).refresh_secrets(manifests)
