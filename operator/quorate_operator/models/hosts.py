"""Hosts and templates of hosts such as `b{nodeId}.kafka.example.com`: types of fields, and filling in for a node."""

import re
import string
from collections.abc import Mapping
from difflib import get_close_matches
from ipaddress import ip_address
from typing import Annotated

from pydantic import AfterValidator, WithJsonSchema

PLACEHOLDERS = ("nodeId", "offset", "pod", "pool", "cluster", "service", "namespace")
HOST_LENGTH_MAX = 253
"""The longest name that DNS has (RFC 1035)."""

CLUSTER_DOMAIN = "cluster.local"
_LABEL = re.compile(r"[A-Za-z0-9]([A-Za-z0-9_-]{0,61}[A-Za-z0-9])?")


class TemplateError(ValueError):
    """A template that can't be used. The message has the field, its value and what is allowed."""


def template_values(
    *, cluster: str, pool: str, node_id: int, first: int, namespace: str, service: str | None = None
) -> dict[str, str]:
    """Return the values of the placeholders for one node; `first` is the pool's nodeIds.first.

    The Service is named like the pool, unless it has another name.
    """
    return {
        "nodeId": str(node_id),
        "offset": str(node_id - first),
        "pod": f"{pool}-{node_id}",
        "pool": pool,
        "cluster": cluster,
        "service": service or pool,
        "namespace": namespace,
    }


def fill_host(template: str, values: Mapping[str, str], field: str) -> str:
    """Return the host that a template gives with the values of `template_values`. Raises TemplateError.

    `field` is its path in the manifest. A literal IPv6 address is a template without placeholders.
    """
    host = "".join(
        literal + (values[name] if name is not None else "") for literal, name in _parts(template, field)
    )
    if not _is_host(host):
        raise TemplateError(
            f"{field}: {template!r}: gives {host!r}, which is no host: names have letters, digits, '-' and '.', "
            f"parts of at most 63 and {HOST_LENGTH_MAX} characters in all; addresses are IPv4 or IPv6"
        )
    return host


def _parts(template: str, field: str) -> list[tuple[str, str | None]]:
    """Return the parts of a template in order: literal text, and the placeholder that follows it or None."""
    known = ", ".join(f"{{{name}}}" for name in PLACEHOLDERS)
    try:
        parsed = list(string.Formatter().parse(template))
    except ValueError as error:
        raise TemplateError(f"{field}: {template!r}: {error}; placeholders are {known}") from error
    parts: list[tuple[str, str | None]] = []
    for literal, name, form, conversion in parsed:
        if name is not None and (name not in PLACEHOLDERS or form or conversion):
            written = f"{name}{f'!{conversion}' if conversion else ''}{f':{form}' if form else ''}"
            close = get_close_matches(name, PLACEHOLDERS, n=1)
            hint = f"did you mean {{{close[0]}}}? " if close else ""
            raise TemplateError(
                f"{field}: {template!r}: unknown placeholder {{{written}}}; {hint}placeholders are {known}"
            )
        parts.append((literal, name))
    return parts


def _is_host(host: str) -> bool:
    try:
        ip_address(host)
    except ValueError:
        labels = host.removesuffix(".").split(".")
        return len(host) <= HOST_LENGTH_MAX and all(_LABEL.fullmatch(label) for label in labels)
    return True


NODE_PLACEHOLDERS = ("nodeId", "offset", "pod")
"""The placeholders whose values differ from node to node."""

_TEMPLATE_PATTERN = "^([A-Za-z0-9._:-]|\\{(" + "|".join(PLACEHOLDERS) + ")\\})+$"
_TEMPLATE_ALLOWED = "must be a host; placeholders are " + ", ".join(f"{{{name}}}" for name in PLACEHOLDERS)
_HOST_PATTERN = "^[A-Za-z0-9:]([A-Za-z0-9._:-]*[A-Za-z0-9:])?$"


def differs_by_node(template: str) -> bool:
    """Whether the template gives each node of a pool a host of its own."""
    return any(f"{{{name}}}" in template for name in NODE_PLACEHOLDERS)


def is_in_namespace(host: str, namespace: str) -> bool:
    """Whether a host is a name of this namespace, which has no meaning outside of Kubernetes."""
    return without_domain(host).endswith(f".{namespace}.svc")


def without_domain(host: str) -> str:
    """Return a name inside of Kubernetes without the domain of the Kubernetes cluster."""
    return host.removesuffix(".").removesuffix(f".{CLUSTER_DOMAIN}")


def _check_template(value: str) -> str:
    if len(value) > HOST_LENGTH_MAX or not re.match(_TEMPLATE_PATTERN, value):
        raise ValueError(_TEMPLATE_ALLOWED)
    return value


def _check_host(value: str) -> str:
    if len(value) > HOST_LENGTH_MAX or not re.match(_HOST_PATTERN, value):
        raise ValueError("must be a host name or an IP address")
    return value


HostTemplate = Annotated[
    str,
    AfterValidator(_check_template),
    WithJsonSchema(
        {
            "type": "string",
            "minLength": 1,
            "maxLength": HOST_LENGTH_MAX,
            "x-kubernetes-validations": [
                {
                    "rule": f"self.matches(r'{_TEMPLATE_PATTERN}')",
                    "messageExpression": f'"\'" + self + "\': {_TEMPLATE_ALLOWED}"',
                    "message": _TEMPLATE_ALLOWED,
                }
            ],
        }
    ),
]
Host = Annotated[
    str,
    AfterValidator(_check_host),
    WithJsonSchema(
        {"type": "string", "minLength": 1, "maxLength": HOST_LENGTH_MAX, "pattern": _HOST_PATTERN}
    ),
]
