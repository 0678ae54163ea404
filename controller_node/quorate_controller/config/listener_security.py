"""The security of each controller listener: listener.security.protocol.map, TLS and SASL as Kafka configures them.

A key with the prefix `listener.name.<listener>.` takes precedence over the key without it on that listener.
Connections to other controllers have the settings of the first controller listener.
"""

from collections.abc import Mapping, Sequence
from typing import Final

from quorate_protocol.kafka.enums import SecurityProtocol
from quorate_protocol.plain_data import dataclass
from quorate_protocol.security.oauth import OAUTHBEARER
from quorate_protocol.security.stores import (
    TLS_KEYS,
    SecurityConfigError,
    TlsConfig,
    choice,
    tls_from_properties,
)
from quorate_protocol.security.tls import ClientAuth

from quorate_controller.config.endpoints import Problems
from quorate_controller.config.listener_sasl import (
    JAAS,
    LISTENER_SASL_KEYS,
    MAX_REAUTH,
    OAUTH_KEYS,
    SASL_KEYS,
    ListenerSasl,
    Login,
    jaas_keys,
    parse_listener_sasl,
    parse_login,
)
from quorate_controller.security.principal_rules import DEFAULT_RULES, PrincipalRule, parse_rules
from quorate_controller.security.sasl import MECHANISMS

CLIENT_AUTH: Final = "ssl.client.auth"
MAPPING_RULES: Final = "ssl.principal.mapping.rules"
ALLOW_DN_CHANGES: Final = "ssl.allow.dn.changes"
ALLOW_SAN_CHANGES: Final = "ssl.allow.san.changes"
LISTENER_TLS_KEYS: Final = TLS_KEYS | {CLIENT_AUTH, MAPPING_RULES, ALLOW_DN_CHANGES, ALLOW_SAN_CHANGES}
"""The keys that this module reads, with and without the prefix of a listener."""

_UNSUPPORTED: Final[Mapping[str, str]] = {
    "ssl.engine.factory.class": "Java classes can't run here; remove it",
    "ssl.keymanager.algorithm": "OpenSSL has no key managers; remove it",
    "ssl.trustmanager.algorithm": "OpenSSL has no trust managers; remove it",
    "ssl.provider": "OpenSSL has no security providers; remove it",
    "security.providers": "Java classes can't run here; remove it",
}
"""Keys that would be dangerous to ignore on a listener with TLS."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ListenerTls:
    """TLS on one listener."""

    tls: TlsConfig
    client_auth: ClientAuth = ClientAuth.NONE
    mapping_rules: Sequence[PrincipalRule] = DEFAULT_RULES
    allows_other_subject: bool = False
    """Whether the certificate may change its subject while the controller runs."""
    allows_fewer_names: bool = False
    """Whether the next certificate may lack names of the former one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ListenerSecurity:
    """The security of one listener."""

    protocol: SecurityProtocol = SecurityProtocol.PLAINTEXT
    tls: ListenerTls | None = None
    sasl: ListenerSasl | None = None


def prefix_of(listener: str) -> str:
    """The prefix of the keys of one listener."""
    return f"listener.name.{listener.lower()}."


def properties_of(listener: str, properties: Mapping[str, str]) -> dict[str, str]:
    """The properties as they apply to a listener."""
    prefix = prefix_of(listener)
    own = {key[len(prefix) :]: value for key, value in properties.items() if key.startswith(prefix)}
    return {**properties, **own}


def keys_in_use(security: Mapping[str, ListenerSecurity]) -> frozenset[str]:
    """The keys that these listeners read."""
    keys: set[str] = set()
    for name, listener in security.items():
        own = LISTENER_TLS_KEYS if listener.tls is not None else frozenset()
        if listener.sasl is not None:
            per_mechanism = {jaas_keys(each, key) for each in MECHANISMS for key in (JAAS, MAX_REAUTH)}
            # Without listener and mechanism, Kafka ignores the login module, too.
            keys |= SASL_KEYS - {JAAS} | {prefix_of(name) + key for key in per_mechanism}
            own |= LISTENER_SASL_KEYS - {JAAS}
            if listener.sasl.oauth is not None:
                own |= OAUTH_KEYS | {jaas_keys(OAUTHBEARER, key) for key in OAUTH_KEYS}
        keys |= own | {prefix_of(name) + key for key in own}
    return frozenset(keys)


def parse_listener_security(
    properties: Mapping[str, str], protocols: Mapping[str, str], names: Sequence[str], problem: Problems
) -> Mapping[str, ListenerSecurity]:
    """Return the security of each controller listener, by its name."""
    return {name: _security(name, SecurityProtocol[protocols[name]], properties, problem) for name in names}


def _security(
    name: str, protocol: SecurityProtocol, properties: Mapping[str, str], problem: Problems
) -> ListenerSecurity:
    own = properties_of(name, properties)
    if protocol.is_tls:
        for key, advice in _UNSUPPORTED.items():
            if own.get(key):
                problem(f"{key}={own[key]}: {advice}")
    try:
        return ListenerSecurity(
            protocol=protocol,
            tls=parse_listener_tls(name, protocol, properties) if protocol.is_tls else None,
            sasl=parse_listener_sasl(prefix_of(name), own) if protocol.is_sasl else None,
        )
    except SecurityConfigError as error:
        problem(f"listener {name}: {error}")
        return ListenerSecurity(protocol=protocol)


def parse_controller_login(
    properties: Mapping[str, str],
    security: Mapping[str, ListenerSecurity],
    names: Sequence[str],
    problem: Problems,
) -> Login | None:
    """Return the login at other controllers; None if their listener, the first, has no SASL."""
    if not names or security[names[0]].sasl is None:
        return None
    try:
        return parse_login(prefix_of(names[0]), properties_of(names[0], properties))
    except SecurityConfigError as error:
        problem(f"listener {names[0]}: {error}")
        return None


def parse_listener_tls(name: str, protocol: SecurityProtocol, properties: Mapping[str, str]) -> ListenerTls:
    """Return the TLS of a listener. Raises SecurityConfigError."""
    own = properties_of(name, properties)
    if protocol.is_sasl and prefix_of(name) + CLIENT_AUTH not in properties:
        # As in Kafka: clients with SASL need a certificate only if the key with the listener's prefix requires it.
        own.pop(CLIENT_AUTH, None)
    return _tls(own)


def _tls(properties: Mapping[str, str]) -> ListenerTls:
    tls = tls_from_properties(properties)
    if tls.keystore is None:
        raise SecurityConfigError(
            "ssl.keystore.location is missing: a listener with TLS needs a key and a certificate; set it, or "
            "ssl.keystore.key and ssl.keystore.certificate.chain with ssl.keystore.type=PEM"
        )
    client_auth = choice(
        properties, CLIENT_AUTH, "none", {mode.value: mode for mode in ClientAuth}, normalize=str.lower
    )
    text = properties.get(MAPPING_RULES, "DEFAULT")
    try:
        rules = parse_rules(text)
    except ValueError as error:
        raise SecurityConfigError(f"{MAPPING_RULES}={text}: {error}") from None
    return ListenerTls(
        tls=tls,
        client_auth=client_auth,
        mapping_rules=rules,
        allows_other_subject=_is_true(properties, ALLOW_DN_CHANGES),
        allows_fewer_names=_is_true(properties, ALLOW_SAN_CHANGES),
    )


def _is_true(properties: Mapping[str, str], key: str) -> bool:
    return choice(properties, key, "false", {"true": True, "false": False}, normalize=str.lower)
