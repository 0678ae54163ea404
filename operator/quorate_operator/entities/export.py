"""Exports topics and users as manifests that change nothing when applied to the same cluster. Pure."""

import hashlib
import re
from collections.abc import Iterable, Mapping
from typing import Any

from quorate_admin.types.acls import AclBinding
from quorate_protocol.kafka.enums import AclPermissionType, PatternType

from quorate_operator.entities.topics import ObservedTopic
from quorate_operator.entities.users import ObservedUser, word_of
from quorate_operator.models.entities import NAME_LENGTH_MAX
from quorate_operator.models.users import KAFKA_USER_NAME, Quotas
from quorate_operator.models.v1alpha1 import API_VERSION

_HASH_LENGTH = 8
_NOT_IN_NAMES = re.compile(r"[^a-z0-9.-]+")
_LABEL_ENDS = re.compile(r"[-.]*\.[-.]*")

Manifest = dict[str, Any]


def topic_manifest(name: str, topic: ObservedTopic, target: Mapping[str, Any]) -> Manifest:
    """Return the KafkaTopic of a topic. `target` has the fields that name its cluster."""
    factors = {len(partition.replicas) - len(partition.removing) for partition in topic.partitions.values()}
    spec: Manifest = {**target}
    resource_name = resource_name_of(name)
    if resource_name != name:
        spec["topicName"] = name
    spec["partitions"] = len(topic.partitions)
    if len(factors) == 1:  # with several, one factor in the spec would move replicas
        spec["replicationFactor"] = factors.pop()
    if topic.config:
        spec["config"] = dict(sorted(topic.config.items()))
    return _manifest("KafkaTopic", resource_name, spec)


def user_manifest(principal: str, user: ObservedUser, target: Mapping[str, Any]) -> Manifest:
    """Return the KafkaUser of a principal. Credentials are left out: brokers do not return passwords."""
    name = principal.partition(":")[2]
    spec: Manifest = {**target}
    resource_name = resource_name_of(name)
    if principal != f"User:{name}" or not re.fullmatch(KAFKA_USER_NAME, name):
        spec["authentication"] = {"type": "tls", "principal": principal}
    elif resource_name != name:
        spec["userName"] = name
    if user.acls is not None:
        spec["acls"] = _acls(user.acls)
    if user.quotas:
        fields = {field: info.alias or field for field, info in Quotas.model_fields.items()}
        spec["quotas"] = {
            fields.get(quota, quota): int(value) if value == int(value) else value
            for quota, value in sorted(user.quotas.items())
        }
    return _manifest("KafkaUser", resource_name, spec)


def resource_name_of(name: str) -> str:
    """Return a name for Kubernetes: the same one where that is possible, else one with a hash of it."""
    plain = _LABEL_ENDS.sub(".", _NOT_IN_NAMES.sub("-", name.lower())).strip("-.")
    if plain == name and len(name) <= NAME_LENGTH_MAX:
        return name
    digest = hashlib.sha256(name.encode()).hexdigest()[:_HASH_LENGTH]
    shortened = plain[: NAME_LENGTH_MAX - _HASH_LENGTH - 1].strip("-.")
    return f"{shortened}-{digest}" if shortened else digest


def _acls(bindings: Iterable[AclBinding]) -> list[Manifest]:
    """Return an entry for the operations of each resource, permission and host."""
    grouped: dict[tuple[Any, ...], list[str]] = {}
    for binding in sorted(bindings):
        pattern, entry = binding.pattern, binding.entry
        key = (pattern.resource_type, pattern.name, pattern.pattern_type, entry.permission_type, entry.host)
        grouped.setdefault(key, []).append(word_of(entry.operation.name))
    return [
        {
            **({"permission": "Deny"} if permission is AclPermissionType.DENY else {}),
            "resource": {
                "type": word_of(kind.name),
                "name": name,
                **({"pattern": "Prefixed"} if pattern is PatternType.PREFIXED else {}),
            },
            "operations": operations,
            **({} if host == "*" else {"host": host}),
        }
        for (kind, name, pattern, permission, host), operations in grouped.items()
    ]


def _manifest(kind: str, name: str, spec: Manifest) -> Manifest:
    return {"apiVersion": API_VERSION, "kind": kind, "metadata": {"name": name}, "spec": spec}
