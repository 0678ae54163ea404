"""Names of the properties of nodes: Kafka's, with and without a listener's prefix, those of plug-ins, and Quorate's.

Stock Kafka passes over a name that it does not know. Manifests and Quorate's controllers refuse it.
"""

import re
from collections.abc import Collection, Mapping
from difflib import get_close_matches
from typing import Final

from quorate_protocol.kafka.config_schema import Definition, broker_definitions

HTTP_LISTENER: Final = "quorate.http.listener"
RESPONSES_WAIT_FOR: Final = "quorate.responses.wait.for"
RESPONSES_WAIT_MAX_MS: Final = "quorate.responses.wait.max.ms"
SNAPSHOT_HANDOVER: Final = "quorate.snapshot.handover.enable"
OWN_KEYS: Final[Mapping[str, str]] = {
    HTTP_LISTENER: "host:port where /metrics, /healthz and /readyz are served; not set: no HTTP server",
    RESPONSES_WAIT_FOR: "the brokers that must have a change before its response is sent: none, forwarder or brokers",
    RESPONSES_WAIT_MAX_MS: "the longest wait of a response for these brokers, in ms",
    SNAPSHOT_HANDOVER: "whether the active controller hands over before it writes a snapshot",
}
"""The names of Quorate's controllers, which stock Kafka does not know."""
SUPER_USERS: Final = "super.users"
ALLOW_EVERYONE: Final = "allow.everyone.if.no.acl.found"
AUTHORIZER_KEYS: Final = frozenset((SUPER_USERS, ALLOW_EVERYONE))
"""Names of StandardAuthorizer, which the definitions of Kafka's brokers do not have."""
CONFIG_PROVIDERS: Final = "config.providers"
PROVIDER_PREFIX: Final = f"{CONFIG_PROVIDERS}."
PLUGIN_PREFIXES: Final = ("rsm.config.", "rlmm.config.", PROVIDER_PREFIX)
"""What begins with one of these is read by a plug-in that another property names."""
_LISTENER: Final = re.compile(r"(listener\.name\.([^.]+)\.)(.+)")
_SECRET: Final = re.compile("pass|secret|jaas|key|credential|token", re.IGNORECASE)
_SIMILARITY_MIN: Final = 0.75
_NEAREST_MAX: Final = 3


def listener_of(name: str) -> str | None:
    """Return the listener that a property is for: `internal` of `listener.name.internal.ssl.client.auth`."""
    matched = _LISTENER.fullmatch(name)
    return matched[2] if matched else None


def definition_of(name: str) -> Definition | None:
    """Return Kafka's definition of a property, whatever listener it is for; None for others."""
    return next(filter(None, map(broker_definitions().get, _plain_names(name))), None)


def is_known(name: str, further: Collection[str]) -> bool:
    """Whether a property is Kafka's, a plug-in's, or one of `further`."""
    plain = _plain_names(name)
    return (
        any(known in broker_definitions() or known in AUTHORIZER_KEYS or known in further for known in plain)
    ) or name.startswith(PLUGIN_PREFIXES)


def nearest(name: str, further: Collection[str]) -> tuple[str, ...]:
    """Return the known names that are most like an unknown one, the nearest first."""
    known = broker_definitions().keys() | AUTHORIZER_KEYS | set(further)
    matched = _LISTENER.fullmatch(name)
    prefix, plain = (matched[1], matched[3]) if matched else ("", name)
    close = get_close_matches(plain, sorted(known), n=_NEAREST_MAX, cutoff=_SIMILARITY_MIN)
    return tuple(f"{prefix}{found}" for found in close)


def may_have_secret(name: str) -> bool:
    """Whether a misspelled name may have a secret as its value, which no message may show."""
    return _SECRET.search(name) is not None


def _plain_names(name: str) -> tuple[str, ...]:
    """Return what a name may be without its listener.

    Java applies sasl keys per mechanism: listener.name.controller.plain.sasl.jaas.config.
    """
    matched = _LISTENER.fullmatch(name)
    return (matched[3], matched[3].partition(".")[2]) if matched else (name,)
