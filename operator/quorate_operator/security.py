"""Configuration of nodes and clients for secured listeners. Pure.

Properties of nodes refer to the files of Secrets, `${directory:PATH:KEY}`, and never have their values: each Secret
is a directory with a file for each key, as kubelet mounts it. Properties of clients have the values.
"""

import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial
from pathlib import PurePath, PurePosixPath
from typing import Final

from quorate_admin.errors import ConfigError
from quorate_admin.security.config import Mechanism, SaslConfig, SecurityConfig
from quorate_protocol.kafka.config_names import CONFIG_PROVIDERS, PROVIDER_PREFIX
from quorate_protocol.kafka.enums import SecurityProtocol
from quorate_protocol.security.jaas import format_jaas
from quorate_protocol.security.oauth import ALLOWED_URLS, TOKEN_URL
from quorate_protocol.security.stores import SecurityConfigError, TlsConfig, tls_from_properties

from quorate_operator.models.base import duration_ms
from quorate_operator.models.entities import PASSWORD, USERNAME, ClientSecurity
from quorate_operator.models.listeners import Listener
from quorate_operator.models.secrets import Secret, oauth_files, oauth_of, plain_users
from quorate_operator.models.security import (
    KEY_SET,
    OAUTHBEARER,
    TLS_AUTHORITIES,
    TLS_CERTIFICATE,
    TLS_KEY,
    OAuth,
    Sasl,
    Tls,
)
from quorate_operator.planning.cluster import DesiredNode, Implementation, Role
from quorate_operator.planning.logins import BROKER_LOGIN, LOGIN, PLAIN, BrokerLogin, Login

_DIRECTORY_PROVIDER: Final = "org.apache.kafka.common.config.provider.DirectoryConfigProvider"
_VALIDATOR: Final = "org.apache.kafka.common.security.oauthbearer.OAuthBearerValidatorCallbackHandler"
_JWKS_URL: Final = "sasl.oauthbearer.jwks.endpoint.url"
_MAX_REAUTH: Final = "connections.max.reauth.ms"
DIRECTORY_PROVIDER: Final = {
    CONFIG_PROVIDERS: "directory",
    f"{PROVIDER_PREFIX}directory.class": _DIRECTORY_PROVIDER,
}
"""The properties by which a node reads files that others of its properties name."""
_VARIABLE: Final = re.compile(r"\$\{directory:([^:}]*):([^}]*)\}")


@dataclass(frozen=True, slots=True, kw_only=True)
class SecretFiles:
    """The Secrets as nodes read them: `root` has a directory for each Secret, with a file for each key."""

    root: str
    secrets: Mapping[str, Secret]

    def directory(self, secret_name: str) -> str:
        return f"{self.root}/{secret_name}"

    def path(self, secret_name: str, key: str) -> str:
        """Return where the file of a key is, for what Kafka reads from a file only."""
        return f"{self.directory(secret_name)}/{key}"

    def variable(self, secret_name: str, key: str) -> str:
        """Return the reference to a value of a Secret for a node's properties."""
        return directory_variable(self.directory(secret_name), key)

    def of(self, secret_name: str) -> Callable[[str], str]:
        """Return `variable` of one Secret."""
        return partial(self.variable, secret_name)

    def has(self, secret_name: str, key: str) -> bool:
        return secret_name in self.secrets and key in self.secrets[secret_name].values


def node_properties(node: DesiredNode, controllers: Listener, files: SecretFiles) -> dict[str, str]:
    """Return the properties of a node's own listeners and, for a broker, of a client of the controllers' one."""
    found: dict[str, str] = {}
    for place, listener in enumerate(node.listeners):
        found |= _server_properties(listener, files, logs_in=place == 0)
    if node.role is Role.BROKER:
        own = next((listener.tls for listener in node.listeners if listener.tls is not None), None)
        found |= _client_of_controllers(controllers, own, files)
        if node.listeners[0].sasl is not None:
            found["sasl.mechanism.inter.broker.protocol"] = node.listeners[0].sasl.mechanisms[0]
    if controllers.sasl is not None:
        found["sasl.mechanism.controller.protocol"] = controllers.sasl.mechanisms[0]
    if node.implementation is Implementation.PYTHON and (urls := _urls_of_issuers(found)):
        found[ALLOWED_URLS] = urls
    return {**DIRECTORY_PROVIDER, **found} if found else {}


def directory_variable(directory: str, file: str) -> str:
    """Return the reference to the content of a file for a node's properties."""
    return f"${{directory:{directory}:{file}}}"


