"""Compares what `spec.template` adds to pods with the tenants' policy. Pure.

Kubernetes checks its own objects in it only when a pod is created: other shapes than the expected one are refused, as
are fields of pods that are not known to be harmless.

`restricted` is Kubernetes' Pod Security Standard of this name. It is checked here, too, because a namespace need not
enforce it.
"""

from collections.abc import Iterator, Mapping
from typing import Any

from quorate_operator.models.base import shown_value, without_nulls
from quorate_operator.models.tenant_policy import Check, Refused, TenantPolicy

Part = Mapping[str, Any]
Shape = dict[str, "Shape"] | list["Shape"]
"""An object with the shapes of some fields, or a list with the shape of its items. All else may be any JSON."""
LEVELS_MAX = 64
"""Of lists and objects in a template. Those of a pod are fewer, and many more exceed the stack."""

_REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
_PREFERRED = "preferredDuringSchedulingIgnoredDuringExecution"
_NODE_TERM: Shape = {"matchExpressions": [{}], "matchFields": [{}]}
_NODE_AFFINITY: Shape = {
    _REQUIRED: {"nodeSelectorTerms": [_NODE_TERM]},
    _PREFERRED: [{"preference": _NODE_TERM}],
}
_POD_TERM: Shape = {"namespaces": []}
_POD_AFFINITY: Shape = {_REQUIRED: [_POD_TERM], _PREFERRED: [{"podAffinityTerm": _POD_TERM}]}
_ENV: Shape = [{"valueFrom": {}}]
_SIDECAR: Shape = {
    "env": _ENV,
    "envFrom": [{}],
    "ports": [{}],
    "lifecycle": {},
    "securityContext": {"seLinuxOptions": {}, "capabilities": {"drop": [], "add": []}},
}
_TEMPLATE: Shape = {
    "labels": {},
    "annotations": {},
    "nodeSelector": {},
    "tolerations": [{}],
    "imagePullSecrets": [{}],
    "affinity": {
        "nodeAffinity": _NODE_AFFINITY,
        "podAffinity": _POD_AFFINITY,
        "podAntiAffinity": _POD_AFFINITY,
    },
    "env": _ENV,
    "volumes": [{"projected": {"sources": [{}]}}],
    "sidecars": [_SIDECAR],
    "securityContext": {"seLinuxOptions": {}, "sysctls": [{}]},
}
_POD_SECURITY = "podSecurity"
_CONTAINER_FIELDS = frozenset(
    {
        *(
            "args",
            "command",
            "env",
            "envFrom",
            "image",
            "imagePullPolicy",
            "lifecycle",
            "livenessProbe",
            "name",
        ),
        *("ports", "readinessProbe", "resizePolicy", "resources", "restartPolicy", "securityContext"),
        *("startupProbe", "stdin", "stdinOnce", "terminationMessagePath", "terminationMessagePolicy", "tty"),
        *("volumeMounts", "workingDir"),
    }
)
_POD_CONTEXT_FIELDS = frozenset(
    {
        *("appArmorProfile", "fsGroup", "fsGroupChangePolicy", "runAsGroup", "runAsNonRoot", "runAsUser"),
        *("seLinuxOptions", "seccompProfile", "supplementalGroups", "supplementalGroupsPolicy", "sysctls"),
    }
)
_CONTAINER_CONTEXT_FIELDS = frozenset(
    {
        *("allowPrivilegeEscalation", "appArmorProfile", "capabilities", "privileged", "procMount"),
        *(
            "readOnlyRootFilesystem",
            "runAsGroup",
            "runAsNonRoot",
            "runAsUser",
            "seLinuxOptions",
            "seccompProfile",
        ),
    }
)
_SAFE_SYSCTLS = frozenset(
    {
        *("kernel.shm_rmid_forced", "net.ipv4.ip_local_port_range", "net.ipv4.ip_local_reserved_ports"),
        *("net.ipv4.ip_unprivileged_port_start", "net.ipv4.ping_group_range", "net.ipv4.tcp_fin_timeout"),
        *("net.ipv4.tcp_keepalive_intvl", "net.ipv4.tcp_keepalive_probes", "net.ipv4.tcp_keepalive_time"),
        *("net.ipv4.tcp_rmem", "net.ipv4.tcp_syncookies", "net.ipv4.tcp_wmem"),
    }
)
"""Those of the baseline standard."""
_PROFILES = ("RuntimeDefault", "Localhost")
_PROBES = ("livenessProbe", "readinessProbe", "startupProbe")
_BY_NAME: Mapping[str, tuple[str, str]] = {
    "secret": ("secretName", "secrets"),
    "configMap": ("name", "configMaps"),
    "persistentVolumeClaim": ("claimName", "claims"),
    "image": ("reference", "images"),
}
"""The field of a volume's source that names an object, and the list of the policy that has to have it."""
_PROJECTED_BY_NAME: Mapping[str, tuple[str, str]] = {
    "secret": ("name", "secrets"),
    "configMap": ("name", "configMaps"),
}
_ENV_BY_NAME: Mapping[str, str] = {"secretKeyRef": "secrets", "configMapKeyRef": "configMaps"}
_ENV_HARMLESS = frozenset({"fieldRef", "resourceFieldRef", "fileKeyRef"})
_ENV_FROM_BY_NAME: Mapping[str, str] = {"secretRef": "secrets", "configMapRef": "configMaps"}


