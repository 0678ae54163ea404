"""The entities in the options of `quorate configs`."""

from collections import Counter
from collections.abc import Mapping, Sequence

from quorate_protocol.plain_data import dataclass

from quorate.console import INT32_MAX, UsageError, parse_id

TOPICS = "topics"
CLIENTS = "clients"
USERS = "users"
BROKERS = "brokers"
BROKER_LOGGERS = "broker-loggers"
IPS = "ips"
CLIENT_METRICS = "client-metrics"
GROUPS = "groups"
TYPES = (TOPICS, CLIENTS, USERS, BROKERS, IPS, CLIENT_METRICS, GROUPS, BROKER_LOGGERS)
HAVE_DEFAULTS = (USERS, CLIENTS, BROKERS, IPS)

SHORTCUTS = {
    "--topic": TOPICS,
    "--client": CLIENTS,
    "--user": USERS,
    "--broker": BROKERS,
    "--broker-logger": BROKER_LOGGERS,
    "--ip": IPS,
    "--client-metrics": CLIENT_METRICS,
    "--group": GROUPS,
}
"""Options that stand for --entity-type and --entity-name."""

DEFAULT_SHORTCUTS = {
    "--client-defaults": CLIENTS,
    "--user-defaults": USERS,
    "--broker-defaults": BROKERS,
    "--ip-defaults": IPS,
}
"""Options that stand for --entity-type and --entity-default."""

DEFAULT_NAME = ""
"""The name of the default entity of a type."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Entities:
    """The entity types and names in the order given; there may be fewer names than types."""

    types: tuple[str, ...]
    names: tuple[str, ...]

    @property
    def type(self) -> str:
        """The first type, which determines the operation."""
        return self.types[0]

    @property
    def name(self) -> str | None:
        """The first name, if one was given."""
        return self.names[0] if self.names else None

    @property
    def has_name(self) -> bool:
        """Whether an entity that is not a default is named."""
        return any(self.names)

    @property
    def has_default(self) -> bool:
        """Whether the default of a type is meant."""
        return DEFAULT_NAME in self.names

    def has_any(self, *types: str) -> bool:
        """Whether one of these types is given."""
        return any(type_ in types for type_ in self.types)


def singular(entity_type: str) -> str:
    """The type without its last letter, which is how Kafka makes the singular."""
    return entity_type[:-1]


def resolve(
    given: Sequence[str],
    entity_types: Sequence[str],
    entity_names: Sequence[str],
    shortcuts: Mapping[str, str],
) -> Entities:
    """The entities of the options.

    `given` are the options in order, because the order assigns names and defaults to types; `shortcuts` has the
    values of the given options of SHORTCUTS. Raises UsageError.
    """
    defaults = [option for option in DEFAULT_SHORTCUTS if option in given]
    specific = [*shortcuts, *defaults]
    general = [option for option in ("--entity-type", "--entity-name", "--entity-default") if option in given]
    if general and specific:
        raise UsageError(f"{general[0]} can't be used with {specific[0]}, which gives both type and entity")
    waiting = iter(entity_names)
    entities = Entities(
        types=(
            *entity_types,
            *(SHORTCUTS[option] for option in shortcuts),
            *(DEFAULT_SHORTCUTS[option] for option in defaults),
        ),
        names=(
            *(
                next(waiting) if option == "--entity-name" else DEFAULT_NAME
                for option in given
                if option in {"--entity-name", "--entity-default"}
            ),
            *shortcuts.values(),
            *(DEFAULT_NAME for _ in defaults),
        ),
    )
    _check_types(entities.types)
    _check_names(entities)
    return entities


def _check_types(types: Sequence[str]) -> None:
    for entity_type, count in Counter(types).items():
        if entity_type not in TYPES:
            raise UsageError(f"--entity-type {entity_type!r}: the type must be one of {', '.join(TYPES)}")
        if count > 1:
            raise UsageError(f"the entity type {entity_type} is given {count} times; name each type once")
    if not types:
        raise UsageError(f"give --entity-type, or one of {', '.join((*SHORTCUTS, *DEFAULT_SHORTCUTS))}")
    if len(types) > 1 and set(types) != {USERS, CLIENTS}:
        raise UsageError(f"{' and '.join(types)} can't be given together; only {USERS} and {CLIENTS} can")


def _check_names(entities: Entities) -> None:
    if entities.has_any(BROKERS, BROKER_LOGGERS):
        for name in filter(None, entities.names):
            check_node_id(entities.type, name)


def check_node_id(entity_type: str, name: str) -> None:
    """Check that the name of a broker or controller is a number. Raises UsageError."""
    try:
        parse_id(name.removeprefix("-"))
    except ValueError:
        raise UsageError(
            f"the entity name for {entity_type} must be a numeric node id up to {INT32_MAX}, not {name!r}"
        ) from None


def check_describe(entities: Entities, given: Sequence[str]) -> None:
    """Check that these entities can be described. Raises UsageError."""
    if "--entity-default" in given and not entities.has_any(*HAVE_DEFAULTS):
        raise UsageError(
            f"--entity-default can't be used with --describe of {','.join(entities.types)};"
            f" only {', '.join(HAVE_DEFAULTS)} have defaults"
        )
    if entities.has_any(BROKER_LOGGERS) and not entities.has_name:
        raise UsageError(f"--describe of {BROKER_LOGGERS} needs --entity-name, the id of a node")
    if len(entities.names) > len(entities.types):
        raise UsageError("more entity names than entity types are given")


def check_alter(entities: Entities, given: Sequence[str]) -> None:
    """Check that these entities can be altered, and that there is a change. Raises UsageError."""
    if not entities.has_name and not (entities.has_any(*HAVE_DEFAULTS) and entities.has_default):
        or_default = " or --entity-default" if entities.has_any(*HAVE_DEFAULTS) else ""
        raise UsageError(f"--alter of {','.join(entities.types)} needs --entity-name{or_default}")
    if len(entities.names) != len(entities.types):
        raise UsageError(
            f"--alter needs one entity name for each entity type: {len(entities.types)} and not"
            f" {len(entities.names)}"
        )
    if "--add-config" in given and "--add-config-file" in given:
        raise UsageError("--add-config and --add-config-file can't be given together")
    if not {"--add-config", "--add-config-file", "--delete-config"} & set(given):
        raise UsageError("--alter needs --add-config, --add-config-file or --delete-config")