def keys_in_use(node: DesiredNode, properties: Mapping[str, str]) -> dict[str, frozenset[str]]:
    """Return the keys that a node reads by the name of the Secret: properties refer to it, or have its path."""
    return _keys_of(properties, (file for oauth in _oauths(node) for file in oauth_files(oauth).values()))


def _keys_of(properties: Mapping[str, str], files: Iterable[tuple[str, str]]) -> dict[str, frozenset[str]]:
    """`files` are the names of Secrets and the keys of which properties have the path."""
    used: dict[str, set[str]] = {}
    for value in properties.values():
        for directory, key in _VARIABLE.findall(value):
            used.setdefault(PurePath(directory).name, set()).add(key)
    for name, key in files:
        used.setdefault(name, set()).add(key)
    return {name: frozenset(keys) for name, keys in used.items()}


def _oauths(node: DesiredNode) -> Iterator[OAuth]:
    return filter(None, map(oauth_of, node.listeners))


def java_options(properties: Mapping[str, str]) -> tuple[str, ...]:
    """Return the options of Java that a stock node needs: Kafka uses a URL of OAUTHBEARER only if one allows it."""
    urls = _urls_of_issuers(properties)
    return (f"-D{ALLOWED_URLS}={urls}",) if urls else ()


def _urls_of_issuers(properties: Mapping[str, str]) -> str:
    """Return the value of `ALLOWED_URLS` for these properties: in Python, a controller reads it as a property."""
    return ",".join(
        sorted({value for key, value in properties.items() if key.endswith((_JWKS_URL, TOKEN_URL))})
    )


def fingerprints(used: Mapping[str, Iterable[str]], secrets: Mapping[str, Secret]) -> dict[str, str]:
    """Return fingerprints of the values of these keys, as far as the values are known."""
    return {
        f"{name}/{key}": secrets[name].fingerprint(key)
        for name, keys in sorted(used.items())
        for key in sorted(keys)
        if name in secrets and key in secrets[name].values
    }


def secret_revision(
    node: DesiredNode, controllers: Listener, secrets: Mapping[str, Secret]
) -> dict[str, str]:
    """Return the parts of a node's revision that change with the values that only a start reads from Secrets."""
    secured = node_properties(node, controllers, SecretFiles(root="", secrets=secrets))
    # Kafka reads a changed key set again by itself.
    trusted = (oauth.trusted_secret_name for oauth in _oauths(node))
    files = ((name, TLS_AUTHORITIES) for name in trusted if name is not None)
    found = fingerprints(_keys_of(_read_at_start(node, secured), files), secrets)
    parts = {"secrets": json.dumps(found, sort_keys=True)} if found else {}
    sasl = controllers.sasl
    if sasl is not None and sasl.secret in secrets:
        secret = secrets[sasl.secret]
        known = plain_users(sasl, secrets) if node.role is Role.CONTROLLER else (sasl.user,)
        users = {user: secret.fingerprint(user) for user in known if user in secret.values}
        parts[LOGIN] = Login(user=sasl.user, users=users).as_text()
    if node.role is Role.BROKER and (login := _broker_login(node, secrets)) is not None:
        parts[BROKER_LOGIN] = login.as_text()
    return parts


def _broker_login(node: DesiredNode, secrets: Mapping[str, Secret]) -> BrokerLogin | None:
    """Return how a broker logs in at others; None if it does not, or its Secret is missing."""
    sasl = node.listeners[0].sasl
    if sasl is None or sasl.secret not in secrets:
        return None
    # Unlike the uid, this salt stays when the Secret is deleted and created again.
    secret = replace(secrets[sasl.secret], salt=f"{node.pool} {sasl.secret}")
    mechanism = sasl.mechanisms[0]
    known = plain_users(sasl, secrets) if mechanism == PLAIN else (sasl.user,)
    users = {user: secret.fingerprint(user) for user in known if user in secret.values}
    return BrokerLogin(mechanism=mechanism, secret=sasl.secret, user=sasl.user, users=users)


def _read_at_start(node: DesiredNode, properties: Mapping[str, str]) -> dict[str, str]:
    """Return the properties whose files a running node does not follow. Quorate's controllers follow stores."""
    if node.implementation is not Implementation.PYTHON:
        return dict(properties)
    stores = tuple(f"{_prefix(listener)}ssl." for listener in node.listeners)
    return {key: value for key, value in properties.items() if not key.startswith(stores)}


