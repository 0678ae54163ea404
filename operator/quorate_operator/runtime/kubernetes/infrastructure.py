"""The infrastructure of one cluster on Kubernetes: implements the port `Infrastructure`.

    volume         PersistentVolumeClaim, with directory id and cluster id in annotations once it is formatted
    configuration  ConfigMap, written at each start
    process        Pod; kubelet restarts a container that ended, the operator replaces pods
    address        Service

What is observed comes from the cache. What is written is written by server-side apply, and only where it differs
from what Quorate applied before.
"""

import asyncio
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import replace
from typing import Protocol

from quorate_admin.security.config import SecurityConfig

from quorate_operator.models.hosts import TemplateError
from quorate_operator.models.manifests import ManifestError, Manifests
from quorate_operator.models.status import HistoryStatus, ListenerStatus
from quorate_operator.models.storage import METADATA_VOLUME
from quorate_operator.planning import steps
from quorate_operator.planning.cluster import (
    Address,
    DesiredCluster,
    DesiredNode,
    Formation,
    Implementation,
    Lifecycle,
    ObservedCluster,
    ObservedNode,
    Publication,
    Role,
    Verification,
)
from quorate_operator.planning.logins import with_logins
from quorate_operator.planning.rollout import changes
from quorate_operator.resources.bootstrap import listener_statuses
from quorate_operator.resources.completion import complete
from quorate_operator.resources.configs import config_map
from quorate_operator.resources.facts import Context, Images
from quorate_operator.resources.names import ANNOTATION_VERIFIED, LABEL_NODE_ID
from quorate_operator.resources.pod_addresses import listener_port
from quorate_operator.resources.pods import (
    dry_run_pod,
    node_pod,
    rebuild_quorum_arguments,
    task_pod,
)
from quorate_operator.resources.secrets import with_secrets
from quorate_operator.runtime.kubernetes.api import (
    CONFIG_MAP,
    DISRUPTION_BUDGET,
    POD,
    SERVICE,
    VOLUME_CLAIM,
    ApiError,
    KubernetesApi,
    Object,
)
from quorate_operator.runtime.kubernetes.cache import ObjectCache
from quorate_operator.runtime.kubernetes.dry_run import DryRuns
from quorate_operator.runtime.kubernetes.facts_source import FactsSource, store_host_ips
from quorate_operator.runtime.kubernetes.kubernetes_nodes import KubernetesNodes
from quorate_operator.runtime.kubernetes.objects import DELETION_LOOK_S, ClusterObjects
from quorate_operator.runtime.kubernetes.observation import (
    ANNOTATION_CLUSTER_ID,
    ANNOTATION_DIRECTORY_ID,
    ANNOTATION_FORMAT,
    FORMAT_INITIAL,
    FORMAT_JOIN,
    VOLUME,
    NodeObjects,
    annotation,
    configured_of,
    formatted_directory_id,
    observed_node,
    verifications_of,
    verified_text,
)
from quorate_operator.runtime.kubernetes.pod_racks import set_racks
from quorate_operator.runtime.kubernetes.pod_readiness import update_readiness
from quorate_operator.runtime.kubernetes.published_names import PublishedNames
from quorate_operator.runtime.kubernetes.secured_addresses import SecuredAddresses
from quorate_operator.runtime.kubernetes.stored_identity import (
    formation_of,
    formation_on_disks,
    new_formation,
    with_leader,
    write_formation,
)
from quorate_operator.runtime.kubernetes.supporting_objects import (
    RefusedObject,
    apply_supporting_objects,
    history_status,
)
from quorate_operator.runtime.kubernetes.volumes import Volumes

TASK_TIMEOUT_S = 300.0
_ENDED = ("Succeeded", "Failed")
"""Phases of a pod whose containers have ended for good."""


class QuorumSource(Protocol):
    """Holds the KafkaController of this cluster as it was last seen."""

    def quorum(self) -> Object | None:
        """Returns it, or None."""

    def seen(self, quorum: Object) -> None:
        """Stores it as a write returned it."""


