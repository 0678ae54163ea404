"""CustomResourceDefinitions, made from the models: the same rules, in the words of the API server. Pure.

A structural schema knows no references, no null and no closed objects: pydantic's are rewritten. Unknown fields are
refused by the API server itself when a client asks for strict validation, as kubectl does, and dropped otherwise.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from pydantic import BaseModel

from quorate_operator.models.base import without_nulls
from quorate_operator.models.rebalances import KafkaRebalance, KafkaRebalanceStatus
from quorate_operator.models.status import KafkaBrokerStatus, KafkaControllerStatus
from quorate_operator.models.topics import TOPIC_NAME_LENGTH_MAX, KafkaTopic, KafkaTopicStatus
from quorate_operator.models.users import (
    COMMON_NAME,
    COMMON_NAME_LENGTH_MAX,
    USER_NAME_LENGTH_MAX,
    KafkaUser,
    KafkaUserStatus,
)
from quorate_operator.models.v1alpha1 import API_VERSION, KafkaBroker, KafkaController

GROUP, VERSION = API_VERSION.split("/")
CRD_BYTES_MAX = 262_144
"""How much kubectl apply can store in its annotation; a larger CRD needs server-side apply."""
NAME_LENGTH_MAX = 52
"""A pod is named `<name>-<node id>`: a host name of at most 63 letters, of which a node id has up to 10."""

_STATUSES = ["True", "False", "Unknown"]
"""The values of a condition's status, which Kubernetes has settled."""
_OPEN = {"type": "string", "maxLength": 316}
"""The schema of a text of a status that the operator chooses, in place of a list of those that this release has."""
_DROPPED = frozenset({"title", "propertyNames", "additionalProperties"})
_OF_PODS = {"type": "string", "maxLength": NAME_LENGTH_MAX, "pattern": "^[a-z]([-a-z0-9]*[a-z0-9])?$"}
_OF_TOPIC = {
    "rule": f"has(self.spec.topicName) || size(self.metadata.name) <= {TOPIC_NAME_LENGTH_MAX}",
    "message": f"spec.topicName: is needed with a metadata.name of more than {TOPIC_NAME_LENGTH_MAX} characters",
}
_VALIDATIONS = "x-kubernetes-validations"
_CLUSTER_ID_RULE = {
    "rule": (
        "!has(self.spec.clusterId) || !has(self.status) || !has(self.status.clusterId) || "
        "self.spec.clusterId == self.status.clusterId"
    ),
    "messageExpression": (
        '"spec.clusterId: \'" + self.spec.clusterId + "\': must be \'" + self.status.clusterId + '
        '"\', the id that is on the disks"'
    ),
    "message": "spec.clusterId: must be status.clusterId, the id that is on the disks",
}

_OF_USER = {
    "rule": f"has(self.spec.userName) || size(self.metadata.name) <= {USER_NAME_LENGTH_MAX}",
    "message": f"spec.userName: is needed with a metadata.name of more than {USER_NAME_LENGTH_MAX} characters",
}
_OF_ISSUED_USER = {
    "rule": "!has(self.spec.authentication) || !has(self.spec.authentication.issuerRef) || "
    f"size(has(self.spec.userName) ? self.spec.userName : self.metadata.name) <= {COMMON_NAME_LENGTH_MAX}",
    "message": COMMON_NAME,
}


def custom_resource_definitions() -> tuple[dict[str, Any], ...]:
    """Return all CRDs as manifests: the kinds that clusters consist of, then those of entities in a cluster.

    No default stands inside a list. The API server would store it, and then each `kubectl apply` of an unchanged file
    would replace the list, and Argo CD would find a difference. The models have these defaults when they read.
    """
    return tuple(
        _with_spec(definition, _stored(_spec_of(definition))) for definition in documented_definitions()
    )


def documented_definitions() -> tuple[dict[str, Any], ...]:
    """Return the definitions with all defaults, those of fields in lists too, for the reference."""
    return (*_of_clusters(), *_of_entities())


