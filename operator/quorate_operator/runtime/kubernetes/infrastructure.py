"""The infrastructure of one cluster on Kubernetes: implements the port `Infrastructure`.

    volume         PersistentVolumeClaim, with directory id and cluster id in annotations once it is formatted
    configuration  ConfigMap, written at each start
    process        Pod; kubelet starts a container again that ended, the operator makes pods anew
    address        Service

What is observed comes from the cache. What is written is written by server-side apply, and only where it differs
from what Quorate applied before.
"""

import asyncio
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import Protocol

from quorate_operator.models.listeners import BrokerListener
from quorate_operator.models.manifests import ManifestError, Manifests
from quorate_operator.planning.cluster import (
    Address,
    DesiredCluster,
    DesiredNode,
    Formation,
    ObservedCluster,
    ObservedNode,
    Publication,
    Role,
)
from quorate_operator.planning.steps import (
    CreateNode,
    DeleteVolume,
    ForgetNode,
    FormCluster,
    PublishAddress,
    RebuildQuorum,
    RetireAddress,
    RuntimeAction,
    StartNode,
    StopNode,
    WithdrawAddress,
)
from quorate_operator.planning.templates import TemplateError
from quorate_operator.resources.addresses import listener_port, published_name
from quorate_operator.resources.budgets import brokers_budget, controllers_budget
from quorate_operator.resources.completion import complete
from quorate_operator.resources.configs import config_map
from quorate_operator.resources.facts import Context, Facts, Images, ListenerOf, SecretFacts, digest
from quorate_operator.resources.names import LABEL_NODE_ID, LABEL_PURPOSE, exposure_name
from quorate_operator.resources.network import controllers_policy
from quorate_operator.resources.pods import (
    node_pod,
    rebuild_quorum_arguments,
    task_pod,
)
from quorate_operator.resources.services import (
    PURPOSE_EXPOSURE,
    exposures,
    headless_service,
    publications_of,
    published_service,
)
from quorate_operator.resources.volumes import volume_claim
from quorate_operator.runtime.errors import StepError
from quorate_operator.runtime.kubernetes.api import (
    CONFIG_MAP,
    MACHINE,
    OWNED_KINDS,
    POD,
    SECRET,
    SERVICE,
    VOLUME_CLAIM,
    ApiError,
    Kind,
    KubernetesApi,
    Object,
)
from quorate_operator.runtime.kubernetes.cache import ObjectCache
from quorate_operator.runtime.kubernetes.formations import (
    formation_of,
    formation_on_disks,
    new_formation,
    with_leader,
    write_formation,
)
from quorate_operator.runtime.kubernetes.observing import (
    ANNOTATION_CLUSTER_ID,
    ANNOTATION_DIRECTORY_ID,
    ANNOTATION_FORMAT,
    FORMAT_INITIAL,
    FORMAT_JOIN,
    VOLUME,
    NodeObjects,
    annotation,
    by_node,
    configured_of,
    formatted_directory_id,
    is_machine_gone,
    is_suspicious,
    observed_node,
    revision_of,
)

DELETION_LOOK_S = 0.5
DELETION_SLACK_S = 30.0
"""How much longer than its grace a pod may take to go."""
TASK_TIMEOUT_S = 300.0
MACHINE_AGE_S_MAX = 10.0
SECRET_AGE_S_MAX = 60.0
ANNOTATION_APPLIED = "quorate.dev/applied"
"""On what Quorate applies: a hash of it, so that nothing is written that is there already."""


class QuorumSource(Protocol):
    """Where the KafkaController of this cluster is found as it was seen last."""

    def quorum(self) -> Object | None:
        """It, or None."""

    def seen(self, quorum: Object) -> None:
        """It, as it is after a write of ours."""


