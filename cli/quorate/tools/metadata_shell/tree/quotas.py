"""/image/clientQuotas: quota values by entity.

Kafka's shell names an entity without its default parts, so that it shows `user(alice)` twice or a name that is
empty, finds none of them, and ends `find` with an exception. Here a default part is `user(<default>)`, as
Kafka's own tools write it.
"""

from collections.abc import Callable, Mapping
from functools import cache

from quorate_protocol.image import ImageState, QuotaEntity

from quorate.console.java_text import double_text
from quorate.tools.metadata_shell.tree.nodes import Directory, Leaf, Node

_TYPES = {"client-id": "clientId", "ip": "ip", "user": "user"}
"""Entity type to its word, in the order of the name (ClientQuotasImageNode)."""
_DEFAULT = "<default>"


def client_quotas(image: ImageState) -> Directory:
    """One directory for each entity that has quotas."""

    @cache
    def entities() -> dict[str, QuotaEntity]:
        return {entity_name(entity): entity for entity in image.client_quotas}

    def child(name: str) -> Node | None:
        entity = entities().get(name)
        return None if entity is None else _values(image.client_quotas[entity])

    return Directory(lambda: entities().keys(), child)


def entity_name(entity: QuotaEntity) -> str:
    """For instance `clientId(c)_user(<default>)`."""
    parts = dict(entity)
    words = {kind: word for kind, word in _TYPES.items() if kind in parts}
    others = {kind: kind for kind in sorted(parts) if kind not in words}
    return "_".join(f"{word}({_escaped(parts[kind])})" for kind, word in (words | others).items())


def _escaped(name: str | None) -> str:
    if name is None:
        return _DEFAULT
    return name.replace("\\", "\\\\").replace("(", "\\(").replace(")", "\\)")


def _values(values: Mapping[str, float]) -> Directory:
    def child(name: str) -> Node | None:
        number = values.get(name)
        return None if number is None else Leaf(lambda: double_text(number), _constant(number))

    return Directory(lambda: values, child)


def _constant(number: float) -> Callable[[], float]:
    return lambda: number
