"""Which resources are used while some are invalid, or contradict each other."""

from typing import Any

from kit.reconciles import resource
from quorate_operator.handlers.resources import ClusterResources, is_deleted
from quorate_operator.handlers.validation import Named, ValidationResult, validate
from quorate_operator.models.tenant_policy import DEFAULT_POLICY, TenantPolicy
from quorate_operator.runtime.kubernetes.api import BROKERS, CONTROLLERS

Object = dict[str, Any]
QUORUM = Named("KafkaController", "quorum")


def _resource(name: str, *, kind: str = "KafkaBroker", created: int = 0, **spec: Any) -> Object:
    if kind == "KafkaBroker":
        spec = {"controllers": "quorum", "replicas": 3, "nodeIds": {"first": 0}, **spec}
    made = resource(CONTROLLERS if kind == CONTROLLERS.name else BROKERS, name, **spec)
    made["metadata"] |= {"uid": f"{kind} {name}", "creationTimestamp": f"2026-01-0{created + 1}T00:00:00Z"}
    return made


def _quorum(**spec: Any) -> Object:
    return _resource("quorum", kind="KafkaController", **spec)


def _accepted(
    quorum: Object,
    *pools: Object,
    before: ValidationResult | None = None,
    policy: TenantPolicy = DEFAULT_POLICY,
) -> ValidationResult:
    resources = ClusterResources(
        quorum=quorum,
        pools={body["metadata"]["name"]: body for body in pools},
        leaving_pools=frozenset(body["metadata"]["name"] for body in pools if is_deleted(body)),
        namesakes=frozenset(body["metadata"]["name"] for body in pools) & {quorum["metadata"]["name"]},
    )
    return validate(resources, before.accepted if before else {}, policy)


def _node_ids(acceptance: ValidationResult) -> dict[str, list[int]]:
    assert acceptance.manifests is not None
    return {
        pool.metadata.name: list(pool.spec.all_node_ids())
        for pool in (acceptance.manifests.controllers, *acceptance.manifests.brokers)
    }


def test_a_new_pool_that_collides_is_refused_alone() -> None:
    old, new = _resource("brokers"), _resource("a", created=1, nodeIds={"first": 2})
    before = _accepted(_quorum(), old)
    for known in (before, None):
        found = _accepted(_quorum(), old, new, before=known)
        assert _node_ids(found) == {"quorum": [3000, 3001, 3002], "brokers": [0, 1, 2]}
        assert found.refused.keys() == {Named("KafkaBroker", "a")}
        assert "node id 2 belongs to KafkaBroker brokers" in found.refused[Named("KafkaBroker", "a")]
        assert found.spec_of(new) is None


def test_a_change_that_collides_leaves_both_pools_as_they_were() -> None:
    old, young = (
        _resource("old"),
        _resource("young", created=1, nodeIds={"first": 5}),
    )
    before = _accepted(_quorum(), old, young)
    grown = _resource("old", replicas=6)
    found = _accepted(_quorum(), grown, young, before=before)
    assert _node_ids(found) == {"quorum": [3000, 3001, 3002], "old": [0, 1, 2], "young": [5, 6, 7]}
    assert found.refused.keys() == {Named("KafkaBroker", "old")}
    assert found.spec_of(grown) == old["spec"]
    reported = [{"type": "Stalled", "reason": "InvalidManifest"}]
    status = {"acceptedSpec": old["spec"], "conditions": reported}
    restarted = _accepted(_quorum(), {**grown, "status": status}, young)
    assert _node_ids(restarted) == _node_ids(found)
    right = _accepted(_quorum(), _resource("old", replicas=4), young, before=found)
    assert right.refused == {}
    assert _node_ids(right)["old"] == [0, 1, 2, 3]


