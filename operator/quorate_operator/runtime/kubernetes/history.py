"""The volume and the CronJob of a cluster's history, kept as they should be, and what is known of the lake."""

from quorate_operator.models.status import HistoryStatus
from quorate_operator.planning.cluster import Lifecycle
from quorate_operator.resources.facts import Context
from quorate_operator.resources.history import history_claim, history_of, ingest_cron_job
from quorate_operator.runtime.kubernetes.api import CRON_JOB
from quorate_operator.runtime.kubernetes.objects import ClusterObjects


async def keep_history(objects: ClusterObjects, context: Context, lifecycle: Lifecycle) -> None:
    """Without a history the job goes; the volume stays, as every volume does. Raises ApiError and StepError."""
    history = history_of(context)
    if history is None:
        for job in objects.of_kind(CRON_JOB):
            await objects.delete(CRON_JOB, job)
        return
    claim = history_claim(context, history)
    if claim is not None:
        await objects.keep(claim)
    await objects.keep(ingest_cron_job(context, history, lifecycle))


def history_status(objects: ClusterObjects) -> HistoryStatus | None:
    """What the CronJob tells; None without one."""
    for job in objects.of_kind(CRON_JOB):
        status = job.get("status", {})
        return HistoryStatus(
            last_schedule_time=status.get("lastScheduleTime"),
            last_ingest_time=status.get("lastSuccessfulTime"),
        )
    return None
