"""Alters configs, quotas and credentials."""

from typing import TYPE_CHECKING

from quorate_admin.types.configs import AlterConfigOp
from quorate_admin.types.quotas import ClientQuotaAlteration, ClientQuotaEntity
from quorate_protocol.kafka.enums import ConfigOpType

from quorate.console import CommandError
from quorate.tools.configs.changes import (
    Changes,
    changes_credentials,
    check_changes,
    credential_alterations,
    quota_values,
)
from quorate.tools.configs.describe import QUOTA_TYPES, describe_quotas
from quorate.tools.configs.entities import BROKER_LOGGERS, Entities
from quorate.tools.configs.text import resource_of

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from quorate_admin.client import AdminClient

ALTER_TIMEOUT_MS = 30_000


def alteration(entities: Entities, changes: Changes) -> "Callable[[AdminClient], Awaitable[None]]":
    """The alteration of the options. Raises UsageError for changes that these entities do not support."""
    check_changes(entities, changes)
    if entities.type not in QUOTA_TYPES:
        return lambda admin: _alter_configs(admin, entities, changes)
    if changes_credentials(changes):
        alterations = credential_alterations(entities.names[0], changes)

        async def alter_credentials(admin: "AdminClient") -> None:
            (await admin.alter_user_scram_credentials(alterations)).raise_any()

        return alter_credentials
    values = quota_values(changes)
    return lambda admin: _alter_quotas(admin, entities, changes, values)


async def _alter_configs(admin: "AdminClient", entities: Entities, changes: Changes) -> None:
    resource = resource_of(entities.type, entities.names[0])
    if entities.type == BROKER_LOGGERS:
        known = {entry.name for entry in (await admin.describe_configs([resource]))[resource]}
        unknown = [name for name in changes.names if name not in known]
        if unknown:
            raise CommandError(
                f"Invalid broker logger(s): {','.join(unknown)}; there are {', '.join(sorted(known))}"
            )
    operations = [
        *(AlterConfigOp(name=name, operation=ConfigOpType.DELETE) for name in changes.to_delete),
        *(AlterConfigOp(name=name, value=value) for name, value in changes.to_set.items()),
    ]
    results = await admin.incremental_alter_configs({resource: operations}, timeout_ms=ALTER_TIMEOUT_MS)
    results.raise_any()


async def _alter_quotas(
    admin: "AdminClient", entities: Entities, changes: Changes, values: dict[str, float | None]
) -> None:
    if changes.to_delete:
        quotas = await describe_quotas(admin, entities)
        present = {name for values_of_one in quotas.values() for name in values_of_one}
        missing = [name for name in changes.to_delete if name not in present]
        if missing:
            raise CommandError(
                f"Invalid config(s): {','.join(missing)}; the entity has no such quota to delete"
            )
    entity = ClientQuotaEntity.of(
        {
            QUOTA_TYPES[entity_type]: name or None
            for entity_type, name in zip(entities.types, entities.names, strict=True)
        }
    )
    results = await admin.alter_client_quotas([ClientQuotaAlteration(entity=entity, values=values)])
    results.raise_any()