def _of_clusters() -> tuple[dict[str, Any], ...]:
    return (
        _definition(
            KafkaController,
            KafkaControllerStatus,
            plural="kafkacontrollers",
            short_names=("kctl", "kcontrollers"),
            validations=(_CLUSTER_ID_RULE,),
            columns=(
                _column("Desired", ".spec.replicas", "integer", "How many voters are asked for."),
                _column("Ready", ".status.readyReplicas", "integer", "How many controllers are ready."),
                _condition_column("Quorum", "QuorumHealthy"),
                _column("Leader", ".status.quorum.leaderId", "integer", "The active controller."),
                _column("Metadata", ".status.metadataVersion", "string", "The finalized metadata.version."),
                _condition_column("Healthy", "Ready"),
                _condition_column("Reconciling", "Reconciling", priority=1),
                _column("Cluster ID", ".status.clusterId", "string", "The id on every disk.", priority=1),
                _AGE,
            ),
        ),
        _definition(
            KafkaBroker,
            KafkaBrokerStatus,
            plural="kafkabrokers",
            short_names=("kbr", "kbrokers"),
            validations=(),
            columns=(
                _column("Controllers", ".spec.controllers", "string", "The quorum that it belongs to."),
                _column("Desired", ".spec.replicas", "integer", "How many brokers are asked for."),
                _column("Ready", ".status.readyReplicas", "integer", "How many brokers are ready."),
                _column("Version", ".status.version", "string", "The release that all of them run."),
                _condition_column("Healthy", "Ready"),
                _condition_column("Reconciling", "Reconciling", priority=1),
                _AGE,
            ),
        ),
    )


def _of_entities() -> tuple[dict[str, Any], ...]:
    return (
        _definition(
            KafkaTopic,
            KafkaTopicStatus,
            plural="kafkatopics",
            short_names=("ktopics",),
            validations=(_OF_TOPIC,),
            columns=(
                _column("Cluster", ".spec.cluster", "string", "The KafkaController of its cluster."),
                _column("Topic", ".status.topicName", "string", "The name in Kafka."),
                _column("Partitions", ".status.partitions", "integer", "Number of partitions."),
                _column("Factor", ".status.replicationFactor", "integer", "Replicas of each partition."),
                _condition_column("Ready", "Ready"),
                _condition_column("Stalled", "Stalled", priority=1),
                _column("Topic ID", ".status.topicId", "string", "The topic's id.", priority=1),
                _AGE,
            ),
            has_pods=False,
        ),
        _definition(
            KafkaUser,
            KafkaUserStatus,
            plural="kafkausers",
            short_names=("kusers",),
            validations=(_OF_USER, _OF_ISSUED_USER),
            columns=(
                _column("Cluster", ".spec.cluster", "string", "The KafkaController of its cluster."),
                _column("Principal", ".status.principal", "string", "The principal of the ACLs and quotas."),
                _column("Authentication", ".spec.authentication.type", "string", "What it logs in with."),
                _column("Secret", ".status.secretName", "string", "The Secret with the password."),
                _condition_column("Ready", "Ready"),
                _condition_column("Stalled", "Stalled", priority=1),
                _AGE,
            ),
            has_pods=False,
        ),
        _definition(
            KafkaRebalance,
            KafkaRebalanceStatus,
            plural="kafkarebalances",
            short_names=("krb", "krebalances"),
            validations=(),
            columns=(
                _column("Cluster", ".spec.cluster", "string", "The KafkaController of its cluster."),
                _column("Mode", ".spec.mode", "string", "What is evened out."),
                _column("Phase", ".status.phase", "string", "What is done about it."),
                _column("Proposal", ".status.proposal.id", "string", "What is to be approved."),
                _column("Partitions", ".status.proposal.partitions", "integer", "Partitions to be moved."),
                _column("Moved", ".status.progress.partitions", "integer", "Partitions that were moved."),
                _condition_column("Ready", "Ready"),
                _condition_column("Stalled", "Stalled", priority=1),
                _AGE,
            ),
            has_pods=False,
        ),
    )