class KubernetesInfrastructure:
    """Pods, claims, ConfigMaps and Services of one cluster. `complete` comes first in each look."""

    def __init__(
        self,
        api: KubernetesApi,
        cache: ObjectCache,
        source: QuorumSource,
        *,
        namespace: str,
        name: str,
        image: str,
    ) -> None:
        self._api = api
        self._cache = cache
        self._source = source
        self._namespace = namespace
        self._name = name
        self._images = Images(quorate=image)
        self._context: Context | None = None
        self._machines: dict[str, tuple[float, Object | None]] = {}
        self._secrets: dict[str, tuple[float, SecretFacts | None]] = {}

    # Looking

    async def complete(self, desired: DesiredCluster, manifests: Manifests) -> DesiredCluster:
        """The desired cluster with what only Kubernetes knows. Raises ManifestError and ApiError."""
        await self._look_at_secrets(manifests)
        facts = self._facts(manifests)
        self._context = Context(manifests=manifests, facts=facts)
        try:
            completed = complete(self._as_configured(desired), manifests, facts)
        except TemplateError as error:
            raise ManifestError(str(error)) from error
        nodes = tuple(replace(node, revision={**node.revision, VOLUME: "kept"}) for node in completed.nodes)
        return replace(completed, nodes=nodes, dynamic_quorum=desired.dynamic_quorum)

    async def nodes(self, desired: DesiredCluster) -> Mapping[int, ObservedNode]:
        """Every node that is desired or is there all the same; those of other pools, which are deleted, are not."""
        objects = self._objects()
        await self._remember_directory_ids(objects.values())
        pools = {node.pool for node in desired.nodes} | {self._name} | set(self._pools())
        observed: dict[int, ObservedNode] = {}
        wanted = {one.node_id: one for one in desired.nodes}
        for node_id, found in objects.items():
            if found.pool not in pools:
                continue
            node = observed_node(found, unreachable_host=await self._is_unreachable(found))
            if node_id in wanted or not node.is_forgotten:
                observed[node_id] = replace(node, is_forgotten=node.is_forgotten and node_id not in wanted)
        for node_id, one in wanted.items():
            if node_id not in observed:
                absent = NodeObjects(node_id=node_id, role=one.role, pool=one.pool)
                observed[node_id] = replace(observed_node(absent), is_forgotten=False)
        return observed

    async def formation(self) -> Formation | None:
        """The identity that was settled for the cluster, or that the volumes of an earlier one have."""
        return self._formation()

    async def note_leader(self, kraft_version: int) -> None:
        """Write down that a leader was seen."""
        found = self._formation()
        await self._write_formation(lambda written: with_leader(written or found, kraft_version))

    async def publications(self) -> tuple[Publication, ...]:
        """Every name of a Service that is pointed at a node."""
        return tuple(
            publication
            for service in self._cache.of_cluster(SERVICE, self._namespace, self._name)
            for publication in publications_of(service)
        )

    def contacts(self, desired: DesiredCluster) -> Mapping[int, Address]:
        """The pods' own addresses, on the listener by which nodes talk to each other."""
        nodes = {node.node_id: node for node in desired.nodes}
        found: dict[int, Address] = {}
        for node_id, objects in self._objects().items():
            address = (objects.pod or {}).get("status", {}).get("podIP")
            if not address:
                continue
            # One that is not desired any more listens where its pool does.
            like = nodes.get(node_id) or next(
                (one for one in desired.nodes if one.pool == objects.pool), None
            )
            if like is not None:
                found[node_id] = Address(address, listener_port(like, like.listeners[0]))
        return found

    def has_pods(self) -> bool:
        """Whether any pod of the cluster is left."""
        return bool(self._cache.of_cluster(POD, self._namespace, self._name))

    def nodes_of_pools(self, pools: frozenset[str]) -> Mapping[int, str]:
        """The nodes of some pools that have pods, with their pools."""
        return {
            node_id: found.pool
            for node_id, found in self._objects().items()
            if found.pod is not None and found.pool in pools
        }

    # Doing

    async def apply(self, action: RuntimeAction, desired: DesiredCluster) -> None:
        """Do one step. Raises StepError."""
        try:
            await self._apply(action, self._as_configured(desired))
        except ApiError as error:
            raise StepError(str(error)) from error

    async def keep_objects(self, desired: DesiredCluster, observed: ObservedCluster) -> None:
        """What is around the nodes as it should be: Services, budgets, the NetworkPolicy. Raises ApiError."""
        context = self._required_context()
        pods = [found for found in self._objects().values() if found.pod is not None]
        voters = len(observed.quorum.voters) if observed.quorum else len(desired.of_role(Role.CONTROLLER))
        # A pod that is evicted is counted until it is back: else its absence would make room for another eviction.
        controllers = max(
            sum(found.role is Role.CONTROLLER for found in pods), len(desired.of_role(Role.CONTROLLER))
        )
        wanted = [
            headless_service(context, desired, self._name, Role.CONTROLLER),
            controllers_budget(context, voters=voters, pods=controllers),
            controllers_policy(context, desired),
        ]
        for pool in self._pools():
            members = sum(node.pool == pool for node in desired.of_role(Role.BROKER))
            running = max(sum(found.pool == pool for found in pods), members)
            wanted += [
                headless_service(context, desired, pool, Role.BROKER),
                brokers_budget(context, pool, pods=running),
            ]
        for node in desired.nodes:
            wanted += exposures(context, node)
        for item in wanted:
            await self._keep(item)
        names = {item["metadata"]["name"] for item in wanted if item["kind"] == SERVICE.name}
        for service in self._cache.of_cluster(SERVICE, self._namespace, self._name):
            labels = service["metadata"]["labels"]
            is_ours = labels.get(LABEL_PURPOSE) == PURPOSE_EXPOSURE and any(
                labels.get(LABEL_NODE_ID) == str(node.node_id) for node in desired.nodes
            )
            if is_ours and service["metadata"]["name"] not in names:
                await self._delete(SERVICE, service)

    async def stop_everything(self, grace_ms: int) -> bool:
        """Stop all pods, brokers first, where nothing more is known of the cluster. Whether none is left."""
        pods = [found for found in self._objects().values() if found.pod is not None]
        brokers = [found for found in pods if found.role is Role.BROKER]
        for found in brokers or pods:
            assert found.pod is not None
            await self._delete_pod(found.pod, grace_ms)
        return not self.has_pods()

    async def _apply(self, action: RuntimeAction, desired: DesiredCluster) -> None:
        match action:
            case FormCluster():
                await self._form(action, desired)
            case CreateNode():
                await self._create(
                    _node_in(desired, action.node_id), is_initial=action.is_initial, desired=desired
                )
            case StartNode():
                await self._start(_node_in(desired, action.node_id), action.advertised, desired)
            case StopNode():
                pod = self._objects_of(action.node_id).pod
                if pod is not None:
                    await self._delete_pod(pod, action.grace_ms)
            case DeleteVolume():
                claim = self._objects_of(action.node_id).claim
                if claim is not None:
                    await self._delete(VOLUME_CLAIM, claim, DELETION_SLACK_S)
            case ForgetNode():
                await self._forget(action.node_id)
            case RebuildQuorum():
                await self._rebuild(_node_in(desired, action.node_id))
            case PublishAddress():
                await self._publish(action, _node_in(desired, action.node_id))
            case RetireAddress() | WithdrawAddress():
                await self._change_publication(action, desired)

    async def _form(self, action: FormCluster, desired: DesiredCluster) -> None:
        def change(written: Formation | None) -> Formation:
            if written is not None and written.is_formed:
                raise StepError("the cluster was formed already, and is not formed again")
            if written is not None and written.initial_voters.keys() == set(action.node_ids):
                return written
            # The id of a cluster never changes once it is written down.
            cluster_id = written.cluster_id if written else action.cluster_id
            return new_formation(action.node_ids, cluster_id, is_static=not desired.dynamic_quorum)

        await self._write_formation(change)

    async def _create(self, node: DesiredNode, *, is_initial: bool, desired: DesiredCluster) -> None:
        context, formation = self._required_context(), self._formation()
        if formation is None:
            raise StepError(f"{node.label}: the identity of the cluster is not settled yet")
        claim = self._objects_of(node.node_id).claim
        if claim is not None and claim["metadata"].get("deletionTimestamp") is not None:
            raise StepError(f"{node.label}: its old volume is still being deleted")
        written = await self._keep(volume_claim(context, node))
        if annotation(written, ANNOTATION_FORMAT) is None:
            how = FORMAT_INITIAL if is_initial else FORMAT_JOIN
            await self._annotate_claim(written, {ANNOTATION_FORMAT: how})
        await self._keep(config_map(context, desired, node, {}))

    async def _start(
        self, node: DesiredNode, advertised: Mapping[str, Address], desired: DesiredCluster
    ) -> None:
        context, objects = self._required_context(), self._objects_of(node.node_id)
        claim, pod = objects.claim, objects.pod
        if claim is None:
            raise StepError(f"{node.label} has no volume")
        if pod is not None:
            phase = pod.get("status", {}).get("phase")
            if phase not in ("Failed", "Succeeded") and pod["metadata"].get("deletionTimestamp") is None:
                return
            await self._delete_pod(pod, 0 if phase in ("Failed", "Succeeded") else None)
        # A volume that was formatted once and is empty now is a new disk: it joins, and never forms.
        is_initial = (
            annotation(claim, ANNOTATION_FORMAT) == FORMAT_INITIAL
            and annotation(claim, ANNOTATION_DIRECTORY_ID) is None
        )
        await self._keep(config_map(context, desired, node, advertised))
        body = node_pod(context, desired, node, advertised, is_initial=is_initial)
        self._cache.put(await self._api.apply(POD, self._namespace, body))

    async def _forget(self, node_id: int) -> None:
        objects = self._objects_of(node_id)
        for service in self._cache.of_cluster(SERVICE, self._namespace, self._name):
            if service["metadata"]["labels"].get(LABEL_NODE_ID) == str(node_id):
                await self._delete(SERVICE, service)
        if objects.config is not None:
            await self._delete(CONFIG_MAP, objects.config)

    async def _rebuild(self, node: DesiredNode) -> None:
        """Run the command on the survivor's volume, then write down that it is the only voter."""
        context, objects = self._required_context(), self._objects_of(node.node_id)
        directory_id = annotation(objects.claim, ANNOTATION_DIRECTORY_ID)
        if directory_id is None:
            raise StepError(f"{node.label} has no formatted volume to rebuild the quorum from")
        survivor_id: str = directory_id
        body = task_pod(context, node, "rebuild-quorum", rebuild_quorum_arguments())
        pod = self._cache.find(POD, self._namespace, body["metadata"]["name"])
        if pod is None:
            pod = await self._api.apply(POD, self._namespace, body)
            self._cache.put(pod)
        try:
            async with asyncio.timeout(TASK_TIMEOUT_S):
                while (phase := pod.get("status", {}).get("phase")) not in ("Succeeded", "Failed"):
                    await asyncio.sleep(DELETION_LOOK_S)
                    pod = await self._api.get(POD, self._namespace, body["metadata"]["name"]) or pod
        except TimeoutError:
            raise StepError(
                f"the pod {body['metadata']['name']} did not end in {TASK_TIMEOUT_S:.0f} s"
            ) from None
        if phase == "Failed":
            await self._delete_pod(pod, 0)
            raise StepError(f"{node.label}: the quorum could not be rebuilt: {_last_words(pod)}")

        def change(written: Formation | None) -> Formation:
            if written is None:
                raise StepError("the cluster was not formed")
            return Formation(
                cluster_id=written.cluster_id,
                initial_voters={node.node_id: survivor_id},
                is_formed=False,
                is_rebuilt=True,
            )

        await self._write_formation(change)
        await self._delete_pod(pod, 0)

    # Addresses

    async def _publish(self, action: PublishAddress, node: DesiredNode) -> None:
        context = self._required_context()
        name = published_name(context, action.address.host)
        if name is None:
            raise StepError(f"{action.address.host} is no name that can be published here")
        there = self._published(name)
        others = [one for one in there if one.node_id != node.node_id]
        if others:
            raise StepError(f"{action.address} still leads to node {others[0].node_id}")
        existing = self._cache.find(SERVICE, self._namespace, name)
        if existing is not None and not there:
            raise StepError(f"the Service {name} is there already, and is for something else")
        if any(one.address == action.address and one.retired_at_ms is None for one in there):
            return
        new = Publication(
            address=action.address, node_id=node.node_id, listener=action.listener, since_ms=_now_ms()
        )
        kept = [one for one in there if one.address != action.address]
        await self._keep(published_service(context, node, [*kept, new]))

    async def _change_publication(
        self, action: RetireAddress | WithdrawAddress, desired: DesiredCluster
    ) -> None:
        context = self._required_context()
        name = published_name(context, action.address.host)
        service = self._cache.find(SERVICE, self._namespace, name) if name else None
        there = self._published(name) if name else []
        mine = [one for one in there if one.address == action.address and one.node_id == action.node_id]
        if not mine or service is None:
            return
        left = [one for one in there if one not in mine]
        if isinstance(action, RetireAddress):
            if mine[0].retired_at_ms is not None:
                return
            left.append(replace(mine[0], retired_at_ms=_now_ms()))
        if not left:
            await self._delete(SERVICE, service)
            return
        await self._keep(published_service(context, _node_in(desired, action.node_id), left))

    def _published(self, name: str) -> list[Publication]:
        service = self._cache.find(SERVICE, self._namespace, name)
        return list(publications_of(service)) if service is not None else []

    # Objects

    async def _keep(self, item: Object) -> Object:
        """Apply it, unless it was applied like this before; the object as it is then."""
        kind = OWNED_KINDS[item["kind"]]
        metadata = item["metadata"]
        mark = digest(item)
        known = self._cache.find(kind, self._namespace, metadata["name"])
        if (
            known is not None
            and annotation(known, ANNOTATION_APPLIED) == mark
            and not _was_edited(known, item)
        ):
            return known
        annotations = {**metadata.get("annotations", {}), ANNOTATION_APPLIED: mark}
        body = {**item, "metadata": {**metadata, "annotations": annotations}}
        written = await self._api.apply(kind, self._namespace, body)
        self._cache.put(written)
        return written

    async def _delete_pod(self, pod: Object, grace_ms: int | None) -> None:
        spec_s = int(pod["spec"].get("terminationGracePeriodSeconds", 30))
        # Less than a second would be no grace at all to Kubernetes, which then does not wait for the process.
        grace_s = spec_s if grace_ms is None else max(1, grace_ms // 1000) if grace_ms else 0
        await self._delete(POD, pod, grace_s + DELETION_SLACK_S, grace_s=grace_s)

    async def _delete(
        self, kind: Kind, item: Object, timeout_s: float = DELETION_SLACK_S, *, grace_s: int | None = None
    ) -> None:
        """Delete it and wait until it is gone: only then nothing of it runs any more. Raises StepError."""
        name, uid = item["metadata"]["name"], item["metadata"]["uid"]
        await self._api.delete(kind, self._namespace, name, uid=uid, grace_s=grace_s)
        try:
            async with asyncio.timeout(timeout_s):
                while True:
                    current = await self._api.get(kind, self._namespace, name)
                    if current is None or current["metadata"]["uid"] != uid:
                        break
                    await asyncio.sleep(DELETION_LOOK_S)
        except TimeoutError:
            raise StepError(f"{kind.name} {name} is not gone {timeout_s:.0f} s after its deletion") from None
        self._cache.remove(item)

    async def _annotate_claim(self, claim: Object, annotations: Mapping[str, str]) -> None:
        name = claim["metadata"]["name"]
        patch = {"metadata": {"annotations": dict(annotations)}}
        self._cache.put(await self._api.merge(VOLUME_CLAIM, self._namespace, name, patch))

    async def _remember_directory_ids(self, nodes: Iterable[NodeObjects]) -> None:
        """What format containers said is kept on the claims: pods come and go."""
        formation = self._formation()
        for node in nodes:
            directory_id = formatted_directory_id(node.pod)
            if node.claim is None or directory_id is None or formation is None:
                continue
            told = {ANNOTATION_DIRECTORY_ID: directory_id, ANNOTATION_CLUSTER_ID: formation.cluster_id}
            if any(annotation(node.claim, name) != value for name, value in told.items()):
                await self._annotate_claim(node.claim, told)

    def _objects(self) -> dict[int, NodeObjects]:
        kinds = (POD, VOLUME_CLAIM, CONFIG_MAP)
        return by_node(*(self._cache.of_cluster(kind, self._namespace, self._name) for kind in kinds))

    def _objects_of(self, node_id: int) -> NodeObjects:
        found = self._objects().get(node_id)
        return found or NodeObjects(node_id=node_id, role=Role.CONTROLLER, pool=self._name)

    # Facts

    def _facts(self, manifests: Manifests) -> Facts:
        objects = self._objects()
        services = self._cache.of_cluster(SERVICE, self._namespace, self._name)
        balancers: dict[ListenerOf, str] = {}
        ports: dict[ListenerOf, int] = {}
        by_name = {service["metadata"]["name"]: service for service in services}
        for pool in manifests.brokers:
            for node_id in pool.spec.all_node_ids():
                for listener in pool.spec.listeners:
                    service = by_name.get(exposure_name(pool.metadata.name, node_id, listener.name))
                    if service is None:
                        continue
                    key = ListenerOf(node_id, listener.name)
                    for given in service.get("status", {}).get("loadBalancer", {}).get("ingress") or ():
                        balancers[key] = given.get("hostname") or given["ip"]
                    for port in service["spec"].get("ports", ()):
                        if port.get("nodePort"):
                            ports[key] = port["nodePort"]
        pods = {node_id: found.pod for node_id, found in objects.items() if found.pod is not None}
        machines = {
            node_id: pod["status"]["hostIP"]
            for node_id, pod in pods.items()
            if pod.get("status", {}).get("hostIP")
        }
        configured = {
            node_id: configured_of(found.pod or found.config)
            for node_id, found in objects.items()
            if found.pod is not None or found.config is not None
        }
        return Facts(
            namespace=self._namespace,
            images=self._images,
            load_balancers=balancers,
            node_ports=ports,
            machines=machines,
            configured=configured,
            revisions={
                node_id: revision_of(found.pod) for node_id, found in objects.items() if found.pod is not None
            },
            secrets={name: found for name, (_, found) in self._secrets.items() if found is not None},
            formation=self._formation(),
        )

    async def _look_at_secrets(self, manifests: Manifests) -> None:
        names = {
            listener.tls.secret_name
            for pool in manifests.brokers
            for listener in pool.spec.listeners
            if isinstance(listener, BrokerListener) and listener.tls is not None
        }
        now = time.monotonic()
        for name in names:
            at, _ = self._secrets.get(name, (-SECRET_AGE_S_MAX, None))
            if now - at < SECRET_AGE_S_MAX:
                continue
            secret = await self._api.get(SECRET, self._namespace, name)
            found = (
                SecretFacts(
                    version=secret["metadata"]["resourceVersion"], keys=frozenset(secret.get("data") or ())
                )
                if secret is not None
                else None
            )
            self._secrets[name] = now, found

    async def _is_unreachable(self, objects: NodeObjects) -> bool:
        if objects.pod is None or not is_suspicious(objects.pod):
            return False
        name = objects.pod["spec"]["nodeName"]
        now = time.monotonic()
        at, machine = self._machines.get(name, (-MACHINE_AGE_S_MAX, None))
        if now - at >= MACHINE_AGE_S_MAX:
            try:
                machine = await self._api.get(MACHINE, None, name)
            except ApiError as error:
                if error.status != 403:
                    raise
                return False  # an install for some namespaces may not look at machines
            self._machines[name] = now, machine
        return is_machine_gone(machine)

    def _formation(self) -> Formation | None:
        quorum = self._source.quorum()
        written = formation_of(quorum) if quorum is not None else None
        if written is not None or quorum is None:
            return written
        is_static = quorum["spec"].get("quorum") == "static"
        return formation_on_disks(self._objects().values(), is_static=is_static)

    async def _write_formation(self, change: Callable[[Formation | None], Formation]) -> None:
        self._source.seen(await write_formation(self._api, self._namespace, self._name, change))

    def _as_configured(self, desired: DesiredCluster) -> DesiredCluster:
        """With static voters in configurations as long as the quorum has them."""
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


def _node_in(desired: DesiredCluster, node_id: int) -> DesiredNode:
    for node in desired.nodes:
        if node.node_id == node_id:
            return node
    raise StepError(f"node {node_id} is none of the nodes that are asked for")


def _was_edited(known: Object, item: Object) -> bool:
    """Whether somebody changed what Quorate applied. Claims apart: the API server writes sizes in its own way."""
    if item["kind"] == VOLUME_CLAIM.name:
        return False
    return not all(_covers(known.get(part), item[part]) for part in ("spec", "data") if part in item)


def _covers(whole: object, part: object) -> bool:
    """Whether all of `part` is in `whole`, which may have more: the API server's defaults."""
    if isinstance(part, dict):
        return isinstance(whole, dict) and all(_covers(whole.get(key), value) for key, value in part.items())
    if isinstance(part, list):
        return (
            isinstance(whole, list)
            and len(whole) == len(part)
            and all(_covers(one, other) for one, other in zip(whole, part, strict=True))
        )
    # Empty values may be left out.
    return whole == part or (whole is None and not part)


def _last_words(pod: Object) -> str:
    for status in pod.get("status", {}).get("containerStatuses", ()):
        ended = status.get("state", {}).get("terminated") or {}
        if ended.get("message"):
            return str(ended["message"]).strip()
    return str(pod.get("status", {}).get("message") or "see the log of the pod")


def _now_ms() -> int:
    return time.time_ns() // 1_000_000
