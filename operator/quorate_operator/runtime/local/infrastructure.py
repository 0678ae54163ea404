"""The infrastructure of local processes: a node is a directory and a child process of this one."""

import asyncio
import logging
import signal
from collections.abc import Callable, Mapping
from dataclasses import replace

from quorate_admin.security.config import SecurityConfig

from quorate_operator.models.listeners import Listener
from quorate_operator.models.manifests import Manifests
from quorate_operator.models.started_listeners import (
    started_of,
    started_text,
    with_listeners_in_use,
    without_withdrawn,
)
from quorate_operator.models.storage import METADATA_VOLUME
from quorate_operator.planning import steps
from quorate_operator.planning.cluster import (
    Address,
    DesiredCluster,
    DesiredNode,
    Formation,
    NodeState,
    ObservedCluster,
    ObservedNode,
    ObservedVolume,
    Publication,
    Role,
    Verification,
)
from quorate_operator.planning.listeners import relisted, with_listeners_of
from quorate_operator.planning.logins import with_logins
from quorate_operator.planning.volumes import used_volumes
from quorate_operator.runtime.local import disks
from quorate_operator.runtime.local.child_process import ChildProcess
from quorate_operator.runtime.local.errors import PlayError
from quorate_operator.runtime.local.forwarders import Publications
from quorate_operator.runtime.local.identity import ClusterIdentity, started_nodes, write_identity
from quorate_operator.runtime.local.layout import Layout
from quorate_operator.runtime.local.machine_addresses import complete, knows_controllers
from quorate_operator.runtime.local.node_process import LocalNode, Shippers, StartedWith
from quorate_operator.runtime.local.server_properties import advertised_in
from quorate_operator.security import security_config

logger = logging.getLogger(__name__)


