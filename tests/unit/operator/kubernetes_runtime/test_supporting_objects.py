"""Supporting objects: an object that the API server rejects does not affect the others."""

from typing import Any, cast

import pytest
from kit.desired_cluster import Make
from kit.scenarios import healthy
from quorate_operator import clock
from quorate_operator.resources.ingress_hosts import ingress_hosts
from quorate_operator.runtime.kubernetes.api import ApiError, Kind
from quorate_operator.runtime.kubernetes.cache import ObjectCache
from quorate_operator.runtime.kubernetes.objects import ClusterObjects
from quorate_operator.runtime.kubernetes.supporting_objects import RefusedObject, apply_supporting_objects

Object = dict[str, Any]


class _Api:
    """Refuses objects of one kind, and accepts the others."""

    def __init__(self, kind: str, error: ApiError) -> None:
        self.kind = kind
        self.error = error
        self.accepted: list[str] = []
        self.deleted: list[str] = []

    async def get(self, _kind: Kind, _namespace: str, _name: str) -> None:
        return None

    async def delete(self, kind: Kind, _namespace: str, name: str, **_: object) -> None:
        self.deleted.append(f"{kind.name} {name}")

    async def apply(self, kind: Kind, _namespace: str, body: Object) -> Object:
        if kind.name == self.kind:
            raise self.error
        self.accepted.append(f"{kind.name} {body['metadata']['name']}")
        metadata = {**body["metadata"], "uid": self.accepted[-1], "resourceVersion": f"{len(self.accepted)}"}
        return {**body, "metadata": metadata}


async def _apply(
    api: _Api,
    make: Make,
    controllers: str = "",
    cache: ObjectCache | None = None,
    brokers: str = "",
    *,
    listeners: str = "listeners: [{name: IN}, {name: OUT, exposure: {type: NodePort}}]",
) -> tuple[RefusedObject, ...]:
    cluster = make(controllers, f"{listeners}, {brokers}")
    objects = ClusterObjects(cast("Any", api), cache or ObjectCache(), namespace="kafka", cluster="quorum")
    observed = healthy(3, brokers=3).observed
    return await apply_supporting_objects(
        objects,
        cluster.context,
        cluster.desired,
        observed,
        hosts=ingress_hosts(cluster.context, cluster.desired, observed, clock.now_ms()),
        cluster="quorum",
        pools=["brokers"],
    )


@pytest.mark.parametrize(
    ("kind", "pool", "names"),
    [
        ("NetworkPolicy", None, ["quorum-controllers"]),
        ("PodDisruptionBudget", None, ["quorum", "quorum-brokers"]),
        ("CronJob", None, ["quorum"]),
        ("PersistentVolumeClaim", None, ["history-quorum"]),
        (
            "Service",
            "brokers",
            ["quorum", "brokers", "brokers-0-out", "brokers-1-out", "brokers-2-out", "brokers-bootstrap"],
        ),
    ],
)
async def test_what_is_refused_is_told_and_the_rest_is_kept(
    make: Make, kind: str, pool: str | None, names: list[str]
) -> None:
    """A quota or a policy against one object costs only that one."""
    api = _Api(kind, ApiError(403, "Forbidden", "exceeded quota: team"))
    refused = await _apply(api, make, "history: {storage: {size: 1Gi}}")
    assert [rejected.item["metadata"]["name"] for rejected in refused] == names
    assert len(api.accepted) == 11 - len(names)
    refusal = refused[-1].as_refusal()
    assert (refusal.code, refusal.pool) == ("ObjectRefused", pool)
    assert f"{kind} {names[-1]} could not be applied" in refusal.message
    assert refusal.message.endswith("exceeded quota: team")


async def test_a_service_that_somebody_has_made_is_left_alone(make: Make) -> None:
    class Occupied(_Api):
        async def get(self, kind: Kind, _namespace: str, name: str) -> Object | None:  # type: ignore[override]
            if (kind.name, name) == ("Service", "brokers-bootstrap"):
                return {"kind": "Service", "metadata": {"name": name}}
            return None

    api = Occupied("", ApiError(403, "", ""))
    (refused,) = await _apply(api, make)
    assert "brokers-bootstrap exists and belongs to another owner" in refused.as_refusal().message
    assert "Service brokers-2-out" in api.accepted


_ISSUED = "listeners: [{name: CONTROLLER, protocol: SSL, tls: {issuerRef: {name: ca}}}]"


