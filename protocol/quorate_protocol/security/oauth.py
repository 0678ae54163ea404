"""How a client gets the token of SASL/OAUTHBEARER: from properties to requests, from responses to tokens. Pure.

Kafka's names and rules: KIP-255, KIP-768, KIP-1139, and `org.apache.kafka.common.security.oauthbearer` of 4.4.0.
"""

import base64
import json
import re
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import field, replace
from typing import Any, Final, TypeGuard
from urllib.parse import quote_plus, urlencode, urlsplit

from quorate_protocol.plain_data import dataclass
from quorate_protocol.security.assertions import (
    ASSERTION_FILE,
    ASSERTION_KEYS,
    ISSUER_CLAIM,
    AssertionSettings,
    parse_assertion,
)
from quorate_protocol.security.oauth_properties import (
    JAVA_OPTIONS,
    AllowedUrl,
    allowed_resources,
    number,
    of_mechanism,
)
from quorate_protocol.security.stores import SecurityConfigError, TlsConfig, tls_from_properties

OAUTHBEARER: Final = "OAUTHBEARER"

TOKEN_URL: Final = "sasl.oauthbearer.token.endpoint.url"  # noqa: S105 - the name of a property, as those below
CLIENT_ID: Final = "sasl.oauthbearer.client.credentials.client.id"
CLIENT_SECRET: Final = "sasl.oauthbearer.client.credentials.client.secret"  # noqa: S105
SCOPE: Final = "sasl.oauthbearer.scope"
HEADER_URLENCODE: Final = "sasl.oauthbearer.header.urlencode"
RETRIEVER: Final = "sasl.oauthbearer.jwt.retriever.class"
CONNECT_TIMEOUT: Final = "sasl.login.connect.timeout.ms"
READ_TIMEOUT: Final = "sasl.login.read.timeout.ms"
RETRY_BACKOFF: Final = "sasl.login.retry.backoff.ms"
RETRY_BACKOFF_MAX: Final = "sasl.login.retry.backoff.max.ms"
REFRESH_FACTOR: Final = "sasl.login.refresh.window.factor"
REFRESH_JITTER: Final = "sasl.login.refresh.window.jitter"
REFRESH_MIN_PERIOD: Final = "sasl.login.refresh.min.period.seconds"
REFRESH_BUFFER: Final = "sasl.login.refresh.buffer.seconds"
ALLOWED_URLS: Final = "org.apache.kafka.sasl.oauthbearer.allowed.urls"
"""The URLs that may be used, as the configuration writes them. In Kafka it is a system property of Java."""

OAUTH_LOGIN_KEYS: Final = frozenset(
    {
        *(TOKEN_URL, CLIENT_ID, CLIENT_SECRET, SCOPE, HEADER_URLENCODE, RETRIEVER, ALLOWED_URLS),
        *(CONNECT_TIMEOUT, READ_TIMEOUT, RETRY_BACKOFF, RETRY_BACKOFF_MAX),
        *(REFRESH_FACTOR, REFRESH_JITTER, REFRESH_MIN_PERIOD, REFRESH_BUFFER),
        *ASSERTION_KEYS,
    }
)
"""The properties that this module reads."""

_RETRIEVERS: Final = tuple(
    f"org.apache.kafka.common.security.oauthbearer.{name}JwtRetriever"
    for name in ("Default", "File", "ClientCredentials", "JwtBearer")
)
_KEY: Final = re.compile(r"[A-Za-z]+")
_VALUE: Final = re.compile(r"[\x21-\x7E \t\r\n]+")
_TOKEN: Final = re.compile(r"[A-Za-z0-9_-]+\.[A-Za-z0-9_-]+\.[A-Za-z0-9_-]*")
_EXTENSION_PREFIX: Final = "extension_"
_BEARER_GRANT: Final = "urn:ietf:params:oauth:grant-type:jwt-bearer"
_ASSERTION_TYPE: Final = "urn:ietf:params:oauth:client-assertion-type:jwt-bearer"
_HTTP_OK: Final = (200, 201)
_FINAL_STATUSES: Final = frozenset((*range(400, 408), *range(409, 416), 501, 505))
"""Kafka asks again after any other status."""
_ERROR_TEXT_LENGTH_MAX: Final = 1000
_SECONDS_MAX: Final = 2**53 / 1000


