"""SASL on a controller listener, and the login of this controller at the others, as Kafka configures both."""

import os
from collections.abc import Mapping
from dataclasses import field
from typing import Final

from quorate_protocol.plain_data import dataclass
from quorate_protocol.security.jaas import LOGIN_MODULES, parse_jaas
from quorate_protocol.security.oauth import (
    OAUTH_LOGIN_KEYS,
    OAUTHBEARER,
    OAuthLogin,
    parse_oauth_login,
)
from quorate_protocol.security.stores import SecurityConfigError, list_of

from quorate_controller.config.listener_oauth import (
    LISTENER_OAUTH_KEYS,
    LOGIN_HANDLER,
    SERVER_HANDLER,
    ListenerOauth,
    check_login_handler,
    parse_listener_oauth,
)
from quorate_controller.security.sasl import MECHANISMS, PLAIN

ENABLED_MECHANISMS: Final = "sasl.enabled.mechanisms"
CONTROLLER_MECHANISM: Final = "sasl.mechanism.controller.protocol"
JAAS: Final = "sasl.jaas.config"
MAX_REAUTH: Final = "connections.max.reauth.ms"
RECEIVE_SIZE: Final = "sasl.server.max.receive.size"
FAILURE_DELAY: Final = "connection.failed.authentication.delay.ms"
LISTENER_SASL_KEYS: Final = frozenset({ENABLED_MECHANISMS, JAAS, MAX_REAUTH, RECEIVE_SIZE})
"""The keys that may have the prefix of a listener."""
OAUTH_KEYS: Final = LISTENER_OAUTH_KEYS | OAUTH_LOGIN_KEYS
"""The keys of OAUTHBEARER, which may have the prefixes of a listener and of the mechanism."""
SASL_KEYS: Final = LISTENER_SASL_KEYS | {CONTROLLER_MECHANISM, FAILURE_DELAY}

_USER_PREFIX: Final = "user_"
_NUMBER_MAX: Final = 2**63 - 1
_CLASSES: Final = tuple(
    f"sasl.{kind}"
    for kind in ("server.callback.handler.class", "login.callback.handler.class", "login.class")
)


_OAUTH_HANDLERS: Final = tuple(f"oauthbearer.{key}" for key in (SERVER_HANDLER, LOGIN_HANDLER))
"""They name supported classes of Kafka, and are checked with the rest of OAUTHBEARER."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ListenerSasl:
    """SASL on one listener."""

    mechanisms: tuple[str, ...]
    passwords: Mapping[str, str] = field(default_factory=dict, repr=False)
    """User name -> password, for PLAIN."""
    oauth: ListenerOauth | None = None
    """The rules for tokens, if OAUTHBEARER is among the mechanisms."""
    reauthentication_ms: Mapping[str, int] = field(default_factory=dict)
    """connections.max.reauth.ms by mechanism; 0: sessions do not end."""
    receive_size_bytes_max: int = 524_288
    """sasl.server.max.receive.size"""
    failure_delay_ms: int = 100
    """connection.failed.authentication.delay.ms"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Login:
    """The login of this controller at others."""

    mechanism: str
    username: str = ""
    password: str = field(default="", repr=False)
    is_token: bool = False
    """Name and password are the id and the HMAC of a delegation token."""
    oauth: OAuthLogin | None = None
    """The source of the token of OAUTHBEARER."""


def jaas_keys(mechanism: str, key: str = JAAS) -> str:
    """The key of one mechanism behind the prefix of the listener."""
    return f"{mechanism.lower()}.{key}"


def parse_listener_sasl(prefix: str, own: Mapping[str, str]) -> ListenerSasl:
    """Parse SASL of the listener whose keys have `prefix`; `own` are the properties as they apply to it.

    Raises:
        SecurityConfigError: a key is missing or wrong.
    """
    for key in _CLASSES:
        for name in (key, *(jaas_keys(mechanism, key) for mechanism in MECHANISMS)):
            if own.get(name) and name not in _OAUTH_HANDLERS:
                raise SecurityConfigError(f"{name}={own[name]}: Java classes can't run here; remove it")
    mechanisms = list_of(own, ENABLED_MECHANISMS) or ("GSSAPI",)
    for mechanism in mechanisms:
        if mechanism not in MECHANISMS:
            raise SecurityConfigError(
                f"{ENABLED_MECHANISMS}={','.join(mechanisms)}: {mechanism} is not supported; allowed are "
                f"{', '.join(MECHANISMS)}"
            )
    options = {mechanism: _options(prefix, own, mechanism) for mechanism in mechanisms}
    return ListenerSasl(
        mechanisms=tuple(dict.fromkeys(mechanisms)),
        passwords={
            name.removeprefix(_USER_PREFIX): password
            for name, password in options.get(PLAIN, {}).items()
            if name.startswith(_USER_PREFIX)
        },
        oauth=(
            parse_listener_oauth(prefix, own, options[OAUTHBEARER], os.environ)
            if OAUTHBEARER in options
            else None
        ),
        reauthentication_ms={
            mechanism: _number(own, jaas_keys(mechanism, MAX_REAUTH), _number(own, MAX_REAUTH, 0))
            for mechanism in mechanisms
        },
        receive_size_bytes_max=max(1, _number(own, RECEIVE_SIZE, 524_288)),
        failure_delay_ms=_number(own, FAILURE_DELAY, 100),
    )


def parse_login(prefix: str, own: Mapping[str, str]) -> Login:
    """Parse the login at other controllers; see `parse_listener_sasl`."""
    mechanism = own.get(CONTROLLER_MECHANISM, "GSSAPI").strip()
    if mechanism not in MECHANISMS:
        raise SecurityConfigError(
            f"{CONTROLLER_MECHANISM}={mechanism}: is not supported; allowed are {', '.join(MECHANISMS)}"
        )
    options = _options(prefix, own, mechanism)
    if mechanism == OAUTHBEARER:
        check_login_handler(prefix, own)
        return Login(mechanism=mechanism, oauth=parse_oauth_login(own, options, os.environ))
    for option in ("username", "password"):
        if not options.get(option):
            raise SecurityConfigError(
                f"{prefix}{jaas_keys(mechanism)}: {option} is missing, with which this controller logs in at "
                f'the others: {LOGIN_MODULES[mechanism]} required username="…" password="…" …;'
            )
    return Login(
        mechanism=mechanism,
        username=options["username"],
        password=options["password"],
        is_token=mechanism != PLAIN and options.get("tokenauth", "").lower() == "true",
    )


def _options(prefix: str, own: Mapping[str, str], mechanism: str) -> Mapping[str, str]:
    key, module = prefix + jaas_keys(mechanism), LOGIN_MODULES[mechanism]
    text = own.get(jaas_keys(mechanism))
    if text is None:
        raise SecurityConfigError(f"{key} is missing; for instance {module} required …;")
    try:
        login = parse_jaas(text)
    except ValueError as error:
        raise SecurityConfigError(f"{key}: {error}; allowed is {module} required …;") from None
    if login.name != module:
        raise SecurityConfigError(f"{key}: {login.name} is not for {mechanism}; allowed is {module}")
    return login.options


def _number(properties: Mapping[str, str], key: str, default: int) -> int:
    text = properties.get(key, str(default)).strip()
    sign, digits = ("-", text[1:]) if text.startswith("-") else ("", text)
    is_number = digits.isascii() and digits.isdecimal() and len(digits) < 20
    if not is_number or int(digits) > _NUMBER_MAX:
        raise SecurityConfigError(f"{key}={text}: must be a number")
    return int(sign + digits)
