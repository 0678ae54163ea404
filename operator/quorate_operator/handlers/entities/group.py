"""Reconciles the topics, users and rebalances of one Kafka cluster: observe, plan, change, report.

A resource is reconciled when it changes, a second after a change was made, and then about each minute, so that manual
changes in Kafka are reverted. Resources that are due together are observed with the same few requests.
"""

import asyncio
import logging
import random
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

from quorate_admin.client import AdminClient
from quorate_admin.config import AdminConfig
from quorate_admin.errors import AdminError, ServerError

from quorate_operator.entities.plan import Change, EntityPlan, ObservedKafka
from quorate_operator.gateway.topics import observe_kafka
from quorate_operator.handlers.entities.claims import Claims
from quorate_operator.handlers.entities.kind_handlers import KindHandler, Seen, uid_of
from quorate_operator.handlers.entities.statuses import (
    OPERATOR_FAULT,
    EntityResult,
    Failure,
    entity_status,
    failure_of,
    is_ready,
    ready_reason,
)
from quorate_operator.handlers.entities.targets import Target, TargetKey, Targets
from quorate_operator.handlers.resources import is_deleted, is_older, is_paused
from quorate_operator.handlers.shared import JITTER, FaultGuard, Shared, Subject
from quorate_operator.handlers.statuses import UNKNOWN_FIELDS, unknown_fields_note, with_unknown_fields
from quorate_operator.models.manifests import Entity, ManifestError, read_entity
from quorate_operator.models.status import INVALID_MANIFEST
from quorate_operator.runtime.kubernetes.api import ApiError, Object
from quorate_operator.runtime.loop import RequeuePolicy

WAITING_MS = 5_000
"""The time between two observations of a topic whose replicas are being moved."""
CONCURRENT_CHANGES_MAX = 8
"""How many resources of one cluster are changed at the same time."""
STALLED_AFTER_FAILURES = 2
"""How many failures in a row make a resource Stalled. A single failure may come from a broker with older metadata."""
DRIFTED, FOUND, NAME_TAKEN, NOTHING_DELETED = "Drifted", "Found", "NameTaken", "NothingDeleted"

log = logging.getLogger(__name__)


def requeue_policy_of(drift_interval_s: int) -> RequeuePolicy:
    """Return the policy of resources that are compared with Kafka each `drift_interval_s`."""
    settled_ms = drift_interval_s * 1000
    return RequeuePolicy(
        working_ms=min(1_000, settled_ms),
        settled_ms=settled_ms,
        asleep_ms=settled_ms,
        retry_ms_min=1_000,
        retry_ms_max=15_000,
    )


@dataclass(slots=True)
class _Member:
    """A resource, and its state between passes."""

    body: Object
    handler: KindHandler
    due_ms: int = 0
    failures_in_a_row: int = 0
    is_cleared: bool = False
    fault: str = ""
    """The fault of the operator in its last pass; empty without one."""
    unknown: tuple[str, ...] = ()
    """The paths of fields that this release does not know."""

    @property
    def uid(self) -> str:
        return str(self.body["metadata"]["uid"])

    @property
    def label(self) -> str:
        metadata = self.body["metadata"]
        return f"{metadata['namespace']}/{metadata['name']}"

    def status_in(self, kafka: ObservedKafka) -> Mapping[str, Any]:
        """The status; an empty one if it is about another cluster."""
        status = self.body.get("status") or {}
        return status if status.get("clusterId") in (None, kafka.cluster_id) else {}


@dataclass(slots=True)
class _Work:
    """A resource in one pass."""

    member: _Member
    resource: Entity
    name: str
    """The name in Kafka."""
    plan: EntityPlan | None = None
    failure: Failure | None = None
    changed: list[Change] = field(default_factory=list)