def test_an_invalid_quorum_is_used_as_it_was() -> None:
    """Controllers are kept alive whatever is written about them, and a pause still counts."""
    pool = _resource("brokers", nodeIds={"first": 3005})
    before = _accepted(_quorum(), pool)
    for wrong in (_quorum(replicas=7), _quorum(recovery={"survivor": 1})):
        if "recovery" in wrong["spec"]:
            wrong["metadata"]["annotations"] = {"quorate.dev/pause": "true"}
        found = _accepted(wrong, pool, before=before)
        assert found.refused.keys() == {QUORUM}
        assert _node_ids(found) == {"quorum": [3000, 3001, 3002], "brokers": [3005, 3006, 3007]}
    assert found.manifests is not None
    assert found.manifests.controllers.metadata.annotations == {"quorate.dev/pause": "true"}
    alone = _accepted(wrong, pool)
    assert alone.manifests is None
    assert alone.refused.keys() == {QUORUM}


def test_what_is_invalid_in_itself_is_left_out() -> None:
    namesake = _resource("quorum")
    wrong = _resource("wrong", listeners=[{"name": "CONTROLLER"}])
    right = _resource("right", created=2, nodeIds={"first": 7})
    found = _accepted(_quorum(), namesake, wrong, right)
    assert _node_ids(found) == {"quorum": [3000, 3001, 3002], "right": [7, 8, 9]}
    assert "is the name of a KafkaController" in found.refused[Named("KafkaBroker", "quorum")]
    assert "is the controllers' listener" in found.refused[Named("KafkaBroker", "wrong")]


def test_a_template_that_gives_no_host_is_told_where_it_is() -> None:
    before = _accepted(_quorum(), _resource("brokers"))
    listeners = [{"name": "PLAINTEXT", "advertisedHost": "b{nodeId}..example.com"}]
    wrong = _resource("brokers", listeners=listeners, replicas=2)
    found = _accepted(_quorum(), wrong, before=before)
    assert _node_ids(found) == {"quorum": [3000, 3001, 3002], "brokers": [0, 1, 2]}
    assert "advertisedHost: 'b{nodeId}..example.com': gives 'b0..example.com'" in (
        found.refusal_of(wrong) or ""
    )
    interim = [{"name": "PLAINTEXT", "interimHost": "-{nodeId}"}]
    assert "interimHost" in (_accepted(_quorum(), _resource("other", listeners=interim)).refused.popitem()[1])


def test_a_pool_that_is_drained_is_used_and_keeps_its_ids() -> None:
    old = _resource("old", storage={"onDeletion": "Delete"})
    before = _accepted(_quorum(), old)
    old["metadata"]["deletionTimestamp"] = "2026-01-05T00:00:00Z"
    new = _resource("a", created=1)
    found = _accepted(_quorum(), old, new, before=before)
    assert found.manifests is not None
    assert found.manifests.drained_pools == {"old"}
    assert found.refused.keys() == {Named("KafkaBroker", "a")}

    invalid = {**old, "spec": {**old["spec"], "replicas": -1}}
    kept = _accepted(_quorum(), invalid, before=before)
    assert kept.manifests is not None
    assert (kept.manifests.drained_pools, kept.spec_of(invalid)) == ({"old"}, before.spec_of(old))

    retained = {**old, "spec": {**old["spec"], "storage": {"onDeletion": "Retain"}}}
    freed = _accepted(_quorum(), retained, new, before=before)
    assert freed.manifests is not None
    assert (freed.manifests.drained_pools, freed.refused) == (frozenset(), {})


HOST_PATH = {"volumes": [{"name": "v", "hostPath": {"path": "/"}}]}
HOST_PATHS = TenantPolicy.model_validate({"volumeTypes": ["hostPath"]})


