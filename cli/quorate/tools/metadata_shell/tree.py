"""The image of a cluster as a tree: /image and /local.

Sensitive configs and secrets are shown, as in Kafka's shell. Kafka's shell leaves out the default parts in the name
of a quota entity. It may list `user(alice)` twice or an empty name, can't open either, and ends `find` with an
exception. Here a default part is `user(<default>)`, as in Kafka's other tools.
"""

from collections.abc import Callable, Iterable, Mapping
from datetime import UTC, datetime, timedelta
from functools import cache, partial
from typing import Any
from uuid import UUID

from quorate_protocol.features import METADATA_VERSION, METADATA_VERSIONS
from quorate_protocol.image import (
    AccessControlEntry,
    BrokerRegistration,
    ConfigResource,
    ControllerRegistration,
    DelegationToken,
    ImageState,
    Listener,
    PartitionRegistration,
    Provenance,
    QuotaEntity,
    ScramCredential,
    TopicImage,
    VersionRange,
)
from quorate_protocol.kafka.enums import (
    AclOperation,
    AclPermissionType,
    ConfigResourceType,
    PatternType,
    ResourceType,
    ScramMechanism,
)
from quorate_protocol.uuids import uuid_from_text, uuid_to_text

from quorate.console.java_text import double_text, list_text
from quorate.tools.metadata_shell.nodes import Directory, Leaf, Node, by_key, fixed, number_of, record, value

_LEVEL_MAX = 2**15 - 1
_MECHANISMS = {
    mechanism.mechanism_name: mechanism
    for mechanism in (ScramMechanism.SCRAM_SHA_256, ScramMechanism.SCRAM_SHA_512)
}
_ENTITY_WORDS = {"client-id": "clientId", "ip": "ip", "user": "user"}
"""Entity type to its word, in the order of the name (ClientQuotasImageNode)."""
_DEFAULT_ENTITY = "<default>"
_FINALIZED = "finalized_"
_METADATA_VERSION = "metadataVersion"
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def image_root(image: ImageState, where: Provenance, version: Callable[[], str]) -> Directory:
    """The root directory, with the end of the image in the log (`where`) and the version of this program.

    Nodes read the image when they are accessed: nothing is copied.
    """
    image_children: dict[str, Callable[[], Node]] = {
        "acls": lambda: acls(image),
        "clientQuotas": lambda: client_quotas(image),
        "cluster": lambda: cluster(image),
        "configs": lambda: configs(image),
        "delegationToken": lambda: delegation_tokens(image),
        "features": lambda: features(image),
        "producerIds": lambda: producer_ids(image),
        "provenance": lambda: provenance(where),
        "scram": lambda: scram(image),
        "topics": lambda: topics(image),
    }
    local = {"version": lambda: value(version()), "commitId": lambda: value("unknown")}
    return fixed({"image": lambda: fixed(image_children), "local": lambda: fixed(local)})


def cluster(image: ImageState) -> Directory:
    """Registrations by node id."""
    brokers, controllers = image.cluster.brokers, image.cluster.controllers
    broker, controller = (
        partial(record, broker_text, _broker_data),
        partial(record, controller_text, _controller_data),
    )
    return fixed(
        {
            "brokers": lambda: by_key(brokers, broker, number_of),
            "controllers": lambda: by_key(controllers, controller, number_of),
        }
    )


def broker_text(broker: BrokerRegistration) -> str:
    """As BrokerRegistration.toString."""
    rack = "Optional.empty" if broker.rack is None else f"Optional[{broker.rack}]"
    cordoned = broker.cordoned_directories
    return (
        f"BrokerRegistration(id={broker.broker_id}, epoch={broker.epoch}, "
        f"incarnationId={uuid_to_text(broker.incarnation_id)}, listeners={_listeners(broker.listeners)}, "
        f"supportedFeatures={_features(broker.supported_features)}, rack={rack}, "
        f"fenced={_flag(broker.fenced)}, inControlledShutdown={_flag(broker.in_controlled_shutdown)}, "
        f"isMigratingZkBroker={_flag(broker.is_migrating_zk_broker)}, "
        f"directories={_uuids(broker.directories)}, "
        f"cordonedDirectories={'null' if cordoned is None else _uuids(cordoned)})"
    )


