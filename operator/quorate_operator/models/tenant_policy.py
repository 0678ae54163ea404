"""What the operator's administrator lets the owners of resources ask for. Pure.

The operator may create any pod and read Secrets. Without a policy, a user who may create a KafkaBroker could do the
same. By default pods are restricted, run known images, and read no other objects of the namespace than Quorate itself
needs; the operator connects to no Kafka clusters but its own.
"""

import re
from collections.abc import Callable, Iterable, Iterator
from functools import lru_cache
from ipaddress import ip_address, ip_network
from typing import Annotated, Literal, NamedTuple

import yaml
from pydantic import AfterValidator, Field, StringConstraints, ValidationError

from quorate_operator.models.base import Model, check_network, shown_value
from quorate_operator.models.yaml_errors import YAML_ERRORS

LIST_LENGTH_MAX = 256
PATTERNS_SHOWN_MAX = 10
POLICY_SIZE_BYTES_MAX = 64 * 1024
NOT_ALLOWED = "NotAllowed"
"""The reason in conditions and Events of a resource that the policy refuses."""

Pattern = Annotated[str, StringConstraints(min_length=1, max_length=500, pattern=r"^[^\s]+$")]
Patterns = Annotated[tuple[Pattern, ...], Field(strict=False, max_length=LIST_LENGTH_MAX)]


class PolicyError(ValueError):
    """A policy that can't be used. The message names the field and what is allowed."""


Networks = Annotated[
    tuple[Annotated[str, AfterValidator(check_network)], ...],
    Field(strict=False, max_length=LIST_LENGTH_MAX),
]


class TenantPolicy(Model):
    """Allow-lists by what they are about. In patterns, `*` stands for any text."""

    images: Patterns = ()
    """Images beside those that the operator itself runs nodes with."""
    pod_security: Literal["restricted", "any"] = "restricted"
    """restricted: the Pod Security Standard of this name. any: what the namespace enforces, and nothing else."""
    service_accounts: Patterns = ()
    volume_types: Patterns = ("emptyDir", "downwardAPI")
    """Types of volumes and of the sources of projected ones. Those below are allowed by the names of the objects."""
    secrets: Patterns = ()
    """Names of Secrets that `env`, `volumes` and `imagePullSecrets` may read."""
    config_maps: Patterns = ()
    claims: Patterns = ()
    """Names of PersistentVolumeClaims that pods may mount."""
    pod_labels: Patterns = ()
    pod_annotations: Patterns = ()
    exposure_annotations: Patterns = ()
    node_labels: Patterns = (
        "topology.kubernetes.io/*",
        "kubernetes.io/hostname",
        "kubernetes.io/arch",
        "kubernetes.io/os",
    )
    """Labels of Kubernetes nodes that pods may be scheduled by, and racks named after."""
    taints: Patterns = ("node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable")
    affinity_namespaces: Patterns = ()
    """Other namespaces whose pods may decide where pods run; a selector of namespaces needs `*`."""
    priority_classes: Patterns = ()
    exposure_types: Patterns = ("Internal", "External", "NodePort", "LoadBalancer", "Ingress", "Route")
    exposure_classes: Patterns = ()
    """Classes of load balancers and Ingresses, besides the default ones."""
    hosts: Patterns = ()
    """Hosts of Ingresses and Routes, and of issued certificates. `*` stands for text without dots."""
    addresses: Networks = ()
    """Networks of the addresses that Services may claim."""
    issuers: Patterns = ("Issuer/*",)
    """Issuers of certificates: `KIND/NAME`, or `KIND.GROUP/NAME` for groups other than cert-manager.io."""
    servers: Patterns = ()
    """`bootstrapServers`: `HOST:PORT`. `*` stands for text without dots and colons."""

    def with_images(self, images: Iterable[str]) -> "TenantPolicy":
        """Return the policy that also allows the operator's own images; `{version}` in them is any release."""
        own = tuple(image.replace("{version}", "*") for image in images)
        return self.model_copy(update={"images": (*self.images, *own)})

    def list_of(self, name: str) -> tuple[str, ...]:
        """Return the list that is called `name` in the chart."""
        allowed: tuple[str, ...] = getattr(self, _FIELD_OF[name])
        return allowed


