"""Makes the renderings that `planning.differences` compares, from properties, pods and fingerprints.

Properties are shown if Kafka's definitions say that they are no secret, and fields of a pod if they are named here.
Everything else is withheld: a plug-in's property, an environment variable or a volume may have a password in it.
"""

import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from quorate_protocol.kafka.enums import ConfigResourceType
from quorate_protocol.kafka.secret_configs import is_secret_config

from quorate_operator.planning.differences import SHOWN_LENGTH_MAX, Value, Withheld

_MARK_LENGTH: Final = 4
"""So short that a guess at a value can't be confirmed by its mark. One change in 65,536 is not seen as such."""
_OWN_PREFIX: Final = "quorate."
_OF_TEMPLATE: Final = frozenset(
    {
        "affinity",
        "imagePullSecrets",
        "nodeSelector",
        "priorityClassName",
        "securityContext",
        "serviceAccountName",
        "terminationGracePeriodSeconds",
        "tolerations",
        "topologySpreadConstraints",
    }
)
"""Fields of a pod that a manifest's template has too."""
_OF_CONTAINER: Final = frozenset(
    {
        "imagePullPolicy",
        "livenessProbe",
        "ports",
        "readinessProbe",
        "securityContext",
        "startupProbe",
        "volumeMounts",
    }
)
"""Fields of a node's container without secrets in them."""


def rendered_properties(properties: Mapping[str, str]) -> dict[str, Value]:
    """Return a node's properties, without the values of those that may be secret."""
    return {
        name: _shown(value) if _is_public(name) else _withheld(value) for name, value in properties.items()
    }


def _is_public(name: str) -> bool:
    return name.startswith(_OWN_PREFIX) or not is_secret_config(ConfigResourceType.BROKER, name)


def rendered_secrets(fingerprints: str) -> dict[str, Value]:
    """Return the Secrets by name, from the part `secrets` of `security.secret_revision`."""
    by_secret: dict[str, dict[str, str]] = {}
    for name, fingerprint in json.loads(fingerprints).items():
        secret, _, key = name.partition("/")
        by_secret.setdefault(secret, {})[key] = fingerprint
    return {f"Secret {name}": _withheld(keys) for name, keys in by_secret.items()}


def rendered_resources(resources: Mapping[str, Any]) -> dict[str, Value]:
    """Return requests and limits of a node's container, with their names in the template."""
    return _all_shown("template.resources", resources)


def rendered_pod(
    spec: Mapping[str, Any], labels: Mapping[str, str], annotations: Mapping[str, str]
) -> dict[str, Value]:
    """Return the fields of a pod: of `spec` as revisions are made of it, with `container` and `sidecars`."""
    found = _all_shown("template.labels", labels) | _all_shown("template.annotations", annotations)
    for field, content in spec.items():
        if field == "container":
            found |= _rendered_container("container", content, _OF_CONTAINER)
        elif field == "sidecars":
            for sidecar in content:
                found |= _rendered_container(f"sidecars.{sidecar['name']}", sidecar, frozenset({"image"}))
        elif field in _OF_TEMPLATE:
            found |= _all_shown(f"template.{field}", content)
        else:
            found |= _all_withheld(f"pod.{field}", content)
    return found


def _rendered_container(path: str, container: Mapping[str, Any], shown: frozenset[str]) -> dict[str, Value]:
    found: dict[str, Value] = {}
    for field, content in container.items():
        render = _all_shown if field in shown else _all_withheld
        found |= render(f"{path}.{field}", content)
    return found


def _all_shown(path: str, content: object) -> dict[str, Value]:
    leaves = _leaves(path, content) if content not in ({}, [], ()) else ()
    return {name: _shown(leaf) for name, leaf in leaves}


def _all_withheld(path: str, content: object) -> dict[str, Value]:
    """Name the members of the content, but nothing in them."""
    return {name: _withheld(member) for name, member in _members(path, content)}


def _leaves(path: str, content: object) -> Iterator[tuple[str, object]]:
    if isinstance(content, Mapping | list | tuple) and content:
        for name, member in _members(path, content):
            yield from _leaves(name, member)
    else:
        yield path, content


def _members(path: str, content: object) -> Iterator[tuple[str, object]]:
    if isinstance(content, Mapping):
        yield from ((f"{path}.{key}", value) for key, value in content.items())
    elif isinstance(content, list | tuple):
        names = _names(content)
        yield from ((f"{path}{name}", member) for name, member in zip(names, content, strict=True))
    else:
        yield path, content


def _names(members: Sequence[object]) -> list[str]:
    """Return `.NAME` for members that have names, each another, and `[PLACE]` otherwise."""
    names = [member.get("name") if isinstance(member, Mapping) else None for member in members]
    if None in names or len(set(map(str, names))) < len(names):
        return [f"[{place}]" for place in range(len(members))]
    return [f".{name}" for name in names]


def _shown(value: object) -> Value:
    text = value if isinstance(value, str) else json.dumps(value, default=str)
    return text if len(text) <= SHOWN_LENGTH_MAX and text.isprintable() else _withheld(value)


def _withheld(value: object) -> Withheld:
    text = json.dumps(value, sort_keys=True, default=str)
    return Withheld(hashlib.sha256(text.encode()).hexdigest()[:_MARK_LENGTH])
