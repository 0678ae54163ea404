"""Applies the supporting objects of a cluster: Services, Ingresses, budgets, NetworkPolicies, Certificates, history.

It also sets the condition that the readiness of brokers' pods waits for, by what the quorum reports. While the
operator is away, or no leader answers, conditions stay: a broker in service remains so, and one that was restarted
meanwhile is not counted as available.
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass

from quorate_operator import clock
from quorate_operator.models.status import HistoryStatus
from quorate_operator.planning.cluster import DesiredCluster, Lifecycle, ObservedCluster, Role
from quorate_operator.planning.in_sync import InSync, brokers_in_sync, may_unready_go
from quorate_operator.planning.restart_obstacles import (
    lacks_voters_in_pods,
    spare_brokers,
    spare_pods_with_controllers,
)
from quorate_operator.planning.steps import Refusal, StepError
from quorate_operator.resources.certificates import certificates
from quorate_operator.resources.exposures import PURPOSE_EXPOSURE, exposed_bootstraps, exposures
from quorate_operator.resources.facts import Context, IngressHosts
from quorate_operator.resources.issued_certificates import authority_config_map
from quorate_operator.resources.names import (
    CONDITION_IN_SYNC,
    LABEL_NODE_ID,
    LABEL_POOL,
    LABEL_PURPOSE,
    pool_names,
)
from quorate_operator.resources.protection import (
    brokers_budget,
    brokers_policies,
    controllers_budget,
    controllers_policy,
)
from quorate_operator.resources.services import (
    bootstrap_service,
    headless_service,
    ingresses,
)
from quorate_operator.resources.shipping import history_claim, history_of, ingest_cron_job
from quorate_operator.runtime.kubernetes.api import (
    CERTIFICATE,
    CRON_JOB,
    DISRUPTION_BUDGET,
    INGRESS,
    NETWORK_POLICY,
    OPTIONAL_KINDS,
    OWNED_KINDS,
    POD,
    ROUTE,
    SERVICE,
    VOLUME_CLAIM,
    ApiError,
    Kind,
    KubernetesApi,
    Object,
)
from quorate_operator.runtime.kubernetes.objects import ClusterObjects
from quorate_operator.runtime.kubernetes.observation import growth_refusal
from quorate_operator.view.texts import iso_time


@dataclass(frozen=True, slots=True, kw_only=True)
class RefusedObject:
    """An object that the API server rejects."""

    item: Object
    reason: str

    def as_refusal(self) -> Refusal:
        name, labels = self.item["metadata"]["name"], self.item["metadata"]["labels"]
        message = f"{self.item['kind']} {name} could not be applied; the rest is reconciled: {self.reason}"
        return Refusal("ObjectRefused", message, pool=labels.get(LABEL_POOL))


async def apply_supporting_objects(
    objects: ClusterObjects,
    context: Context,
    desired: DesiredCluster,
    observed: ObservedCluster,
    *,
    hosts: IngressHosts,
    cluster: str,
    pools: Sequence[str],
    trusted: str | None = None,
) -> tuple[RefusedObject, ...]:
    """Apply missing and changed objects, and delete those that nothing needs any more.

    `hosts` lead to brokers through Ingresses. `trusted` are the certificates of the cluster's own authority, for
    clients.

    Returns the objects that the API server rejects, for instance because of a quota, a policy or a StorageClass. The
    others are applied.

    Raises:
        ApiError: the API server did not answer, or failed.
        StepError: an object could not be deleted, or belongs to another owner.
    """
    refused: list[RefusedObject] = []
    pods = [found for found in objects.nodes().values() if found.pod is not None]
    members = len(desired.of_role(Role.CONTROLLER))
    # A pod that is evicted is counted until it is back; otherwise its absence would allow another eviction.
    controllers = max(sum(found.role is Role.CONTROLLER for found in pods), members)
    voters = len(observed.quorum.voters) if observed.quorum else members
    brokers = max(sum(found.role is Role.BROKER for found in pods), len(desired.of_role(Role.BROKER)))
    wanted = [headless_service(context, desired, cluster, Role.CONTROLLER), *brokers_policies(context)]
    spec = context.manifests.controllers.spec
    if spec.disruption_budgets is None or spec.disruption_budgets.enabled:
        if not desired.has_shared_pods:  # a pod that has two budgets can't be evicted at all
            wanted.append(controllers_budget(context, voters=voters, pods=controllers))
        wanted += [
            brokers_budget(
                context,
                pods=brokers,
                spare=min(spare_brokers(desired, observed), spare_pods_with_controllers(desired, observed)),
                may_unready_go=brokers <= 1
                or (may_unready_go(observed) and not lacks_voters_in_pods(desired, observed)),
            ),
        ]
    if spec.network_policy.enabled:
        wanted.append(controllers_policy(context, desired))
    wanted += [headless_service(context, desired, pool, Role.BROKER) for pool in pools]
    for node in desired.nodes:
        wanted += exposures(context, node, hosts)
    wanted += exposed_bootstraps(context, desired)
    for item in wanted:
        await _apply(objects, item, refused)
    for pool in pools:
        if service := bootstrap_service(context, desired, pool):  # brokers do not need this Service
            await _apply_unless_foreign(objects, service, refused)
    if trusted is not None:
        await _apply_unless_foreign(objects, authority_config_map(context, trusted), refused)
    optional = (*certificates(context, desired, hosts), *ingresses(context, desired, hosts))
    for item in optional:
        await _apply_unless_foreign(objects, item, refused)
    # Clients need the addresses of a broker until it is stopped: it leads partitions while it is drained.
    present = {node.node_id for node in observed.nodes.values() if not node.is_forgotten}
    leaving = present - {node.node_id for node in desired.nodes}
    for kind in (CERTIFICATE, INGRESS, ROUTE):
        await _delete_others(objects, context, kind, optional, leaving)
    await _delete_others(objects, context, NETWORK_POLICY, wanted)
    # A pod that has two budgets can't be evicted at all.
    await _delete_others(objects, context, DISRUPTION_BUDGET, wanted)
    await _apply_history(objects, context, desired.lifecycle, refused)
    names = {item["metadata"]["name"] for item in wanted if item["kind"] == SERVICE.name}
    node_ids = {str(node.node_id) for node in desired.nodes}
    for service in objects.of_kind(SERVICE):
        labels = service["metadata"]["labels"]
        of_node = labels.get(LABEL_NODE_ID)
        is_ours = labels.get(LABEL_PURPOSE) == PURPOSE_EXPOSURE and (
            of_node in node_ids if of_node is not None else labels.get(LABEL_POOL) in pool_names(context)
        )
        if is_ours and service["metadata"]["name"] not in names:
            await objects.delete(SERVICE, service)
    return tuple(refused)


async def _apply_unless_foreign(objects: ClusterObjects, item: Object, refused: list[RefusedObject]) -> None:
    """As `_apply`; an existing object of another owner is left alone and reported."""
    try:
        await _apply(objects, item, refused)
    except StepError as error:
        refused.append(RefusedObject(item=item, reason=str(error)))


async def _delete_others(
    objects: ClusterObjects,
    context: Context,
    kind: Kind,
    wanted: Sequence[Object],
    leaving: Collection[int] = (),
) -> None:
    """Delete the other objects of a kind, except those of leaving nodes and of invalid pools."""
    names = {item["metadata"]["name"] for item in wanted if item["kind"] == kind.name}
    pools = {None, *pool_names(context)}
    for item in objects.of_kind(kind):
        name, labels = item["metadata"]["name"], item["metadata"]["labels"]
        is_leaving = labels.get(LABEL_NODE_ID) in {str(node_id) for node_id in leaving}
        if name not in names and labels.get(LABEL_POOL) in pools and not is_leaving:
            await objects.delete(kind, item)


async def _apply(objects: ClusterObjects, item: Object, refused: list[RefusedObject]) -> None:
    try:
        await objects.apply(item)
    except ApiError as error:
        if error.is_missing and item["kind"] in OPTIONAL_KINDS:
            refused.append(RefusedObject(item=item, reason=_unknown_kind(item)))
            return
        if not error.rejects_object:
            raise
        known = objects.find(OWNED_KINDS[item["kind"]], item["metadata"]["name"])
        reason = growth_refusal(str(error), known) if item["kind"] == VOLUME_CLAIM.name and known else None
        refused.append(RefusedObject(item=item, reason=reason or str(error)))


def _unknown_kind(item: Object) -> str:
    return f"this Kubernetes has no {item['apiVersion']} {item['kind']}: {OPTIONAL_KINDS[item['kind']]}"


def history_status(objects: ClusterObjects) -> HistoryStatus | None:
    """Return the lake's status from the CronJob; None without a CronJob."""
    for job in objects.of_kind(CRON_JOB):
        status = job.get("status", {})
        return HistoryStatus(
            last_schedule_time=status.get("lastScheduleTime"),
            last_ingest_time=status.get("lastSuccessfulTime"),
        )
    return None


