"""Compares resources with the tenants' policy: each field that reaches further than the resource's own nodes. Pure.

Specs are read as the API server stores them.
"""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from quorate_operator.models.exposures import BY_HOST
from quorate_operator.models.hosts import is_in_namespace
from quorate_operator.models.tenant_pods import template_refusals
from quorate_operator.models.tenant_policy import Check, Refused, TenantPolicy, allows_address, allows_host

Spec = Mapping[str, Any]
_CERT_MANAGER = "cert-manager.io"


def pool_refusals(spec: Spec, policy: TenantPolicy, namespace: str | None) -> tuple[Refused, ...]:
    """Return what the policy does not allow in the spec of a KafkaController or KafkaBroker.

    Names and pods of its own namespace need no list. Without `namespace`, only {namespace} in a host stands for it.
    """
    checks = (*_of_pool(spec), *_of_hosts(spec, namespace))
    refused = template_refusals(spec.get("template") or {}, policy, namespace)
    return (*_refused(checks, policy), *refused)


def entity_refusals(spec: Spec, policy: TenantPolicy) -> tuple[Refused, ...]:
    """Return what the policy does not allow in the spec of a KafkaTopic, KafkaUser or KafkaRebalance."""
    servers = [
        Check(f"spec.bootstrapServers[{place}]", server, "servers", allows_host)
        for place, server in enumerate(spec.get("bootstrapServers") or ())
    ]
    issuer = (spec.get("authentication") or {}).get("issuerRef")
    issuers = [] if issuer is None else [_issuer("spec.authentication.issuerRef", issuer)]
    found = [*_refused((*servers, *issuers), policy)]
    security = spec.get("security") or {}
    if security.get("protocol") == "SASL_PLAINTEXT" and security.get("mechanism") == "PLAIN":
        rule = "PLAIN sends the password itself, and needs protocol SASL_SSL"
        found.append(Refused("spec.security.mechanism", "'PLAIN'", rule, ""))
    return tuple(found)


def _refused(checks: Iterable[Check], policy: TenantPolicy) -> Iterator[Refused]:
    for check in checks:
        yield from check.refusals(policy)


def _of_pool(spec: Spec) -> Iterator[Check]:
    """Yield what a pool asks for outside of its template."""
    if spec.get("image") is not None:
        yield Check("spec.image", spec["image"], "images")
    history = spec.get("history") or {}
    if history.get("image") is not None:
        yield Check("spec.history.image", history["image"], "images")
    if history.get("claimName") is not None:
        yield Check("spec.history.claimName", history["claimName"], "claims")
    if spec.get("rack"):
        # The operator copies the label's value, which the owner then reads in Kafka.
        yield Check("spec.rack.topologyKey", spec["rack"].get("topologyKey"), "nodeLabels")
    for place, listener in enumerate(spec.get("listeners") or ()):
        where = f"spec.listeners[{place}]"
        issuer = _issuer_of(listener)
        if issuer is not None:
            yield _issuer(f"{where}.tls.issuerRef", issuer)
        yield from _of_exposure(f"{where}.exposure", listener.get("exposure") or {})


def _of_hosts(spec: Spec, namespace: str | None) -> Iterator[Check]:
    """Yield the hosts that Ingresses and Routes lead to brokers, and those that get into issued certificates."""
    led, issued = set(), set()
    hosts: list[tuple[object, str, object]] = []
    for place, listener in enumerate(spec.get("listeners") or ()):
        name, exposure = listener.get("name"), listener.get("exposure") or {}
        if exposure.get("type") in BY_HOST:
            led.add(name)
        if _issuer_of(listener) is not None:
            issued.add(name)
            # Of all listeners of a KafkaController, which has one.
            hosts.append((name, "spec.advertisedHost", spec.get("advertisedHost")))
        where = f"spec.listeners[{place}]"
        hosts += (
            (name, f"{where}.{field}", listener.get(field)) for field in ("advertisedHost", "interimHost")
        )
        hosts.append((name, f"{where}.exposure.bootstrapHost", exposure.get("bootstrapHost")))
    for place, node in enumerate(spec.get("nodes") or ()):
        for name, host in (node.get("advertisedHosts") or {}).items():
            hosts.append((name, f"spec.nodes[{place}].advertisedHosts.{name}", host))
    for name, field, host in hosts:
        if host is not None and (name in led or (name in issued and not _is_own(host, namespace))):
            yield Check(field, host, "hosts", allows_host)


def _is_own(host: object, namespace: str | None) -> bool:
    """Whether a template of hosts gives names of the pool's own namespace."""
    own = ("{namespace}",) if namespace is None else ("{namespace}", namespace)
    return isinstance(host, str) and any(is_in_namespace(host.lower(), name) for name in own)


def _of_exposure(where: str, exposure: Spec) -> Iterator[Check]:
    if exposure.get("type") is not None:
        yield Check(f"{where}.type", exposure["type"], "exposureTypes")
    for field in ("loadBalancerClass", "ingressClassName"):
        if exposure.get(field) is not None:
            yield Check(f"{where}.{field}", exposure[field], "exposureClasses")
    services = {where: exposure}
    services |= {f"{where}.nodes[{place}]": node for place, node in enumerate(exposure.get("nodes") or ())}
    services[f"{where}.bootstrap"] = exposure.get("bootstrap") or {}
    for of_service, service in services.items():
        for name in service.get("annotations") or ():
            yield Check(f"{of_service}.annotations", name, "exposureAnnotations")
        # An address of another Service, or of a node, would take over the traffic of others.
        for address in service.get("externalIPs") or ():
            yield Check(f"{of_service}.externalIPs", address, "addresses", allows_address)
        if service.get("loadBalancerIP") is not None:
            address = service["loadBalancerIP"]
            yield Check(f"{of_service}.loadBalancerIP", address, "addresses", allows_address)


def _issuer_of(listener: Spec) -> Spec | None:
    issuer: Spec | None = (listener.get("tls") or {}).get("issuerRef")
    return issuer


def _issuer(field: str, issuer: Spec) -> Check:
    kind, group = issuer.get("kind", "Issuer"), issuer.get("group", _CERT_MANAGER)
    qualified = kind if group == _CERT_MANAGER else f"{kind}.{group}"
    return Check(field, f"{qualified}/{issuer.get('name')}", "issuers")
