"""Limits of users, clients and addresses: AlterClientQuotas (KIP-546, KIP-599, KIP-612)."""

import ipaddress
import math
from collections.abc import Generator, Iterable, Mapping
from datetime import timedelta
from typing import TYPE_CHECKING, Final

from quorate_protocol.errors import ErrorCode
from quorate_protocol.image.security import quota_entity
from quorate_protocol.kafka.enums import CLIENT_ID, IP, USER, ConfigType
from quorate_protocol.kafka.generated.alter_client_quotas_request import (
    AlterClientQuotasRequest,
    EntryData,
    OpData,
)
from quorate_protocol.kafka.generated.alter_client_quotas_response import (
    AlterClientQuotasResponse,
)
from quorate_protocol.kafka.generated.alter_client_quotas_response import EntityData as EntityResponse
from quorate_protocol.kafka.generated.alter_client_quotas_response import EntryData as EntryResponse
from quorate_protocol.records.generated import ClientQuotaRecord, EntityData

from quorate_controller.control.api import (
    ControlError,
    ControlResult,
    RequestContext,
    invalid_request,
    may_exceed_batch,
)
from quorate_controller.control.steps import ITEM, Parts, Steps, begun, text_work

if TYPE_CHECKING:
    from quorate_protocol.image import MetadataImage

CONTROLLER_MUTATION_RATE: Final = "controller_mutation_rate"
_TYPES: Final = (CLIENT_ID, USER, IP)
"""In the order in which Java prints the parts of an entity, which is that of their hashes."""

_USER_AND_CLIENT_KEYS: Final = {
    "producer_byte_rate": ConfigType.LONG,
    "consumer_byte_rate": ConfigType.LONG,
    "request_percentage": ConfigType.DOUBLE,
    CONTROLLER_MUTATION_RATE: ConfigType.DOUBLE,
}
_IP_KEYS: Final = {"connection_creation_rate": ConfigType.INT}
_TYPE_MAX: Final = {ConfigType.INT: float(2**31 - 1), ConfigType.LONG: float(2**63 - 1)}
_FRACTION_MAX: Final = 1e-6
"""A number this close above a whole one counts as whole."""

Entity = Mapping[str, str | None]
"""The name of each type; None is the default of the type."""


def host_names(request: AlterClientQuotasRequest) -> frozenset[str]:
    """The names of ip entities that are no addresses: the caller resolves them."""
    return frozenset(
        part.entity_name
        for entry in request.entries
        for part in entry.entity
        if part.entity_type == IP and part.entity_name and not _is_address(part.entity_name)
    )


class ClientQuotaManager:
    """Sets and removes quotas. Stateless."""

    def __init__(self, image: "MetadataImage") -> None:
        self._image = image

    def alter_client_quotas(
        self, request: AlterClientQuotasRequest, context: RequestContext
    ) -> ControlResult:
        """AlterClientQuotas 0-1: each entity succeeds or fails alone; errors stand in the response.

        A repeated entity is an error. The change of its first entry is made, as in Kafka.

        Raises:
            ControlError: POLICY_VIOLATION for more records than one batch may have.
        """
        return begun(self._altering(request, context))

    def _altering(self, request: AlterClientQuotasRequest, context: RequestContext) -> Steps:
        if may_exceed_batch(sum(len(entry.ops) for entry in request.entries)):
            yield from self._altering_each(request, context, Parts.checking())
        parts = Parts(is_dry=request.validate_only)
        entries = yield from self._altering_each(request, context, parts)
        return parts.last(AlterClientQuotasResponse(throttle_time=timedelta(0), entries=entries))

    def _altering_each(
        self, request: AlterClientQuotasRequest, context: RequestContext, parts: Parts
    ) -> Generator[ControlResult | None, None, tuple[EntryResponse, ...]]:
        results: dict[tuple[tuple[str, str | None], ...], tuple[Entity, ControlError | None]] = {}
        for entry in request.entries:
            entity = {part.entity_type: part.entity_name for part in entry.entity}
            key = tuple(sorted(entity.items()))
            error = None
            records: list[ClientQuotaRecord] = []
            try:
                if key in results or _has_duplicates(entry.ops):
                    raise invalid_request(f"Ignoring duplicate entity {_java_text(entity)}")
                records = self._change(entity, entry, context)
            except ControlError as refused:
                error = refused
            results[key] = (entity, error)
            texts = text_work(*entity.values()) * len(records)
            if parts.add(records, ITEM * (1 + len(entry.ops)) + texts):
                yield parts.pop()
        return tuple(_response(entity, error) for entity, error in results.values())

    def _change(self, entity: Entity, entry: EntryData, context: RequestContext) -> list[ClientQuotaRecord]:
        """The records for one entity, without those that would not change its quotas."""
        _check_types(entity)
        key_types = _key_types(entity, context.unresolved_hosts)
        parts = tuple(EntityData(entity_type=kind, entity_name=name) for kind, name in entity.items())
        current = self._image.client_quotas.get(quota_entity(parts)) or {}
        records = []
        for op in entry.ops:
            if op.remove:
                if op.key in current:
                    records.append(ClientQuotaRecord(entity=parts, key=op.key, value=0.0, remove=True))
                continue
            _check_value(key_types, op.key, op.value)
            if current.get(op.key) != op.value:
                records.append(ClientQuotaRecord(entity=parts, key=op.key, value=op.value, remove=False))
        return records