def template_refusals(template: object, policy: TenantPolicy, namespace: str | None) -> Iterator[Refused]:
    """Yield what the policy does not allow in `spec.template`, which may be any JSON."""
    where = "spec.template"
    if _has_more_levels(template, LEVELS_MAX):
        yield Refused(where, "this", f"may have {LEVELS_MAX} levels of lists and objects", "")
        return
    given = without_nulls(template)
    misshapen = tuple(_misshapen(where, given, _TEMPLATE))
    if misshapen:
        yield from misshapen
        return
    sidecars = _items(where, given, "sidecars")
    checks = [*_of_names(where, given, namespace), *_of_env(where, given), *_of_volumes(where, given)]
    for field, container in sidecars:
        checks += _of_sidecar(field, container)
    for check in checks:
        yield from check.refusals(policy)
    if policy.pod_security == "restricted":
        yield from _restricted_pod(f"{where}.securityContext", given.get("securityContext", {}))
        for field, container in sidecars:
            yield from _restricted_container(field, container)


def _has_more_levels(part: object, levels: int) -> bool:
    level = [part]
    for _ in range(levels + 1):
        level = [
            inner
            for outer in level
            if isinstance(outer, (dict, list, tuple))
            for inner in (outer.values() if isinstance(outer, dict) else outer)
        ]
    return bool(level)


def _misshapen(where: str, part: object, shape: Shape) -> Iterator[Refused]:
    """Yield the parts that have another shape than those that the checks read."""
    if isinstance(shape, dict):
        if not isinstance(part, dict):
            yield Refused(where, shown_value(part), "must be an object", "")
            return
        for name, inner in shape.items():
            if name in part:
                yield from _misshapen(f"{where}.{name}", part[name], inner)
    elif not isinstance(part, list):
        yield Refused(where, shown_value(part), "must be a list", "")
    else:
        for item_shape in shape:
            for place, item in enumerate(part):
                yield from _misshapen(f"{where}[{place}]", item, item_shape)


