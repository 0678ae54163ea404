"""OAUTHBEARER on a controller listener: the rules for its tokens (KIP-768, KIP-1139, checks of Kafka 4.4)."""

from collections.abc import Mapping
from dataclasses import field
from typing import Final

from quorate_protocol.plain_data import dataclass
from quorate_protocol.security.oauth import checked_url, path_of
from quorate_protocol.security.oauth_properties import AllowedUrl, number, of_mechanism
from quorate_protocol.security.stores import SecurityConfigError, TlsConfig, list_of, tls_from_properties

from quorate_controller.security.bearer import TokenRules

JWKS_URL: Final = "sasl.oauthbearer.jwks.endpoint.url"
JWKS_REFRESH: Final = "sasl.oauthbearer.jwks.endpoint.refresh.ms"
JWKS_BACKOFF: Final = "sasl.oauthbearer.jwks.endpoint.retry.backoff.ms"
JWKS_BACKOFF_MAX: Final = "sasl.oauthbearer.jwks.endpoint.retry.backoff.max.ms"
AUDIENCE: Final = "sasl.oauthbearer.expected.audience"
ISSUER: Final = "sasl.oauthbearer.expected.issuer"
ANY_AUDIENCE: Final = "sasl.oauthbearer.allow.unverified.audience"
ANY_ISSUER: Final = "sasl.oauthbearer.allow.unverified.issuer"
CLOCK_SKEW: Final = "sasl.oauthbearer.clock.skew.seconds"
SCOPE_CLAIM: Final = "sasl.oauthbearer.scope.claim.name"
SUB_CLAIM: Final = "sasl.oauthbearer.sub.claim.name"
VALIDATOR: Final = "sasl.oauthbearer.jwt.validator.class"
SERVER_HANDLER: Final = "sasl.server.callback.handler.class"
LOGIN_HANDLER: Final = "sasl.login.callback.handler.class"

LISTENER_OAUTH_KEYS: Final = frozenset(
    {
        JWKS_URL,
        JWKS_REFRESH,
        JWKS_BACKOFF,
        JWKS_BACKOFF_MAX,
        AUDIENCE,
        ISSUER,
        ANY_AUDIENCE,
        ANY_ISSUER,
        CLOCK_SKEW,
        SCOPE_CLAIM,
        SUB_CLAIM,
        VALIDATOR,
        SERVER_HANDLER,
        LOGIN_HANDLER,
    }
)
"""The properties that this module reads, and the handlers."""

_PACKAGE: Final = "org.apache.kafka.common.security.oauthbearer"
VALIDATOR_HANDLER_CLASS: Final = f"{_PACKAGE}.OAuthBearerValidatorCallbackHandler"
LOGIN_HANDLER_CLASS: Final = f"{_PACKAGE}.OAuthBearerLoginCallbackHandler"
_VALIDATORS: Final = (f"{_PACKAGE}.DefaultJwtValidator", f"{_PACKAGE}.BrokerJwtValidator")


@dataclass(frozen=True, slots=True, kw_only=True)
class ListenerOauth:
    """OAUTHBEARER on one listener. The keys are in a file or at an endpoint: exactly one is set."""

    rules: TokenRules
    file: str | None = None
    url: AllowedUrl | None = None
    tls: TlsConfig = field(default_factory=TlsConfig)
    """TLS settings for the endpoint: the options ssl.* of the login module."""
    refresh_ms: int = 3_600_000
    retry_backoff_ms: int = 100
    retry_backoff_max_ms: int = 10_000

    @property
    def source(self) -> str:
        """The file or URL of the keys, for messages."""
        return f"{JWKS_URL}={self.url or f'file:{self.file}'}"


def parse_listener_oauth(
    prefix: str, own: Mapping[str, str], options: Mapping[str, str], environment: Mapping[str, str]
) -> ListenerOauth:
    """Parse OAUTHBEARER of the listener whose keys have `prefix`; `own` are the properties as they apply to it.

    `options` are those of its login module.

    Raises:
        SecurityConfigError: a key is missing or wrong.
    """
    _check_handler(
        prefix, own, SERVER_HANDLER, VALIDATOR_HANDLER_CLASS, without="Kafka takes unsecured tokens then"
    )
    validator = of_mechanism(own, VALIDATOR) or _VALIDATORS[0]
    if validator not in _VALIDATORS:
        raise SecurityConfigError(f"{VALIDATOR}={validator}: allowed are {', '.join(_VALIDATORS)}")
    url = checked_url(own, JWKS_URL, environment)
    is_file = url.startswith("file:")
    return ListenerOauth(
        rules=_rules(own),
        file=path_of(JWKS_URL, url) if is_file else None,
        url=None if is_file else url,
        tls=TlsConfig() if is_file else tls_from_properties(options),
        refresh_ms=number(own, JWKS_REFRESH, 3_600_000),
        retry_backoff_ms=number(own, JWKS_BACKOFF, 100),
        retry_backoff_max_ms=number(own, JWKS_BACKOFF_MAX, 10_000),
    )


def _rules(own: Mapping[str, str]) -> TokenRules:
    audiences = frozenset(list_of({AUDIENCE: of_mechanism(own, AUDIENCE) or ""}, AUDIENCE))
    issuer = of_mechanism(own, ISSUER)
    for expected, key, any_key in ((audiences, AUDIENCE, ANY_AUDIENCE), (issuer, ISSUER, ANY_ISSUER)):
        if not expected and (of_mechanism(own, any_key) or "").lower() != "true":
            raise SecurityConfigError(
                f"{key} is missing, without which each token that the keys have signed is valid here; set it, or "
                f"{any_key}=true"
            )
    return TokenRules(
        audiences=audiences,
        issuer=issuer,
        clock_skew_s=number(own, CLOCK_SKEW, 30),
        scope_claim=of_mechanism(own, SCOPE_CLAIM) or "scope",
        sub_claim=of_mechanism(own, SUB_CLAIM) or "sub",
    )


def check_login_handler(prefix: str, own: Mapping[str, str]) -> None:
    """Check that the login does not use Kafka's unsecured tokens. Raises SecurityConfigError."""
    _check_handler(
        prefix, own, LOGIN_HANDLER, LOGIN_HANDLER_CLASS, without="Kafka makes unsecured tokens then"
    )


def _check_handler(prefix: str, own: Mapping[str, str], key: str, allowed: str, *, without: str) -> None:
    handler = own.get(f"oauthbearer.{key}", "").strip()
    if handler != allowed:
        problem = f"={handler}: Java classes can't run here" if handler else f" is missing: {without}"
        raise SecurityConfigError(f"{prefix}oauthbearer.{key}{problem}; allowed is {allowed}")