class TokenError(Exception):
    """There is no token: the endpoint refuses the request, or its response has no token."""

    def __init__(self, message: str, *, is_final: bool = False) -> None:
        super().__init__(message)
        self.is_final = is_final
        """Whether it is useless to ask again."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RefreshTimes:
    """When a token is replaced (sasl.login.refresh.*)."""

    window_factor: float = 0.8
    window_jitter: float = 0.05
    min_period_s: int = 60
    buffer_s: int = 300


@dataclass(frozen=True, slots=True, kw_only=True)
class OAuthLogin:
    """Where a client gets its token: a file or an endpoint, of which exactly one is set."""

    file: str | None = None
    url: AllowedUrl | None = None
    client_id: str = ""
    client_secret: str = field(default="", repr=False)
    assertion: AssertionSettings | None = None
    """The assertion that is sent in place of the client's secret (sasl.oauthbearer.assertion.*)."""
    assertion_is_grant: bool = False
    """Whether the assertion is the grant itself (JwtBearerJwtRetriever) and does not just authenticate the client."""
    scope: str | None = None
    is_header_encoded: bool = False
    """sasl.oauthbearer.header.urlencode"""
    extensions: Mapping[str, str] = field(default_factory=dict)
    """SASL extensions that are sent with the token."""
    tls: TlsConfig = field(default_factory=TlsConfig)
    """TLS settings for the endpoint: the options ssl.* of the login module."""
    connect_timeout_ms: int | None = None
    read_timeout_ms: int | None = None
    retry_backoff_ms: int = 100
    retry_backoff_max_ms: int = 10_000
    refresh: RefreshTimes = field(default_factory=RefreshTimes)

    @property
    def source(self) -> str:
        """The file or URL of the token, for messages."""
        return f"{TOKEN_URL}={self.url or f'file:{self.file}'}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Token:
    """An access token, and when it began and ends, in seconds since 1970."""

    value: str = field(repr=False)
    issued_at_s: float | None
    expires_at_s: float


def parse_oauth_login(
    properties: Mapping[str, str], options: Mapping[str, str], environment: Mapping[str, str]
) -> OAuthLogin:
    """Parse a client's properties and the options of its OAuthBearerLoginModule.

    `environment` may have KAFKA_OPTS with -Dorg.apache.kafka.sasl.oauthbearer.allowed.urls and .files.

    Raises:
        SecurityConfigError: a setting is missing or wrong.
    """
    retriever = of_mechanism(properties, RETRIEVER) or _RETRIEVERS[0]
    if retriever not in _RETRIEVERS:
        raise SecurityConfigError(f"{RETRIEVER}={retriever}: allowed are {', '.join(_RETRIEVERS)}")
    url = checked_url(properties, TOKEN_URL, environment)
    login = OAuthLogin(
        extensions=_extensions(options),
        retry_backoff_ms=number(properties, RETRY_BACKOFF, 100),
        retry_backoff_max_ms=number(properties, RETRY_BACKOFF_MAX, 10_000),
        refresh=_refresh_times(properties),
    )
    is_by_assertion = retriever.endswith("JwtBearerJwtRetriever")
    if is_by_assertion and url.startswith("file:"):
        raise SecurityConfigError(f"{TOKEN_URL}={url}: {retriever} needs an https: or http: URL")
    if url.startswith("file:"):
        return replace(login, file=path_of(TOKEN_URL, url))
    if retriever.endswith("FileJwtRetriever"):
        raise SecurityConfigError(f"{TOKEN_URL}={url}: {retriever} needs file:/path/of/token")
    login = replace(
        login,
        url=url,
        scope=of_mechanism(properties, SCOPE) or options.get("scope") or None,
        tls=tls_from_properties(options),
        connect_timeout_ms=_optional_number(properties, CONNECT_TIMEOUT),
        read_timeout_ms=_optional_number(properties, READ_TIMEOUT),
    )
    if is_by_assertion:
        scope = of_mechanism(properties, SCOPE)
        return replace(
            login, scope=scope, assertion=parse_assertion(properties, environment), assertion_is_grant=True
        )
    return _with_credentials(login, properties, options, environment)


