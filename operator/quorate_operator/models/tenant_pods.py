"""Compares the parts of pods that a template adds with the tenants' policy. Pure.

`restricted` is Kubernetes' Pod Security Standard of this name. It is checked here, too, because a namespace need not
enforce it.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from quorate_operator.models.base import shown_value
from quorate_operator.models.tenant_policy import Check, Refused, TenantPolicy

Part = Mapping[str, Any]
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


def check_references(where: str, template: Part, policy: TenantPolicy) -> Iterator[Refused]:
    """Yield the objects that environment variables and volumes read, and may not."""
    yield from _of_env(f"{where}.env", template.get("env"), policy)
    for field, volume in _items(f"{where}.volumes", template.get("volumes")):
        if volume is None:
            yield _misshapen(field)
            continue
        for kind, source in volume.items():
            if kind == "projected":
                sources = source.get("sources") if isinstance(source, dict) else source
                for part, projected in _items(f"{field}.projected.sources", sources):
                    if projected is None:
                        yield _misshapen(part)
                        continue
                    for source_kind, content in projected.items():
                        yield from _of_source(part, source_kind, content, _PROJECTED_BY_NAME, policy)
            elif kind != "name":
                yield from _of_source(field, kind, source, _BY_NAME, policy)


def check_containers(where: str, containers: Sequence[Any], policy: TenantPolicy) -> Iterator[Refused]:
    """Yield what sidecars ask for and may not have."""
    for field, container in _items(where, containers):
        if container is None:
            yield _misshapen(field)
            continue
        yield from Check(f"{field}.image", container.get("image"), "images").refusals(policy)
        yield from _of_env(f"{field}.env", container.get("env"), policy)
        for part, source in _items(f"{field}.envFrom", container.get("envFrom")):
            for kind, reference in (source or {"": None}).items():
                if kind == "prefix":
                    continue
                name = reference.get("name") if isinstance(reference, dict) else None
                list_name = _ENV_FROM_BY_NAME.get(kind, "secrets")
                yield from Check(f"{part}.{kind}.name", name, list_name).refusals(policy)
        if policy.pod_security == "restricted":
            yield from _restricted_container(field, container)


def check_pod_security(where: str, context: object, policy: TenantPolicy) -> Iterator[Refused]:
    """Yield what the security context of a pod takes away from the restricted standard."""
    if policy.pod_security != "restricted" or context is None:
        return
    if not isinstance(context, dict):
        yield _misshapen(where)
        return
    yield from _unknown(where, context, _POD_CONTEXT_FIELDS)
    yield from _of_context(where, context)
    for field, sysctl in _items(f"{where}.sysctls", context.get("sysctls")):
        name = (sysctl or {}).get("name")
        if name not in _SAFE_SYSCTLS:
            yield _insecure(f"{field}.name", name, f"must be one of {', '.join(sorted(_SAFE_SYSCTLS))}")


def _of_env(where: str, env: object, policy: TenantPolicy) -> Iterator[Refused]:
    for field, variable in _items(where, env):
        source = {"": None} if variable is None else variable.get("valueFrom") or {}
        if not isinstance(source, dict):
            yield _misshapen(field)
            continue
        for kind, reference in source.items():
            if kind in _ENV_HARMLESS:
                continue
            name = reference.get("name") if isinstance(reference, dict) else None
            list_name = _ENV_BY_NAME.get(kind, "secrets")
            yield from Check(f"{field}.valueFrom.{kind}.name", name, list_name).refusals(policy)


def _of_source(
    field: str, kind: str, source: object, by_name: Mapping[str, tuple[str, str]], policy: TenantPolicy
) -> Iterator[Refused]:
    if kind not in by_name:
        yield from Check(field, kind, "volumeTypes", others=tuple(by_name)).refusals(policy)
        return
    key, list_name = by_name[kind]
    name = source.get(key) if isinstance(source, dict) else None
    yield from Check(f"{field}.{kind}.{key}", name, list_name).refusals(policy)


def _restricted_container(where: str, container: Part) -> Iterator[Refused]:
    yield from _unknown(where, container, _CONTAINER_FIELDS)
    for field, port in _items(f"{where}.ports", container.get("ports")):
        for key in ("hostPort", "hostIP"):
            if (port or {}).get(key):
                yield _insecure(f"{field}.{key}", (port or {})[key], "must not be set")
    lifecycle = container.get("lifecycle") or {}
    for name, handler in (
        *((name, container.get(name)) for name in _PROBES),
        *((f"lifecycle.{name}", handler) for name, handler in _pairs(lifecycle)),
    ):
        for kind, request in _pairs(handler):
            # The kubelet would send it from the network of its node.
            if isinstance(request, dict) and request.get("host"):
                yield _insecure(f"{where}.{name}.{kind}.host", request["host"], "must not be set")
    context = container.get("securityContext") or {}
    field = f"{where}.securityContext"
    if not isinstance(context, dict):
        yield _misshapen(field)
        return
    yield from _unknown(field, context, _CONTAINER_CONTEXT_FIELDS)
    yield from _of_context(field, context)
    if context.get("allowPrivilegeEscalation") is not False:
        value = context.get("allowPrivilegeEscalation")
        yield _insecure(f"{field}.allowPrivilegeEscalation", value, "must be false")
    if context.get("privileged"):
        yield _insecure(f"{field}.privileged", context["privileged"], "must be false")
    if context.get("procMount") not in (None, "Default"):
        yield _insecure(f"{field}.procMount", context["procMount"], "must be Default")
    capabilities = context.get("capabilities") or {}
    dropped, added = (_texts(capabilities, name) for name in ("drop", "add"))
    if "ALL" not in dropped:
        yield _insecure(f"{field}.capabilities.drop", dropped, "must be [ALL]")
    if set(added) - {"NET_BIND_SERVICE"}:
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
    for name, value in _pairs(context.get("seLinuxOptions")):
        if name != "level":
            yield _insecure(f"{where}.seLinuxOptions.{name}", value, "must not be set")


def _unknown(where: str, part: Part, known: frozenset[str]) -> Iterator[Refused]:
    for name in part:
        if name not in known:
            yield _insecure(f"{where}.{name}", part[name], f"must be one of {', '.join(sorted(known))}")


def _insecure(field: str, value: object, rule: str) -> Refused:
    return Refused(field, shown_value(value), rule, _POD_SECURITY)


def _misshapen(field: str) -> Refused:
    return Refused(field, "this", "must be an object", "")


def _items(where: str, items: object) -> Iterator[tuple[str, dict[str, Any] | None]]:
    """Yield the objects of a list with their paths; None in place of what is no object."""
    if items is None:
        return
    if not isinstance(items, (list, tuple)):
        yield where, None
        return
    for place, item in enumerate(items):
        yield f"{where}[{place}]", item if isinstance(item, dict) else None


def _pairs(part: object) -> tuple[tuple[str, Any], ...]:
    return tuple(part.items()) if isinstance(part, dict) else ()


def _texts(part: object, name: str) -> list[str]:
    values = part.get(name) if isinstance(part, dict) else None
    return [str(value) for value in values] if isinstance(values, (list, tuple)) else []
