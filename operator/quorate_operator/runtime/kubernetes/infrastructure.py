"""The infrastructure of one cluster on Kubernetes: implements `Infrastructure`.

    volume         PersistentVolumeClaim, with directory id and cluster id in annotations once it is formatted
    configuration  ConfigMap, written at each start
    process        Pod; kubelet restarts a container that ended, the operator replaces pods
    address        Service

Observations come from the cache. Objects are written by server-side apply, if they differ from what Quorate applied
before.
"""

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import replace

from quorate_admin.security.config import SecurityConfig

from quorate_operator import clock
from quorate_operator.models.hosts import TemplateError
from quorate_operator.models.manifests import ManifestError, Manifests
from quorate_operator.models.started_listeners import with_listeners_in_use
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
from quorate_operator.planning.listeners import relisted, with_listeners_of
from quorate_operator.planning.logins import with_logins
from quorate_operator.planning.rollout import changes
from quorate_operator.resources.cluster_authority import CertificateTimes
from quorate_operator.resources.completion import complete
from quorate_operator.resources.configs import config_map
from quorate_operator.resources.facts import Context, Images
from quorate_operator.resources.ingress_hosts import ingress_hosts
from quorate_operator.resources.jmx_metrics import has_agent
from quorate_operator.resources.names import ANNOTATION_VERIFIED, LABEL_NODE_ID
from quorate_operator.resources.pod_addresses import HTTP_PORT, listener_port, with_ports
from quorate_operator.resources.pods import (
    dry_run_pod,
    rebuild_quorum_arguments,
    task_pod,
)
from quorate_operator.resources.secrets import with_secrets
from quorate_operator.resources.services import listener_statuses
from quorate_operator.runtime.concurrency import finish_all
from quorate_operator.runtime.kubernetes.addresses import PublishedNames, SecuredAddresses
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
from quorate_operator.runtime.kubernetes.facts_source import FactsSource, store_host_ips
from quorate_operator.runtime.kubernetes.issued_certificates import IssuedCertificates
from quorate_operator.runtime.kubernetes.kubernetes_nodes import KubernetesNodes, set_racks
from quorate_operator.runtime.kubernetes.lost_volumes import lost_volumes
from quorate_operator.runtime.kubernetes.objects import ClusterObjects, DryRuns, last_message, phase_of
from quorate_operator.runtime.kubernetes.observation import (
    ANNOTATION_CLUSTER_ID,
    ANNOTATION_DIRECTORY_ID,
    ANNOTATION_FORMAT,
    ANNOTATION_REPLACEMENT,
    FORMAT_INITIAL,
    FORMAT_JOIN,
    VOLUME,
    NodeObjects,
    annotation,
    configured_of,
    formatted_directory_id,
    listeners_of,
    observed_node,
    started_nodes,
    verifications_of,
    verified_text,
)
from quorate_operator.runtime.kubernetes.pod_starts import PodStarts
from quorate_operator.runtime.kubernetes.stored_identity import StoredIdentity
from quorate_operator.runtime.kubernetes.supporting_objects import (
    RefusedObject,
    apply_supporting_objects,
    history_status,
    update_readiness,
)
from quorate_operator.runtime.kubernetes.volumes import Volumes