def _of_names(where: str, template: Part, namespace: str | None) -> Iterator[Check]:
    """Yield what a template asks for by name: labels, nodes, accounts, classes, Secrets of registries."""
    for field, list_name in (("labels", "podLabels"), ("annotations", "podAnnotations")):
        for name in template.get(field, ()):
            yield Check(f"{where}.{field}", name, list_name)
    for field, list_name in (
        ("serviceAccountName", "serviceAccounts"),
        ("priorityClassName", "priorityClasses"),
    ):
        if field in template:
            yield Check(f"{where}.{field}", template[field], list_name)
    for name in template.get("nodeSelector", ()):
        yield Check(f"{where}.nodeSelector", name, "nodeLabels")
    for field, toleration in _items(where, template, "tolerations"):
        # Without a key it tolerates all taints, as a pattern * would allow.
        yield Check(f"{field}.key", toleration.get("key") or "*", "taints")
    for field, secret in _items(where, template, "imagePullSecrets"):
        yield Check(f"{field}.name", secret.get("name"), "secrets")
    affinity = template.get("affinity", {})
    yield from _of_node_affinity(f"{where}.affinity.nodeAffinity", affinity.get("nodeAffinity", {}))
    for kind in ("podAffinity", "podAntiAffinity"):
        yield from _of_pod_affinity(f"{where}.affinity.{kind}", affinity.get(kind, {}), namespace)


def _of_node_affinity(where: str, affinity: Part) -> Iterator[Check]:
    terms = [
        *affinity.get(_REQUIRED, {}).get("nodeSelectorTerms", ()),
        *(item.get("preference", {}) for item in affinity.get(_PREFERRED, ())),
    ]
    for term in terms:
        for part in ("matchExpressions", "matchFields"):
            for expression in term.get(part, ()):
                yield Check(f"{where}: {part}: key", expression.get("key"), "nodeLabels")


def _of_pod_affinity(where: str, affinity: Part, namespace: str | None) -> Iterator[Check]:
    """Yield the other namespaces whose pods decide where the pod runs, or which may not run beside it."""
    terms = _items(where, affinity, _REQUIRED)
    for field, item in _items(where, affinity, _PREFERRED):
        terms.append((f"{field}.podAffinityTerm", item.get("podAffinityTerm", {})))
    for field, term in terms:
        for place, name in enumerate(term.get("namespaces", ())):
            if name != namespace:
                yield Check(f"{field}.namespaces[{place}]", name, "affinityNamespaces")
        if "namespaceSelector" in term:
            # Which namespaces have the labels, and which will have them, is not known here.
            yield Check(f"{field}.namespaceSelector", "*", "affinityNamespaces")


def _of_env(where: str, part: Part) -> Iterator[Check]:
    """Yield the objects that environment variables read."""
    for field, variable in _items(where, part, "env"):
        for kind, reference in variable.get("valueFrom", {}).items():
            if kind not in _ENV_HARMLESS:
                list_name = _ENV_BY_NAME.get(kind, "secrets")
                yield Check(f"{field}.valueFrom.{kind}.name", _text_of(reference, "name"), list_name)


def _of_volumes(where: str, template: Part) -> Iterator[Check]:
    """Yield the types of volumes, and the objects that they read."""
    for field, volume in _items(where, template, "volumes"):
        for kind, source in volume.items():
            if kind == "projected":
                for part, projected in _items(f"{field}.projected", source, "sources"):
                    for source_kind, content in projected.items():
                        yield _of_source(part, source_kind, content, _PROJECTED_BY_NAME)
            elif kind != "name":
                yield _of_source(field, kind, source, _BY_NAME)


def _of_source(field: str, kind: str, source: object, by_name: Mapping[str, tuple[str, str]]) -> Check:
    if kind not in by_name:
        return Check(field, kind, "volumeTypes", others=tuple(by_name))
    key, list_name = by_name[kind]
    return Check(f"{field}.{kind}.{key}", _text_of(source, key), list_name)


def _of_sidecar(where: str, container: Part) -> Iterator[Check]:
    """Yield the image of a container, and the objects that it reads."""
    yield Check(f"{where}.image", container.get("image"), "images")
    yield from _of_env(where, container)
    for field, source in _items(where, container, "envFrom"):
        for kind, reference in (source or {"": None}).items():
            if kind != "prefix":
                list_name = _ENV_FROM_BY_NAME.get(kind, "secrets")
                yield Check(f"{field}.{kind}.name", _text_of(reference, "name"), list_name)


