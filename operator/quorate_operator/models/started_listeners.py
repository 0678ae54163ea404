"""The listeners that nodes were started with, as runtimes store them, and manifests together with those in use.

A node connects to others by one listener, and that must be served by all of them. So a listener by which nodes still
connect stays served when a manifest has it no more, and keeps its protocol, see `with_listeners_in_use`.
"""

import json
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeVar

from pydantic import ValidationError

from quorate_operator.models.listeners import BrokerListener, ControllerListener, Listener
from quorate_operator.models.manifests import ManifestError, Manifests, check_super_user, with_secret_names
from quorate_operator.models.v1alpha1 import KafkaBroker, KafkaController

WAY_OUT = (
    "set it back, and add a listener of another name before this one, which can be removed when no node uses it; see "
    "docs/operations/security.md, From plaintext to TLS"
)
_Pool = TypeVar("_Pool", KafkaController, KafkaBroker)


@dataclass(frozen=True, slots=True, kw_only=True)
class StartedListener:
    """A listener of a node as it was started. `settings` is None if only its name, protocol and port are known."""

    name: str
    protocol: str
    port: int | None = None
    settings: Mapping[str, Any] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class StartedListeners:
    """The listeners that a node was started with. It connects to its peers by the first of its own."""

    own: tuple[StartedListener, ...]
    controllers: str
    """The name of the controllers' listener by which it connects to them."""

    @property
    def names(self) -> frozenset[str]:
        """The names of its own listeners."""
        return frozenset(listener.name for listener in self.own)

    @property
    def in_use(self) -> frozenset[str]:
        """The names of the listeners by which it connects to other nodes."""
        return frozenset((self.controllers, *(listener.name for listener in self.own[:1])))


@dataclass(frozen=True, slots=True, kw_only=True)
class StartedNode:
    """A node of a pool with the listeners that it runs with, or ran with when it was last started."""

    pool: str
    listeners: StartedListeners
    is_running: bool


def started_text(
    listeners: Iterable[Listener], controllers: str, ports: Mapping[str, int] | None = None
) -> str:
    """Return the record of a node's start, which `started_of` reads. It names Secrets and has no value of them.

    `ports` are those by listener name; without it, those of the manifest.
    """
    own = [
        {
            "name": listener.name,
            "protocol": listener.protocol,
            "port": listener.port if ports is None else ports[listener.name],
            "settings": listener.model_dump(
                mode="json", by_alias=True, exclude_defaults=True, exclude={"name", "protocol", "port"}
            ),
        }
        for listener in listeners
    ]
    return json.dumps({"controllers": controllers, "own": own}, separators=(",", ":"))


def started_of(text: str | None) -> StartedListeners | None:
    """Return what `started_text` wrote; None for any other text."""
    try:
        found = json.loads(text or "")
        own = tuple(
            StartedListener(
                name=str(item["name"]),
                protocol=str(item["protocol"]),
                port=None if item["port"] is None else int(item["port"]),
                settings=dict(item["settings"]),
            )
            for item in found["own"]
        )
        return StartedListeners(own=own, controllers=str(found["controllers"])) if own else None
    except (ValueError, KeyError, TypeError, RecursionError):
        return None


def with_listeners_in_use(manifests: Manifests, started: Iterable[StartedNode], source: str) -> Manifests:
    """Return the manifests with the listeners by which nodes connect to each other, as these were started.

    A removed listener comes last in its pool, and its name is in `Manifests.withdrawn`. A listener with another
    protocol keeps that of the nodes that run, and the requested one is in `Manifests.fixed_protocols`. Ports that the
    manifest leaves open are those that the nodes have.

    Raises ManifestError if a protocol can't be kept, if two listeners need one port, or if nodes would lose their
    rights at a listener in use.
    """
    nodes = sorted(started, key=lambda node: not node.is_running)
    controllers = manifests.controllers.metadata.name
    used_of_controllers = {node.listeners.controllers for node in nodes}
    used_of_brokers = {node.listeners.own[0].name for node in nodes if node.pool != controllers}
    found = replace(manifests, withdrawn={}, fixed_protocols={})
    quorum, found = _in_use(manifests.controllers, nodes, used_of_controllers, found, source)
    brokers = []
    for pool in manifests.brokers:
        merged, found = _in_use(pool, nodes, used_of_brokers, found, source)
        brokers.append(merged)
    whole = replace(found, controllers=quorum, brokers=tuple(brokers))
    for resource in whole.resources:
        used = used_of_controllers if resource.kind == quorum.kind else used_of_brokers
        for listener in resource.spec.listeners:
            if listener.name in used:
                # Until all nodes use another one: their principal at this one must not lose its rights before.
                check_super_user(quorum, f"nodes of {resource.metadata.name}", listener, source)
    return whole