class EntityGroup:
    """The resources with one target. Cancel `run` to close it."""

    def __init__(
        self,
        key: TargetKey,
        shared: Shared,
        targets: Targets,
        claims: Claims,
        requeue_policy: RequeuePolicy,
        *,
        make_client: Callable[[AdminConfig], AdminClient] = AdminClient,
        now_ms: Callable[[], int] = lambda: time.monotonic_ns() // 1_000_000,
    ) -> None:
        self.key = key
        self._shared = shared
        self._targets = targets
        self._claims = claims
        self._requeue_policy = requeue_policy
        self._make_client = make_client
        self._now_ms = now_ms
        self._members: dict[str, _Member] = {}
        self._client: tuple[AdminConfig, AdminClient] | None = None
        self._woken = asyncio.Event()
        self._cleared = asyncio.Event()
        self._failures_in_a_row = 0
        self._guard = FaultGuard(shared, key, key.namespace, requeue_policy, self._kinds)
        self._changing = asyncio.Semaphore(CONCURRENT_CHANGES_MAX)

    # Called by the registry

    def put(self, body: Object, handler: KindHandler, *, is_changed: bool) -> None:
        """Store a resource as it was seen; a new or changed one is due at once."""
        member = self._members.setdefault(body["metadata"]["uid"], _Member(body=body, handler=handler))
        if is_older(body, member.body):
            # An event from before our last write of the status.
            metadata = {**body["metadata"], "resourceVersion": member.body["metadata"]["resourceVersion"]}
            body = {**body, "metadata": metadata, "status": member.body.get("status")}
        member.body = body
        if is_changed:
            member.due_ms = 0
            self._woken.set()

    def remove(self, uid: str) -> bool:
        """Forget a resource that is gone, or has another target now. Returns whether any is left."""
        member = self._members.pop(uid, None)
        self._claims.release(uid)
        if member is not None:
            metadata = member.body["metadata"]
            self._shared.metrics.set_state(
                member.handler.kind.name, metadata["namespace"], metadata["name"], None
            )
            # A resource that was refused because of this one may get the name now.
            for other in self._members.values():
                if ready_reason(other.body.get("status") or {}) == NAME_TAKEN:
                    other.due_ms = 0
            self._woken.set()
        return bool(self._members)

    async def wait_cleared(self, uid: str) -> None:
        """Wait until nothing is left to delete in Kafka for this resource."""
        while (member := self._members.get(uid)) is not None and not member.is_cleared:
            self._cleared.clear()
            await self._cleared.wait()

    async def run(self) -> None:
        """Reconciles due resources until it is cancelled."""
        try:
            await self._guard.run(self._next_pass)
        finally:
            await self._close_client()

    async def _next_pass(self) -> None:
        await self._wait_due()
        async with self._shared.entity_passes:
            with self._shared.liveness.pass_of(self.key):
                await self.reconcile()
        self._report_liveness()

    def _kinds(self) -> Iterable[str]:
        return {member.handler.kind.name for member in self._members.values()}

    def _report_liveness(self) -> None:
        """Report to the health endpoint a resource that a fault of the operator keeps from being reconciled."""
        self._guard.recovered()
        faults = [f"{member.label}: {member.fault}" for member in self._members.values() if member.fault]
        if faults:
            self._shared.liveness.faulted(self.key, faults[0])

    async def _wait_due(self) -> None:
        while True:
            self._woken.clear()
            due_ms = [member.due_ms for member in self._members.values() if not member.is_cleared]
            rest_ms = min(due_ms) - self._now_ms() if due_ms else self._requeue_policy.settled_ms
            if rest_ms <= 0:
                return
            try:
                async with asyncio.timeout(rest_ms / 1000):
                    await self._woken.wait()
            except TimeoutError:
                continue

    # One pass

    async def reconcile(self) -> None:
        """Observes the due resources once, makes the changes, and reports."""
        now_ms = self._now_ms()
        due = [
            member for member in self._members.values() if member.due_ms <= now_ms and not member.is_cleared
        ]
        started = time.monotonic()
        works = [work for member in due if (work := await self._loaded(member)) is not None]
        try:
            failure = await self._reconcile(works)
        except ApiError as error:
            failure = Failure(code="ApiServer", message=str(error), is_retried=True)
        if failure is None:
            self._failures_in_a_row = 0
        else:
            self._failures_in_a_row += 1
            for work in works:
                if work.member.is_cleared:
                    continue
                await self._report_failure(work.member, EntityResult(failure=failure))
                work.member.due_ms = self._after(self._requeue_policy.after_failures(self._failures_in_a_row))
        self._count(due, time.monotonic() - started)

    async def _reconcile(self, works: Sequence[_Work]) -> Failure | None:
        """Return why nothing could be observed, or None."""
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
        await asyncio.gather(*(self._change_and_report(work, client, kafka, target) for work in works))
        return None

    async def _observe(
        self, client: AdminClient, works: Sequence[_Work], kafka: ObservedKafka
    ) -> Mapping[str, object]:
        """Return what each kind's handler observed, by uid. If a handler fails, its error takes that place."""
        found: dict[str, object] = {}
        handlers = {work.member.handler.kind.name: work.member.handler for work in works}
        for handler in handlers.values():
            own = [
                Seen(work.resource, work.member.status_in(kafka))
                for work in works
                if work.member.handler is handler
            ]
            failed: Exception
            try:
                found |= await handler.observe(client, own, kafka)
                continue
            except ServerError as error:  # it may be allowed to see topics, and not users
                failed = error
            except (AdminError, ApiError):
                raise
            except Exception as error:
                self._fault(f"{self.key}: {handler.kind.plural}", handler, error)
                failed = error
            found |= {uid_of(seen.resource): failed for seen in own}
        return found

    async def _plan(self, work: _Work, kafka: ObservedKafka, observed: Mapping[str, object]) -> None:
        member = work.member
        holder = self._claims.other_holder(kafka.cluster_id, member.body, work.name)
        if holder is not None:
            kind = member.handler.kind.name
            message = f"{work.name} in the cluster {kafka.cluster_id} belongs to the {kind} {holder}, which is older"
            work.failure = Failure(code=NAME_TAKEN, message=message, is_retried=False)
            return
        response = observed[member.uid]
        if isinstance(response, Exception):
            work.failure = self._failure_of(member, response)
            return
        plan = partial(
            member.handler.plan,
            work.resource,
            response,
            kafka,
            member.status_in(kafka),
            is_deleted=is_deleted(member.body),
        )
        try:
            work.plan = await asyncio.to_thread(plan) if member.handler.plans_long else plan()
        except Exception as error:
            self._fault(member.label, member.handler, error)
            work.failure = self._failure_of(member, error)

    async def _change_and_report(
        self, work: _Work, client: AdminClient, kafka: ObservedKafka, target: Target
    ) -> None:
        """Make the planned changes for one resource, and report. A fault does not affect the other resources."""
        member = work.member
        member.fault = ""
        is_leaving = is_deleted(member.body)
        result = EntityResult(
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
            await self._record_events(member, result)
            if not is_leaving:
                # The next pass needs this status, so it is stored before anything is changed.
                await self._report(member, result)
            if not result.is_paused:
                async with self._changing:
                    result = await self._change(work, client, result)
        except ApiError as error:
            failure = Failure(code="ApiServer", message=str(error), is_retried=True)
            result = replace(result, failure=failure)
        except Exception as error:
            self._fault(member.label, member.handler, error)
            result = replace(result, failure=self._failure_of(member, error))
        if result.failure is not None:
            member.failures_in_a_row += 1
            await self._report_failure(member, result)
            if result.failure.is_fault:
                member.fault = result.failure.message
                await self._warn(member, OPERATOR_FAULT, result.failure.message)
        else:
            member.failures_in_a_row = 0
        member.due_ms = self._after(self._rest_ms(member, result, has_changed=bool(work.changed)))

    async def _change(self, work: _Work, client: AdminClient, result: EntityResult) -> EntityResult:
        """Make the changes in their order; returns the result with what failed."""
        member, shared, subject = work.member, self._shared, self._subject(work.member)
        for change in result.plan.changes if result.plan is not None else ():
            await shared.step_started(subject, change, change.text)
            try:
                await member.handler.apply(client, work.resource, change)
            except AdminError as error:
                await shared.step_failed(subject, change, f"{change.text}: {error}")
                return replace(result, failure=self._failure_of(member, error))
            shared.step_done(subject, change, change.text)
            work.changed.append(change)
        return result

    def _fault(self, about: str, handler: KindHandler, error: Exception) -> None:
        self._shared.fault(about, error, (handler.kind.name,), self.key.namespace)

    def _failure_of(self, member: _Member, error: Exception) -> Failure:
        return failure_of(error, is_first=member.failures_in_a_row + 1 < STALLED_AFTER_FAILURES)

    def _rest_ms(self, member: _Member, result: EntityResult, *, has_changed: bool) -> int:
        if result.failure is not None and (result.failure.is_retried or has_changed):
            return self._requeue_policy.after_failures(max(1, member.failures_in_a_row))
        if result.is_paused or result.failure is not None:
            return self._requeue_policy.asleep_ms
        if has_changed or (result.plan is not None and result.plan.continues):
            return self._requeue_policy.working_ms
        return (
            WAITING_MS if result.plan is not None and result.plan.waits else self._requeue_policy.settled_ms
        )

    async def _loaded(self, member: _Member) -> _Work | None:
        """Return the resource; None if it is invalid, which is reported."""
        try:
            served = read_entity(member.body, f"namespace {self.key.namespace}")
        except ManifestError as error:
            if is_deleted(member.body):
                await self._let_go(member, f"nothing was deleted: {error}")
                return None
            failure = Failure(code=INVALID_MANIFEST, message=str(error), is_retried=False)
            await self._report_failure(member, EntityResult(failure=failure))
            member.due_ms = self._after(self._requeue_policy.asleep_ms)
            return None
        member.unknown = served.unknown
        if served.unknown:
            note = unknown_fields_note(served.unknown)
            await self._shared.events.record(
                self.key.event_key, member.body, UNKNOWN_FIELDS, note, is_warning=True
            )
        return _Work(member=member, resource=served.resource, name=member.handler.name_of(served.resource))

    def _after(self, rest_ms: int) -> int:
        """Return when a resource is due again, with jitter, so that not all of them are due at the same time."""
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
        """Allow a deleted resource to be removed; `note` says that nothing was deleted in Kafka."""
        if note is not None:
            await self._warn(member, NOTHING_DELETED, note)
        member.is_cleared = True
        self._claims.release(member.uid)
        self._cleared.set()

    async def _record_events(self, member: _Member, result: EntityResult) -> None:
        """Write Events of what was observed."""
        plan, metadata = result.plan, member.body["metadata"]
        if plan is None or is_deleted(member.body):
            return
        if plan.note is not None:
            await self._shared.events.record(self.key.event_key, member.body, FOUND, plan.note)
        was_ready = is_ready(member.body.get("status") or {}, metadata["generation"])
        if plan.changes and plan.state is None and was_ready:
            text = "; ".join(change.text for change in plan.changes)
            note = f"changed outside the operator: {text}"
            await self._shared.events.record(self.key.event_key, member.body, DRIFTED, note)
        for refusal in plan.refusals:
            await self._warn(member, refusal.code, refusal.message)

    def _subject(self, member: _Member) -> Subject:
        return Subject(label=member.label, cluster=self.key.event_key, resource=member.body)

    async def _warn(self, member: _Member, reason: str, note: str) -> None:
        await self._shared.warn(self._subject(member), reason, note)

    async def _report_failure(self, member: _Member, result: EntityResult) -> None:
        """Report a result with a failure. If that fails too, both are logged; the other resources continue."""
        assert result.failure is not None
        try:
            await self._report(member, result)
        except ApiError as error:
            log.warning("%s: %s; its status was not written: %s", member.label, result.failure.message, error)

    async def _report(self, member: _Member, result: EntityResult) -> None:
        """Write the status, if it changes, and set the metric. Raises ApiError."""
        status = entity_status(result, member.body["metadata"]["generation"])
        status = with_unknown_fields(status, member.unknown)
        written = await self._shared.write_status(member.handler.kind, member.body, status)
        if written is not None and written["metadata"]["uid"] == member.uid:
            # Only the status is taken over: a spec that has changed meanwhile comes with an event of its own.
            version = {"resourceVersion": written["metadata"]["resourceVersion"]}
            metadata = {**member.body["metadata"], **version}
            member.body = {**member.body, "metadata": metadata, "status": written.get("status")}

    def _count(self, due: Iterable[_Member], duration_s: float) -> None:
        kinds: dict[str, list[_Member]] = {}
        for member in due:
            kinds.setdefault(member.handler.kind.name, []).append(member)
        for kind, members in kinds.items():
            has_failed = bool(self._failures_in_a_row) or any(member.failures_in_a_row for member in members)
            self._shared.metrics.count_pass(kind, self.key.namespace, duration_s, has_failed=has_failed)
