"""The authorizer in a controller's configuration, with the keys that StandardAuthorizer has."""

from collections.abc import Mapping

from quorate_protocol.kafka.config_names import ALLOW_EVERYONE, SUPER_USERS
from quorate_protocol.plain_data import dataclass

from quorate_controller.config.endpoints import Problems
from quorate_controller.config.keys import (
    AUTHORIZER,
    EARLY_START_LISTENERS,
    STANDARD_AUTHORIZER,
    ConfigValue,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class AuthorizerConfig:
    """The settings of the authorizer."""

    super_users: frozenset[str] = frozenset()
    """Principals (`User:admin`) that may do everything."""
    allow_everyone_if_no_acl_found: bool = False


def parse_authorizer(
    properties: Mapping[str, str],
    values: Mapping[str, ConfigValue],
    listener_names: tuple[str, ...],
    problem: Problems,
) -> AuthorizerConfig | None:
    """Return the configured authorizer, or None. Users and flag are checked either way."""
    super_users = _super_users(properties.get(SUPER_USERS, ""), problem)
    allow_everyone = _allow_everyone(properties.get(ALLOW_EVERYONE, "false"), problem)
    if values[AUTHORIZER] != STANDARD_AUTHORIZER:
        return None
    _check_early_start_listeners(values, listener_names, problem)
    return AuthorizerConfig(super_users=super_users, allow_everyone_if_no_acl_found=allow_everyone)


def _super_users(text: str, problem: Problems) -> frozenset[str]:
    users = [user.strip() for user in text.split(";") if user.strip()]
    for user in users:
        if ":" not in user:
            problem(f"{SUPER_USERS}={text}: {user} is no principal; write them as User:NAME, separated by ;")
    return frozenset(users)


def _allow_everyone(text: str, problem: Problems) -> bool:
    value = text.strip().lower()
    if value not in ("true", "false"):
        problem(f"{ALLOW_EVERYONE}={text}: must be true or false")
    return value == "true"


def _check_early_start_listeners(
    values: Mapping[str, ConfigValue], listener_names: tuple[str, ...], problem: Problems
) -> None:
    """Controllers connect to each other before they have loaded the ACLs: all of their listeners start early."""
    early = values[EARLY_START_LISTENERS]
    if early is None:
        return
    names = [name.strip().upper() for name in early if name.strip()] if isinstance(early, tuple) else []
    if set(names) != set(listener_names):
        problem(
            f"{EARLY_START_LISTENERS}={','.join(names)}: must name the controller listeners "
            f"{','.join(listener_names)}, which start before the ACLs are loaded; or remove it"
        )