def add_scram_arguments(mechanism: str, users: Secret) -> list[str]:
    """Return arguments of kafka-storage format, with passwords: for a file that it reads (`@FILE`)."""
    return [
        argument
        for user, password in sorted(users.values.items())
        for argument in ("--add-scram", f'{mechanism}=[name={user},password="{password}"]')
    ]


def client_properties(
    listener: Listener, secrets: Mapping[str, Secret], login: tuple[str, str, str] | None = None
) -> dict[str, str]:
    """Return Kafka's client properties for a listener, with secrets in them.

    `login` is mechanism, user and password; without it, the client logs in as the nodes do. Where clients may show a
    certificate, it shows that of the listener. What is missing in the Secrets is left out.
    """
    found: dict[str, str] = {"security.protocol": listener.protocol}
    if listener.tls is not None:
        found |= _stores(listener.tls, secrets)
    if listener.sasl is not None:
        sasl = listener.sasl
        values = secrets[sasl.secret].values if sasl.secret in secrets else {}
        mechanism, user, password = login or (
            sasl.mechanisms[0],
            sasl.user,
            values.get(sasl.user, ""),
        )
        found |= {
            "sasl.mechanism": mechanism,
            "sasl.jaas.config": format_jaas(mechanism, {"username": user, "password": password}),
        }
    return found


def security_config(
    listener: Listener, secrets: Mapping[str, Secret], names: Mapping[str, str] | None = None
) -> SecurityConfig:
    """Return how the operator connects to a listener; see `client_properties`.

    `names` are the names that certificates must have, by host, where they differ from the host. Without the Secrets,
    no connection can be made, and nothing is sent. With tokens alone, the operator does not log in (`sasl` is None).
    """
    try:
        if listener.has_tokens_alone:
            assert listener.tls is not None, "SASL_SSL has TLS"
            found = SecurityConfig(
                protocol=SecurityProtocol.SASL_SSL, tls=tls_from_properties(_stores(listener.tls, secrets))
            )
        else:
            found = SecurityConfig.from_properties(client_properties(listener, secrets))
    except (ConfigError, SecurityConfigError):
        return SecurityConfig()
    return replace(found, tls=replace(found.tls, names=dict(names or {})))


def client_security(security: ClientSecurity | None, values: Mapping[str, str]) -> SecurityConfig:
    """Return how the operator connects to brokers that it does not run; `values` are those of the Secret.

    Unlike client properties, these values can't name a file or an address.

    Raises:
        ConfigError: a value can't be used. The message does not have it.
    """
    if security is None:
        return SecurityConfig()
    sasl = None
    if security.mechanism is not None:
        sasl = SaslConfig(
            mechanism=Mechanism(security.mechanism), username=values[USERNAME], password=values[PASSWORD]
        )
    protocol = SecurityProtocol[security.protocol]
    try:
        tls = (
            tls_from_properties(_pem_stores(values, shows_certificate=True))
            if protocol.is_tls
            else TlsConfig()
        )
    except SecurityConfigError as error:
        raise ConfigError(str(error)) from None
    return SecurityConfig(protocol=protocol, tls=tls, sasl=sasl)


def _stores(tls: Tls, secrets: Mapping[str, Secret]) -> dict[str, str]:
    values = secrets[tls.secret].values if tls.secret in secrets else {}
    return _pem_stores(values, shows_certificate=tls.client_auth != "none")


def _pem_stores(values: Mapping[str, str], *, shows_certificate: bool) -> dict[str, str]:
    found: dict[str, str] = {}
    if TLS_AUTHORITIES in values:
        found |= _truststore("", values.__getitem__)
    if shows_certificate and TLS_CERTIFICATE in values and TLS_KEY in values:
        found |= _keystore("", values.__getitem__)
    return found


def _server_properties(listener: Listener, files: SecretFiles, *, logs_in: bool) -> dict[str, str]:
    """`logs_in`: nodes connect to each other's listener with the same settings."""
    prefix = _prefix(listener)
    found: dict[str, str] = {}
    if listener.tls is not None:
        found |= _keystore(prefix, files.of(listener.tls.secret))
        found |= _authorities(prefix, listener.tls, files)
        found[f"{prefix}ssl.client.auth"] = listener.tls.client_auth
        if not listener.tls.is_given:
            # The names are those of the listener: when one is withdrawn, the next certificate has fewer.
            found[f"{prefix}ssl.allow.san.changes"] = "true"
    if listener.sasl is not None:
        found[f"{prefix}sasl.enabled.mechanisms"] = ",".join(listener.sasl.mechanisms)
        if listener.sasl.reauthentication is not None:
            found[f"{prefix}{_MAX_REAUTH}"] = str(duration_ms(listener.sasl.reauthentication))
        for place, mechanism in enumerate(listener.sasl.mechanisms):
            if mechanism == OAUTHBEARER:
                continue  # it has more properties, below
            options = _login(listener.sasl, files) if logs_in and place == 0 else {}
            if mechanism == PLAIN:
                options |= {
                    f"user_{user}": files.variable(listener.sasl.secret, user)
                    for user in plain_users(listener.sasl, files.secrets)
                }
            found[_jaas_key(prefix, mechanism)] = format_jaas(mechanism, options)
    oauth = oauth_of(listener)
    return found if oauth is None else found | _oauth_properties(prefix, oauth, files)


