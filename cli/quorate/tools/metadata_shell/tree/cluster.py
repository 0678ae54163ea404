"""/image/cluster: brokers and controllers as they registered."""

from collections.abc import Iterable, Mapping
from functools import partial
from typing import Any
from uuid import UUID

from quorate_protocol.image import (
    BrokerRegistration,
    ControllerRegistration,
    ImageState,
    Listener,
    VersionRange,
)
from quorate_protocol.uuids import uuid_to_text

from quorate.tools.metadata_shell.tree.nodes import Directory, by_key, fixed, number_of, record

_LEVEL_MAX = 2**15 - 1


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
        f"Endpoint(listenerName='{one.name}', securityProtocol={one.security_protocol.name}, "
        f"host='{one.host}', port={one.port})"
        for _, one in sorted(listeners.items())
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
            "name": one.name,
            "securityProtocol": one.security_protocol.name,
            "host": one.host,
            "port": one.port,
        }
        for _, one in sorted(listeners.items())
    ]


def _features_data(supported: Mapping[str, VersionRange]) -> dict[str, dict[str, int]]:
    return {
        name: {"minVersion": levels.min_level, "maxVersion": levels.max_level}
        for name, levels in sorted(supported.items())
    }
