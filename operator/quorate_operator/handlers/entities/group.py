"""Keeps topics, users and balance of one Kafka cluster as their resources describe them: look, plan, change, report.

A resource is looked at when it changes, a second after a change was made, and then about each minute, so that changes
by somebody else are reverted. Resources that are due together are observed with the same few requests.
"""

import asyncio
import logging
import random
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from functools import partial
from typing import Any

from quorate_admin.client import AdminClient
from quorate_admin.config import AdminConfig
from quorate_admin.errors import AdminError, ServerError

from quorate_operator.entities.plan import Change, EntityPlan, ObservedKafka
from quorate_operator.gateway.topics import observe_kafka
from quorate_operator.handlers.entities.claims import Claims
from quorate_operator.handlers.entities.keepers import Keeper, Seen, uid_of
from quorate_operator.handlers.entities.statuses import (
    OPERATOR_FAULT,
    Failure,
    Verdict,
    entity_status,
    failure_of,
    is_ready,
)
from quorate_operator.handlers.entities.targets import Target, TargetKey, Targets
from quorate_operator.handlers.reconciler import JITTER, Shared
from quorate_operator.handlers.resources import is_deleted, is_older, is_paused
from quorate_operator.handlers.statuses import merged_status
from quorate_operator.models.manifests import Entity, ManifestError, load_entity
from quorate_operator.models.status import INVALID_MANIFEST
from quorate_operator.runtime.kubernetes.api import ApiError, Object
from quorate_operator.runtime.loop import Pace

WAITING_MS = 5_000
"""The time between two looks at a topic whose replicas are being moved."""
CHANGES_AT_A_TIME_MAX = 8
"""How many resources of one cluster are changed at the same time."""
STALLED_AFTER_FAILURES = 2
"""How many failures in a row make a resource Stalled. A single one may come from a broker with older metadata."""
DRIFTED, FOUND, NAME_TAKEN, NOTHING_DELETED = "Drifted", "Found", "NameTaken", "NothingDeleted"

log = logging.getLogger(__name__)


def pace_of(drift_interval_s: int) -> Pace:
    """Returns how long a resource rests; `settled_ms` is `drift_interval_s`."""
    settled_ms = drift_interval_s * 1000
    return Pace(
        working_ms=min(1_000, settled_ms),
        settled_ms=settled_ms,
        asleep_ms=settled_ms,
        retry_ms_min=1_000,
        retry_ms_max=15_000,
    )


@dataclass(slots=True)
class _Member:
    """A resource, and what is known of it between looks."""

    body: Object
    keeper: Keeper
    due_ms: int = 0
    failures_in_a_row: int = 0
    is_cleared: bool = False
    state: str | None = None
    """The reason why it is not ready, as in the metric."""
    fault: str = ""
    """The fault of the operator in the last look at it; empty without one."""

    @property
    def label(self) -> str:
        metadata = self.body["metadata"]
        return f"{metadata['namespace']}/{metadata['name']}"


@dataclass(slots=True)
class _Work:
    """A resource in one look."""

    member: _Member
    resource: Entity
    name: str
    """The name in Kafka."""
    plan: EntityPlan | None = None
    failure: Failure | None = None
    changed: list[Change] = field(default_factory=list)