class LocalInfrastructure:
    """Implements `Infrastructure` with child processes for the nodes of a layout.

    `wake` is called whenever a process has ended. What must outlive this process is in the layout's identity, which
    is stored at each change.
    """

    def __init__(self, layout: Layout, environment: Mapping[str, str], wake: Callable[[], None]) -> None:
        self.layout = layout
        self._environment = environment
        self._wake = wake
        self._nodes: dict[int, LocalNode] = {}
        self._shippers = Shippers(wake)
        self._publications = Publications(
            layout.identity.publications,
            self._own_address,
            self._keep_publications,
        )
        self.use(layout)

    def use(self, layout: Layout) -> None:
        """Continue with another manifest of the same cluster. Raises PlayError."""
        self.layout = layout
        for node_id, node in layout.identity.nodes.items():
            if node_id not in self._nodes:
                self._nodes[node_id] = LocalNode(node_id, node.role, self._wake)
        self._publications.add_own(layout.desired)

    async def open(self) -> None:
        """Publish the addresses again that the last supervisor published. Raises PlayError."""
        await self._publications.resume()

    @property
    def running(self) -> frozenset[int]:
        return frozenset(node_id for node_id, node in self._nodes.items() if node.runs)

    async def complete(self, desired: DesiredCluster, manifests: Manifests) -> DesiredCluster:
        """Implement `Infrastructure.complete`.

        Raises PlayError: an address is not unique, or a listener can't be played.
        """
        if manifests.withdrawn and manifests is self.layout.manifests:
            self._drop_unused_listeners()
            manifests = self.layout.manifests
            desired = relisted(desired, manifests)
        return complete(manifests, desired, self.layout.identity)

    def _drop_unused_listeners(self) -> None:
        """Continue without the removed listeners by which no node connects any more."""
        started = started_nodes(self.layout.identity, self.running)
        asked = without_withdrawn(self.layout.manifests)
        manifests = with_listeners_in_use(asked, started, "the manifest")
        if manifests.withdrawn != self.layout.manifests.withdrawn:
            desired = relisted(self.layout.desired, manifests)
            completed = complete(manifests, desired, self.layout.identity)
            self.layout = replace(self.layout, manifests=manifests, desired=completed)

    async def restage(self, staged: DesiredCluster) -> DesiredCluster:
        return complete(self.layout.manifests, staged, self.layout.identity)

    async def nodes(self, desired: DesiredCluster) -> Mapping[int, ObservedNode]:
        wanted = {node.node_id: node for node in desired.nodes}
        found = {
            # A plan may be requested for a manifest that is not played, with nodes that do not exist yet.
            node.node_id: ObservedNode(
                node_id=node.node_id, role=node.role, pool=node.pool, state=NodeState.ABSENT
            )
            for node in desired.nodes
        }
        for node_id, node in self._nodes.items():
            kept = self.layout.identity.nodes[node_id]
            volumes = {
                volume_id: ObservedVolume(directory=str(path), is_in_use=volume_id in kept.volumes)
                for volume_id, path in self.layout.directory.volumes(node.label).items()
            }
            if node_id in wanted or node.runs or (volumes and not kept.is_forgotten):
                found[node_id] = node.observed(
                    pool=kept.pool,
                    directory_id=self.layout.directory_id_of(node.label),
                    volumes=volumes,
                    revision=self._revision_of(node),
                    advertised_last=kept.advertised_last,
                    listeners_last=started_of(kept.listeners_last),
                )
            if node_id in wanted:
                # A played node has directories, which a user may delete: a replacement of volumes is of no use here.
                found[node_id] = replace(found[node_id], replacement=wanted[node_id].replacement)
        return found

    async def formation(self) -> Formation | None:
        return self.layout.identity.formation

    async def note_leader(self, kraft_version: int, leader_epoch: int) -> None:
        formation = self.layout.identity.formation
        assert formation is not None, "a cluster that was not formed has no leader"
        seen = formation.with_leader(kraft_version, leader_epoch)
        self._change(formation=seen, dynamic_quorum=not seen.is_static)
        completed = complete(self.layout.manifests, self.layout.desired, self.layout.identity)
        self.layout = replace(self.layout, desired=completed)

    async def publications(self) -> tuple[Publication, ...]:
        return self._publications.current()

    async def verifications(self) -> tuple[Verification, ...]:
        return self.layout.identity.verifications

    async def note_verifications(self, node_id: int, verified: tuple[Verification, ...]) -> None:
        others = tuple(
            verification
            for verification in self.layout.identity.verifications
            if verification.node_id != node_id
        )
        self._change(verifications=(*others, *verified))

    def security_of(self, address: Address) -> SecurityConfig | None:
        """Return how the operator connects to the listener at an address; None if no node has that."""
        listener = self._listeners().get(address)
        return None if listener is None else security_config(listener, self.layout.manifests.secrets)

    def _listeners(self) -> Mapping[Address, Listener]:
        """Return the listener at each address that a node has, had when it was started, or shall have."""
        manifests, identity = self.layout.manifests, self.layout.identity
        pools = {resource.metadata.name: resource.spec.listeners for resource in manifests.resources}
        desired = {node.node_id: node for node in self.layout.desired.nodes}
        found: dict[Address, Listener] = {}
        for node_id, kept in identity.nodes.items():
            for listener in pools.get(kept.pool, ()):
                addresses = [kept.own_addresses, kept.advertised_last]
                if node_id in desired:
                    addresses += [desired[node_id].interim, desired[node_id].advertised]
                found |= {
                    address[listener.name]: listener for address in addresses if listener.name in address
                }
        return found

    def contacts(self, desired: DesiredCluster) -> Mapping[int, Address]:
        del desired
        return {node_id: self._contact(node_id) for node_id in self.running}

    def metrics_urls(self, desired: DesiredCluster) -> Mapping[str, tuple[str, ...]]:
        del desired  # local brokers run without the JMX exporter
        return {}

    async def apply(self, action: steps.RuntimeAction, desired: DesiredCluster) -> None:
        try:
            await self._apply(action, desired)
        except steps.StepError:
            raise
        except (OSError, PlayError) as error:
            of = "" if action.node_id is None else f"{self._nodes[action.node_id].label}: "
            raise steps.StepError(f"{of}{error}") from error

    def process_of(self, node_id: int) -> ChildProcess | None:
        node = self._nodes.get(node_id)
        return node.process if node is not None and node.runs else None

    def send_signal(self, node_id: int, number: signal.Signals) -> int | None:
        """Send a node's process a signal. Returns its pid, or None without a process."""
        process = self.process_of(node_id)
        if process is None:
            return None
        process.send_signal(number)
        return process.pid

    def kill_all(self) -> None:
        for node in self._nodes.values():
            node.kill()

    def permitted(self, plan: steps.Plan, desired: DesiredCluster) -> steps.Plan:
        running = {node_id: node.started_with.revision for node_id, node in self._nodes.items() if node.runs}
        started = {
            node_id: started_of(self.layout.identity.nodes[node_id].listeners_last) for node_id in running
        }
        listeners = {node_id: known.controllers for node_id, known in started.items() if known is not None}
        return with_logins(plan, desired, running, listeners)

    async def apply_supporting_objects(self, desired: DesiredCluster, observed: ObservedCluster) -> None:
        """Trim the nodes' logs, and ship the log of each running controller if the manifest has a history.

        A history that can't be written is logged; the cluster runs without it.
        """
        del desired, observed  # what runs is known here, and the manifest is the layout's
        for node in self._nodes.values():
            if node.process is not None:
                node.process.trim_log()
        try:
            self._shippers.run(self.layout, self.running)
        except OSError as error:
            logger.error("the history is not shipped: %s", error)  # noqa: TRY400 - no traceback

    async def close(self) -> None:
        """Kill what still runs, and close every forwarding listener."""
        self.kill_all()
        await asyncio.gather(*(node.stop(grace_ms=0) for node in self._nodes.values()))
        await self._shippers.close()
        await self._publications.close()

    async def _apply(self, action: steps.RuntimeAction, desired: DesiredCluster) -> None:
        """Apply a step. The layout is the newest one; of `desired`, only the staged listeners count."""
        match action:
            case steps.FormCluster():
                self._form(action)
            case steps.CreateNode():
                node = self._desired(action.node_id)
                self._use_volumes(action.node_id, frozenset((METADATA_VOLUME, *node.volumes)))
                await disks.create(self.layout, node, is_initial=action.is_initial)
            case steps.StartNode():
                await self._start(action, desired)
            case steps.StopNode():
                await self._nodes[action.node_id].stop(action.grace_ms)
            case steps.CreateVolume():
                label = self._nodes[action.node_id].label
                self.layout.directory.make(self.layout.directory.node_data(label, action.volume_id))
                self._use_volumes(action.node_id, self._volumes(action.node_id) | {action.volume_id})
            case steps.ReleaseVolume():
                self._use_volumes(action.node_id, self._volumes(action.node_id) - {action.volume_id})
            case steps.DeleteVolume():
                await self._delete_volume(action)
            case steps.ForgetNode():
                await self._forget(action.node_id)
            case steps.RebuildQuorum():
                await self._rebuild_quorum(action)
            case steps.PublishAddress():
                await self._publications.publish(action)
            case steps.RetireAddress():
                self._publications.retire(action)
            case steps.WithdrawAddress():
                await self._publications.withdraw(action)

    def _form(self, action: steps.FormCluster) -> None:
        identity = self.layout.identity
        if identity.formation is not None and identity.formation.is_formed:
            raise steps.StepError("the cluster was formed already, and is not formed again")
        voters = {}
        for node_id in action.node_ids:
            directory_id = identity.nodes[node_id].directory_id
            assert directory_id is not None, "controllers have one from the beginning"
            voters[node_id] = directory_id
        self._change(
            formation=Formation(
                cluster_id=identity.cluster_id,
                initial_voters=voters,
                is_formed=False,
                is_static=not identity.dynamic_quorum,
            )
        )

    def _staged(self, node_id: int, desired: DesiredCluster) -> DesiredNode | None:
        """Return a node of the layout with its staged listeners; None if no manifest has it any more.

        Raises StepError if the manifest was edited since these were decided.
        """
        node = self._find_desired(node_id)
        if node is None:
            return None
        staged = with_listeners_of(replace(self.layout.desired, nodes=(node,)), desired)
        names = {listener.name for listener in staged.nodes[0].listeners}
        if names != {listener.name for listener in node.listeners}:
            raise steps.StepError(f"{node.label}: its listeners were edited meanwhile")
        return complete(self.layout.manifests, staged, self.layout.identity).nodes[0]

    async def _start(self, action: steps.StartNode, staged: DesiredCluster) -> None:
        node = self._nodes[action.node_id]
        if node.runs:
            return
        kept = self.layout.identity.nodes[action.node_id]
        desired = self._staged(action.node_id, staged)
        if desired is not None:
            asked = replace(desired, advertised={**desired.advertised, **action.advertised})
            self.layout.write_config(asked)
            await disks.format_further(self.layout, asked)
            controllers = self.layout.desired.of_role(Role.CONTROLLER)
            started_with = StartedWith(
                advertised=asked.advertised,
                revision=asked.revision,
                rendering=asked.rendering,
                controllers=frozenset(controller.node_id for controller in controllers),
            )
            command = self.layout.run_command(asked, self._environment)
        else:
            # No manifest has it any more, but it must run to leave in order: with its last configuration.
            text = self.layout.kept_config(node.label)
            started_with = StartedWith(advertised=advertised_in(text))
            command = self.layout.kept_run_command(
                node.label, kept.implementation, kept.kafka_version, environment=self._environment
            )
        listeners = kept.listeners_last
        if desired is not None:
            of_controllers = self.layout.manifests.controllers_listener(desired.controllers_listener)
            listeners = started_text(desired.listeners, of_controllers.name)
        if (kept.advertised_last, kept.listeners_last) != (started_with.advertised, listeners):
            self._change_node(
                action.node_id, advertised_last=started_with.advertised, listeners_last=listeners
            )
        node.start(
            command,
            directory=self.layout.directory.node(node.label),
            log=self.layout.directory.node_log(node.label),
            started_with=started_with,
        )

    def _volumes(self, node_id: int) -> frozenset[int]:
        return frozenset(self.layout.identity.nodes[node_id].volumes)

    def _use_volumes(self, node_id: int, volumes: frozenset[int]) -> None:
        """Store the volumes that a node's next start uses."""
        self._change_node(node_id, volumes=tuple(sorted(volumes)))
        completed = complete(self.layout.manifests, self.layout.desired, self.layout.identity)
        self.layout = replace(self.layout, desired=completed)

    async def _delete_volume(self, action: steps.DeleteVolume) -> None:
        node = self._nodes[action.node_id]
        if node.runs and action.volume_id in (None, *used_volumes(node.started_with.revision)):
            raise steps.StepError(f"{node.label} runs; its data is deleted only after it has stopped")
        await disks.delete(self.layout, node.label, action.volume_id)

    async def _forget(self, node_id: int) -> None:
        node = self._nodes[node_id]
        if node.runs:
            raise steps.StepError(f"{node.label} runs; it is forgotten only after it has stopped")
        disks.forget(self.layout, node.label)
        if disks.has_volume(self.layout, node.label):
            self._change_node(node_id, is_forgotten=True, advertised_last={})
            return
        nodes = dict(self.layout.identity.nodes)
        del nodes[node_id]
        del self._nodes[node_id]
        self._change(nodes=nodes)

    async def _rebuild_quorum(self, action: steps.RebuildQuorum) -> None:
        node_id = action.node_id
        node = self._desired(node_id)
        if self._nodes[node_id].runs:
            raise steps.StepError(f"{node.label} runs; its log is changed only after it has stopped")
        directory_id = self.layout.directory_id_of(node.label)
        if directory_id is None:
            raise steps.StepError(f"{node.label} has no data from which the quorum could be rebuilt")
        await disks.rebuild_quorum(self.layout, node, action.above_epoch)
        identity = self.layout.identity
        formation = identity.formation or Formation(
            cluster_id=identity.cluster_id, initial_voters={}, is_formed=False
        )
        self._change(formation=formation.rebuilt_from(node_id, directory_id))

    def _revision_of(self, node: LocalNode) -> Mapping[str, str]:
        started = node.started_with
        controllers = frozenset(node.node_id for node in self.layout.desired.of_role(Role.CONTROLLER))
        known = "known" if knows_controllers(started.controllers, controllers) else "gone"
        return {**started.revision, "controllers": known}

    def _find_desired(self, node_id: int) -> DesiredNode | None:
        return next((node for node in self.layout.desired.nodes if node.node_id == node_id), None)

    def _desired(self, node_id: int) -> DesiredNode:
        node = self._find_desired(node_id)
        if node is None:
            raise steps.StepError(f"node {node_id} is in no manifest")
        return node

    def _contact(self, node_id: int) -> Address:
        kept = self.layout.identity.nodes[node_id]
        return kept.own_address(kept.first_listener)

    def _own_address(self, node_id: int, listener: str) -> Address:
        return self.layout.own_address(node_id, listener)

    def _keep_publications(self, published: tuple[Publication, ...]) -> None:
        self._change(publications=published)

    def _change_node(self, node_id: int, **fields: object) -> None:
        nodes = dict(self.layout.identity.nodes)
        nodes[node_id] = replace(nodes[node_id], **fields)  # type: ignore[arg-type]
        self._change(nodes=nodes)

    def _change(self, **fields: object) -> None:
        """Store a change before any step depends on it. Raises PlayError."""
        identity: ClusterIdentity = replace(self.layout.identity, **fields)  # type: ignore[arg-type]
        write_identity(self.layout.directory, identity)
        self.layout = replace(self.layout, identity=identity)
