"""Which listeners a node serves, and by which it connects to its peers, while these change. Pure.

Controllers and brokers connect to controllers by one listener of these, and brokers to each other by one of theirs.
A change of the first listener of a manifest goes through three rolls, in which any node may restart at any time:

    served    every node serves the former and the new listener, and connects by the former one
    used      once all serve the new one, and voter set and registrations have it, nodes connect by it, one by one
    dropped   once no node connects by a listener that was removed from the manifest, it is not served any more

Nothing is stored: what a node was started with is observed. `with_listeners_in_use` has added to the manifests what
is in use; `stage` decides what each node is started with next.
"""

from collections.abc import Iterable
from dataclasses import dataclass, replace

from quorate_operator.models.manifests import Manifests
from quorate_operator.models.started_listeners import WAY_OUT
from quorate_operator.planning.cluster import DesiredCluster, DesiredNode, ObservedCluster, ObservedNode, Role
from quorate_operator.planning.steps import Part, Refusal, WaitFor, wait_for

PROTOCOL_IN_USE = "ProtocolInUse"
"""Refusal code of a listener that is to have another protocol while nodes connect to each other by it."""
LISTENER_MISSING = "ListenerMissing"
"""Refusal code of a pool without the listener by which the brokers of another pool are to connect to its own."""


def relisted(desired: DesiredCluster, manifests: Manifests) -> DesiredCluster:
    """Return the cluster with the listeners of these manifests, see `with_listeners_in_use`."""
    pools = {pool.metadata.name: pool.spec.listeners for pool in manifests.resources}

    def with_listeners(node: DesiredNode) -> DesiredNode:
        listeners = pools.get(node.pool, node.listeners)
        return replace(
            node,
            listeners=listeners,
            wanted_listener=listeners[0].name,
            withdrawn=manifests.withdrawn.get(node.pool, frozenset()),
        )

    return replace(
        desired,
        nodes=tuple(map(with_listeners, desired.nodes)),
        drained=tuple(map(with_listeners, desired.drained)),
        fixed_protocols=manifests.fixed_protocols,
    )


def stage(desired: DesiredCluster, observed: ObservedCluster) -> DesiredCluster:
    """Return the cluster with the listeners by which each node connects from its next start on.

    The nodes of `desired` have all listeners that they are to serve.
    """
    staging = _Staging(desired, observed)
    return replace(
        desired,
        nodes=tuple(map(staging.staged, desired.nodes)),
        drained=tuple(map(staging.staged, desired.drained)),
    )


def with_listeners_of(desired: DesiredCluster, staged: DesiredCluster) -> DesiredCluster:
    """Return the cluster with the listeners that `stage` has decided for its nodes."""
    decided = {node.node_id: node for node in staged.nodes_with_settings}

    def with_listeners(node: DesiredNode) -> DesiredNode:
        like = decided.get(node.node_id, node)
        return replace(
            node,
            listeners=like.listeners,
            wanted_listener=like.wanted_listener,
            controllers_listener=like.controllers_listener,
        )

    return replace(
        desired,
        nodes=tuple(map(with_listeners, desired.nodes)),
        drained=tuple(map(with_listeners, desired.drained)),
    )


def has_other_listeners(desired: DesiredCluster, staged: DesiredCluster) -> bool:
    """Whether nodes are to connect by others than those that `desired` was completed with: the first ones."""
    first = next((node.listeners[0].name for node in desired.of_role(Role.CONTROLLER)), None)
    return any(
        before.listeners != after.listeners
        or (before.controllers_listener or first) != after.controllers_listener
        for before, after in zip(desired.nodes_with_settings, staged.nodes_with_settings, strict=True)
    )


def plan_listeners(desired: DesiredCluster, observed: ObservedCluster) -> Part:
    """Return what a change of listeners waits for, and what of it is refused. `desired` is staged."""
    staging = _Staging(desired, observed)
    return Part(
        rest=(*staging.waits(Role.CONTROLLER), *staging.waits(Role.BROKER), *_withdrawn(desired, observed)),
        refusals=(*fixed_protocols(desired), *_missing(desired)),
    )


