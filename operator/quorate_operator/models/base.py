"""What the parts of a manifest share: the base model, kinds of text, rules for the API server, annotations."""

import base64
import binascii
import re
from collections.abc import Mapping, Sequence
from decimal import Decimal
from ipaddress import ip_network
from typing import Annotated, Any, Literal

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    StringConstraints,
    WithJsonSchema,
)
from pydantic.alias_generators import to_camel

NODE_ID_MAX = 2**31 - 1
CONFIG_PROPERTIES_MAX = 500
LOG_LEVELS_MAX = 50
LABELS_MAX = 64
SHOWN_LENGTH_MAX = 80

# Properties that Quorate derives from the rest of the manifest. With two sources, a property could contradict itself.
DERIVED_PROPERTIES = frozenset(
    {
        "advertised.listeners",
        "cluster.id",
        "controller.listener.names",
        "controller.quorum.bootstrap.servers",
        "controller.quorum.voters",
        "inter.broker.listener.name",
        "listener.security.protocol.map",
        "listeners",
        "log.dir",
        "log.dirs",
        "metadata.log.dir",
        "node.id",
        "process.roles",
    }
)

DURATION_UNITS_MS: Mapping[str, int] = {"ms": 1, "s": 1_000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}
QUANTITY_UNITS: Mapping[str, int] = {
    "": 1,
    "k": 10**3,
    "M": 10**6,
    "G": 10**9,
    "T": 10**12,
    "P": 10**15,
    "Ki": 2**10,
    "Mi": 2**20,
    "Gi": 2**30,
    "Ti": 2**40,
    "Pi": 2**50,
}
_DURATION = re.compile(r"^([0-9]{1,6})(ms|s|m|h|d)$")
_BYTES = re.compile(r"^([0-9]{1,15}(?:\.[0-9]{1,3})?)(Ki|Mi|Gi|Ti|Pi|k|M|G|T|P|)$")
_QUANTITY = re.compile(r"^([0-9]{1,15}(?:\.[0-9]{1,9})?)(m|Ki|Mi|Gi|Ti|Pi|k|M|G|T|P|)$")
_AMOUNT_PATTERN = r"^[0-9]{1,15}(\.[0-9]{1,9})?(m|Ki|Mi|Gi|Ti|Pi|k|M|G|T|P)?$"


def rules(*validations: Mapping[str, str]) -> dict[str, Any]:
    """Return `json_schema_extra` with CEL rules for the API server; pydantic's validators check the same."""
    return {"x-kubernetes-validations": [dict(validation) for validation in validations]}


def duration_ms(text: str) -> int:
    """Return a duration such as `10m` in milliseconds. Raises ValueError."""
    matched = _DURATION.match(text)
    if matched is None:
        raise ValueError("must be a number and a unit of ms, s, m, h, d: 90s, 10m")
    return int(matched[1]) * DURATION_UNITS_MS[matched[2]]


def quantity_bytes(text: str) -> int:
    """Return a quantity such as `10Gi` in bytes. Raises ValueError."""
    matched = _BYTES.match(text)
    if matched is None:
        raise ValueError("must be a number of bytes with a unit as Kubernetes writes it: 512Mi, 10Gi, 1T")
    return int(float(matched[1]) * QUANTITY_UNITS[matched[2]])


def quantity(text: str) -> Decimal:
    """Return a quantity as a number: 0.5 for `500m` and `0.5`, bytes for `1Gi`. Raises ValueError."""
    matched = _QUANTITY.match(text)
    if matched is None:
        raise ValueError("must be a number with a unit as Kubernetes writes it: 500m, 0.5, 2Gi")
    unit = Decimal("0.001") if matched[2] == "m" else Decimal(QUANTITY_UNITS[matched[2]])
    return Decimal(matched[1]) * unit


def _check_duration(value: str) -> str:
    duration_ms(value)
    return value


def _check_size(value: str) -> str:
    if quantity_bytes(value) <= 0:
        raise ValueError("must be more than 0")
    return value


def _check_cluster_id(value: str) -> str:
    try:
        decoded = base64.b64decode(value + "==", altchars=b"-_", validate=True)
    except binascii.Error:
        decoded = b""
    if len(value) != 22 or len(decoded) != 16:
        raise ValueError("must be a UUID as Kafka prints it: 22 characters of A-Z, a-z, 0-9, - and _")
    return value


def _number_text(value: object) -> object:
    """Return a YAML number as text, for `cpu: 2`."""
    return str(value) if isinstance(value, int | float) and not isinstance(value, bool) else value


def _property_text(value: object) -> object:
    """Return a property value as Kafka reads it. YAML numbers and booleans are common (`num.partitions: 3`)."""
    if isinstance(value, bool):
        return "true" if value else "false"
    return _number_text(value)


def _check_property(key: str) -> str:
    if key in DERIVED_PROPERTIES or key.startswith("advertised."):
        raise ValueError("is derived from the rest of the manifest and can't be set here")
    if not re.fullmatch(r"[A-Za-z0-9._-]+", key):
        raise ValueError("must be a Kafka property name: letters, digits, '.', '_' and '-'")
    return key


_INT_OR_TEXT = {"x-kubernetes-int-or-string": True}