async def test_where_there_is_no_cert_manager_the_way_on_is_told(make: Make) -> None:
    api = _Api("Certificate", ApiError(404, "", "404 page not found"))
    (refused,) = await _apply(api, make, _ISSUED)
    assert refused.as_refusal().message.endswith(
        "Certificate quorum-controller-tls could not be applied; the rest is reconciled: this Kubernetes "
        "has no cert-manager.io/v1 Certificate: install cert-manager, or name a Secret in tls.secretName in place of "
        "tls.issuerRef"
    )
    assert "Service brokers-bootstrap" in api.accepted


async def test_a_certificate_goes_with_its_listener(make: Make) -> None:
    api, cache = _Api("", ApiError(403, "", "")), ObjectCache()
    for number, (name, pool) in enumerate(
        (("quorum-controller-tls", "quorum"), ("quorum-gone-tls", "quorum"), ("others-a-tls", "others"))
    ):
        labels = {"quorate.dev/cluster": "quorum", "quorate.dev/pool": pool}
        metadata = {"name": name, "namespace": "kafka", "uid": name, "resourceVersion": f"{number}"}
        annotations = {"quorate.dev/applied": "before"}
        cache.put(
            {"kind": "Certificate", "metadata": {**metadata, "labels": labels, "annotations": annotations}}
        )
    await _apply(api, make, _ISSUED, cache)
    assert api.deleted == ["Certificate quorum-gone-tls"]


async def test_an_ingress_stays_until_its_broker_is_gone(make: Make) -> None:
    api, cache = _Api("", ApiError(403, "", "")), ObjectCache()
    for node_id in ("2", "7"):
        labels = {
            "quorate.dev/cluster": "quorum",
            "quorate.dev/pool": "brokers",
            "quorate.dev/node-id": node_id,
        }
        metadata = {"name": f"brokers-{node_id}-out", "namespace": "kafka", "uid": node_id}
        cache.put({"kind": "Ingress", "metadata": {**metadata, "resourceVersion": node_id, "labels": labels}})
    await _apply(api, make, cache=cache, brokers="replicas: 2")
    assert api.deleted == ["Ingress brokers-7-out"]


async def test_a_policy_goes_when_nobody_wants_it(make: Make) -> None:
    api, cache = _Api("", ApiError(403, "", "")), ObjectCache()
    labels = {"quorate.dev/cluster": "quorum", "quorate.dev/pool": "brokers"}
    metadata = {"name": "brokers-brokers", "namespace": "kafka", "uid": "1", "resourceVersion": "1"}
    cache.put({"kind": "NetworkPolicy", "metadata": {**metadata, "labels": labels}})
    await _apply(api, make, cache=cache)
    assert api.deleted == ["NetworkPolicy brokers-brokers"]
    assert "NetworkPolicy quorum-controllers" in api.accepted


async def test_policies_and_budgets_can_be_left_to_others(make: Make) -> None:
    """What was there before goes, and the brokers' own policies stay."""
    switches = "networkPolicy: {enabled: false}, disruptionBudgets: {enabled: false}"
    api, cache = _Api("", ApiError(500, "", "")), ObjectCache()
    brokers = "networkPolicy: {enabled: true}"
    await _apply(api, make, cache=cache, brokers=brokers)
    guards = {
        "NetworkPolicy quorum-controllers",
        "PodDisruptionBudget quorum",
        "PodDisruptionBudget quorum-brokers",
    }
    assert guards <= set(api.accepted)
    api.accepted.clear()
    await _apply(api, make, switches, cache=cache, brokers=brokers)
    assert set(api.deleted) == guards
    assert not guards & set(api.accepted)


async def test_the_bootstrap_service_of_a_listener_goes_with_its_field(make: Make) -> None:
    api, cache = _Api("", ApiError(500, "", "")), ObjectCache()
    more = "listeners: [{name: IN}, {name: OUT, exposure: {type: NodePort, bootstrap: {}}}]"
    await _apply(api, make, cache=cache, listeners=more)
    assert "Service brokers-bootstrap-out" in api.accepted
    await _apply(api, make, cache=cache)
    assert api.deleted == ["Service brokers-bootstrap-out"]


@pytest.mark.parametrize("status", [0, 401, 409, 429, 500, 503])
async def test_trouble_of_the_api_server_is_no_refusal(make: Make, status: int) -> None:
    with pytest.raises(ApiError):
        await _apply(_Api("NetworkPolicy", ApiError(status, "", "no")), make)
