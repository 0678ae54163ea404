"""Reports on the resources of one target: statuses, Kubernetes Events, the log, and metrics of steps."""

import asyncio
import logging

from quorate_admin.errors import AdminError

from quorate_operator.entities.plan import Change
from quorate_operator.handlers.entities.members import Member
from quorate_operator.handlers.entities.statuses import EntityResult, entity_status, is_ready
from quorate_operator.handlers.entities.targets import TargetKey
from quorate_operator.handlers.resources import is_deleted
from quorate_operator.handlers.shared import Shared, Subject
from quorate_operator.handlers.statuses import UNKNOWN_FIELDS, unknown_fields_note, with_unknown_fields
from quorate_operator.runtime.kubernetes.api import ApiError
from quorate_operator.web.snapshots import ClusterKey

CONCURRENT_EVENTS_MAX = 8
"""How many Events of changes are written for one cluster at the same time."""
DRIFTED, FOUND = "Drifted", "Found"

log = logging.getLogger(__name__)


class MemberReports:
    """Writes what became of the resources of a group."""

    def __init__(self, key: TargetKey, shared: Shared) -> None:
        self._key = key
        self._shared = shared
        self._writing = asyncio.Semaphore(CONCURRENT_EVENTS_MAX)

    # The status

    async def write_status(self, member: Member, result: EntityResult) -> None:
        """Write the status, if it changes, and set the metric. Raises ApiError."""
        status = entity_status(result, member.body["metadata"]["generation"])
        status = with_unknown_fields(status, member.unknown)
        written = await self._shared.write_status(member.handler.kind, member.body, status)
        if written is not None and written["metadata"]["uid"] == member.uid:
            member.take_status(written)

    async def write_failure(self, member: Member, result: EntityResult) -> None:
        """Write a status with a failure. If that fails too, both are logged; the other resources continue."""
        assert result.failure is not None
        try:
            await self.write_status(member, result)
        except ApiError as error:
            log.warning("%s: %s; its status was not written: %s", member.label, result.failure.message, error)

    # Events

    async def warn(self, member: Member, reason: str, note: str) -> None:
        """Log a warning, and record it as an Event."""
        await self._shared.warn(self._subject(member), reason, note)

    async def record_unknown_fields(self, member: Member) -> None:
        """Record an Event of the fields that this release does not know, if there are any."""
        if member.unknown:
            await self._record(member, UNKNOWN_FIELDS, unknown_fields_note(member.unknown), is_warning=True)

    async def record_observed(self, member: Member, result: EntityResult) -> None:
        """Record Events of what was observed."""
        plan, metadata = result.plan, member.body["metadata"]
        if plan is None or is_deleted(member.body):
            return
        if plan.note is not None:
            await self._record(member, FOUND, plan.note)
        was_ready = is_ready(member.body.get("status") or {}, metadata["generation"])
        if plan.changes and plan.state is None and was_ready:
            text = "; ".join(change.text for change in plan.changes)
            await self._record(member, DRIFTED, f"changed outside the operator: {text}")
        for refusal in plan.refusals:
            await self.warn(member, refusal.code, refusal.message)

    async def change_started(self, member: Member, change: Change) -> None:
        async with self._writing:
            await self._shared.step_started(self._subject(member), change, change.text)

    def change_done(self, member: Member, change: Change) -> None:
        self._shared.step_done(self._subject(member), change, change.text)

    async def change_failed(self, member: Member, change: Change, error: AdminError) -> None:
        await self._shared.step_failed(self._subject(member), change, f"{change.text}: {error}")

    async def _record(self, member: Member, reason: str, note: str, *, is_warning: bool = False) -> None:
        await self._shared.events.record(
            self._page_of(member), member.body, reason, note, is_warning=is_warning
        )

    def _subject(self, member: Member) -> Subject:
        return Subject(label=member.label, cluster=self._page_of(member), resource=member.body)

    def _page_of(self, member: Member) -> ClusterKey | None:
        """Return the cluster whose status page shows Events of a resource, or None.

        Any resource may name a cluster of another namespace: it is shown once the cluster has admitted it.
        """
        is_own = member.namespace == self._key.namespace
        return self._key.event_key if is_own or member.is_admitted else None