def _oauth_properties(prefix: str, oauth: OAuth, files: SecretFiles) -> dict[str, str]:
    """Return how the tokens of clients are checked. Nodes do not log in with tokens themselves."""
    jwks_url, options = oauth.jwks_url, {}
    if jwks_url is None:
        assert oauth.jwks_secret_name is not None, "keys come from a URL or a Secret"
        jwks_url = PurePosixPath(files.path(oauth.jwks_secret_name, KEY_SET)).as_uri()
    if oauth.trusted_secret_name is not None:
        options = {
            # With any option, Kafka makes a token for itself and needs a name for it. The token is not used.
            "unsecuredLoginStringClaim_sub": "unused",
            "ssl.truststore.type": "PEM",
            "ssl.truststore.location": files.path(oauth.trusted_secret_name, TLS_AUTHORITIES),
        }
    of_mechanism = f"{prefix}{OAUTHBEARER.lower()}."
    found = {
        _jaas_key(prefix, OAUTHBEARER): format_jaas(OAUTHBEARER, options),
        f"{of_mechanism}sasl.server.callback.handler.class": _VALIDATOR,
        f"{of_mechanism}{_JWKS_URL}": jwks_url,
        f"{of_mechanism}sasl.oauthbearer.expected.issuer": oauth.issuer,
        f"{of_mechanism}sasl.oauthbearer.expected.audience": ",".join(oauth.audiences),
    }
    if oauth.subject_claim is not None:
        found[f"{of_mechanism}sasl.oauthbearer.sub.claim.name"] = oauth.subject_claim
    if oauth.clock_skew_seconds is not None:
        found[f"{of_mechanism}sasl.oauthbearer.clock.skew.seconds"] = str(oauth.clock_skew_seconds)
    return found


def _client_of_controllers(controllers: Listener, own: Tls | None, files: SecretFiles) -> dict[str, str]:
    """`own` is the certificate that a broker shows, where clients may show one."""
    prefix = _prefix(controllers)
    found: dict[str, str] = {}
    if controllers.tls is not None:
        found |= _authorities(prefix, controllers.tls, files)
        if own is not None and controllers.tls.client_auth != "none":
            found |= _keystore(prefix, files.of(own.secret))
    if controllers.sasl is not None:
        mechanism = controllers.sasl.mechanisms[0]
        found[_jaas_key(prefix, mechanism)] = format_jaas(mechanism, _login(controllers.sasl, files))
    return found


def _authorities(prefix: str, tls: Tls, files: SecretFiles) -> dict[str, str]:
    has_authorities = files.has(tls.secret, TLS_AUTHORITIES)
    return _truststore(prefix, files.of(tls.secret)) if has_authorities else {}


def _keystore(prefix: str, value: Callable[[str], str]) -> dict[str, str]:
    """`value` returns what stands for a key of the Secret: its value, or a variable."""
    return {
        f"{prefix}ssl.keystore.type": "PEM",
        f"{prefix}ssl.keystore.certificate.chain": value(TLS_CERTIFICATE),
        f"{prefix}ssl.keystore.key": value(TLS_KEY),
    }


def _truststore(prefix: str, value: Callable[[str], str]) -> dict[str, str]:
    return {
        f"{prefix}ssl.truststore.type": "PEM",
        f"{prefix}ssl.truststore.certificates": value(TLS_AUTHORITIES),
    }


def _login(sasl: Sasl, files: SecretFiles) -> dict[str, str]:
    return {"username": sasl.user, "password": files.variable(sasl.secret, sasl.user)}


def _jaas_key(prefix: str, mechanism: str) -> str:
    return f"{prefix}{mechanism.lower()}.sasl.jaas.config"


def _prefix(listener: Listener) -> str:
    return f"listener.name.{listener.name.lower()}."