def controller_text(controller: ControllerRegistration) -> str:
    """As ControllerRegistration.toString."""
    return (
        f"ControllerRegistration(id={controller.controller_id}, "
        f"incarnationId={uuid_to_text(controller.incarnation_id)}, "
        f"zkMigrationReady={_flag(controller.zk_migration_ready)}, "
        f"listeners={_listeners(controller.listeners)}, "
        f"supportedFeatures={_features(controller.supported_features)})"
    )


def _listeners(listeners: Mapping[str, Listener]) -> str:
    texts = (
        f"Endpoint(listenerName='{listener.name}', securityProtocol={listener.security_protocol.name}, "
        f"host='{listener.host}', port={listener.port})"
        for _, listener in sorted(listeners.items())
    )
    return f"[{', '.join(texts)}]"


def _features(supported: Mapping[str, VersionRange]) -> str:
    return f"{{{', '.join(f'{name}: {_range(levels)}' for name, levels in sorted(supported.items()))}}}"


def _range(levels: VersionRange) -> str:
    """As VersionRange.toString."""
    low, high = levels
    if low == high:
        return str(low)
    return f"{low}+" if high == _LEVEL_MAX else f"{low}-{high}"


def _uuids(uuids: Iterable[UUID]) -> str:
    return f"[{', '.join(map(uuid_to_text, uuids))}]"


def _flag(flag: bool) -> str:
    return "true" if flag else "false"


def _broker_data(broker: BrokerRegistration) -> dict[str, Any]:
    cordoned = broker.cordoned_directories
    return {
        "id": broker.broker_id,
        "epoch": broker.epoch,
        "incarnationId": uuid_to_text(broker.incarnation_id),
        "listeners": _listeners_data(broker.listeners),
        "supportedFeatures": _features_data(broker.supported_features),
        "rack": broker.rack,
        "fenced": broker.fenced,
        "inControlledShutdown": broker.in_controlled_shutdown,
        "isMigratingZkBroker": broker.is_migrating_zk_broker,
        "directories": list(map(uuid_to_text, broker.directories)),
        "cordonedDirectories": None if cordoned is None else list(map(uuid_to_text, cordoned)),
    }


def _controller_data(controller: ControllerRegistration) -> dict[str, Any]:
    return {
        "id": controller.controller_id,
        "incarnationId": uuid_to_text(controller.incarnation_id),
        "zkMigrationReady": controller.zk_migration_ready,
        "listeners": _listeners_data(controller.listeners),
        "supportedFeatures": _features_data(controller.supported_features),
    }


def _listeners_data(listeners: Mapping[str, Listener]) -> list[dict[str, Any]]:
    return [
        {
            "name": listener.name,
            "securityProtocol": listener.security_protocol.name,
            "host": listener.host,
            "port": listener.port,
        }
        for _, listener in sorted(listeners.items())
    ]


def _features_data(supported: Mapping[str, VersionRange]) -> dict[str, dict[str, int]]:
    return {
        name: {"minVersion": levels.min_level, "maxVersion": levels.max_level}
        for name, levels in sorted(supported.items())
    }


def topics(image: ImageState) -> Directory:
    """byName and byId."""
    by_name, by_id = image.topics.by_name, image.topics.by_id
    return fixed(
        {
            "byName": lambda: by_key(by_name, _topic),
            "byId": lambda: by_key(by_id, _topic, uuid_from_text, uuid_to_text),
        }
    )


