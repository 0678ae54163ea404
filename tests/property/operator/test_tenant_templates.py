"""Whatever JSON a template has: the tenants' policy allows or refuses it, and never fails."""

from collections.abc import Iterator
from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from kit.affinity import EVERY_FIELD
from quorate_operator.models.pod_templates import PodTemplate
from quorate_operator.models.tenant_checks import pool_refusals
from quorate_operator.models.tenant_policy import Refused, TenantPolicy

CONTEXT: dict[str, Any] = {
    "runAsUser": 1,
    "runAsNonRoot": True,
    "seccompProfile": {"type": "RuntimeDefault"},
    "appArmorProfile": {"type": "Localhost", "localhostProfile": "a"},
    "seLinuxOptions": {"level": "s0"},
}
TEMPLATE: dict[str, Any] = {
    "labels": {"a": "b"},
    "annotations": {"a": "b"},
    "nodeSelector": {"a": "b"},
    "tolerations": [{"key": "a"}],
    "affinity": EVERY_FIELD,
    "env": [
        {"name": "A", "valueFrom": {"secretKeyRef": {"name": "s"}}},
        {"name": "B", "valueFrom": {"fieldRef": {}}},
    ],
    "volumes": [
        {"name": "a", "secret": {"secretName": "s"}},
        {"name": "b", "projected": {"sources": [{"configMap": {"name": "c"}}, {"serviceAccountToken": {}}]}},
    ],
    "sidecars": [
        {
            "name": "s",
            "image": "a/b",
            "env": [{"name": "A", "value": "b"}],
            "envFrom": [{"prefix": "A_", "secretRef": {"name": "s"}}],
            "ports": [{"containerPort": 1, "hostPort": 1, "hostIP": "::"}],
            "livenessProbe": {"httpGet": {"host": "a"}},
            "lifecycle": {"preStop": {"httpGet": {"host": "a"}}},
            "securityContext": {
                **CONTEXT,
                "allowPrivilegeEscalation": False,
                "privileged": False,
                "procMount": "Default",
                "capabilities": {"drop": ["ALL"], "add": ["NET_BIND_SERVICE"]},
            },
        }
    ],
    "serviceAccountName": "a",
    "securityContext": {**CONTEXT, "sysctls": [{"name": "net.ipv4.tcp_wmem", "value": "1"}]},
    "priorityClassName": "a",
    "imagePullSecrets": [{"name": "a"}],
}
Path = tuple[str | int, ...]


def parts(value: Any, path: Path = ()) -> Iterator[Path]:
    """Where each part of a JSON value is."""
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for step, part in items:
        yield (*path, step)
        yield from parts(part, (*path, step))


def replaced(value: Any, path: Path, part: Any) -> Any:
    """The JSON value with another part."""
    if not path:
        return part
    step, *rest = path
    changed = dict(value) if isinstance(value, dict) else list(value)
    changed[step] = replaced(value[step], tuple(rest), part)
    return changed


PATHS = sorted(parts(TEMPLATE), key=str)
NAMES = sorted({step for path in PATHS for step in path if isinstance(step, str)})
VALUES = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False)
    | st.sampled_from(NAMES)
    | st.text()
)
JSON = st.recursive(
    VALUES,
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from(NAMES) | st.text(max_size=3), inner, max_size=3)
    ),
    max_leaves=8,
)
POLICIES = st.sampled_from(
    [
        TenantPolicy(),
        TenantPolicy.model_validate({"podSecurity": "any", "secrets": ["*"], "volumeTypes": ["*"]}),
    ]
)


def assert_judged(template: dict[str, Any], policy: TenantPolicy) -> None:
    for refused in pool_refusals({"template": template}, policy, "kafka"):
        assert isinstance(refused, Refused)
        assert str(refused).startswith("spec.template.")


@given(st.sampled_from(PATHS), JSON, POLICIES)
def test_each_part_of_a_template_may_be_anything(path: Path, part: Any, policy: TenantPolicy) -> None:
    assert_judged(replaced(TEMPLATE, path, part), policy)


@given(
    st.dictionaries(st.sampled_from([f"{field.alias}" for field in PodTemplate.model_fields.values()]), JSON),
    POLICIES,
)
def test_each_field_of_a_template_may_be_anything(template: dict[str, Any], policy: TenantPolicy) -> None:
    assert_judged(template, policy)