def test_what_the_policy_does_not_allow_is_not_used() -> None:
    quorum, pool = _quorum(), _resource("brokers", template=HOST_PATH)
    found = _accepted(quorum, pool)
    brokers = Named("KafkaBroker", "brokers")
    assert _node_ids(found) == {"quorum": [3000, 3001, 3002]}
    assert (found.refused.keys(), found.not_allowed) == ({brokers}, {brokers})
    assert (found.reason_of(brokers), found.reason_of(QUORUM)) == ("NotAllowed", "InvalidManifest")
    assert found.refused[brokers].startswith(
        "namespace kafka: KafkaBroker brokers: spec.template.volumes[0]: 'hostPath': must be one of emptyDir, "
    )
    wrong = _accepted(_quorum(template=HOST_PATH), pool)
    assert wrong.manifests is None
    assert wrong.reason_of(QUORUM) == "NotAllowed"
    allowed = _accepted(quorum, pool, policy=HOST_PATHS)
    assert not allowed.refused


def test_neither_a_former_spec_nor_a_status_gets_past_the_policy() -> None:
    """A spec that was accepted under another policy is not built again."""
    pool = _resource("brokers", template=HOST_PATH)
    before = _accepted(_quorum(), pool, policy=HOST_PATHS)
    assert _node_ids(before)["brokers"] == [0, 1, 2]
    for known, status in ((before, {}), (None, {"acceptedSpec": pool["spec"]})):
        found = _accepted(_quorum(), {**pool, "status": status}, before=known)
        assert _node_ids(found) == {"quorum": [3000, 3001, 3002]}
        assert found.spec_of(pool) is None
    changed = _resource("brokers", template=HOST_PATH, replicas=9)
    fine = _resource("brokers")
    kept = _accepted(_quorum(), changed, before=_accepted(_quorum(), fine))
    assert _node_ids(kept)["brokers"] == [0, 1, 2]
    assert kept.spec_of(changed) == fine["spec"]


def test_fields_that_this_release_does_not_know_are_left_out_and_named() -> None:
    """The API server fills in the defaults of newer definitions in every resource."""
    listeners = [{"name": "PLAINTEXT", "port": 9092, "newest": True}]
    quorum, pool = _quorum(newer="on", rollout={"newer": 1}), _resource("brokers", listeners=listeners)
    found = _accepted(quorum, pool)
    assert found.refused == {}
    assert _node_ids(found) == {"quorum": [3000, 3001, 3002], "brokers": [0, 1, 2]}
    assert sorted(found.unknown_of(quorum)) == ["spec.newer", "spec.rollout.newer"]
    assert found.unknown_of(pool) == ("spec.listeners[0].newest",)
    invalid = _accepted(quorum, _resource("brokers", newer="on", nodeIds={"first": 3000}))
    message = invalid.refused[Named("KafkaBroker", "brokers")]
    assert "3000" in message
    assert "newer" not in message


def test_the_pool_that_controllers_run_in_is_judged_first() -> None:
    """Older pools, and invalid ones, do not make it look as if it were missing."""
    quorum = _quorum(placement={"type": "WithBrokers", "pool": "small"})
    other = _resource("other", nodeIds={"first": 100})
    carrying = _resource("small", created=1)
    invalid = _resource("z", created=2, nodeIds={"first": 1})
    found = _accepted(quorum, other, carrying, invalid)
    assert found.refused.keys() == {Named("KafkaBroker", "z")}
    assert _node_ids(found) == {"quorum": [3000, 3001, 3002], "small": [0, 1, 2], "other": [100, 101, 102]}


def test_a_pool_is_not_scaled_below_the_controllers_in_its_pods() -> None:
    quorum = _quorum(placement={"type": "WithBrokers", "pool": "small"})
    before = _accepted(quorum, _resource("small"))
    found = _accepted(quorum, _resource("small", replicas=2), before=before)
    assert "small has brokers for 2 controllers" in found.refused[Named("KafkaBroker", "small")]
    assert _node_ids(found)["small"] == [0, 1, 2]


def test_controllers_without_their_pool_are_refused() -> None:
    quorum = _quorum(placement={"type": "WithBrokers", "pool": "small"})
    before = _accepted(quorum, _resource("small"))
    for known in (None, before):
        found = _accepted(quorum, before=known)
        assert found.manifests is None
        assert "spec.placement.pool: 'small': no such KafkaBroker" in found.refused[QUORUM]