def without_withdrawn(manifests: Manifests) -> Manifests:
    """Return the manifests without the listeners that `with_listeners_in_use` has added."""

    def asked(pool: _Pool) -> _Pool:
        gone = manifests.withdrawn.get(pool.metadata.name, frozenset())
        listeners = tuple(own for own in pool.spec.listeners if own.name not in gone)
        return pool.model_copy(update={"spec": pool.spec.model_copy(update={"listeners": listeners})})

    return replace(
        manifests,
        controllers=asked(manifests.controllers),
        brokers=tuple(asked(pool) for pool in manifests.brokers),
        withdrawn={},
    )


def _in_use(
    pool: _Pool, nodes: Sequence[StartedNode], used: Collection[str], found: Manifests, source: str
) -> tuple[_Pool, Manifests]:
    name = pool.metadata.name
    known = _by_name(node for node in nodes if node.pool == name)
    is_quorum = isinstance(pool, KafkaController)
    peers = [node for node in nodes if (node.pool == found.controllers.metadata.name) is is_quorum]
    running = _by_name(node for node in peers if node.is_running)
    listeners: list[Listener] = []
    fixed: dict[str, str] = {}
    for place, listener in enumerate(pool.spec.listeners):
        had = running.get(listener.name)
        if had is None or had.protocol == listener.protocol or listener.name not in used:
            listeners.append(listener)
            continue
        mine = known.get(listener.name)
        is_mine = mine is not None and mine.protocol == had.protocol
        kept = _kept(pool, mine if mine is not None and is_mine else replace(had, port=listener.port))
        if kept is None:
            raise ManifestError(
                f"{source}: {pool.kind} {name}: spec.listeners[{place}].protocol: {listener.protocol!r}: nodes run "
                f"with {had.protocol} and connect to each other by {listener.name}: {WAY_OUT}"
            )
        listeners.append(kept)
        fixed[listener.name] = listener.protocol
    asked = {listener.name for listener in listeners}
    gone = [had for had in known.values() if had.name in used and had.name not in asked]
    kept_on: list[Listener] = [left for left in (_kept(pool, had) for had in gone) if left is not None]
    if fixed:
        found = replace(found, fixed_protocols={**found.fixed_protocols, name: fixed})
    if kept_on:
        withdrawn = frozenset(listener.name for listener in kept_on)
        found = replace(found, withdrawn={**found.withdrawn, name: withdrawn})
    whole = _with_ports([*listeners, *kept_on], known)
    _check_ports(whole, f"{source}: {pool.kind} {name}: spec.listeners")
    if whole == [*pool.spec.listeners]:
        return pool, found
    spec = pool.spec.model_copy(update={"listeners": tuple(whole)})
    return with_secret_names(pool.model_copy(update={"spec": spec})), found


def _check_ports(listeners: Iterable[Listener], where: str) -> None:
    """Refuse one port for two listeners, of which one may stay served though it was removed. Raises ManifestError."""
    owners: dict[int, str] = {}
    for listener in listeners:
        if listener.port is None:
            continue
        owner = owners.setdefault(listener.port, listener.name)
        if owner != listener.name:
            raise ManifestError(
                f"{where}: {listener.port} is the port of {owner} and of {listener.name}, by which nodes connect "
                "until all serve another listener: choose another port"
            )


def _by_name(nodes: Iterable[StartedNode]) -> dict[str, StartedListener]:
    """Return the listeners by name, as the first of the nodes with one of this name has it."""
    found: dict[str, StartedListener] = {}
    for node in nodes:
        for listener in node.listeners.own:
            found.setdefault(listener.name, listener)
    return found


def _kept(pool: KafkaController | KafkaBroker, had: StartedListener) -> Listener | None:
    """Return the listener as nodes were started with it; None if too little of it is known."""
    if had.settings is None and had.protocol != "PLAINTEXT":
        return None
    model = ControllerListener if isinstance(pool, KafkaController) else BrokerListener
    content = {**(had.settings or {}), "name": had.name, "protocol": had.protocol, "port": had.port}
    try:
        return model.model_validate(content)
    except ValidationError:
        return None  # another release wrote it


def _with_ports(listeners: Iterable[Listener], known: Mapping[str, StartedListener]) -> list[Listener]:
    """Return the listeners; those that nodes have keep their port, whatever their place is now."""
    return [
        listener.model_copy(update={"port": known[listener.name].port})
        if listener.port is None and listener.name in known and known[listener.name].port is not None
        else listener
        for listener in listeners
    ]