def _restricted_pod(where: str, context: Part) -> Iterator[Refused]:
    """Yield what the security context of a pod takes away from the restricted standard."""
    yield from _unknown(where, context, _POD_CONTEXT_FIELDS)
    yield from _of_context(where, context)
    for field, sysctl in _items(where, context, "sysctls"):
        name = sysctl.get("name")
        if not (isinstance(name, str) and name in _SAFE_SYSCTLS):
            yield _insecure(f"{field}.name", name, f"must be one of {', '.join(sorted(_SAFE_SYSCTLS))}")


def _restricted_container(where: str, container: Part) -> Iterator[Refused]:
    yield from _unknown(where, container, _CONTAINER_FIELDS)
    for field, port in _items(where, container, "ports"):
        for key in ("hostPort", "hostIP"):
            if port.get(key):
                yield _insecure(f"{field}.{key}", port[key], "must not be set")
    handlers = {name: container.get(name) for name in _PROBES}
    handlers |= {f"lifecycle.{name}": handler for name, handler in container.get("lifecycle", {}).items()}
    for name, handler in handlers.items():
        for kind, request in handler.items() if isinstance(handler, dict) else ():
            # The kubelet would send it from the network of its node.
            if isinstance(request, dict) and request.get("host"):
                yield _insecure(f"{where}.{name}.{kind}.host", request["host"], "must not be set")
    context = container.get("securityContext", {})
    field = f"{where}.securityContext"
    yield from _unknown(field, context, _CONTAINER_CONTEXT_FIELDS)
    yield from _of_context(field, context)
    if context.get("allowPrivilegeEscalation") is not False:
        value = context.get("allowPrivilegeEscalation")
        yield _insecure(f"{field}.allowPrivilegeEscalation", value, "must be false")
    if context.get("privileged"):
        yield _insecure(f"{field}.privileged", context["privileged"], "must be false")
    if context.get("procMount") not in (None, "Default"):
        yield _insecure(f"{field}.procMount", context["procMount"], "must be Default")
    capabilities = context.get("capabilities", {})
    dropped, added = capabilities.get("drop", []), capabilities.get("add", [])
    if "ALL" not in dropped:
        yield _insecure(f"{field}.capabilities.drop", dropped, "must be [ALL]")
    if any(name != "NET_BIND_SERVICE" for name in added):
        yield _insecure(f"{field}.capabilities.add", added, "may be [NET_BIND_SERVICE]")


def _of_context(where: str, context: Part) -> Iterator[Refused]:
    """Yield what the contexts of pods and containers have in common."""
    if context.get("runAsNonRoot") not in (None, True):
        yield _insecure(f"{where}.runAsNonRoot", context["runAsNonRoot"], "must be true")
    user = context.get("runAsUser")
    if user is not None and (not isinstance(user, int) or user == 0):
        yield _insecure(f"{where}.runAsUser", user, "must be a number other than 0")
    for name in ("seccompProfile", "appArmorProfile"):
        profile = context.get(name)
        kind = profile.get("type") if isinstance(profile, dict) else profile
        if profile is not None and kind not in _PROFILES:
            yield _insecure(f"{where}.{name}.type", kind, f"must be one of {', '.join(_PROFILES)}")
    for name, value in context.get("seLinuxOptions", {}).items():
        if name != "level":
            yield _insecure(f"{where}.seLinuxOptions.{name}", value, "must not be set")


def _unknown(where: str, part: Part, known: frozenset[str]) -> Iterator[Refused]:
    for name in part:
        if name not in known:
            yield _insecure(f"{where}.{name}", part[name], f"must be one of {', '.join(sorted(known))}")


def _insecure(field: str, value: object, rule: str) -> Refused:
    return Refused(field, shown_value(value), rule, _POD_SECURITY)


def _items(where: str, part: Part, name: str) -> list[tuple[str, Part]]:
    """Return the objects of a list with their paths."""
    return [(f"{where}.{name}[{place}]", item) for place, item in enumerate(part.get(name, ()))]


def _text_of(part: object, name: str) -> object:
    """Return a field of what may be no object."""
    return part.get(name) if isinstance(part, dict) else None