async def _apply_history(
    objects: ClusterObjects, context: Context, lifecycle: Lifecycle, refused: list[RefusedObject]
) -> None:
    """Apply the history's volume and CronJob. Without a history, the CronJob is deleted and the volume stays."""
    history = history_of(context)
    if history is None:
        for job in objects.of_kind(CRON_JOB):
            await objects.delete(CRON_JOB, job)
        return
    claim = history_claim(context, history)
    if claim is not None:
        await _apply(objects, claim, refused)
    await _apply(objects, ingest_cron_job(context, history, lifecycle), refused)


async def update_readiness(api: KubernetesApi, objects: ClusterObjects, observed: ObservedCluster) -> None:
    """Write the conditions that changed. A pod that was replaced meanwhile is no error. Raises ApiError."""
    nodes = objects.nodes()
    for node_id, in_sync in brokers_in_sync(observed).items():
        pod = nodes[node_id].pod if node_id in nodes else None
        condition = None if pod is None else changed_condition(pod, in_sync, iso_time(clock.now_ms()))
        if pod is None or condition is None:
            continue
        name, uid = pod["metadata"]["name"], pod["metadata"]["uid"]
        body = {
            "apiVersion": POD.api_version,
            "kind": POD.name,
            "metadata": {"name": name, "uid": uid},
            "status": {"conditions": [condition]},
        }
        try:
            objects.seen(await api.apply(POD, objects.namespace, body, subresource="status"))
        except ApiError as error:
            if not (error.is_missing or error.is_conflict):
                raise


def changed_condition(pod: Object, in_sync: InSync, now: str) -> Object | None:
    """Return the condition of a pod as it is to be written; None if the pod has it, or is being deleted."""
    if pod["metadata"].get("deletionTimestamp") is not None:
        return None
    conditions = pod.get("status", {}).get("conditions") or ()
    known: Object = next(
        (condition for condition in conditions if condition["type"] == CONDITION_IN_SYNC), {}
    )
    reported = {"status": str(in_sync.holds), "reason": in_sync.reason, "message": in_sync.message}
    if all(known.get(key) == value for key, value in reported.items()):
        return None
    is_same = known.get("status") == reported["status"] and known.get("lastTransitionTime")
    return {
        "type": CONDITION_IN_SYNC,
        **reported,
        "lastTransitionTime": known["lastTransitionTime"] if is_same else now,
    }