def _definition(
    kind: type[BaseModel],
    status: type[BaseModel],
    *,
    plural: str,
    short_names: Sequence[str],
    validations: Sequence[Mapping[str, str]],
    columns: Sequence[Mapping[str, Any]],
    has_pods: bool = True,
) -> dict[str, Any]:
    """Return a CRD. `has_pods`: pods are named after the resource, and it has a scale subresource."""
    name = kind.__name__
    spec = structural_schema(kind.model_fields["spec"].annotation)
    if has_pods:
        spec = _with_version(spec)
    if kind.model_fields["spec"].is_required():
        spec.pop("default", None)
    schema: dict[str, Any] = {
        "type": "object",
        "description": spec["description"],
        "properties": {
            "apiVersion": {"type": "string"},
            "kind": {"type": "string"},
            "metadata": {"type": "object", "properties": {"name": _OF_PODS}}
            if has_pods
            else {"type": "object"},
            "spec": spec,
            "status": _open(_without_defaults(structural_schema(status))),
        },
        "required": ["spec"],
    }
    if validations:
        schema[_VALIDATIONS] = [dict(validation) for validation in validations]
    scale = {
        "specReplicasPath": ".spec.replicas",
        "statusReplicasPath": ".status.replicas",
        "labelSelectorPath": ".status.selector",
    }
    version = {
        "name": VERSION,
        "served": True,
        "storage": True,
        "schema": {"openAPIV3Schema": schema},
        "subresources": {"status": {}, **({"scale": scale} if has_pods else {})},
        "additionalPrinterColumns": [dict(column) for column in columns],
    }
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{plural}.{GROUP}", "labels": {"app.kubernetes.io/name": "quorate"}},
        "spec": {
            "group": GROUP,
            "scope": "Namespaced",
            "names": {
                "kind": name,
                "listKind": f"{name}List",
                "plural": plural,
                "singular": name.lower(),
                "shortNames": list(short_names),
                "categories": ["kafka", "quorate"],
            },
            "versions": [version],
        },
    }


def _with_version(spec: Mapping[str, Any]) -> dict[str, Any]:
    """Return the schema of a spec whose `version` is required.

    Other definitions may have another default. An object that is replaced would get it, and Kafka would be upgraded.
    """
    fields = dict(spec["properties"])
    fields["version"] = {key: value for key, value in fields["version"].items() if key != "default"}
    rest = {key: value for key, value in spec.items() if key != "default"}
    return {**rest, "properties": fields, "required": sorted({*spec.get("required", ()), "version"})}


def structural_schema(model: Any) -> dict[str, Any]:
    """Return the structural schema of a model for a CustomResourceDefinition."""
    schema: dict[str, Any] = model.model_json_schema(by_alias=True)
    rewritten: dict[str, Any] = _rewritten(schema, schema.get("$defs", {}))
    rewritten.pop("$defs", None)
    return rewritten


def _rewritten(schema: Mapping[str, Any], definitions: Mapping[str, Any]) -> dict[str, Any]:
    if "$ref" in schema:
        found = definitions[schema["$ref"].removeprefix("#/$defs/")]
        own = {key: value for key, value in schema.items() if key != "$ref"}
        if _VALIDATIONS in own:  # of the field, beside those of its type
            own[_VALIDATIONS] = [*found.get(_VALIDATIONS, ()), *own[_VALIDATIONS]]
        schema = {**found, **own}
    if "anyOf" in schema:
        (only,) = (option for option in schema["anyOf"] if option.get("type") != "null")
        rest = {key: value for key, value in schema.items() if key != "anyOf"}
        rewritten = _rewritten({**only, **rest}, definitions)
        if rest.get("default") is None:  # an optional field is not filled in
            rewritten.pop("default", None)
        return rewritten
    result = {key: value for key, value in schema.items() if key not in _DROPPED}
    if "const" in result:
        result["enum"] = [result.pop("const")]
    if "properties" in result:
        result["properties"] = {
            name: _rewritten(field, definitions) for name, field in result["properties"].items()
        }
    if "items" in result:
        result["items"] = _rewritten(result["items"], definitions)
        result["items"].pop("default", None)  # an item is never missing
    values = schema.get("additionalProperties")
    if isinstance(values, Mapping):
        result["additionalProperties"] = _rewritten(values, definitions)
    return _with_default(result)