@dataclass(frozen=True, slots=True)
class _Staging:
    desired: DesiredCluster
    observed: ObservedCluster

    def staged(self, node: DesiredNode) -> DesiredNode:
        seen = self.observed.nodes.get(node.node_id)
        started = None if seen is None else seen.listeners
        before = None if started is None else started.own[0].name
        first = self._chosen(node.role, _asked(node), before, node.node_id)
        of_controllers: str | None = first
        if node.role is Role.BROKER:
            before = None if started is None else started.controllers
            controllers = self._of_controllers()
            chosen = self._chosen(Role.CONTROLLER, controllers, before, node.node_id) if controllers else None
            of_controllers = chosen
        listeners = sorted(node.listeners, key=lambda listener: listener.name != first)
        return replace(
            node,
            listeners=tuple(listeners),
            wanted_listener=_asked(node)[0],
            controllers_listener=of_controllers,
        )

    def waits(self, role: Role) -> Iterable[WaitFor]:
        """Yield what keeps nodes from connecting to those of a role by the listener that their manifests want."""
        behind: dict[str, list[DesiredNode]] = {}
        for node in self.desired.nodes if self._of_controllers() else ():
            if role is Role.CONTROLLER:
                wanted, now = self._of_controllers()[0], node.controllers_listener
            else:
                wanted, now = _asked(node)[0], node.listeners[0].name
            if (node.role is role or role is Role.CONTROLLER) and now not in (None, wanted):
                behind.setdefault(wanted, []).append(node)
        for wanted, nodes in behind.items():
            labels = ", ".join(node.label for node in nodes)
            missing = ", ".join(self._obstacles(role, wanted)) or "none"
            yield wait_for(
                f"every {role} to serve {wanted}, before {labels} connect by it; missing: {missing}",
                *(node.node_id for node in nodes),
            )

    def _chosen(self, role: Role, asked: tuple[str, ...], before: str | None, node_id: int) -> str:
        """Return by which of the asked listeners a node connects to the nodes of a role.

        `before` is the one by which it did when it was last started.
        """
        if before == asked[0] or not self._obstacles(role, asked[0], apart_from=node_id):
            return asked[0]
        if before in asked:
            assert before is not None
            return before
        usable = (name for name in asked[1:] if not self._obstacles(role, name, apart_from=node_id))
        return next(usable, asked[0])

    def _obstacles(self, role: Role, name: str, *, apart_from: int | None = None) -> tuple[str, ...]:
        """Return which nodes of a role do not serve a listener, as far as the others can know."""
        protocol = self._protocol(role, name)
        others = [
            seen
            for seen in self.observed.nodes.values()
            if seen.role is role and seen.node_id != apart_from and not seen.is_forgotten
        ]
        kafka = self.observed.kafka
        if kafka is None:
            # Only a leader reports the voter set and the registrations. They have what all others connect by.
            return tuple(
                f"{seen.label}, of which a leader has to report more"
                for seen in others
                if seen.listeners is not None
                and (seen.listeners.own[0].name, seen.listeners.own[0].protocol) != (name, protocol)
            )
        found = {seen.node_id: seen.label for seen in others if not _serves(seen, name, protocol)}
        if role is Role.CONTROLLER:
            for voter in kafka.quorum.voters.values():
                if voter.endpoints and name not in voter.endpoints:
                    found.setdefault(voter.node_id, f"{role.label(voter.node_id)} in the voter set")
        else:
            running = {seen.node_id for seen in others if seen.state.runs}
            for known in kafka.registrations.values():
                is_served = known.node_id in running or not known.fenced
                if known.role is role and is_served and known.endpoints and name not in known.endpoints:
                    found.setdefault(known.node_id, f"{role.label(known.node_id)} in its registration")
        return tuple(label for node_id, label in sorted(found.items()) if node_id != apart_from)

    def _protocol(self, role: Role, name: str) -> str:
        """Return by which protocol nodes are to connect to a listener of a role."""
        listeners = (listener for node in self.desired.of_role(role) for listener in node.listeners)
        return next((listener.protocol for listener in listeners if listener.name == name), "")

    def _of_controllers(self) -> tuple[str, ...]:
        """Return the names of the controllers' listeners, the wanted one first; none without controllers."""
        return next((_asked(node) for node in self.desired.of_role(Role.CONTROLLER)), ())


def _asked(node: DesiredNode) -> tuple[str, ...]:
    """Return the names of a node's listeners, first that by which nodes are to connect."""
    names = [listener.name for listener in node.listeners]
    wanted = node.wanted_listener or names[0]
    return tuple(sorted(names, key=lambda name: (name != wanted, name in node.withdrawn)))


def _serves(seen: ObservedNode, name: str, protocol: str) -> bool:
    """Whether a node serves a listener while it runs. A stopped node serves all when it is started."""
    if not seen.state.runs:
        return True
    if seen.listeners is not None:
        return any((own.name, own.protocol) == (name, protocol) for own in seen.listeners.own)
    return not seen.configured or name in seen.configured


def _withdrawn(desired: DesiredCluster, observed: ObservedCluster) -> Iterable[WaitFor]:
    """Yield what listeners wait for that are served although no manifest has them."""
    names = {(node.role, name) for node in desired.nodes_with_settings for name in node.withdrawn}
    for role, name in sorted(names):
        using = [
            seen
            for seen in observed.nodes.values()
            if seen.listeners is not None
            and (
                seen.listeners.controllers == name
                if role is Role.CONTROLLER
                else seen.role is role and seen.listeners.own[0].name == name
            )
        ]
        labels = ", ".join(seen.label for seen in using)
        if using:
            yield wait_for(
                f"no node to connect to {role}s by {name}, which is served until then, though it was removed: "
                f"{labels} still do",
                *(seen.node_id for seen in using),
            )


def fixed_protocols(desired: DesiredCluster) -> Iterable[Refusal]:
    """Yield the listeners that keep the protocol which nodes run with, though their manifest has another."""
    controllers = {node.pool for node in desired.of_role(Role.CONTROLLER)}
    for pool, protocols in desired.fixed_protocols.items():
        kind = "KafkaController" if pool in controllers else "KafkaBroker"
        node = next((node for node in desired.nodes_with_settings if node.pool == pool), None)
        has = {listener.name: listener.protocol for listener in (node.listeners if node else ())}
        for name, protocol in protocols.items():
            yield Refusal(
                PROTOCOL_IN_USE,
                f"{kind} {pool}: spec.listeners[{name}].protocol: {protocol!r}: nodes run with {has.get(name)} and "
                f"connect to each other by it: {WAY_OUT}",
                pool=None if pool in controllers else pool,
            )


def _missing(desired: DesiredCluster) -> Iterable[Refusal]:
    """Yield the pools that lack the listener by which the brokers of another pool are to connect to theirs."""
    pools = {node.pool: node for node in desired.of_role(Role.BROKER)}
    for pool, node in pools.items():
        for other, asking in pools.items():
            name = _asked(asking)[0]
            if name not in {*_asked(node)} - node.withdrawn:
                yield Refusal(
                    LISTENER_MISSING,
                    f"KafkaBroker {pool}: spec.listeners: has no {name}, by which the brokers of {other} are to "
                    "connect to it: add it, or put it behind one that both pools have",
                    pool=pool,
                )
