"""Routing: known nodes, failed nodes, and when to start again from the bootstrap addresses. Pure.

A client either knows only its bootstrap addresses, or a cluster: its id, its nodes and its controller.

| known before | event | known after |
|---|---|---|
| the bootstrap addresses | `discovered`: a node described the cluster | the cluster |
| the cluster | `discovered` the same cluster | the cluster, refreshed |
| the cluster | `discovered` another cluster id | the bootstrap addresses |
| the cluster | `rebootstrap_required`: wrong node (KIP-1242), or required (KIP-1102) | the bootstrap addresses |
| the cluster | each known node failed (KIP-899) | the bootstrap addresses |
| the cluster | no refresh for the trigger's time (KIP-1102) | the bootstrap addresses |

With `metadata.recovery.strategy=none` a client keeps the known nodes and never starts again. Then, or with
`metadata.cluster.check.enable=false`, a client follows a node of another cluster, as older clients do. Time and the
random source are parameters.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from enum import Enum
from typing import TYPE_CHECKING, ClassVar

from quorate_protocol.plain_data import dataclass

from quorate_admin.config import Address, AdminConfig, MetadataRecoveryStrategy

if TYPE_CHECKING:
    from random import Random

JITTER = 0.2
"""The random share by which a wait is longer or shorter."""
METADATA_AGE_MS_MIN = 1_000
"""The minimum age for a new discovery, so that each discovery is used at least once."""


class DestinationRole(Enum):
    """Which nodes may answer a request."""

    ANY = "any node"
    CONTROLLER = "the controller"
    READER = "a node for reading"
    LEADER_OF_QUORUM = "the leader of the quorum"
    NODE = "a node"
    ADDRESS = "an address"


@dataclass(frozen=True, slots=True)
class To:
    """The destination of a request."""

    role: DestinationRole
    node_id: int = -1
    address: Address | None = None

    CONTROLLER: ClassVar["To"]
    """The active controller or, with bootstrap servers, a broker that forwards to it."""
    READER: ClassVar["To"]
    """The active controller or, if none is known, any controller; with bootstrap servers, any broker."""
    ANY: ClassVar["To"]
    """Any node; the least loaded one is chosen."""
    LEADER_OF_QUORUM: ClassVar["To"]
    """The leader of the metadata log or, with bootstrap servers, any broker, which forwards to it."""

    @classmethod
    def node(cls, node_id: int) -> "To":
        """The broker or controller with this id."""
        return cls(DestinationRole.NODE, node_id)

    @classmethod
    def at(cls, address: Address) -> "To":
        """The node that listens at this address."""
        return cls(DestinationRole.ADDRESS, address=address)

    def __str__(self) -> str:
        match self.role:
            case DestinationRole.NODE:
                return f"node {self.node_id}"
            case DestinationRole.ADDRESS:
                return str(self.address)
        return str(self.role.value)


To.CONTROLLER = To(DestinationRole.CONTROLLER)
To.READER = To(DestinationRole.READER)
To.ANY = To(DestinationRole.ANY)
To.LEADER_OF_QUORUM = To(DestinationRole.LEADER_OF_QUORUM)


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """The node to connect to. Either both node id and cluster id are known, or neither."""

    address: Address
    node_id: int | None = None
    cluster_id: str | None = None
    is_checked: bool = False
    """Whether the server checks its identity (KIP-1242)."""

    def __str__(self) -> str:
        if self.node_id is None:
            return str(self.address)
        return f"node {self.node_id} of cluster {self.cluster_id} at {self.address}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Send:
    """Send the request to the target."""

    target: Target


@dataclass(frozen=True, slots=True, kw_only=True)
class Discover:
    """Ask the target for the nodes of the cluster, then route again."""

    target: Target


@dataclass(frozen=True, slots=True, kw_only=True)
class Wait:
    """No node can be asked before this time. `reason` is None if the cause is only that all nodes failed recently."""

    until_ms: int
    reason: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Refuse:
    """No node can ever be asked, because of `reason`."""

    reason: str


Step = Send | Discover | Wait | Refuse


@dataclass(frozen=True, slots=True, kw_only=True)
class Misrouted:
    """A connection to another node or cluster than expected. The identity found is None while it is unknown."""

    address: Address
    expected_cluster_id: str | None
    expected_node_id: int | None
    found_cluster_id: str | None = None
    found_node_id: int | None = None


Load = Callable[[Address], int | None]
"""The requests in flight at an address; None if there is no connection to it."""


@dataclass(slots=True)
class _Failures:
    count: int
    until_ms: int


class Routing:
    """The state of one client: its cluster, failed addresses, and the next node to ask."""

    def __init__(self, config: AdminConfig, random: "Random") -> None:
        self._bootstrap = tuple(dict.fromkeys(config.bootstrap))
        self._config = config
        self._is_rebootstrapping = config.metadata_recovery_strategy is MetadataRecoveryStrategy.REBOOTSTRAP
        self._random = random
        self.cluster_id: str | None = None
        self.nodes: Mapping[int, Address] = {}
        self._controller_id: int | None = None
        self._is_stale = False
        self._discovered_at_ms = 0
        self._discovery_not_before_ms = 0
        self._useless_discoveries = 0
        self._seeking_since_ms: int | None = None
        self._failures: dict[Address, _Failures] = {}
        self._described: set[Address] = set()
        self._unresolved: dict[Address, Misrouted] = {}
        self.rebootstraps = 0
        """How often the client forgot the cluster."""
        self.misrouted_connections = 0
        """The number of connections to another node or cluster than expected."""

    @property
    def addresses(self) -> frozenset[Address]:
        """The addresses of all known nodes and the bootstrap addresses."""
        return frozenset((*self._bootstrap, *self.nodes.values()))

    # Decisions

    def next_step(self, to: To, now_ms: int, load: Load, lacking: Collection[Address] = ()) -> Step:
        """The next step for a request.

        `load` returns the requests in flight at an address, None if not connected. Nodes at the `lacking` addresses
        do not serve the request.
        """
        if to.role is DestinationRole.ADDRESS:
            assert to.address is not None
            return self._ask_or_wait([Target(address=to.address)], now_ms, None)
        if not self._config.follow_advertised:
            # A single bootstrap address is taken for the node, because no other node is ever asked.
            if to.role is DestinationRole.NODE and len(self._bootstrap) > 1:
                return Refuse(reason="only bootstrap addresses can be asked, not nodes by id")
            targets = [Target(address=address) for address in self._bootstrap]
            return self._ask_willing(targets, lacking, now_ms, None)
        self._rebootstrap_if_lost(now_ms)
        if self._is_discovery_due(to, now_ms):
            return self._discover(to, now_ms, load)
        # The first reader is the active controller, even if another one is connected.
        return self._ask_willing(
            self._targets(to),
            lacking,
            now_ms,
            None if to.role is DestinationRole.READER and self._config.is_to_controllers else load,
        )

    def _ask_willing(
        self, targets: Sequence[Target], lacking: Collection[Address], now_ms: int, load: Load | None
    ) -> Step:
        willing = [target for target in targets if target.address not in lacking]
        if not willing:
            return Refuse(reason="no node serves the request")
        return self._ask_or_wait(willing, now_ms, load)

    def _is_discovery_due(self, to: To, now_ms: int) -> bool:
        return (
            not self.nodes
            or self._is_stale
            or now_ms - self._discovered_at_ms >= max(self._config.metadata_max_age_ms, METADATA_AGE_MS_MIN)
            or not self._targets(to)
        )

    def _discover(self, to: To, now_ms: int, load: Load) -> Step:
        if self._seeking_since_ms is None:
            self._seeking_since_ms = now_ms
        if now_ms < self._discovery_not_before_ms:
            reason = f"{to} is not known" if self.nodes and not self._targets(to) else None
            return Wait(until_ms=self._discovery_not_before_ms, reason=reason)
        targets = (
            [self._target(node_id) for node_id in self.nodes]
            if self.nodes
            else [Target(address=address) for address in self._bootstrap]
        )
        # A node that has described the cluster in vain may be outdated: ask the others first, except failed ones.
        others = [target for target in targets if target.address not in self._described]
        targets = [other for other in others if self._blocked_until_ms(other.address) <= now_ms] or targets
        step = self._ask_or_wait(targets, now_ms, load)
        return Discover(target=step.target) if isinstance(step, Send) else step

    def _targets(self, to: To) -> list[Target]:
        """The nodes that may answer; empty if the requested node is unknown."""
        is_any = to.role is DestinationRole.ANY or (
            to.role in {DestinationRole.LEADER_OF_QUORUM, DestinationRole.READER}
            and not self._config.is_to_controllers
        )
        if is_any:
            return [self._target(node_id) for node_id in self.nodes]
        if to.role is DestinationRole.READER:
            ids = sorted(self.nodes, key=lambda node_id: node_id != self._controller_id)
            return [self._target(node_id) for node_id in ids]
        node_id = to.node_id if to.role is DestinationRole.NODE else self._controller_id
        return [self._target(node_id)] if node_id is not None and node_id in self.nodes else []

    def _target(self, node_id: int) -> Target:
        return Target(
            address=self.nodes[node_id],
            node_id=node_id,
            cluster_id=self.cluster_id,
            is_checked=self.is_recovering,
        )

    def _ask_or_wait(self, targets: Sequence[Target], now_ms: int, load: Load | None) -> Send | Wait:
        """The first target without a recent failure; with `load`, the least loaded of the connected ones."""
        ready = [target for target in targets if self._blocked_until_ms(target.address) <= now_ms]
        if not ready:
            until_ms = min(self._blocked_until_ms(target.address) for target in targets)
            return Wait(until_ms=until_ms)
        loads = [(load(target.address) if load else None, target) for target in ready]
        connected = [(in_flight, target) for in_flight, target in loads if in_flight is not None]
        return Send(target=min(connected, key=lambda pair: pair[0])[1] if connected else ready[0])

    def _blocked_until_ms(self, address: Address) -> int:
        failures = self._failures.get(address)
        return failures.until_ms if failures else 0

    # Events

    def discovered(
        self,
        target: Target,
        *,
        cluster_id: str,
        nodes: Mapping[int, Address],
        controller_id: int,
        now_ms: int,
    ) -> tuple[Misrouted, ...]:
        """A node described its cluster. Returns misrouted connections that are now identified, for the log."""
        misrouted = None
        if self.cluster_id is not None and cluster_id != self.cluster_id:
            misrouted = self._found_other_cluster(target, cluster_id)
            if self.is_recovering:
                self._rebootstrap(now_ms)
                return (misrouted,)
            self._forget()
        self._described.add(target.address)
        resolved: tuple[Misrouted, ...] = () if misrouted is None else (misrouted,)
        resolved += tuple(
            replace(
                unresolved,
                found_cluster_id=cluster_id,
                found_node_id=next((node for node, at in nodes.items() if at == address), None),
            )
            for address, unresolved in self._unresolved.items()
        )
        self._unresolved.clear()
        is_useful = bool(nodes) and (not self._config.is_to_controllers or controller_id in nodes)
        self._useless_discoveries = 0 if is_useful else self._useless_discoveries + 1
        self._discovery_not_before_ms = now_ms + self._retry_backoff_ms(self._useless_discoveries + 1)
        if not nodes:
            return resolved  # a node that has just started may know no nodes: keep the known ones
        self.cluster_id = cluster_id
        self.nodes = dict(nodes)
        self._controller_id = controller_id if controller_id in nodes else None
        self._is_stale = False
        self._discovered_at_ms = now_ms
        self._seeking_since_ms = None
        self._failures = {
            address: failures for address, failures in self._failures.items() if address in self.addresses
        }
        return resolved

    def succeeded(self, target: Target) -> None:
        """The node sent a response."""
        self._failures.pop(target.address, None)

    def confirmed(self) -> None:
        """A request succeeded, so the description of the cluster was right."""
        self._described.clear()

    def failed(self, target: Target, now_ms: int) -> None:
        """The connection failed, or a request timed out."""
        if target.address not in self._failures and target.address not in self.addresses:
            return  # an address that only the caller knows: there is no other to prefer
        failures = self._failures.setdefault(target.address, _Failures(0, 0))
        failures.count += 1
        config = self._config
        failures.until_ms = now_ms + backoff_ms(
            failures.count, config.reconnect_backoff_ms, config.reconnect_backoff_max_ms, self._random
        )
        self._avoid(target.address)

    def not_in_charge(self, target: Target) -> None:
        """The node is not the controller or leader."""
        self._controller_id = None
        self._avoid(target.address)

    def identified(self, target: Target, cluster_id: str, now_ms: int) -> Misrouted | None:
        """A response has a cluster id. Returns the misrouted connection, if it is that of another cluster.

        If identities are checked, the client starts again, and the response must not be used.
        """
        if target.cluster_id in {None, cluster_id}:
            return None
        misrouted = self._found_other_cluster(target, cluster_id)
        if self.is_recovering and self.nodes:
            self._rebootstrap(now_ms)
        return misrouted

    def rebootstrap_required(self, target: Target, now_ms: int, *, is_misrouted: bool) -> Misrouted | None:
        """A node required a rebootstrap. Returns the misrouted connection, if `is_misrouted`."""
        misrouted = None
        if is_misrouted:
            misrouted = Misrouted(
                address=target.address,
                expected_cluster_id=target.cluster_id,
                expected_node_id=target.node_id,
            )
            self.misrouted_connections += 1
        if self._is_rebootstrapping and self.nodes:
            self._rebootstrap(now_ms)
            if misrouted is not None:
                self._unresolved[target.address] = misrouted
        else:
            self.failed(target, now_ms)
        return misrouted

    @property
    def is_recovering(self) -> bool:
        """Whether an unexpected identity makes the client start again from the bootstrap addresses."""
        return self._is_rebootstrapping and self._config.metadata_cluster_check_enable

    def _found_other_cluster(self, target: Target, cluster_id: str) -> Misrouted:
        self.misrouted_connections += 1
        return Misrouted(
            address=target.address,
            expected_cluster_id=target.cluster_id or self.cluster_id,
            expected_node_id=target.node_id,
            found_cluster_id=cluster_id,
        )

    def _rebootstrap_if_lost(self, now_ms: int) -> None:
        if not self.nodes or not self._is_rebootstrapping:
            return
        is_overdue = (
            self._seeking_since_ms is not None
            and now_ms - self._seeking_since_ms > self._config.metadata_recovery_rebootstrap_trigger_ms
        )
        is_lost = all(self._blocked_until_ms(address) > now_ms for address in self.nodes.values())
        if is_overdue or is_lost:
            self._rebootstrap(now_ms)

    def _rebootstrap(self, now_ms: int) -> None:
        """Forget the cluster, its id and its nodes (KIP-899, KIP-1242)."""
        self.rebootstraps += 1
        self._forget()
        self._seeking_since_ms = now_ms

    def _forget(self) -> None:
        self.cluster_id = None
        self.nodes = {}
        self._controller_id = None
        self._is_stale = False
        self._described.clear()
        self._failures = {
            address: failures for address, failures in self._failures.items() if address in self._bootstrap
        }

    def _avoid(self, address: Address) -> None:
        """Prefer other nodes from now on, and discover the cluster again."""
        self._is_stale = bool(self.nodes)
        if address in self._bootstrap:
            self._bootstrap = (*(other for other in self._bootstrap if other != address), address)

    def _retry_backoff_ms(self, failures: int) -> int:
        config = self._config
        return backoff_ms(failures, config.retry_backoff_ms, config.retry_backoff_max_ms, self._random)


def backoff_ms(failures: int, first_ms: int, max_ms: int, random: "Random") -> int:
    """The wait after a number of consecutive failures: it doubles up to the maximum, plus or minus 20 % (KIP-580).

    It is 0 without a failure, or if `first_ms` is 0.
    """
    if failures <= 0 or first_ms <= 0:
        return 0
    # 31 doublings reach any maximum; the bound keeps the number small.
    wait_ms = min(first_ms << min(failures - 1, 31), max(max_ms, first_ms))
    return round(wait_ms * random.uniform(1 - JITTER, 1 + JITTER))