ResourceName = Annotated[
    str, StringConstraints(pattern=r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?$", min_length=1, max_length=63)
]
NodeId = Annotated[int, Field(ge=0, le=NODE_ID_MAX)]
Port = Annotated[int, Field(ge=1, le=65535)]
ClusterId = Annotated[
    str,
    AfterValidator(_check_cluster_id),
    WithJsonSchema({"type": "string", "pattern": "^[A-Za-z0-9_-]{22}$", "maxLength": 22}),
]
MetadataVersion = Annotated[str, StringConstraints(pattern=r"^[0-9]+\.[0-9]+(-IV[0-9]+)?$", max_length=20)]
KafkaVersion = Annotated[str, StringConstraints(pattern=r"^[0-9]+\.[0-9]+\.[0-9]+$", max_length=20)]
Image = Annotated[str, StringConstraints(pattern=r"^[^\s]+$", max_length=500)]
PropertyName = Annotated[str, AfterValidator(_check_property)]
PropertyValue = Annotated[str, BeforeValidator(_property_text), WithJsonSchema(_INT_OR_TEXT)]
_DERIVED = "[{}]".format(", ".join(f"'{name}'" for name in sorted(DERIVED_PROPERTIES)))
Properties = Annotated[
    dict[PropertyName, PropertyValue],
    Field(
        max_length=CONFIG_PROPERTIES_MAX,
        json_schema_extra=rules(
            {
                "rule": f"{_DERIVED}.all(name, !(name in self))",
                "message": "follow from the rest of the manifest and can't be set: "
                + ", ".join(sorted(DERIVED_PROPERTIES)),
            },
            {
                "rule": "self.all(key, !key.startsWith('advertised.'))",
                "message": "follows from the rest of the manifest and can't be set: advertised.*",
            },
        ),
    ),
]
LogLevels = Annotated[
    dict[str, Literal["FATAL", "ERROR", "WARN", "INFO", "DEBUG", "TRACE"]], Field(max_length=LOG_LEVELS_MAX)
]
ListenerName = Annotated[str, StringConstraints(pattern=r"^[A-Z][A-Z0-9_]*$", max_length=63)]
Duration = Annotated[
    str,
    AfterValidator(_check_duration),
    WithJsonSchema({"type": "string", "pattern": _DURATION.pattern, "maxLength": 8}),
]
Size = Annotated[
    str,
    BeforeValidator(_number_text),
    AfterValidator(_check_size),
    WithJsonSchema(_INT_OR_TEXT | {"pattern": _BYTES.pattern, "maxLength": 20}),
]
Amount = Annotated[
    str,
    BeforeValidator(_number_text),
    StringConstraints(pattern=_AMOUNT_PATTERN, max_length=30),
    WithJsonSchema(_INT_OR_TEXT | {"pattern": _AMOUNT_PATTERN, "maxLength": 30}),
]
"""A quantity of anything that a container may ask for: `500m` processors, `2Gi` of memory."""
Text = Annotated[str, StringConstraints(max_length=253)]
LabelKey = Annotated[str, StringConstraints(min_length=1, max_length=317)]
LabelValue = Annotated[str, StringConstraints(max_length=63)]
AnnotationValue = Annotated[str, StringConstraints(max_length=65536)]
Labels = Annotated[dict[LabelKey, LabelValue], Field(max_length=LABELS_MAX)]
Annotations = Annotated[dict[LabelKey, AnnotationValue], Field(max_length=LABELS_MAX)]


def check_network(text: str) -> str:
    """Return the text of a network. Raises ValueError for any other text."""
    try:
        ip_network(text)
    except ValueError as error:
        raise ValueError("must be a network like 10.0.0.0/8 or 2001:db8::/32, without host bits") from error
    return text


def listed_texts(texts: Sequence[str]) -> str:
    """Return `a, b and c`, or `none`."""
    if len(texts) < 2:
        return texts[0] if texts else "none"
    return f"{', '.join(texts[:-1])} and {texts[-1]}"


def shown_value(value: object) -> str:
    """Return the value as a person would write it, cut to a readable length."""
    text = "nothing" if value is None else str(value).lower() if isinstance(value, bool) else repr(value)
    return text if len(text) <= SHOWN_LENGTH_MAX else f"{text[: SHOWN_LENGTH_MAX - 3]}..."


def without_nulls(value: Any) -> Any:
    """Return JSON without the fields that are null: to Kubernetes, such a field is not there."""
    match value:
        case dict():
            return {key: without_nulls(part) for key, part in value.items() if part is not None}
        case list() | tuple():
            return [without_nulls(part) for part in value]
    return value


class Model(BaseModel):
    """What every part of a manifest shares."""

    model_config = ConfigDict(
        alias_generator=to_camel, extra="forbid", frozen=True, strict=True, validate_default=False
    )


# Kubernetes' own types, which only Kubernetes checks: their schemas would be most of each CRD.
AnyObject = Annotated[
    dict[str, Any], WithJsonSchema({"type": "object", "x-kubernetes-preserve-unknown-fields": True})
]


class Metadata(Model):
    """The fields of Kubernetes' ObjectMeta that a manifest may set, and those that Quorate reads."""

    name: ResourceName
    namespace: ResourceName | None = None
    labels: dict[str, str] = Field(default_factory=dict)
    annotations: dict[str, str] = Field(default_factory=dict)
    uid: str | None = None
    """Set by the API server; owner references refer to it."""
    generation: int | None = None
    """Set by the API server: counts the changes of the spec."""


ANNOTATION_RESTART = "quorate.dev/restart"
"""Any text. When it changes, each node of the pool restarts; with `-<nodeId>` appended to the name, that node."""
ANNOTATION_FORCE_RESTART = "quorate.dev/force-restart"
"""With `-<nodeId>` appended: any text. When it changes, that node restarts, even if its partitions suffer."""
ANNOTATION_SKIP_ROLLOUT = "quorate.dev/skip-rollout"
"""With `-<nodeId>` appended: `true` while no roll restarts that node or waits for it."""
ANNOTATION_REPLACE = "quorate.dev/delete-pod-and-claim"
"""With `-<nodeId>` appended: any text. When it changes, that node gets new volumes in place of its own."""
ANNOTATION_PAUSE = "quorate.dev/pause"
"""`true`: like `state: Paused`."""
