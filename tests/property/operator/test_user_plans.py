"""Whatever a user has and whatever is asked for: the planned changes lead there, and then nothing is due."""

from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from kit.kafka_model import kafka_of
from kit.user_model import UserModel
from quorate_operator.entities.users import (
    ObservedSecret,
    ObservedUser,
    StoredUser,
    bindings_of,
    plan_user,
    plan_user_deletion,
    quota_values,
)
from quorate_operator.models.manifests import load_entity
from quorate_operator.models.users import Acl, KafkaUser

LOOKS_MAX = 6
MECHANISMS = ("SCRAM-SHA-256", "SCRAM-SHA-512")
ACLS = st.lists(
    st.builds(
        lambda permission, name, pattern, operations: {
            "permission": permission,
            "resource": {"type": "Topic", "name": name, "pattern": pattern},
            "operations": operations,
        },
        st.sampled_from(["Allow", "Deny"]),
        st.sampled_from(["a", "b"]),
        st.sampled_from(["Literal", "Prefixed"]),
        st.lists(st.sampled_from(["Read", "Write", "All"]), min_size=1, unique=True),
    ),
    max_size=3,
)
QUOTAS = st.dictionaries(
    st.sampled_from(["producerByteRate", "consumerByteRate", "requestPercentage"]), st.integers(1, 3)
)
PRINCIPAL = "User:alice"


def resource(spec: dict[str, Any]) -> KafkaUser:
    """A resource with this spec."""
    manifest = {
        "apiVersion": "quorate.dev/v1alpha1",
        "kind": "KafkaUser",
        "metadata": {"name": "alice", "uid": "u"},
        "spec": {"cluster": "quorum", **spec},
    }
    loaded = load_entity(manifest, "test")
    assert isinstance(loaded, KafkaUser)
    return loaded


@st.composite
def specs(draw: st.DrawFn) -> dict[str, Any]:
    """Any part may be missing."""
    spec: dict[str, Any] = {}
    if draw(st.booleans()):
        spec["authentication"] = {"type": draw(st.sampled_from(["scram-sha-256", "scram-sha-512"]))}
    if draw(st.booleans()):
        spec["acls"] = draw(ACLS)
    if draw(st.booleans()):
        spec["quotas"] = draw(QUOTAS)
    return spec


@st.composite
def users(draw: st.DrawFn) -> UserModel:
    """What is there before."""
    acls = [Acl.model_validate(acl) for acl in draw(ACLS)]
    secret = draw(st.none() | st.just(ObservedSecret(version="s/1", password="p0", is_own=True)))
    quotas = draw(
        st.dictionaries(st.sampled_from(["producer_byte_rate", "request_percentage"]), st.just(2.0))
    )
    return UserModel(
        ObservedUser(
            mechanisms=frozenset(draw(st.sets(st.sampled_from(MECHANISMS)))),
            acls=frozenset(binding for acl in acls for binding in bindings_of(acl, PRINCIPAL)),
            quotas=quotas,
            secret=secret,
        )
    )


def converge(asked: KafkaUser, model: UserModel, stored: StoredUser) -> StoredUser:
    """Look and apply until nothing is due."""
    for _ in range(LOOKS_MAX):
        plan = plan_user(asked, model.user, kafka_of([None]), stored=model.stored(stored))
        assert not plan.refusals
        stored = StoredUser.of_status(plan.status)
        if not plan.changes:
            return stored
        for change in plan.changes:
            model.apply(change)
    raise AssertionError(f"after {LOOKS_MAX} looks: {plan.changes}")


@given(users(), specs(), specs())
def test_plans_lead_to_what_is_asked_for(
    model: UserModel, first: dict[str, Any], then: dict[str, Any]
) -> None:
    """Plans converge, whatever came before, and what no spec names stays."""
    stored = StoredUser()
    for spec in (first, then):
        asked, before, passwords = resource(spec), model.user, dict(model.passwords)
        managed = stored.mechanism
        stored = converge(asked, model, stored)
        if asked.mechanism is not None:
            assert model.user.secret is not None
            assert model.passwords == {asked.mechanism: model.user.secret.password}
        else:
            assert model.passwords == {
                name: password for name, password in passwords.items() if name != managed
            }
        if asked.spec.acls is None:
            assert model.user.acls == before.acls
        else:
            assert model.user.acls == {
                binding for acl in asked.spec.acls for binding in bindings_of(acl, PRINCIPAL)
            }
        quotas = before.quotas if asked.spec.quotas is None else quota_values(asked.spec.quotas)
        assert model.user.quotas == quotas
    for change in plan_user_deletion(asked, model.user, model.stored(stored)).changes:
        model.apply(change)
    assert asked.mechanism not in model.passwords
    assert asked.spec.acls is None or not model.user.acls
    assert asked.spec.quotas is None or not model.user.quotas