def _with_credentials(
    login: OAuthLogin,
    properties: Mapping[str, str],
    options: Mapping[str, str],
    environment: Mapping[str, str],
) -> OAuthLogin:
    client_id = of_mechanism(properties, CLIENT_ID) or options.get("clientId")
    if of_mechanism(properties, ASSERTION_FILE) or of_mechanism(properties, ISSUER_CLAIM):
        assertion = parse_assertion(properties, environment)
        return replace(login, client_id=client_id or "", assertion=assertion)
    client_secret = of_mechanism(properties, CLIENT_SECRET) or options.get("clientSecret")
    for key, option, value in (
        (CLIENT_ID, "clientId", client_id),
        (CLIENT_SECRET, "clientSecret", client_secret),
    ):
        if not value:
            raise SecurityConfigError(
                f"{key} is missing, or {option} in sasl.jaas.config: {TOKEN_URL}={login.url} asks for it"
            )
    return replace(
        login,
        client_id=client_id or "",
        client_secret=client_secret or "",
        is_header_encoded=(of_mechanism(properties, HEADER_URLENCODE) or "").lower() == "true",
    )


def _extensions(options: Mapping[str, str]) -> Mapping[str, str]:
    extensions = {
        key.removeprefix(_EXTENSION_PREFIX): value
        for key, value in options.items()
        if key.startswith(_EXTENSION_PREFIX)
    }
    for key, value in extensions.items():
        if not is_extension(key, value):
            raise SecurityConfigError(
                f"sasl.jaas.config: {_EXTENSION_PREFIX}{key}={value}: allowed are letters as the name, but not auth, "
                "and printable ASCII as the value"
            )
    return extensions


def is_extension(key: str, value: str) -> bool:
    """Whether name and value may be sent as a SASL extension (RFC 7628, section 3.1)."""
    return key != "auth" and _KEY.fullmatch(key) is not None and _VALUE.fullmatch(value) is not None


def checked_url(properties: Mapping[str, str], key: str, environment: Mapping[str, str]) -> AllowedUrl:
    """The URL in a property of OAUTHBEARER: http, https or file, and one that is allowed.

    Raises:
        SecurityConfigError: it is missing, malformed or not allowed.
    """
    url = of_mechanism(properties, key)
    if url is None:
        raise SecurityConfigError(f"{key} is missing: allowed are https:, http: and file: URLs")
    try:
        parts = urlsplit(url)
        is_complete = bool(parts.path if parts.scheme == "file" else parts.hostname and parts.port != 0)
    except ValueError:
        parts, is_complete = urlsplit(""), False
    if parts.scheme not in ("http", "https", "file") or not is_complete:
        raise SecurityConfigError(f"{key}={url}: allowed are https:, http: and file: URLs")
    if url not in allowed_resources(properties, environment, ALLOWED_URLS):
        raise SecurityConfigError(
            f"{key}={url}: the URL is not allowed; add it to {ALLOWED_URLS}, here or as a system property in "
            f"{JAVA_OPTIONS}"
        )
    return AllowedUrl(url)


def path_of(key: str, url: str) -> str:
    """The path of a file: URL. Raises SecurityConfigError for one with a host."""
    parts = urlsplit(url)
    if parts.netloc not in ("", "localhost") or not parts.path.startswith("/"):
        raise SecurityConfigError(f"{key}={url}: allowed is file:/path/of/file")
    return parts.path


def _optional_number(properties: Mapping[str, str], key: str) -> int | None:
    return None if of_mechanism(properties, key) is None else number(properties, key, 0)


def _refresh_times(properties: Mapping[str, str]) -> RefreshTimes:
    defaults = RefreshTimes()
    return RefreshTimes(
        window_factor=_share(properties, REFRESH_FACTOR, defaults.window_factor, (0.5, 1.0)),
        window_jitter=_share(properties, REFRESH_JITTER, defaults.window_jitter, (0.0, 0.25)),
        min_period_s=min(number(properties, REFRESH_MIN_PERIOD, defaults.min_period_s), 900),
        buffer_s=min(number(properties, REFRESH_BUFFER, defaults.buffer_s), 3600),
    )


def _share(properties: Mapping[str, str], key: str, default: float, allowed: tuple[float, float]) -> float:
    text = of_mechanism(properties, key)
    try:
        share = default if text is None else float(text)
    except ValueError:
        share = -1.0
    if not allowed[0] <= share <= allowed[1]:
        raise SecurityConfigError(f"{key}={text}: must be from {allowed[0]} to {allowed[1]}")
    return share