def _topic(topic: TopicImage) -> Directory:
    def child(name: str) -> Node | None:
        if name == "name":
            return value(topic.name)
        if name == "id":
            return value(uuid_to_text(topic.topic_id))
        number = number_of(name)
        partition = None if number is None else topic.partitions.get(number)
        return record(partition_text, _partition_data, partition) if partition else None

    return Directory(lambda: ("name", "id", *map(str, topic.partitions)), child)


def partition_text(partition: PartitionRegistration) -> str:
    """As PartitionRegistration.toString."""
    fields = (
        f"{name}={list_text(part) if isinstance(part, list) else part}"
        for name, part in _partition_data(partition).items()
    )
    return f"PartitionRegistration({', '.join(fields)})"


def _partition_data(partition: PartitionRegistration) -> dict[str, Any]:
    return {
        "replicas": list(partition.replicas),
        "directories": list(map(uuid_to_text, partition.directories)),
        "isr": list(partition.isr),
        "removingReplicas": list(partition.removing_replicas),
        "addingReplicas": list(partition.adding_replicas),
        "elr": list(partition.elr),
        "lastKnownElr": list(partition.last_known_elr),
        "leader": partition.leader,
        "leaderRecoveryState": partition.leader_recovery_state.name,
        "leaderEpoch": partition.leader_epoch,
        "partitionEpoch": partition.partition_epoch,
    }


def acls(image: ImageState) -> Directory:
    """ACLs by their ids."""
    acl = partial(record, acl_text, _acl_data)
    return fixed({"byId": lambda: by_key(image.acls, acl, uuid_from_text, uuid_to_text)})


def acl_text(acl: AccessControlEntry) -> str:
    """As StandardAcl.toString."""
    return f"StandardAcl[{', '.join(f'{name}={part}' for name, part in _acl_data(acl).items())}]"


def _acl_data(acl: AccessControlEntry) -> dict[str, str]:
    return {
        "resourceType": ResourceType(acl.resource_type).name,
        "resourceName": acl.resource_name,
        "patternType": PatternType(acl.pattern_type).name,
        "principal": acl.principal,
        "host": acl.host,
        "operation": AclOperation(acl.operation).name,
        "permissionType": AclPermissionType(acl.permission_type).name,
    }


def scram(image: ImageState) -> Directory:
    """Credentials by mechanism and user; both mechanisms are always there."""
    return by_key(_MECHANISMS, lambda mechanism: _users(image, mechanism))


def _users(image: ImageState, mechanism: ScramMechanism) -> Directory:
    def child(user: str) -> Node | None:
        credential = image.scram.get((mechanism, user))
        return record(_scram_text, _scram_data, credential) if credential else None

    return Directory(lambda: (user for stored, user in image.scram if stored is mechanism), child)


def _scram_text(credential: ScramCredential) -> str:
    return f"ScramCredentialData({', '.join(f'{k}={v}' for k, v in _scram_data(credential).items())})"


def _scram_data(credential: ScramCredential) -> dict[str, Any]:
    return {
        "salt": credential.salt.hex(),
        "storedKey": credential.stored_key.hex(),
        "serverKey": credential.server_key.hex(),
        "iterations": credential.iterations,
    }


def delegation_tokens(image: ImageState) -> Directory:
    """Tokens by their ids."""
    return by_key(image.delegation_tokens, partial(record, token_text, _token_data))


def token_text(token: DelegationToken) -> str:
    """As DelegationTokenDataNode prints it, whose parentheses do not match."""
    return (
        f"DelegationTokenDatatokenId={token.token_id}(owner={token.owner}(tokenRequester={token.requester}"
        f"(renewers={' '.join(token.renewers)}, issueTimestamp={token.issue_timestamp_ms}, "
        f"maxTimestamp={token.max_timestamp_ms}), expiryTimestamp={token.expiration_timestamp_ms}"
    )