class KubernetesInfrastructure:
    """Implements `Infrastructure` and `Removal` with pods, claims, ConfigMaps and Services.

    `complete` comes first in each look.
    """

    def __init__(
        self,
        api: KubernetesApi,
        cache: ObjectCache,
        source: QuorumSource,
        *,
        namespace: str,
        name: str,
        images: Images,
        operator_namespace: str | None = None,
    ) -> None:
        self._api = api
        self._source = source
        self._namespace = namespace
        self._name = name
        self._images = images
        self._context: Context | None = None
        self._secured: SecuredAddresses | None = None
        self._objects = ClusterObjects(api, cache, namespace=namespace, cluster=name)
        self._names = PublishedNames(self._objects)
        self._facts_source = FactsSource(api, self._objects, operator_namespace)
        self._dry_runs = DryRuns(api, namespace)
        self._volumes = Volumes(self._objects, self._dry_runs)
        self._machines = KubernetesNodes(api)
        self._refused: tuple[RefusedObject, ...] = ()
        """What the API server refused when it was kept last."""

    # Observing

    async def complete(self, desired: DesiredCluster, manifests: Manifests) -> DesiredCluster:
        await self._facts_source.refresh_secrets(manifests)
        facts = self._facts_source.facts(manifests, self._images, self._formation())
        self._context = Context(manifests=manifests, facts=facts)
        try:
            completed = complete(self._as_configured(desired), manifests, facts)
        except TemplateError as error:
            raise ManifestError(str(error)) from error
        self._secured = SecuredAddresses(self._context, completed, self._objects.nodes().values())
        nodes = tuple(replace(node, revision={**node.revision, VOLUME: "kept"}) for node in completed.nodes)
        return replace(completed, nodes=nodes, dynamic_quorum=desired.dynamic_quorum)

    def permitted(self, plan: steps.Plan, desired: DesiredCluster) -> steps.Plan:
        context = self._required_context()
        plan = replace(plan, refusals=(*plan.refusals, *(one.as_refusal() for one in self._refused)))
        return with_logins(with_secrets(plan, context, desired), desired, context.facts.revisions)

    async def nodes(self, desired: DesiredCluster) -> Mapping[int, ObservedNode]:
        """Returns every node that is desired or present, without those of deleted pools."""
        objects = self._objects.nodes()
        await self._remember_directory_ids(objects.values())
        await store_host_ips(self._objects, objects.values())
        context = self._required_context()
        unknown_racks = await set_racks(self._objects, self._machines, context, objects.values())
        pools = {node.pool for node in desired.nodes} | {self._name} | set(self._pools())
        observed: dict[int, ObservedNode] = {}
        wanted = {one.node_id: one for one in desired.nodes}
        for node_id, found in objects.items():
            if found.pool not in pools:
                continue
            node = observed_node(found, unreachable_host=await self._machines.is_gone(found.pod))
            node = replace(node, problem=node.problem or unknown_racks.get(node_id))
            # A pool that is deleted together with its volumes also deletes those of brokers that left before.
            is_asked_for = node_id in wanted or (node.has_volume and node.pool in desired.drained_pools)
            if is_asked_for or not node.is_forgotten:
                observed[node_id] = replace(node, is_forgotten=node.is_forgotten and not is_asked_for)
            if node_id in wanted:
                observed[node_id] = replace(
                    observed[node_id],
                    volumes=await self._volumes.rehearsed(context, wanted[node_id], found, node.volumes),
                )
        for node_id, refusal in (await self._restart_refusals(desired, observed)).items():
            observed[node_id] = replace(observed[node_id], restart_refusal=refusal)
        for node_id, one in wanted.items():
            if node_id not in observed:
                absent = NodeObjects(node_id=node_id, role=one.role, pool=one.pool)
                observed[node_id] = replace(observed_node(absent), is_forgotten=False)
        return observed

    async def formation(self) -> Formation | None:
        return self._formation()

    async def note_leader(self, kraft_version: int) -> None:
        found = self._formation()
        await self._write_formation(lambda written: with_leader(written or found, kraft_version))

    async def publications(self) -> tuple[Publication, ...]:
        return tuple(self._names.all())

    async def verifications(self) -> tuple[Verification, ...]:
        return tuple(
            verification
            for found in self._objects.nodes().values()
            for verification in verifications_of(found)
        )

    async def note_verifications(self, node_id: int, verified: tuple[Verification, ...]) -> None:
        config = self._objects_of(node_id).config
        if config is not None:
            await self._objects.annotate(config, {ANNOTATION_VERIFIED: verified_text(verified)})

    def contacts(self, desired: DesiredCluster) -> Mapping[int, Address]:
        """Returns the pods' own addresses, on the listener that nodes use among each other."""
        nodes = {node.node_id: node for node in desired.nodes_with_settings}
        found: dict[int, Address] = {}
        for node_id, objects in self._objects.nodes().items():
            address = (objects.pod or {}).get("status", {}).get("podIP")
            if not address:
                continue
            # A node that is no longer desired has the listeners of its pool.
            like = nodes.get(node_id) or next(
                (one for one in desired.nodes_with_settings if one.pool == objects.pool), None
            )
            if like is not None:
                found[node_id] = Address(address, listener_port(like, like.listeners[0]))
        return found

    def security_of(self, address: Address) -> SecurityConfig | None:
        """Returns how the operator connects to the listener at an address; None if it is not known or not secured."""
        return None if self._secured is None else self._secured.security_of(address)

    def pools_of_nodes(self) -> Mapping[int, str]:
        return {node_id: found.pool for node_id, found in self._objects.nodes().items()}

    async def departing(self, pools: Collection[str]) -> Mapping[int, ObservedNode]:
        return {
            node_id: observed_node(found, unreachable_host=await self._machines.is_gone(found.pod))
            for node_id, found in self._objects.nodes().items()
            if found.pool in pools
        }

    def history(self) -> HistoryStatus | None:
        return history_status(self._objects)

    def listeners(
        self, desired: DesiredCluster, observed: ObservedCluster, pool: str
    ) -> tuple[ListenerStatus, ...] | None:
        """Returns what clients of a pool's listeners need to know; None while no leader tells of its brokers."""
        if observed.kafka is None:
            return None
        own = {node.node_id for node in desired.nodes_with_settings if node.pool == pool}
        registered = {
            node_id: one.endpoints for node_id, one in observed.kafka.registrations.items() if node_id in own
        }
        return listener_statuses(self._required_context(), desired, pool, registered)

    # Applying

    async def apply(self, action: steps.RuntimeAction, desired: DesiredCluster) -> None:
        try:
            await self._apply(action, self._as_configured(desired))
        except ApiError as error:
            raise steps.StepError(str(error)) from error

    async def keep(self, desired: DesiredCluster, observed: ObservedCluster) -> None:
        self._refused = ()
        if desired.lifecycle is not Lifecycle.PAUSED:
            self._refused = await apply_supporting_objects(
                self._objects,
                self._required_context(),
                desired,
                observed,
                cluster=self._name,
                pools=self._pools(),
            )
        # After the budgets: a broker that becomes ready must not make room for an eviction that they don't allow.
        if not any(one.item["kind"] == DISRUPTION_BUDGET.name for one in self._refused):
            await update_readiness(self._api, self._objects, observed)

    async def stop_pods(self, grace_ms: int, pools: Collection[str] | None = None) -> None:
        found = [node for node in self._objects.nodes().values() if pools is None or node.pool in pools]
        for role in (Role.BROKER, Role.CONTROLLER):
            for one in found:
                if one.role is role and one.pod is not None:
                    await self._objects.delete_pod(one.pod, grace_ms)
        if pools is None:
            # Pods of tasks that a killed operator left.
            for pod in self._objects.of_kind(POD):
                await self._objects.delete_pod(pod, 0)

    async def delete_volumes(self, pools: Collection[str]) -> None:
        for found in self._objects.nodes().values():
            for claim in found.claims.values() if found.pool in pools else ():
                await self._objects.delete(VOLUME_CLAIM, claim)

    async def _apply(self, action: steps.RuntimeAction, desired: DesiredCluster) -> None:
        match action:
            case steps.FormCluster():
                await self._form(action, desired)
            case steps.CreateNode():
                await self._create(
                    self._node(desired, action.node_id), is_initial=action.is_initial, desired=desired
                )
            case steps.StartNode():
                await self._start(self._node(desired, action.node_id), action.advertised, desired)
            case steps.StopNode():
                pod = self._objects_of(action.node_id).pod
                if pod is not None:
                    await self._objects.delete_pod(pod, action.grace_ms)
            case steps.CreateVolume() | steps.GrowVolume():
                node = self._node(desired, action.node_id)
                await self._volumes.apply(action, self._required_context(), node)
            case steps.ReleaseVolume() | steps.DeleteVolume():
                await self._volumes.apply(action, self._required_context(), None)
            case steps.ForgetNode():
                await self._forget(action.node_id)
            case steps.RebuildQuorum():
                await self._rebuild(self._node(desired, action.node_id))
            case steps.PublishAddress():
                node = self._node(desired, action.node_id)
                await self._names.publish(self._required_context(), action, node)
            case steps.RetireAddress() | steps.WithdrawAddress():
                node = self._node(desired, action.node_id)
                await self._names.change(self._required_context(), action, node)

    async def _form(self, action: steps.FormCluster, desired: DesiredCluster) -> None:
        def change(written: Formation | None) -> Formation:
            if written is not None and written.is_formed:
                raise steps.StepError("the cluster was formed already, and is not formed again")
            if written is not None and written.initial_voters.keys() == set(action.node_ids):
                return written
            # The id of a cluster never changes once it is written down.
            cluster_id = written.cluster_id if written else action.cluster_id
            return new_formation(action.node_ids, cluster_id, is_static=not desired.dynamic_quorum)

        await self._write_formation(change)

    async def _create(self, node: DesiredNode, *, is_initial: bool, desired: DesiredCluster) -> None:
        context, formation = self._required_context(), self._formation()
        if formation is None:
            raise steps.StepError(f"{node.label}: the identity of the cluster is not settled yet")
        written = await self._volumes.keep(context, node, METADATA_VOLUME)
        if annotation(written, ANNOTATION_FORMAT) is None:
            how = FORMAT_INITIAL if is_initial else FORMAT_JOIN
            await self._objects.annotate(written, {ANNOTATION_FORMAT: how})
        for volume_id in node.volumes:
            if volume_id != METADATA_VOLUME:
                await self._volumes.keep(context, node, volume_id)
        await self._objects.keep(config_map(context, desired, node, {}))

    async def _start(
        self, node: DesiredNode, advertised: Mapping[str, Address], desired: DesiredCluster
    ) -> None:
        context, objects = self._required_context(), self._objects_of(node.node_id)
        claim, pod = objects.claim, objects.pod
        if claim is None:
            raise steps.StepError(f"{node.label} has no volume")
        if pod is not None:
            has_ended = _phase(pod) in _ENDED
            if not has_ended and pod["metadata"].get("deletionTimestamp") is None:
                return
            await self._objects.delete_pod(pod, 0 if has_ended else None)
        # A volume that was formatted once and is empty now is a new disk: it joins, and forms no quorum.
        is_initial = (
            annotation(claim, ANNOTATION_FORMAT) == FORMAT_INITIAL
            and annotation(claim, ANNOTATION_DIRECTORY_ID) is None
        )
        # Without a pod, the addresses of the last start are read from the ConfigMap, so it gets every listener.
        addresses = {**node.advertised, **advertised}
        await self._objects.keep(config_map(context, desired, node, addresses))
        is_placed = annotation(claim, ANNOTATION_DIRECTORY_ID) is not None
        body = node_pod(context, desired, node, addresses, is_initial=is_initial, is_placed=is_placed)
        self._objects.seen(await self._api.apply(POD, self._namespace, body))

    async def _forget(self, node_id: int) -> None:
        objects = self._objects_of(node_id)
        for service in self._objects.of_kind(SERVICE):
            if service["metadata"]["labels"].get(LABEL_NODE_ID) == str(node_id):
                await self._objects.delete(SERVICE, service)
        if objects.config is not None:
            await self._objects.delete(CONFIG_MAP, objects.config)

    async def _rebuild(self, node: DesiredNode) -> None:
        """Runs the command on the survivor's volume, then stores that it is the only voter."""
        context, objects = self._required_context(), self._objects_of(node.node_id)
        directory_id = annotation(objects.claim, ANNOTATION_DIRECTORY_ID)
        if directory_id is None:
            raise steps.StepError(f"{node.label} has no formatted volume to rebuild the quorum from")
        survivor_id: str = directory_id
        body = task_pod(context, node, "rebuild-quorum", rebuild_quorum_arguments())
        pod = await self._run_to_end(body)
        if _phase(pod) == "Failed":
            raise steps.StepError(f"{node.label}: the quorum could not be rebuilt: {_last_words(pod)}")

        def change(written: Formation | None) -> Formation:
            if written is None:
                raise steps.StepError("the cluster was not formed")
            return Formation(
                cluster_id=written.cluster_id,
                initial_voters={node.node_id: survivor_id},
                is_formed=False,
                is_rebuilt=True,
            )

        await self._write_formation(change)

    async def _run_to_end(self, body: Object) -> Object:
        """Runs the pod of a task, deletes it and returns it as it ended. Raises StepError.

        A pod that still runs was made by an operator that was killed: it is waited for. The result of one that has
        ended may be old, so that the task runs again.
        """
        name = body["metadata"]["name"]
        pod = await self._api.get(POD, self._namespace, name)
        if pod is not None and _phase(pod) in _ENDED:
            await self._objects.delete_pod(pod, 0)
            pod = None
        if pod is None:
            pod = await self._api.apply(POD, self._namespace, body)
        try:
            async with asyncio.timeout(TASK_TIMEOUT_S):
                while _phase(pod) not in _ENDED:
                    await asyncio.sleep(DELETION_LOOK_S)
                    pod = await self._api.get(POD, self._namespace, name)
                    if pod is None:
                        raise steps.StepError(f"the pod {name} was deleted before it ended")
        except TimeoutError:
            raise steps.StepError(f"the pod {name} did not end in {TASK_TIMEOUT_S:.0f} s") from None
        # Deleted before its result is stored: an operator that is killed in between runs the task again.
        await self._objects.delete_pod(pod, 0)
        return pod

    def _objects_of(self, node_id: int) -> NodeObjects:
        found = self._objects.node(node_id)
        return found or NodeObjects(node_id=node_id, role=Role.CONTROLLER, pool=self._name)

    def _node(self, desired: DesiredCluster, node_id: int) -> DesiredNode:
        """Returns a desired node or, for one that leaves, its settings or those of another of its pool.

        Raises:
            StepError: the node is not desired, and no settings of its pool are known.
        """
        wanted = next((node for node in desired.nodes if node.node_id == node_id), None)
        if wanted is not None:
            return wanted
        found = self._objects.node(node_id)
        alike = [
            node for node in desired.nodes_with_settings if found is not None and node.pool == found.pool
        ]
        if found is None or not alike:
            raise steps.StepError(
                f"node {node_id} is not desired, and its pool has no desired node to take the settings from"
            )
        like = next((node for node in alike if node.node_id == node_id), alike[0])
        return replace(
            like,
            node_id=node_id,
            place=like.place + node_id - like.node_id,
            advertised=configured_of(found.pod or found.config),
            interim={},
            rack=like.rack if like.node_id == node_id else None,
        )

    # Facts

    async def _remember_directory_ids(self, nodes: Iterable[NodeObjects]) -> None:
        """Copies directory ids that format containers reported to the claims, which outlive pods."""
        formation = self._formation()
        for node in nodes:
            directory_id = formatted_directory_id(node.pod)
            if node.claim is None or directory_id is None or formation is None:
                continue
            ids = {ANNOTATION_DIRECTORY_ID: directory_id, ANNOTATION_CLUSTER_ID: formation.cluster_id}
            if any(annotation(node.claim, name) != value for name, value in ids.items()):
                await self._objects.annotate(node.claim, ids)

    async def _restart_refusals(
        self, desired: DesiredCluster, observed: Mapping[int, ObservedNode]
    ) -> Mapping[int, str]:
        """Returns why nodes that run could not be restarted: the API server refuses their new pods.

        One pod of a kind is tried: pods of a pool and an implementation differ in names alone.
        """
        changed: dict[tuple[str, Implementation], list[DesiredNode]] = {}
        for node in desired.nodes:
            seen = observed.get(node.node_id)
            if seen is not None and seen.state.runs and changes(node, seen):
                changed.setdefault((node.pool, node.implementation), []).append(node)
        refused: dict[int, str] = {}
        for nodes in changed.values():
            pod = dry_run_pod(self._required_context(), desired, nodes[0])
            refusal = await self._dry_runs.refusal(pod)
            if refusal is not None:
                reported = refusal.replace(pod["metadata"]["name"], nodes[0].pool)
                refused |= {node.node_id: reported for node in nodes}
        return refused

    def _formation(self) -> Formation | None:
        quorum = self._source.quorum()
        written = formation_of(quorum) if quorum is not None else None
        if written is not None or quorum is None:
            return written
        is_static = quorum["spec"].get("quorum") == "static"
        return formation_on_disks(self._objects.nodes().values(), is_static=is_static)

    async def _write_formation(self, change: Callable[[Formation | None], Formation]) -> None:
        self._source.seen(await write_formation(self._api, self._namespace, self._name, change))

    def _as_configured(self, desired: DesiredCluster) -> DesiredCluster:
        """Returns the cluster with static voters in configurations as long as the quorum has them."""
        formation = self._formation()
        return desired if formation is None else replace(desired, dynamic_quorum=not formation.is_static)

    def _pools(self) -> list[str]:
        context = self._context
        return [pool.metadata.name for pool in context.manifests.brokers] if context else []

    def _required_context(self) -> Context:
        assert self._context is not None, "`complete` comes first in each look"
        # The formation may have been written since.
        facts = replace(self._context.facts, formation=self._formation())
        return replace(self._context, facts=facts)


def _phase(pod: Object) -> str | None:
    phase = pod.get("status", {}).get("phase")
    return str(phase) if phase else None


def _last_words(pod: Object) -> str:
    for status in pod.get("status", {}).get("containerStatuses", ()):
        ended = status.get("state", {}).get("terminated") or {}
        if ended.get("message"):
            return str(ended["message"]).strip()
    return str(pod.get("status", {}).get("message") or "see the log of the pod")