# ---------------------------------------------------------------------------------------- asking an endpoint


def token_request(login: OAuthLogin, assertion: str | None = None) -> tuple[dict[str, str], str]:
    """Headers and body of the request for a token: with client credentials (RFC 6749, section 4.4), of which an
    assertion may replace the secret (RFC 7523, section 2.2), or with an assertion as the grant (section 2.1).
    """
    headers = {
        "Accept": "application/json",
        "Cache-Control": "no-cache",
        "Content-Type": "application/x-www-form-urlencoded",
    }
    fields = {"grant_type": "client_credentials"}
    if assertion is None:
        client_id, client_secret = login.client_id, login.client_secret
        if login.is_header_encoded:
            client_id, client_secret = quote_plus(client_id), quote_plus(client_secret)
        credentials = base64.b64encode(f"{client_id}:{client_secret}".encode()).decode()
        headers["Authorization"] = f"Basic {credentials}"
    elif login.assertion_is_grant:
        fields = {"grant_type": _BEARER_GRANT, "assertion": assertion}
    else:
        fields |= {"client_assertion_type": _ASSERTION_TYPE, "client_assertion": assertion}
        if login.client_id:
            fields["client_id"] = login.client_id
    if login.scope is not None:
        fields["scope"] = login.scope
    return headers, urlencode(fields)


def token_of_response(status: int, body: bytes) -> Token:
    """The token in the response of an endpoint.

    Raises:
        TokenError: it refuses, or sends no token. The text has no part of a response that may be a token.
    """
    content: object = None
    with suppress(ValueError, RecursionError):  # no JSON: refused below, with the status if that says why
        content = json.loads(body)
    fields = content if isinstance(content, dict) else {}
    if status not in _HTTP_OK:
        is_final = status in _FINAL_STATUSES
        text = f"the endpoint responds with status {status}{_error_text(fields)}"
        raise TokenError(text, is_final=is_final)
    for name in ("access_token", "id_token"):
        value = fields.get(name)
        if isinstance(value, str) and value.strip():
            return token_of(value.strip())
    raise TokenError("the response of the endpoint has no access_token", is_final=True)


def _error_text(fields: Mapping[str, object]) -> str:
    """What the response says of the error (RFC 6749, section 5.2)."""
    for error, description in (("error", "error_description"), ("errorCode", "errorSummary")):
        if error in fields:
            text = f"{fields[error]} - {fields.get(description, '')}"
            return f": {text[:_ERROR_TEXT_LENGTH_MAX]}"
    return ""


def token_of(value: str) -> Token:
    """A token with its times, which are not verified here. Raises TokenError if it has none."""
    if not _TOKEN.fullmatch(value):
        raise TokenError("it is not a JSON web token of three sections", is_final=True)
    payload = value.split(".")[1]
    claims: Any = None
    with suppress(ValueError, RecursionError):  # refused below
        claims = json.loads(base64.urlsafe_b64decode(payload + "=" * (-len(payload) % 4)))
    if not isinstance(claims, dict):
        raise TokenError("its claims can't be read", is_final=True)
    expires_at_s, issued_at_s = claims.get("exp"), claims.get("iat")
    if not _is_time(expires_at_s):
        raise TokenError("its claim exp is missing, or no time", is_final=True)
    return Token(
        value=value, issued_at_s=issued_at_s if _is_time(issued_at_s) else None, expires_at_s=expires_at_s
    )


def _is_time(value: object) -> TypeGuard[float]:
    return isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value <= _SECONDS_MAX


def refresh_at_s(token: Token, now_s: float, times: RefreshTimes, chance: float) -> float:
    """When to replace a token that was got now, in seconds since 1970; `chance` is from 0 to 1 (KIP-255)."""
    begins_at_s = now_s if token.issued_at_s is None else token.issued_at_s
    share = times.window_factor + times.window_jitter * chance
    proposed_s = begins_at_s + (token.expires_at_s - begins_at_s) * share
    if now_s + times.min_period_s + times.buffer_s > token.expires_at_s:
        return max(now_s, proposed_s)
    return max(now_s + times.min_period_s, min(proposed_s, token.expires_at_s - times.buffer_s))
