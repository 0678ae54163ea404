"""Client quotas (KIP-546): limits for users, client ids and IP addresses."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Self

from quorate_protocol.kafka.enums import QuotaMatch


@dataclass(frozen=True, slots=True, order=True)
class ClientQuotaEntity:
    """The entity of a quota: pairs of entity type and name, sorted by type. A name of None means the default."""

    entries: tuple[tuple[str, str | None], ...]

    @classmethod
    def of(cls, names: Mapping[str, str | None]) -> Self:
        """For instance `ClientQuotaEntity.of({USER: "alice", CLIENT_ID: None})`."""
        return cls(tuple(sorted(names.items())))

    @property
    def names(self) -> dict[str, str | None]:
        """Entity type -> name, None for the default."""
        return dict(self.entries)

    def __str__(self) -> str:
        return ", ".join(f"{kind} {'default' if name is None else name}" for kind, name in self.entries)


@dataclass(frozen=True, slots=True)
class ClientQuotaFilterComponent:
    """A condition on one entity type; `name` belongs to EXACT."""

    entity_type: str
    match: QuotaMatch = QuotaMatch.SPECIFIED
    name: str | None = None

    @classmethod
    def of_entity(cls, entity_type: str, name: str | None) -> Self:
        """Match the entity with this name; None is the default entity."""
        match = QuotaMatch.DEFAULT if name is None else QuotaMatch.EXACT
        return cls(entity_type=entity_type, match=match, name=name)


@dataclass(frozen=True, slots=True)
class ClientQuotaFilter:
    """Which entities: all components must match. `is_strict` leaves out entities with further types."""

    components: tuple[ClientQuotaFilterComponent, ...] = ()
    is_strict: bool = False

    @classmethod
    def contains(cls, components: Iterable[ClientQuotaFilterComponent]) -> Self:
        """Entities that match, including those with further types."""
        return cls(components=tuple(components))

    @classmethod
    def contains_only(cls, components: Iterable[ClientQuotaFilterComponent]) -> Self:
        """Entities that match and have no other type."""
        return cls(components=tuple(components), is_strict=True)


@dataclass(frozen=True, slots=True)
class ClientQuotaAlteration:
    """New values of an entity's quotas by quota name; None removes one."""

    entity: ClientQuotaEntity
    values: Mapping[str, float | None]
