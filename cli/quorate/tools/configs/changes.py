"""Parses the changes of configs, quotas and credentials in options."""

import re
from collections.abc import Iterable, Mapping, Sequence

from quorate_admin.types.credentials import (
    UserScramCredentialDeletion,
    UserScramCredentialUpsertion,
)
from quorate_protocol.kafka.enums import SCRAM_ITERATIONS_MIN, ScramMechanism
from quorate_protocol.plain_data import dataclass
from quorate_protocol.security.scram import ITERATIONS_MAX

from quorate.console import UsageError
from quorate.tools.configs.entities import CLIENTS, IPS, USERS, Entities

USER_QUOTAS = ("producer_byte_rate", "consumer_byte_rate", "request_percentage", "controller_mutation_rate")
IP_QUOTAS = ("connection_creation_rate",)
SCRAM_MECHANISMS = {
    mechanism.mechanism_name: mechanism
    for mechanism in (ScramMechanism.SCRAM_SHA_256, ScramMechanism.SCRAM_SHA_512)
}

_OUTSIDE_BRACKETS = r"(?=[^\]]*(?:\[|$))"
_COMMA = re.compile("," + _OUTSIDE_BRACKETS)
_EQUALS = re.compile(r"\s*=\s*" + _OUTSIDE_BRACKETS)
_KEY = re.compile(r"[$a-zA-Z0-9._-]*")
_CREDENTIAL = re.compile(r"(?:iterations=(-?[0-9]{1,10}),)?password=(.*)")


@dataclass(frozen=True, slots=True, kw_only=True)
class Changes:
    """Configs to set, and names of configs to delete."""

    to_set: Mapping[str, str]
    to_delete: Sequence[str]

    @property
    def names(self) -> tuple[str, ...]:
        """All names."""
        return (*self.to_set, *self.to_delete)


def parse_add_config(text: str) -> dict[str, str]:
    """The configs of --add-config: `k1=v1,k2=[v1,v2],k3=`; brackets group a value that has commas.

    Raises UsageError, whose message has names but no values, which may be passwords.
    """
    configs: dict[str, str] = {}
    pairs = _COMMA.split(text)
    while len(pairs) > 1 and not pairs[-1]:
        pairs.pop()
    for pair in pairs:
        name, *values = _EQUALS.split(pair)
        if len(values) != 1:
            raise UsageError(
                f"--add-config: {name.strip()!r} must be followed by one = and its value, as in"
                " key=value or, for values that have commas, key=[value1,value2]"
            )
        configs[name.strip()] = re.sub(r"[\[\]]", "", values[0]).strip()
    return configs


def parse_delete_config(texts: Iterable[str]) -> list[str]:
    """The names of --delete-config, which are separated by commas."""
    return [name.strip() for text in texts for name in text.split(",")]


def check_keys(names: Iterable[str]) -> None:
    """Check the syntax of config names. Raises UsageError."""
    for name in names:
        if not _KEY.fullmatch(name):
            raise UsageError(
                f"config name {name!r}: only letters, digits and the characters $ . _ - are allowed"
            )


def check_changes(entities: Entities, changes: Changes) -> None:
    """Check that entities with quotas have the configs. Raises UsageError."""
    if entities.type == IPS:
        _only(changes.names, IP_QUOTAS, IPS)
    elif entities.has_any(CLIENTS):
        _only(changes.names, USER_QUOTAS, " and ".join(entities.types))
    elif entities.type == USERS:
        _only(changes.names, (*USER_QUOTAS, *SCRAM_MECHANISMS), USERS)
        if changes_credentials(changes):
            if entities.has_default:
                raise UsageError(
                    "SCRAM credentials belong to one user: --entity-default and --user-defaults can't be used"
                )
            if any(name in USER_QUOTAS for name in changes.names):
                raise UsageError(
                    "quotas and SCRAM credentials can't be altered together; alter them one by one"
                )


def _only(names: Iterable[str], allowed: Sequence[str], whose: str) -> None:
    for name in names:
        if name not in allowed:
            raise UsageError(f"{whose} have no config {name!r}; they have {', '.join(allowed)}")


def changes_credentials(changes: Changes) -> bool:
    """Whether SCRAM credentials are set or deleted."""
    return any(name in SCRAM_MECHANISMS for name in changes.names)


def quota_values(changes: Changes) -> dict[str, float | None]:
    """Quotas by name; None removes a quota. Raises UsageError for a value that is not a number."""
    values: dict[str, float | None] = {}
    for name, text in changes.to_set.items():
        try:
            values[name] = float(text.replace("_", "x"))  # Python accepts underscores, Java does not
        except ValueError:
            raise UsageError(f"--add-config {name}={text}: a quota must be a number") from None
    return values | dict.fromkeys(changes.to_delete)


def credential_alterations(
    user: str, changes: Changes
) -> list[UserScramCredentialUpsertion | UserScramCredentialDeletion]:
    """The credentials of a user to delete and to set. Raises UsageError, whose message has no password."""
    return [
        *(
            UserScramCredentialDeletion(user=user, mechanism=SCRAM_MECHANISMS[name])
            for name in changes.to_delete
        ),
        *(_upsertion(user, name, text) for name, text in changes.to_set.items()),
    ]


def _upsertion(user: str, mechanism_name: str, text: str) -> UserScramCredentialUpsertion:
    found = _CREDENTIAL.fullmatch(text)
    if found is None:
        raise UsageError(
            f"--add-config {mechanism_name}=…: a credential is written"
            f" {mechanism_name}=[iterations={2 * SCRAM_ITERATIONS_MIN},password=…]; iterations may be omitted"
        )
    iterations = SCRAM_ITERATIONS_MIN if found[1] in {None, "-1"} else int(found[1])
    if iterations < SCRAM_ITERATIONS_MIN:
        raise UsageError(
            f"--add-config {mechanism_name}=[iterations={iterations},…]: at least {SCRAM_ITERATIONS_MIN}"
            " iterations are required"
        )
    if iterations > ITERATIONS_MAX:
        raise UsageError(
            f"--add-config {mechanism_name}=[iterations={iterations},…]: at most {ITERATIONS_MAX} are allowed"
        )
    return UserScramCredentialUpsertion(
        user=user, mechanism=SCRAM_MECHANISMS[mechanism_name], password=found[2], iterations=iterations
    )