def _with_default(schema: dict[str, Any]) -> dict[str, Any]:
    """Add the default that the API server fills in: for an object that may be empty, the defaults of its fields.

    It is complete, because the API server checks the rules on it before it fills in the fields' own defaults.
    """
    default = without_nulls(schema.pop("default", None))
    if default is None and schema.get("type") == "object" and _may_be_empty(schema):
        fields = schema.get("properties", {})
        default = {name: field["default"] for name, field in fields.items() if "default" in field}
    if default is not None:
        schema["default"] = default
    return schema


def _may_be_empty(schema: Mapping[str, Any]) -> bool:
    is_opaque = schema.get("x-kubernetes-preserve-unknown-fields", False)
    return not is_opaque and not schema.get("required")


def _without_defaults(schema: Any) -> Any:
    """Remove defaults from a status: the operator alone writes it, and writes it completely."""
    match schema:
        case dict():
            return {key: _without_defaults(part) for key, part in schema.items() if key != "default"}
        case list():
            return [_without_defaults(part) for part in schema]
    return schema


def _open(schema: Any) -> Any:
    """Return the schema of a status without lists of values: a newer operator may write others."""
    match schema:
        case {"enum": values, **rest}:
            return rest | ({"enum": values} if values == _STATUSES else _OPEN)
        case dict():
            return {key: _open(part) for key, part in schema.items()}
        case list():
            return [_open(part) for part in schema]
    return schema


def _spec_of(definition: Mapping[str, Any]) -> dict[str, Any]:
    (version,) = definition["spec"]["versions"]
    spec: dict[str, Any] = version["schema"]["openAPIV3Schema"]["properties"]["spec"]
    return spec


def _with_spec(definition: dict[str, Any], spec: dict[str, Any]) -> dict[str, Any]:
    (version,) = definition["spec"]["versions"]
    schema = version["schema"]["openAPIV3Schema"]
    schema = {**schema, "properties": {**schema["properties"], "spec": spec}}
    versions = [{**version, "schema": {"openAPIV3Schema": schema}}]
    return {**definition, "spec": {**definition["spec"], "versions": versions}}


def _stored(schema: Mapping[str, Any]) -> dict[str, Any]:
    """Return a schema without defaults inside lists."""
    result = dict(schema)
    if "properties" in schema:
        result["properties"] = {name: _stored(field) for name, field in schema["properties"].items()}
    if isinstance(schema.get("additionalProperties"), Mapping):
        result["additionalProperties"] = _stored(schema["additionalProperties"])
    if "items" in schema:
        result["items"] = _without_defaults(schema["items"])
    if "default" in schema:
        result["default"] = _thinned(schema["default"], schema, is_in_list=False)
    return result


def _thinned(value: Any, schema: Mapping[str, Any], *, is_in_list: bool) -> Any:
    """Return a default without the parts inside its lists that are defaults themselves."""
    match value:
        case dict():
            fields = schema.get("properties", {})
            return {
                name: _thinned(part, fields.get(name, {}), is_in_list=is_in_list)
                for name, part in value.items()
                if not (is_in_list and name in fields and fields[name].get("default") == part)
            }
        case list():
            return [_thinned(part, schema.get("items", {}), is_in_list=True) for part in value]
    return value


def _column(name: str, path: str, kind: str, description: str, priority: int = 0) -> dict[str, Any]:
    column: dict[str, Any] = {"name": name, "type": kind, "jsonPath": path, "description": description}
    return column | ({"priority": priority} if priority else {})


def _condition_column(name: str, condition: str, priority: int = 0) -> dict[str, Any]:
    path = f'.status.conditions[?(@.type=="{condition}")].status'
    return _column(name, path, "string", f"The condition {condition}.", priority)


_AGE = {"name": "Age", "type": "date", "jsonPath": ".metadata.creationTimestamp"}