def _token_data(token: DelegationToken) -> dict[str, Any]:
    return {
        "tokenId": token.token_id,
        "owner": token.owner,
        "tokenRequester": token.requester,
        "renewers": list(token.renewers),
        "issueTimestamp": token.issue_timestamp_ms,
        "maxTimestamp": token.max_timestamp_ms,
        "expiryTimestamp": token.expiration_timestamp_ms,
    }


def configs(image: ImageState) -> Directory:
    """`TYPE:name`, or `TYPE` for the defaults of all resources of that type."""

    def child(name: str) -> Node | None:
        type_name, _, resource_name = name.partition(":")
        resource_type = ConfigResourceType.__members__.get(type_name)
        if resource_type is None:
            return None
        resource = (int(resource_type), resource_name)
        return by_key(image.configs[resource], value) if resource in image.configs else None

    return Directory(lambda: map(_resource_text, image.configs), child)


def _resource_text(resource: ConfigResource) -> str:
    number, resource_name = resource
    type_name = ConfigResourceType(number).name
    return f"{type_name}:{resource_name}" if resource_name else type_name


def client_quotas(image: ImageState) -> Directory:
    """One directory for each entity that has quotas."""

    @cache
    def entities() -> dict[str, QuotaEntity]:
        return {entity_name(entity): entity for entity in image.client_quotas}

    def child(name: str) -> Node | None:
        entity = entities().get(name)
        return None if entity is None else by_key(image.client_quotas[entity], _quota)

    return Directory(lambda: entities().keys(), child)


def entity_name(entity: QuotaEntity) -> str:
    """For instance `clientId(c)_user(<default>)`."""
    parts = dict(entity)
    words = {kind: word for kind, word in _ENTITY_WORDS.items() if kind in parts}
    others = {kind: kind for kind in sorted(parts) if kind not in words}
    return "_".join(f"{word}({_escaped(parts[kind])})" for kind, word in (words | others).items())


def _escaped(name: str | None) -> str:
    if name is None:
        return _DEFAULT_ENTITY
    return name.replace("\\", "\\\\").replace("(", "\\(").replace(")", "\\)")


def _quota(number: float) -> Leaf:
    return Leaf(lambda: double_text(number), lambda: number)


def features(image: ImageState) -> Directory:
    """Finalized levels (FeaturesImageNode); metadata.version by its name."""

    def finalized() -> dict[str, int]:
        return {name: level for name, level in image.features.items() if name != METADATA_VERSION}

    def child(name: str) -> Node | None:
        if name == _METADATA_VERSION:
            return _metadata_version(image.metadata_version)
        if name.startswith(_FINALIZED):
            return value(finalized().get(name.removeprefix(_FINALIZED), 0))
        return None

    return Directory(lambda: (_METADATA_VERSION, *(_FINALIZED + name for name in finalized())), child)


def _metadata_version(level: int) -> Leaf:
    known = METADATA_VERSIONS.get(level)
    if known is None:
        return Leaf(lambda: "Optional.empty", lambda: None)
    return Leaf(lambda: f"Optional[{known.name}]", lambda: known.name)


def producer_ids(image: ImageState) -> Directory:
    """The next producer id to be allocated."""
    return fixed({"nextProducerId": lambda: value(image.next_producer_id)})


def provenance(where: Provenance) -> Leaf:
    """The last record that the image contains."""
    last_offset = where.end_offset - 1
    return Leaf(
        lambda: f"offset {last_offset}, epoch {where.epoch}, time {_zoned(where.timestamp_ms)}",
        lambda: {"offset": last_offset, "epoch": where.epoch, "timestampMs": where.timestamp_ms},
    )


def _zoned(timestamp_ms: int) -> str:
    """As DateTimeFormatter.ISO_ZONED_DATE_TIME: without a fraction of zero."""
    time = _EPOCH + timedelta(milliseconds=timestamp_ms)
    fraction = f".{timestamp_ms % 1000:03}".rstrip("0").rstrip(".")
    return f"{time:%Y-%m-%dT%H:%M:%S}{fraction}Z[UTC]"