class EntityGroup:
    """The resources with one target, and the task that keeps them. Close it by cancelling `run`."""

    def __init__(
        self,
        key: TargetKey,
        shared: Shared,
        targets: Targets,
        claims: Claims,
        pace: Pace,
        *,
        make_client: Callable[[AdminConfig], AdminClient] = AdminClient,
        now_ms: Callable[[], int] = lambda: time.monotonic_ns() // 1_000_000,
    ) -> None:
        self.key = key
        self._shared = shared
        self._targets = targets
        self._claims = claims
        self._pace = pace
        self._make_client = make_client
        self._now_ms = now_ms
        self._members: dict[str, _Member] = {}
        self._client: tuple[AdminConfig, AdminClient] | None = None
        self._woken = asyncio.Event()
        self._cleared = asyncio.Event()
        self._failures_in_a_row = 0
        self._changing = asyncio.Semaphore(CHANGES_AT_A_TIME_MAX)

    # Called by the registry

    def put(self, body: Object, keeper: Keeper, *, is_changed: bool) -> None:
        """Stores a resource as it was seen; a new or changed one is due at once."""
        member = self._members.setdefault(body["metadata"]["uid"], _Member(body=body, keeper=keeper))
        if is_older(body, member.body):
            # An event from before our last write of the status.
            metadata = {**body["metadata"], "resourceVersion": member.body["metadata"]["resourceVersion"]}
            body = {**body, "metadata": metadata, "status": member.body.get("status")}
        member.body = body
        if is_changed:
            member.due_ms = 0
            self._woken.set()

    def remove(self, uid: str) -> bool:
        """Forgets a resource that is gone, or has another target now. Returns whether any is left."""
        member = self._members.pop(uid, None)
        self._claims.release(uid)
        if member is not None:
            metadata = member.body["metadata"]
            self._shared.metrics.set_state(
                member.keeper.kind.name, metadata["namespace"], metadata["name"], None
            )
            # A resource that was refused because of this one may have the name now.
            for other in self._members.values():
                if other.state == NAME_TAKEN:
                    other.due_ms = 0
            self._woken.set()
        return bool(self._members)

    async def wait_cleared(self, uid: str) -> None:
        """Waits until nothing is left to delete in Kafka for this resource."""
        while (member := self._members.get(uid)) is not None and not member.is_cleared:
            self._cleared.clear()
            await self._cleared.wait()

    async def run(self) -> None:
        """Looks at due resources until it is cancelled. After a fault of the operator it begins again."""
        faults = 0
        try:
            while True:
                try:
                    await self._wait_due()
                    async with self._shared.looks:
                        with self._shared.pulse.look(self.key):
                            await self.look()
                    faults = 0
                    self._tell_pulse()
                except Exception as error:
                    faults += 1
                    await asyncio.sleep(self._faulted(error, faults) / 1000)
        finally:
            self._shared.pulse.recovered(self.key)
            await self._close_client()

    def _faulted(self, error: Exception, faults: int) -> int:
        """Reports a fault; returns for how many milliseconds to rest before the next look."""
        rest_ms = self._pace.after_failures(faults)
        log.error("%s: a fault of the operator; looks again in %d ms", self.key, rest_ms, exc_info=error)
        for kind in {member.keeper.kind.name for member in self._members.values()}:
            self._shared.metrics.faults.labels(kind, self.key.namespace).inc()
        self._shared.pulse.faulted(self.key, repr(error))
        return rest_ms

    def _tell_pulse(self) -> None:
        """Reports to the health endpoint a resource that a fault of the operator keeps from being reconciled."""
        faults = [f"{member.label}: {member.fault}" for member in self._members.values() if member.fault]
        if faults:
            self._shared.pulse.faulted(self.key, faults[0])
        else:
            self._shared.pulse.recovered(self.key)

    async def _wait_due(self) -> None:
        while True:
            self._woken.clear()
            due_ms = [member.due_ms for member in self._members.values() if not member.is_cleared]
            rest_ms = min(due_ms) - self._now_ms() if due_ms else self._pace.settled_ms
            if rest_ms <= 0:
                return
            try:
                async with asyncio.timeout(rest_ms / 1000):
                    await self._woken.wait()
            except TimeoutError:
                continue

    # One look

    async def look(self) -> None:
        """Looks once at the due resources, makes the changes, and reports."""
        now_ms = self._now_ms()
        due = [one for one in self._members.values() if one.due_ms <= now_ms and not one.is_cleared]
        started = time.monotonic()
        works = [work for member in due if (work := await self._loaded(member)) is not None]
        try:
            failure = await self._look_at(works)
        except ApiError as error:
            failure = Failure(code="ApiServer", message=str(error), is_retried=True)
        if failure is None:
            self._failures_in_a_row = 0
        else:
            self._failures_in_a_row += 1
            for work in works:
                if work.member.is_cleared:
                    continue
                await self._report_failure(work.member, Verdict(failure=failure))
                work.member.due_ms = self._after(self._pace.after_failures(self._failures_in_a_row))
        self._count(due, time.monotonic() - started)

    async def _look_at(self, works: Sequence[_Work]) -> Failure | None:
        """Returns why nothing could be looked at, or None."""
        if not works:
            return None
        target = await self._targets.find(self.key, works[0].resource.spec)
        if target.is_gone:
            for work in works:
                if is_deleted(work.member.body):
                    await self._let_go(work.member, "the cluster is gone: nothing was deleted in it")
        if target.failure is not None or target.config is None:
            return target.failure
        client = await self._client_of(target.config)
        try:
            kafka = await observe_kafka(
                client,
                decommissioned=target.leaving,
                reserved=target.reserved,
                addresses=target.addresses,
                servers=target.config.bootstrap_servers,
            )
            observed = await self._observe(client, works, kafka)
        except AdminError as error:
            return Failure(code="Unreachable", message=str(error), is_retried=True)
        for work in works:
            self._claims.put(kafka.cluster_id, work.member.body, work.name)
        for work in works:
            await self._plan(work, kafka, observed)
        await asyncio.gather(*(self._do(work, client, kafka, target) for work in works))
        return None

    async def _observe(
        self, client: AdminClient, works: Sequence[_Work], kafka: ObservedKafka
    ) -> Mapping[str, object]:
        """Returns what each keeper observed, by uid. If a keeper fails, its error takes the place of that."""
        found: dict[str, object] = {}
        keepers = {work.member.keeper.kind.name: work.member.keeper for work in works}
        for keeper in keepers.values():
            own = [
                Seen(work.resource, _status(work.member, kafka))
                for work in works
                if work.member.keeper is keeper
            ]
            try:
                found |= await keeper.observe(client, own, kafka)
            except ServerError as error:  # it may be allowed to see topics, and not users
                found |= {uid_of(one.resource): error for one in own}
            except (AdminError, ApiError):
                raise
            except Exception as error:
                self._log_fault(f"{self.key}: {keeper.kind.plural}", keeper.kind.name, error)
                found |= {uid_of(one.resource): error for one in own}
        return found

    async def _plan(self, work: _Work, kafka: ObservedKafka, observed: Mapping[str, object]) -> None:
        member = work.member
        kind = member.keeper.kind.name
        holder = self._claims.other_holder(kafka.cluster_id, member.body, work.name)
        if holder is not None:
            message = f"{work.name} in the cluster {kafka.cluster_id} is kept by the {kind} {holder}, which is older"
            work.failure = Failure(code=NAME_TAKEN, message=message, is_retried=False)
            return
        response = observed[member.body["metadata"]["uid"]]
        if isinstance(response, Exception):
            work.failure = self._failure_of(member, response)
            return
        plan = partial(
            member.keeper.plan,
            work.resource,
            response,
            kafka,
            _status(member, kafka),
            is_deleted=is_deleted(member.body),
        )
        try:
            work.plan = await asyncio.to_thread(plan) if member.keeper.plans_long else plan()
        except Exception as error:
            self._log_fault(member.label, kind, error)
            work.failure = self._failure_of(member, error)

    async def _do(self, work: _Work, client: AdminClient, kafka: ObservedKafka, target: Target) -> None:
        """Makes the planned changes for one resource, and reports. A fault in one does not affect the others."""
        member = work.member
        member.fault = ""
        is_leaving = is_deleted(member.body)
        verdict = Verdict(
            plan=work.plan,
            failure=work.failure,
            is_paused=target.is_paused or is_paused(member.body),
            cluster_id=kafka.cluster_id,
        )
        changes = work.plan.changes if work.plan is not None else ()
        if is_leaving and not changes and not (work.failure and work.failure.is_fault):
            await self._let_go(member, None if work.failure is None else work.failure.message)
            return
        try:
            await self._tell(member, verdict)
            if not is_leaving:
                # The next look needs this status, so it is stored before anything is changed.
                await self._report(member, verdict)
            if not verdict.is_paused:
                async with self._changing:
                    verdict = await self._change(work, client, verdict)
        except ApiError as error:
            failure = Failure(code="ApiServer", message=str(error), is_retried=True)
            verdict = replace(verdict, failure=failure)
        except Exception as error:
            self._log_fault(member.label, member.keeper.kind.name, error)
            verdict = replace(verdict, failure=self._failure_of(member, error))
        if verdict.failure is not None:
            member.failures_in_a_row += 1
            await self._report_failure(member, verdict)
            if verdict.failure.is_fault:
                member.fault = verdict.failure.message
                await self._record(member, OPERATOR_FAULT, verdict.failure.message, is_warning=True)
        else:
            member.failures_in_a_row = 0
        member.due_ms = self._after(self._rest_ms(member, verdict, has_changed=bool(work.changed)))

    async def _change(self, work: _Work, client: AdminClient, verdict: Verdict) -> Verdict:
        """Makes the changes in their order; returns the verdict with what failed."""
        member, metrics = work.member, self._shared.metrics
        for change in verdict.plan.changes if verdict.plan is not None else ():
            name = type(change).__name__
            log.info("%s: %s %s", member.label, name, change.text)
            await self._record(member, name, change.text)
            try:
                await member.keeper.apply(client, work.resource, change)
            except AdminError as error:
                metrics.steps.labels(name, "failed").inc()
                failure = self._failure_of(member, error)
                await self._record(member, f"{name}Failed", f"{change.text}: {error}", is_warning=True)
                return replace(verdict, failure=failure)
            log.info("%s: done: %s %s", member.label, name, change.text)
            metrics.steps.labels(name, "done").inc()
            self._shared.events.settle(member.body, name, change.text)
            work.changed.append(change)
        return verdict

    def _log_fault(self, what: str, kind: str, error: Exception) -> None:
        log.error("%s: a fault of the operator", what, exc_info=error)
        self._shared.metrics.faults.labels(kind, self.key.namespace).inc()

    def _failure_of(self, member: _Member, error: Exception) -> Failure:
        return failure_of(error, is_first=member.failures_in_a_row + 1 < STALLED_AFTER_FAILURES)

    def _rest_ms(self, member: _Member, verdict: Verdict, *, has_changed: bool) -> int:
        if verdict.failure is not None and (verdict.failure.is_retried or has_changed):
            return self._pace.after_failures(max(1, member.failures_in_a_row))
        if verdict.is_paused or verdict.failure is not None:
            return self._pace.asleep_ms
        if has_changed or (verdict.plan is not None and verdict.plan.continues):
            return self._pace.working_ms
        return WAITING_MS if verdict.plan is not None and verdict.plan.waits else self._pace.settled_ms

    async def _loaded(self, member: _Member) -> _Work | None:
        """Returns the resource; None if it is invalid, which is reported."""
        try:
            resource = load_entity(member.body, f"namespace {self.key.namespace}")
        except ManifestError as error:
            if is_deleted(member.body):
                await self._let_go(member, f"nothing was deleted: {error}")
                return None
            failure = Failure(code=INVALID_MANIFEST, message=str(error), is_retried=False)
            await self._report_failure(member, Verdict(failure=failure))
            member.due_ms = self._after(self._pace.asleep_ms)
            return None
        return _Work(member=member, resource=resource, name=member.keeper.name_of(resource))

    def _after(self, rest_ms: int) -> int:
        """Returns when a resource is due again, with jitter, so that not all of them are due at the same time."""
        return self._now_ms() + round(rest_ms * random.uniform(1 - JITTER, 1))

    async def _client_of(self, config: AdminConfig) -> AdminClient:
        if self._client is None or self._client[0] != config:
            await self._close_client()
            self._client = config, self._make_client(config)
        return self._client[1]

    async def _close_client(self) -> None:
        client, self._client = self._client, None
        if client is not None:
            await client[1].close()

    # Reports

    async def _let_go(self, member: _Member, note: str | None) -> None:
        """Allows a deleted resource to be removed; `note` says that nothing was deleted in Kafka."""
        if note is not None:
            await self._record(member, NOTHING_DELETED, note, is_warning=True)
        member.is_cleared = True
        self._claims.release(member.body["metadata"]["uid"])
        self._cleared.set()

    async def _tell(self, member: _Member, verdict: Verdict) -> None:
        """Writes Events of what the look found."""
        plan, metadata = verdict.plan, member.body["metadata"]
        if plan is None or is_deleted(member.body):
            return
        if plan.note is not None:
            await self._record(member, FOUND, plan.note)
        was_ready = is_ready(member.body.get("status") or {}, metadata["generation"])
        if plan.changes and plan.state is None and was_ready:
            text = "; ".join(change.text for change in plan.changes)
            await self._record(member, DRIFTED, f"changed by somebody else: {text}")
        for refusal in plan.refusals:
            await self._record(member, refusal.code, refusal.message, is_warning=True)

    async def _record(self, member: _Member, reason: str, note: str, *, is_warning: bool = False) -> None:
        if is_warning:
            log.warning("%s: %s: %s", member.label, reason, note)
        await self._shared.events.record(self.key.event_key, member.body, reason, note, is_warning=is_warning)

    async def _report_failure(self, member: _Member, verdict: Verdict) -> None:
        """Reports a verdict with a failure. If that fails too, the log has both, and others are looked at."""
        assert verdict.failure is not None
        try:
            await self._report(member, verdict)
        except ApiError as error:
            log.warning(
                "%s: %s; its status was not written: %s", member.label, verdict.failure.message, error
            )

    async def _report(self, member: _Member, verdict: Verdict) -> None:
        """Writes the status, if it changes, and sets the metric. Raises ApiError."""
        metadata, kind = member.body["metadata"], member.keeper.kind
        status = entity_status(verdict, metadata["generation"])
        ready = status["conditions"][0]
        reason = "" if ready["status"] == "True" else str(ready["reason"])
        if reason != member.state:
            member.state = reason
            self._shared.metrics.set_state(kind.name, metadata["namespace"], metadata["name"], reason)
        now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        patch = merged_status(member.body.get("status") or {}, status, now)
        if patch is None:
            return
        try:
            written = await self._shared.api.merge(
                kind, metadata["namespace"], metadata["name"], {"status": patch}, subresource="status"
            )
        except ApiError as error:
            if not error.is_missing:
                raise
            return
        if written["metadata"]["uid"] == metadata["uid"]:
            # Only the status is taken over: a spec that has changed meanwhile comes with an event of its own.
            version = {"resourceVersion": written["metadata"]["resourceVersion"]}
            metadata = {**member.body["metadata"], **version}
            member.body = {**member.body, "metadata": metadata, "status": written.get("status")}

    def _count(self, due: Iterable[_Member], duration_s: float) -> None:
        metrics = self._shared.metrics
        kinds: dict[str, list[_Member]] = {}
        for member in due:
            kinds.setdefault(member.keeper.kind.name, []).append(member)
        for kind, members in kinds.items():
            labels = (kind, self.key.namespace)
            metrics.reconciliations.labels(*labels).inc()
            metrics.duration.labels(*labels).observe(duration_s)
            has_failed = self._failures_in_a_row or any(one.failures_in_a_row for one in members)
            (metrics.failed if has_failed else metrics.successful).labels(*labels).inc()


def _status(member: _Member, kafka: ObservedKafka) -> Mapping[str, Any]:
    """Returns the status; an empty one if it is about another cluster."""
    status = member.body.get("status") or {}
    return status if status.get("clusterId") in (None, kafka.cluster_id) else {}