def _has_duplicates(ops: Iterable[OpData]) -> bool:
    keys = [op.key for op in ops]
    return len(set(keys)) < len(keys)


def _response(entity: Entity, error: ControlError | None) -> EntryResponse:
    return EntryResponse(
        error_code=error.error_code if error else ErrorCode.none,
        error_message=error.message if error else None,
        entity=tuple(EntityResponse(entity_type=kind, entity_name=name) for kind, name in entity.items()),
    )


def _java_text(entity: Entity) -> str:
    """An entity as Kafka's ClientQuotaEntity prints itself."""
    ordered = [kind for kind in _TYPES if kind in entity] + [kind for kind in entity if kind not in _TYPES]
    parts = (f"{kind}={'null' if entity[kind] is None else entity[kind]}" for kind in ordered)
    return f"ClientQuotaEntity(entries={{{', '.join(parts)}}})"


def _check_types(entity: Entity) -> None:
    if not entity:
        raise invalid_request("Invalid empty client quota entity")
    for kind, name in entity.items():
        if kind not in _TYPES:
            raise invalid_request(f"Unhandled client quota entity type: {kind}")
        if name == "":
            raise invalid_request(f"Empty {kind} not supported")


def _key_types(entity: Entity, unresolved_hosts: frozenset[str]) -> Mapping[str, ConfigType]:
    """The quotas that an entity of these types can have."""
    if IP not in entity:
        return _USER_AND_CLIENT_KEYS
    if len(entity) > 1:
        # Kafka's text lacks the space, too.
        raise invalid_request(
            "Invalid quota entity combination, IP entity shouldnot be combined with User or ClientId"
        )
    if entity[IP] in unresolved_hosts:
        raise invalid_request(f"{entity[IP]} is not a valid IP or resolvable host.")
    return _IP_KEYS


def _check_value(key_types: Mapping[str, ConfigType], key: str, value: float) -> None:
    key_type = key_types.get(key)
    if key_type is None:
        raise invalid_request(f"Invalid configuration key {key}")
    if not math.isfinite(value):
        raise invalid_request(f"Quota {key} must be a finite number")
    if value <= 0:
        raise invalid_request(f"Quota {key} must be greater than 0")
    if key_type is ConfigType.DOUBLE:
        return
    if value > _TYPE_MAX[key_type]:
        raise invalid_request(
            f"Proposed value for {key} is too large for {'an' if key_type is ConfigType.INT else 'a'} "
            f"{key_type.name}."
        )
    if math.fmod(value, 1.0) > _FRACTION_MAX:
        raise invalid_request(f"{key} cannot be a fractional value.")


def _is_address(name: str) -> bool:
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return "%" not in name  # the interface after it may not exist
