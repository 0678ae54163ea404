"""Hosts and templates of hosts, `b{nodeId}.kafka.example.com`, as types of fields."""

import re
from typing import Annotated

from pydantic import AfterValidator, WithJsonSchema

from quorate_operator.planning.templates import HOST_LENGTH_MAX, PLACEHOLDERS

NODE_PLACEHOLDERS = ("nodeId", "offset", "pod")
"""Those that differ from node to node."""

_TEMPLATE_PATTERN = "^([A-Za-z0-9._:-]|\\{(" + "|".join(PLACEHOLDERS) + ")\\})+$"
_TEMPLATE_ALLOWED = "must be a host; placeholders are " + ", ".join(f"{{{name}}}" for name in PLACEHOLDERS)
_HOST_PATTERN = "^[A-Za-z0-9:]([A-Za-z0-9._:-]*[A-Za-z0-9:])?$"


def differs_by_node(template: str) -> bool:
    """Whether the template gives each node of a pool a host of its own."""
    return any(f"{{{name}}}" in template for name in NODE_PLACEHOLDERS)


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
