"""Values of the properties of SASL/OAUTHBEARER."""

import shlex
from collections.abc import Mapping
from typing import Final, NewType

from quorate_protocol.security.stores import SecurityConfigError

JAVA_OPTIONS: Final = "KAFKA_OPTS"
"""The environment variable with the system properties of Java's nodes and tools."""

AllowedUrl = NewType("AllowedUrl", str)
"""An http:, https: or file: URL that the configuration or a command line allows. Only `oauth.checked_url` and
`client_metrics.parse_urls` make it."""

_DIGITS_MAX: Final = 15


def of_mechanism(properties: Mapping[str, str], key: str) -> str | None:
    """The value of a property of OAUTHBEARER, which may have the prefix of the mechanism; None for none."""
    value = properties.get(f"oauthbearer.{key}") or properties.get(key)
    return value.strip() or None if value else None


def number(properties: Mapping[str, str], key: str, default: int, most: int | None = None) -> int:
    """The number in a property of OAUTHBEARER, from 0 to `most`. Raises SecurityConfigError."""
    text = of_mechanism(properties, key)
    if text is None:
        return default
    is_number = text.isascii() and text.isdecimal() and len(text) <= _DIGITS_MAX
    if not is_number or (most is not None and int(text) > most):
        allowed = "from 0" if most is None else f"from 0 to {most}"
        raise SecurityConfigError(f"{key}={text}: must be a number {allowed}")
    return int(text)


def allowed_resources(
    properties: Mapping[str, str], environment: Mapping[str, str], key: str
) -> frozenset[str]:
    """The URLs or files in a list that is a system property of Java for Kafka, here a property, too."""
    texts = [properties.get(key, "")]
    try:
        options = shlex.split(environment.get(JAVA_OPTIONS, ""))
    except ValueError:
        options = []
    start = f"-D{key}="
    texts += [option.removeprefix(start) for option in options if option.startswith(start)]
    return frozenset(part.strip() for text in texts for part in text.split(","))
