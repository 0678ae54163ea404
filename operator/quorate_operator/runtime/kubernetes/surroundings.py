"""Keeps what surrounds the nodes of a cluster as it should be: Services, budgets, the NetworkPolicy, the history."""

from collections.abc import Sequence

from quorate_operator.models.status import HistoryStatus
from quorate_operator.planning.cluster import DesiredCluster, Lifecycle, ObservedCluster, Role
from quorate_operator.planning.in_sync import may_unready_go
from quorate_operator.planning.rollout import spare_brokers
from quorate_operator.resources.facts import Context
from quorate_operator.resources.names import LABEL_NODE_ID, LABEL_PURPOSE
from quorate_operator.resources.protection import brokers_budget, controllers_budget, controllers_policy
from quorate_operator.resources.services import PURPOSE_EXPOSURE, exposures, headless_service
from quorate_operator.resources.shipping import history_claim, history_of, ingest_cron_job
from quorate_operator.runtime.kubernetes.api import CRON_JOB, DISRUPTION_BUDGET, SERVICE
from quorate_operator.runtime.kubernetes.objects import ClusterObjects


async def keep_surroundings(
    objects: ClusterObjects,
    context: Context,
    desired: DesiredCluster,
    observed: ObservedCluster,
    *,
    cluster: str,
    pools: Sequence[str],
) -> None:
    """Writes what is missing or differs, and deletes Services of nodes that are not exposed any more.

    Raises:
        ApiError: an object could not be written.
        StepError: an object could not be deleted.
    """
    pods = [found for found in objects.nodes().values() if found.pod is not None]
    members = len(desired.of_role(Role.CONTROLLER))
    # A pod that is evicted is counted until it is back: else its absence would make room for another eviction.
    controllers = max(sum(found.role is Role.CONTROLLER for found in pods), members)
    voters = len(observed.quorum.voters) if observed.quorum else members
    brokers = max(sum(found.role is Role.BROKER for found in pods), len(desired.of_role(Role.BROKER)))
    wanted = [
        headless_service(context, desired, cluster, Role.CONTROLLER),
        controllers_budget(context, voters=voters, pods=controllers),
        brokers_budget(
            context,
            pods=brokers,
            spare=spare_brokers(desired, observed),
            may_unready_go=brokers <= 1 or may_unready_go(observed),
        ),
        controllers_policy(context, desired),
    ]
    wanted += [headless_service(context, desired, pool, Role.BROKER) for pool in pools]
    for node in desired.nodes:
        wanted += exposures(context, node)
    for item in wanted:
        await objects.keep(item)
    budgets = {item["metadata"]["name"] for item in wanted if item["kind"] == DISRUPTION_BUDGET.name}
    for budget in objects.of_kind(DISRUPTION_BUDGET):
        if budget["metadata"]["name"] not in budgets:  # a pod that has two budgets can't be evicted at all
            await objects.delete(DISRUPTION_BUDGET, budget)
    await _keep_history(objects, context, desired.lifecycle)
    names = {item["metadata"]["name"] for item in wanted if item["kind"] == SERVICE.name}
    for service in objects.of_kind(SERVICE):
        labels = service["metadata"]["labels"]
        is_ours = labels.get(LABEL_PURPOSE) == PURPOSE_EXPOSURE and any(
            labels.get(LABEL_NODE_ID) == str(node.node_id) for node in desired.nodes
        )
        if is_ours and service["metadata"]["name"] not in names:
            await objects.delete(SERVICE, service)


def history_status(objects: ClusterObjects) -> HistoryStatus | None:
    """Returns what the CronJob reports of the lake; None without a CronJob."""
    for job in objects.of_kind(CRON_JOB):
        status = job.get("status", {})
        return HistoryStatus(
            last_schedule_time=status.get("lastScheduleTime"),
            last_ingest_time=status.get("lastSuccessfulTime"),
        )
    return None


async def _keep_history(objects: ClusterObjects, context: Context, lifecycle: Lifecycle) -> None:
    """Without a history the CronJob goes; the volume stays, as every volume does."""
    history = history_of(context)
    if history is None:
        for job in objects.of_kind(CRON_JOB):
            await objects.delete(CRON_JOB, job)
        return
    claim = history_claim(context, history)
    if claim is not None:
        await objects.keep(claim)
    await objects.keep(ingest_cron_job(context, history, lifecycle))
