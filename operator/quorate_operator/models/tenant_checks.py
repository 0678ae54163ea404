"""Compares resources with the tenants' policy: each field that reaches further than the resource's own nodes. Pure.

Specs are read as the API server stores them.
"""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from quorate_operator.models.exposures import BY_HOST
from quorate_operator.models.tenant_pods import template_refusals
from quorate_operator.models.tenant_policy import Check, Refused, TenantPolicy, allows_address, allows_host

Spec = Mapping[str, Any]
_CERT_MANAGER = "cert-manager.io"


def pool_refusals(spec: Spec, policy: TenantPolicy) -> tuple[Refused, ...]:
    """Return what the policy does not allow in the spec of a KafkaController or KafkaBroker."""
    return (*_refused(_of_pool(spec), policy), *template_refusals(spec.get("template") or {}, policy))


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
    by_host = set()
    for place, listener in enumerate(spec.get("listeners") or ()):
        where = f"spec.listeners[{place}]"
        issuer = (listener.get("tls") or {}).get("issuerRef")
        if issuer is not None:
            yield _issuer(f"{where}.tls.issuerRef", issuer)
        exposure = listener.get("exposure") or {}
        yield from _of_exposure(f"{where}.exposure", exposure)
        if exposure.get("type") in BY_HOST:
            by_host.add(listener.get("name"))
            hosts = [(f"{where}.{field}", listener.get(field)) for field in ("advertisedHost", "interimHost")]
            hosts.append((f"{where}.exposure.bootstrapHost", exposure.get("bootstrapHost")))
            yield from (Check(field, host, "hosts", allows_host) for field, host in hosts if host is not None)
    for place, node in enumerate(spec.get("nodes") or ()):
        for listener_name, host in (node.get("advertisedHosts") or {}).items():
            if listener_name in by_host:
                yield Check(
                    f"spec.nodes[{place}].advertisedHosts.{listener_name}", host, "hosts", allows_host
                )


def _of_exposure(where: str, exposure: Spec) -> Iterator[Check]:
    if exposure.get("type") is not None:
        yield Check(f"{where}.type", exposure["type"], "exposureTypes")
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


def _issuer(field: str, issuer: Spec) -> Check:
    kind, group = issuer.get("kind", "Issuer"), issuer.get("group", _CERT_MANAGER)
    qualified = kind if group == _CERT_MANAGER else f"{kind}.{group}"
    return Check(field, f"{qualified}/{issuer.get('name')}", "issuers")