_FIELD_OF = {field.alias: name for name, field in TenantPolicy.model_fields.items()}

DEFAULT_POLICY = TenantPolicy()


class Refused(NamedTuple):
    """A value that the policy does not allow."""

    field: str
    value: str
    rule: str
    """What is allowed, or must be."""
    list_name: str
    """The list of the policy that can allow it; empty if none can."""

    def __str__(self) -> str:
        text = f"{self.field}: {self.value}: {self.rule}"
        if not self.list_name:
            return text
        return (
            f"{text}; the administrator of the operator can allow it in policy.{self.list_name} of its chart"
        )


def parse_policy(text: str) -> TenantPolicy:
    """Return the policy of a YAML or JSON text; an empty text is the default. Raises PolicyError."""
    try:
        size_bytes = len(text.encode())
    except UnicodeEncodeError as error:  # a variable of the environment may have any bytes
        raise PolicyError("the policy is not Unicode text") from error
    if size_bytes > POLICY_SIZE_BYTES_MAX:
        raise PolicyError(f"the policy has more than {POLICY_SIZE_BYTES_MAX} bytes")
    try:
        content = yaml.safe_load(text)
    except (*YAML_ERRORS, RecursionError) as error:
        raise PolicyError(f"can't be read as YAML: {' '.join(str(error).split())}") from error
    try:
        return TenantPolicy.model_validate({} if content is None else content)
    except ValidationError as error:
        allowed = ", ".join(field.alias or name for name, field in TenantPolicy.model_fields.items())
        lines = [
            f"{'.'.join(map(str, fault['loc'])) or 'policy'}: {fault['msg']}"
            + (f"; allowed are {allowed}" if fault["type"] == "extra_forbidden" else "")
            for fault in error.errors(include_url=False, include_input=False)
        ]
        raise PolicyError("; ".join(lines)) from None


def allows(patterns: Iterable[str], value: str) -> bool:
    """Whether a value matches a pattern; `*` stands for any text.

    Behind a colon, as in `kafka:*`, it stands for text without slashes: a tag, and not the port of a registry.
    """
    return any(_compiled(pattern, ".*").fullmatch(value) for pattern in patterns)


def allows_host(patterns: Iterable[str], value: str) -> bool:
    """As `allows` for hosts: case does not matter, and `*` stands for a part without dots and colons.

    A pattern without a port allows each port. `*` alone allows everything.
    """
    host = value.lower()
    without_port = host.rpartition(":")[0] or host
    return any(
        pattern == "*" or _compiled(pattern.lower(), "[^.:]*").fullmatch(text)
        for pattern in patterns
        for text in (host, without_port)
    )


def allows_address(networks: Iterable[str], value: str) -> bool:
    """Whether an address is in one of the networks."""
    try:
        address = ip_address(value)
    except ValueError:
        return False
    return any(address in ip_network(network) for network in networks)


class Check(NamedTuple):
    """One value of a spec, and the list of the policy that has to allow it."""

    field: str
    value: object
    list_name: str
    matches: Callable[[Iterable[str], str], bool] = allows
    others: tuple[str, ...] = ()
    """What is allowed besides the list, for the refusal."""

    def refusals(self, policy: TenantPolicy) -> Iterator[Refused]:
        """Yield the refusal of the value, unless the policy allows it."""
        allowed = policy.list_of(self.list_name)
        if not (isinstance(self.value, str) and self.matches(allowed, self.value)):
            rule = _rule((*allowed, *self.others))
            yield Refused(self.field, shown_value(self.value), rule, self.list_name)


def _rule(allowed: tuple[str, ...]) -> str:
    shown = ", ".join(allowed[:PATTERNS_SHOWN_MAX]) + (", ..." if len(allowed) > PATTERNS_SHOWN_MAX else "")
    return f"must be one of {shown}" if allowed else "is not allowed"


@lru_cache(maxsize=4096)
def _compiled(pattern: str, wildcard: str) -> re.Pattern[str]:
    first, *others = pattern.split("*")
    text, before = re.escape(first), first
    for part in others:
        text += ("[^/]*" if before.endswith(":") else wildcard) + re.escape(part)
        before = part
    return re.compile(text, re.DOTALL)