class KubernetesInfrastructure:
    """Implements `Infrastructure` with pods, claims, ConfigMaps and Services; also reports to and clears resources.

    `complete` comes first in each observation. `quorum` returns the KafkaController as it was last seen; `store`
    stores what a write returned.
    """

    def __init__(
        self,
        api: KubernetesApi,
        cache: ObjectCache,
        quorum: Callable[[], Object | None],
        store: Callable[[Object], object],
        *,
        namespace: str,
        name: str,
        images: Images,
        operator_namespace: str | None = None,
    ) -> None:
        self._api = api
        self._namespace = namespace
        self._name = name
        self._images = images
        self._context: Context | None = None
        self._desired: DesiredCluster | None = None
        """The cluster that was completed last, without what that added."""
        self._secured: SecuredAddresses | None = None
        self._objects = ClusterObjects(api, cache, namespace=namespace, cluster=name)
        self._identity = StoredIdentity(api, self._objects, quorum, store)
        self._names = PublishedNames(self._objects)
        self._facts_source = FactsSource(api, self._objects, operator_namespace)
        self._issued = IssuedCertificates(api, self._objects)
        self._dry_runs = DryRuns(api, namespace)
        self._volumes = Volumes(self._objects, self._dry_runs)
        self._starts = PodStarts(api, self._objects)
        self._kubernetes_nodes = KubernetesNodes(api)
        self._refused: tuple[RefusedObject, ...] = ()
        """The objects that the API server rejected when they were applied last."""

    # Observing

    async def complete(self, desired: DesiredCluster, manifests: Manifests) -> DesiredCluster:
        source = f"{self._namespace}/{self._name}"
        manifests = with_ports(
            with_listeners_in_use(manifests, started_nodes(self._objects.nodes().values()), source)
        )
        await self._facts_source.refresh_secrets(manifests)
        facts = self._facts_source.facts(manifests, self._images, self._identity.formation())
        facts = replace(facts, unissued=self._issued.unissued)
        self._context = Context(manifests=manifests, facts=facts)
        self._desired = relisted(desired, manifests)
        return self._completed(self._desired)

    async def restage(self, staged: DesiredCluster) -> DesiredCluster:
        assert self._desired is not None, "`complete` comes first in each observation"
        return self._completed(with_listeners_of(self._desired, staged))

    def _completed(self, desired: DesiredCluster) -> DesiredCluster:
        """Return the cluster with addresses and revisions. Raises ManifestError."""
        assert self._context is not None, "`complete` comes first in each observation"
        try:
            completed = complete(
                self._identity.as_configured(desired), self._context.manifests, self._context.facts
            )
        except TemplateError as error:
            raise ManifestError(str(error)) from error
        self._secured = SecuredAddresses(self._context, completed, self._objects.nodes().values())
        nodes = tuple(replace(node, revision={**node.revision, VOLUME: "kept"}) for node in completed.nodes)
        return replace(completed, nodes=nodes, dynamic_quorum=desired.dynamic_quorum)

    def permitted(self, plan: steps.Plan, desired: DesiredCluster) -> steps.Plan:
        context = self._required_context()
        plan = replace(
            plan, refusals=(*plan.refusals, *(rejected.as_refusal() for rejected in self._refused))
        )
        listeners = {node_id: started.controllers for node_id, started in context.facts.listeners.items()}
        return with_logins(with_secrets(plan, context, desired), desired, context.facts.revisions, listeners)

    async def nodes(self, desired: DesiredCluster) -> Mapping[int, ObservedNode]:
        """Return every node that is desired or present, without those of deleted pools."""
        objects = self._objects.nodes()
        await self._store_directory_ids(objects.values())
        await store_host_ips(self._objects, objects.values())
        context = self._required_context()
        unknown_racks = await set_racks(self._objects, self._kubernetes_nodes, context, objects.values())
        pools = {node.pool for node in desired.nodes} | {self._name} | set(self._pools())
        observed: dict[int, ObservedNode] = {}
        wanted = {node.node_id: node for node in desired.nodes}
        for node_id, found in objects.items():
            if found.pool not in pools:
                continue
            lost = await lost_volumes(self._kubernetes_nodes, found)
            node = observed_node(
                found, lost, unreachable_host=await self._kubernetes_nodes.is_gone(found.pod)
            )
            node = replace(node, problem=node.problem or unknown_racks.get(node_id))
            # A pool that is deleted together with its volumes also deletes those of brokers that left before.
            is_expected = node_id in wanted or (node.has_volume and node.pool in desired.drained_pools)
            if is_expected or not node.is_forgotten:
                observed[node_id] = replace(node, is_forgotten=node.is_forgotten and not is_expected)
            if node_id in wanted:
                observed[node_id] = replace(
                    observed[node_id],
                    volumes=await self._volumes.with_refusals(context, wanted[node_id], found, node.volumes),
                )
        for node_id, refusal in (await self._restart_refusals(desired, observed)).items():
            observed[node_id] = replace(observed[node_id], restart_refusal=refusal)
        for node_id, missing in wanted.items():
            if node_id not in observed:
                absent = NodeObjects(node_id=node_id, role=missing.role, pool=missing.pool)
                observed[node_id] = replace(observed_node(absent), is_forgotten=False)
        return observed

    async def formation(self) -> Formation | None:
        return self._identity.formation()

    async def note_leader(self, kraft_version: int, leader_epoch: int) -> None:
        await self._identity.note_leader(kraft_version, leader_epoch)

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
        """Return the pods' own addresses, on the listener between nodes."""
        nodes = {node.node_id: node for node in desired.nodes_with_settings}
        found: dict[int, Address] = {}
        for node_id, objects in self._objects.nodes().items():
            address = (objects.pod or {}).get("status", {}).get("podIP")
            if not address:
                continue
            # A node that is no longer desired has the listeners of its pool.
            like = nodes.get(node_id) or next(
                (node for node in desired.nodes_with_settings if node.pool == objects.pool), None
            )
            started = listeners_of(objects)
            if started is not None and started.own[0].port is not None:
                found[node_id] = Address(address, started.own[0].port)
            elif like is not None:
                found[node_id] = Address(address, listener_port(like, like.listeners[0]))
        return found

    def metrics_urls(self, desired: DesiredCluster) -> Mapping[str, tuple[str, ...]]:
        context, objects = self._required_context(), self._objects.nodes()
        found: dict[str, list[str]] = {}
        for node in desired.of_role(Role.BROKER):
            pod = objects[node.node_id].pod if node.node_id in objects else None
            address = (pod or {}).get("status", {}).get("podIP")
            if address and has_agent(context, node):
                found.setdefault(node.pool, []).append(f"http://{Address(address, HTTP_PORT)}/metrics")
        return {pool: tuple(urls) for pool, urls in found.items()}

    def security_of(self, address: Address) -> SecurityConfig | None:
        """Return how the operator connects to the listener at an address; None if it is unknown or not secured."""
        return None if self._secured is None else self._secured.security_of(address)

    def pools_of_nodes(self) -> Mapping[int, str]:
        """Return the pool of each node with any object, by node id."""
        return {node_id: found.pool for node_id, found in self._objects.nodes().items()}

    async def departing(self, pools: Collection[str]) -> Mapping[int, ObservedNode]:
        """Return the nodes of deleted pools that still have a pod or a volume."""
        return {
            node_id: observed_node(found, unreachable_host=await self._kubernetes_nodes.is_gone(found.pod))
            for node_id, found in self._objects.nodes().items()
            if found.pool in pools
        }

    async def refresh(self) -> None:
        """Read the pods from the API server, of which the watch may not have reported yet. Raises ApiError."""
        await self._objects.refresh(POD)

    def certificate_times(self) -> Mapping[str, CertificateTimes]:
        """Return when the certificates that the operator issues end, by the name of the Secret."""
        return self._issued.times

    def history(self) -> HistoryStatus | None:
        """Return the status of the lake; None without one."""
        return history_status(self._objects)

    def listeners(
        self, desired: DesiredCluster, observed: ObservedCluster, pool: str
    ) -> tuple[ListenerStatus, ...] | None:
        """Return the addresses and authorities of a pool's listeners; None while no leader answers."""
        if observed.kafka is None:
            return None
        own = {node.node_id for node in desired.nodes_with_settings if node.pool == pool}
        registered = {
            node_id: registration.endpoints
            for node_id, registration in observed.kafka.registrations.items()
            if node_id in own
        }
        return listener_statuses(self._required_context(), desired, pool, registered)

    # Applying

    async def apply(self, action: steps.RuntimeAction, desired: DesiredCluster) -> None:
        try:
            await self._apply(action, self._identity.as_configured(desired))
        except ApiError as error:
            raise steps.StepError(str(error)) from error

    async def apply_supporting_objects(self, desired: DesiredCluster, observed: ObservedCluster) -> None:
        self._refused = ()
        if desired.lifecycle is not Lifecycle.PAUSED:
            context = self._required_context()
            hosts = ingress_hosts(context, desired, observed, clock.now_ms())
            self._facts_source.forget_secrets(await self._issued.apply(context, desired, hosts))
            self._refused = await apply_supporting_objects(
                self._objects,
                context,
                desired,
                observed,
                hosts=hosts,
                trusted=self._issued.trusted,
                cluster=self._name,
                pools=self._pools(),
            )
        # After the budgets: a broker that becomes ready must not allow an eviction that they would deny.
        if not any(rejected.item["kind"] == DISRUPTION_BUDGET.name for rejected in self._refused):
            await update_readiness(self._api, self._objects, observed)

    async def stop_pods(self, pools: Collection[str] | None = None) -> None:
        """Stop the pods of these pools, brokers first; without `pools`, all of the cluster. Raises StepError.

        Each has its own grace period. Those of a role stop at the same time, as in a hibernation; if one can't be
        deleted, the others end all the same.
        """
        found = [node for node in self._objects.nodes().values() if pools is None or node.pool in pools]
        for role in (Role.BROKER, Role.CONTROLLER):
            pods = [node.pod for node in found if node.role is role and node.pod is not None]
            await finish_all(self._objects.delete_pod(pod, None) for pod in pods)
        if pools is None:
            # Pods of tasks that a killed operator left.
            for pod in self._objects.of_kind(POD):
                await self._objects.delete_pod(pod, 0)

    async def delete_volumes(self, pools: Collection[str]) -> None:
        """Delete the volumes of deleted pools. Raises StepError."""
        for found in self._objects.nodes().values():
            for claim in found.claims.values() if found.pool in pools else ():
                await self._objects.delete(VOLUME_CLAIM, claim)

    async def _apply(self, action: steps.RuntimeAction, desired: DesiredCluster) -> None:
        match action:
            case steps.FormCluster():
                await self._identity.form(
                    action.node_ids, action.cluster_id, is_static=not desired.dynamic_quorum
                )
            case steps.CreateNode():
                await self._create(
                    self._node(desired, action.node_id), is_initial=action.is_initial, desired=desired
                )
            case steps.StartNode():
                await self._starts.apply(
                    action, self._required_context(), desired, lambda node_id: self._node(desired, node_id)
                )
            case steps.StopNode():
                pod = self._objects_of(action.node_id).pod
                if pod is not None:
                    await self._objects.delete_pod(pod, action.grace_ms)
            case steps.CreateVolume() | steps.GrowVolume():
                node = self._node(desired, action.node_id)
                await self._volumes.apply(action, self._required_context(), node)
            case steps.ReleaseVolume() | steps.DeleteVolume() | steps.ReplaceVolumes():
                await self._volumes.apply(action, self._required_context(), None)
            case steps.ForgetNode():
                await self._forget(action.node_id)
            case steps.RebuildQuorum():
                await self._rebuild(action, self._node(desired, action.node_id))
            case steps.PublishAddress():
                node = self._node(desired, action.node_id)
                await self._names.publish(self._required_context(), action, node)
            case steps.RetireAddress() | steps.WithdrawAddress():
                node = self._node(desired, action.node_id)
                await self._names.change(self._required_context(), action, node)

    async def _create(self, node: DesiredNode, *, is_initial: bool, desired: DesiredCluster) -> None:
        context, formation = self._required_context(), self._identity.formation()
        if formation is None:
            raise steps.StepError(f"{node.label}: the identity of the cluster is not stored yet")
        claim = await self._volumes.apply_claim(context, node, METADATA_VOLUME)
        if annotation(claim, ANNOTATION_FORMAT) is None:
            how = FORMAT_INITIAL if is_initial else FORMAT_JOIN
            request = {} if node.replacement is None else {ANNOTATION_REPLACEMENT: node.replacement}
            await self._objects.annotate(claim, {ANNOTATION_FORMAT: how, **request})
        for volume_id in node.volumes:
            if volume_id != METADATA_VOLUME:
                await self._volumes.apply_claim(context, node, volume_id)
        await self._objects.apply(config_map(context, desired, node, {}))

    async def _forget(self, node_id: int) -> None:
        objects = self._objects_of(node_id)
        for service in self._objects.of_kind(SERVICE):
            if service["metadata"]["labels"].get(LABEL_NODE_ID) == str(node_id):
                await self._objects.delete(SERVICE, service)
        if objects.config is not None:
            await self._objects.delete(CONFIG_MAP, objects.config)

    async def _rebuild(self, action: steps.RebuildQuorum, node: DesiredNode) -> None:
        """Run the command on the survivor's volume, then store that it is the only voter."""
        context, objects = self._required_context(), self._objects_of(node.node_id)
        directory_id = annotation(objects.claim, ANNOTATION_DIRECTORY_ID)
        if directory_id is None:
            raise steps.StepError(f"{node.label} has no formatted volume to rebuild the quorum from")
        body = task_pod(context, node, "rebuild-quorum", rebuild_quorum_arguments(action.above_epoch))
        pod = await self._objects.run_to_end(body)
        if phase_of(pod) == "Failed":
            raise steps.StepError(f"{node.label}: the quorum could not be rebuilt: {last_message(pod)}")
        await self._identity.note_rebuilt(node.node_id, directory_id)

    def _objects_of(self, node_id: int) -> NodeObjects:
        found = self._objects.node(node_id)
        return found or NodeObjects(node_id=node_id, role=Role.CONTROLLER, pool=self._name)

    def _node(self, desired: DesiredCluster, node_id: int) -> DesiredNode:
        """Return a desired node or, for a leaving node, its settings or those of another node of its pool.

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
        # A leaving controller stays in the pod of the broker with its offset; a leaving broker is started alone.
        mate = None if like.role is Role.BROKER else like.pod_mate and like.pod_mate + node_id - like.node_id
        return replace(
            like,
            node_id=node_id,
            place=like.place + node_id - like.node_id,
            advertised=configured_of(found.pod or found.config),
            interim={},
            rack=like.rack if like.node_id == node_id else None,
            pod_mate=mate,
        )

    # Facts

    async def _store_directory_ids(self, nodes: Iterable[NodeObjects]) -> None:
        """Copy the directory ids that format containers report to the claims, which outlive pods."""
        formation = self._identity.formation()
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
        """Return why running nodes can't be restarted, by node id: the API server rejects their new pods.

        One pod of each pool and implementation is tried: the others differ in names alone.
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

    def _pools(self) -> list[str]:
        context = self._context
        return [pool.metadata.name for pool in context.manifests.brokers] if context else []

    def _required_context(self) -> Context:
        assert self._context is not None, "`complete` comes first in each observation"
        # The formation may have been stored since.
        facts = replace(self._context.facts, formation=self._identity.formation())
        return replace(self._context, facts=facts)
