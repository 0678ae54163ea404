"""Reconciles the topics, users and rebalances of one Kafka cluster: observe, plan, change, report.

A resource is reconciled when it changes, a second after a change was made, and then about each minute, so that manual
changes in Kafka are reverted. Resources that are due together are observed with the same few requests: a pass also
takes those that are due soon, and at most PASS_MAX of them, so that a changed resource does not wait for all others.
"""

import asyncio
import random
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from math import ceil

from quorate_admin.client import AdminClient
from quorate_admin.config import AdminConfig
from quorate_admin.errors import AdminError, ServerError

from quorate_operator.entities.plan import ObservedKafka
from quorate_operator.gateway.topics import observe_kafka
from quorate_operator.handlers.entities.claims import Claims
from quorate_operator.handlers.entities.kind_handlers import KindHandler, ResourceChange, Seen
from quorate_operator.handlers.entities.members import Member, Work
from quorate_operator.handlers.entities.reports import MemberReports
from quorate_operator.handlers.entities.statuses import (
    API_SERVER,
    OPERATOR_FAULT,
    UNREACHABLE,
    EntityResult,
    Failure,
    failure_of,
)
from quorate_operator.handlers.entities.targets import Target, TargetKey, Targets, not_admitted
from quorate_operator.handlers.resources import is_deleted, is_older, is_paused
from quorate_operator.handlers.shared import JITTER, FaultGuard, Shared
from quorate_operator.models.manifests import ManifestError, read_entity
from quorate_operator.models.status import INVALID_MANIFEST
from quorate_operator.models.tenant_policy import NOT_ALLOWED
from quorate_operator.runtime.kubernetes.api import ApiError, Object
from quorate_operator.runtime.loop import RequeuePolicy

WAITING_MS = 5_000
"""The time between two observations of a topic whose replicas are being moved."""
STALLED_AFTER_FAILURES = 2
"""How many failures in a row make a resource Stalled. A single failure may come from a broker with older metadata."""
PASS_MAX = 1_000
"""How many resources are reconciled in one pass."""
THOROUGH_MAX = 300
"""How many resources may be observed with all their objects of the API server while each is observed once."""
EARLY_FRACTION = 0.25
"""How much earlier than it is due a resource may be reconciled, as a fraction of the time between two passes."""
NAME_TAKEN, NOTHING_DELETED = "NameTaken", "NothingDeleted"
NAMESPACE_TERMINATING = "NamespaceTerminating"


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
        self._members: dict[str, Member] = {}
        self._name_taken: set[str] = set()
        """The uids of resources that were refused because others have their names."""
        self._client: tuple[AdminConfig, AdminClient] | None = None
        self._woken = asyncio.Event()
        self._cleared = asyncio.Event()
        self._failures_in_a_row = 0
        self._guard = FaultGuard(shared, key, requeue_policy, self._metric_labels)
        self._reports = MemberReports(key, shared)

    # Called by the registry

    def put(self, body: Object, handler: KindHandler, *, is_changed: bool) -> None:
        """Store a resource as it was seen; a new or changed one is due at once."""
        member = self._members.setdefault(body["metadata"]["uid"], Member(body=body, handler=handler))
        if is_older(body, member.body):
            # An event from before our last write of the status.
            metadata = {**body["metadata"], "resourceVersion": member.body["metadata"]["resourceVersion"]}
            body = {**body, "metadata": metadata, "status": member.body.get("status")}
        member.body = body
        if is_changed:
            member.changed()
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
            for other in self._name_taken & self._members.keys():
                self._members[other].changed()
            self._name_taken.clear()
            self._woken.set()
        return bool(self._members)

    async def wait_cleared(self, uid: str) -> None:
        """Wait until nothing is left to delete in Kafka for this resource."""
        while (member := self._members.get(uid)) is not None and not member.is_cleared:
            self._cleared.clear()
            await self._cleared.wait()

    async def run(self) -> None:
        """Reconcile due resources until it is cancelled."""
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

    def _metric_labels(self) -> Iterable[tuple[str, str]]:
        return {member.metric_labels for member in self._members.values()}

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
        """Observe the due resources once, make the changes, and report."""
        now_ms = self._now_ms()
        due = self._due(now_ms)
        started = time.monotonic()
        loaded = [work for member in due if (work := await self._loaded(member)) is not None]
        works = [work for work in loaded if not await self._is_done(work)]
        try:
            failure = await self._reconcile(works)
        except ApiError as error:
            failure = Failure(code=API_SERVER, message=str(error), is_retried=True)
        left = [work.member for work in works if not (work.member.is_cleared or work.is_finished)]
        if failure is None or not left:
            self._failures_in_a_row = 0
        else:
            self._failures_in_a_row += 1
            for member in left:
                self._rest(member, self._requeue_policy.after_failures(self._failures_in_a_row))
            results = [EntityResult(failure=member.blocked(failure, now_ms)) for member in left]
            await asyncio.gather(*map(self._reports.write_failure, left, results))
        self._count(due, time.monotonic() - started)

    def _due(self, now_ms: int) -> list[Member]:
        """Return the resources of the next pass: changed ones first; without a changed one, also those due soon."""
        waiting = [member for member in self._members.values() if not member.is_cleared]
        due = [member for member in waiting if member.due_ms <= now_ms]
        if due and all(member.due_ms for member in due):
            due = [member for member in waiting if member.early_ms <= now_ms]
        return sorted(due, key=lambda member: member.due_ms)[:PASS_MAX]

    async def _is_done(self, work: Work) -> bool:
        """Let a deleted resource go that has nothing in Kafka, even if its cluster never answered."""
        member = work.member
        seen = Seen(work.resource, member.body.get("status") or {}, member.kept)
        if not is_deleted(member.body) or not member.handler.leaves_nothing(seen):
            return False
        await self._let_go(member, None)
        return True

    async def _reconcile(self, works: Sequence[Work]) -> Failure | None:
        """Return why nothing could be observed for the works that are not finished, or None."""
        if not works:
            return None
        target = await self._targets.find(self.key, works[0].resource.spec)
        for work in works:
            work.member.is_admitted = target.admits(work.member.namespace, self.key)
        refused = [work for work in works if not work.member.is_admitted]
        for work in refused:
            work.failure = not_admitted(work.member.namespace, self.key)
        works = [work for work in works if work.failure is None]
        await self._conclude(refused, None, None, target)
        if not works:
            return None
        if target.is_gone:
            deleted = [work.member for work in works if is_deleted(work.member.body)]
            note = "the cluster is gone: nothing was deleted in it"
            await asyncio.gather(*(self._let_go(member, note) for member in deleted))
        if target.config is not None:
            return await self._reconcile_in(target.config, works, target)
        if self._client is not None and target.is_secret_gone:
            # A namespace that is deleted loses its Secrets first. What is deleted with it needs the former login.
            leaving = [work for work in works if is_deleted(work.member.body)]
            if leaving:
                await self._reconcile_in(self._client[0], leaving, target)
        return target.failure

    async def _reconcile_in(
        self, config: AdminConfig, works: Sequence[Work], target: Target
    ) -> Failure | None:
        """Return why nothing could be observed in the cluster at these addresses, or None."""
        client = await self._client_of(config)
        try:
            kafka = await observe_kafka(
                client,
                decommissioned=target.decommissioned,
                reserved=target.reserved,
                addresses=target.addresses,
                servers=config.bootstrap_servers,
            )
            observed = await self._observe(client, works, kafka)
        except AdminError as error:
            return Failure(code=UNREACHABLE, message=str(error), is_retried=True)
        for work in works:
            work.member.reached(kafka)
            self._claims.put(kafka.cluster_id, work.member.body, work.name)
        for work in works:
            await self._plan(work, kafka, observed)
        await self._conclude(works, client, kafka.cluster_id, target)
        return None

    async def _conclude(
        self, works: Sequence[Work], client: AdminClient | None, cluster_id: str | None, target: Target
    ) -> None:
        """Make the planned changes, and report. Without a client, nothing was planned."""
        begun = await asyncio.gather(*(self._begin(work, cluster_id, target) for work in works))
        open_works = [work for work, is_open in zip(works, begun, strict=True) if is_open]
        if client is not None:
            await self._change(open_works, client)
        await asyncio.gather(*map(self._finish, open_works))

    async def _observe(
        self, client: AdminClient, works: Sequence[Work], kafka: ObservedKafka
    ) -> Mapping[str, object]:
        """Return what each kind's handler observed, by uid. If a handler fails, its error takes that place."""
        found: dict[str, object] = {}
        handlers = {work.member.handler.kind.name: work.member.handler for work in works}
        for handler in handlers.values():
            own = [work for work in works if work.member.handler is handler]
            seen = [self._seen(work, kafka) for work in own]
            failed: Exception
            try:
                found |= await handler.observe(client, seen, kafka)
                continue
            except ServerError as error:  # it may be allowed to see topics, and not users
                failed = error
            except (AdminError, ApiError):
                raise
            except Exception as error:
                labels = [work.member.metric_labels for work in own]
                self._shared.fault(f"{self.key}: {handler.kind.plural}", error, labels)
                failed = error
            found |= {work.member.uid: failed for work in own}
        return found

    def _seen(self, work: Work, kafka: ObservedKafka) -> Seen:
        member = work.member
        every = ceil(len(self._members) / THOROUGH_MAX)
        return Seen(work.resource, member.status_in(kafka), member.kept, member.is_thorough(every))

    async def _plan(self, work: Work, kafka: ObservedKafka, observed: Mapping[str, object]) -> None:
        member = work.member
        holder = self._claims.other_holder(kafka.cluster_id, member.body, work.name)
        if holder is not None:
            kind = member.handler.kind.name
            message = f"{work.name} in the cluster {kafka.cluster_id} belongs to the {kind} {holder}, which is older"
            work.failure = Failure(code=NAME_TAKEN, message=message, is_retried=False)
            self._name_taken.add(member.uid)
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
            self._fault(member, error)
            work.failure = self._failure_of(member, error)

    async def _begin(self, work: Work, cluster_id: str | None, target: Target) -> bool:
        """Report what is to be changed for one resource. Returns False if it is let go."""
        member = work.member
        member.fault = ""
        is_leaving = is_deleted(member.body)
        result = EntityResult(
            plan=work.plan,
            failure=work.failure,
            is_paused=target.is_paused or is_paused(member.body),
            cluster_id=cluster_id,
        )
        if is_leaving and not work.changes and not (work.failure and work.failure.is_fault):
            await self._let_go(member, None if work.failure is None else work.failure.message)
            return False
        work.result = result
        try:
            await self._reports.record_observed(member, result)
            if not is_leaving:
                # The next pass needs this status, so it is stored before anything is changed.
                await self._reports.write_status(member, result)
        except Exception as error:
            self._fail(work, error)
        return True

    async def _change(self, works: Sequence[Work], client: AdminClient) -> None:
        """Make the planned changes of resources: the first of each of them together, then the second ones, ...

        A resource whose change fails is not changed further.
        """
        for number in range(max((len(work.changes) for work in works), default=0)):
            due: dict[str, list[Work]] = {}
            for work in works:
                if number < len(work.changes) and work.failure is None and not work.result.is_paused:
                    due.setdefault(work.member.handler.kind.name, []).append(work)
            await asyncio.gather(
                *(self._change_together(of_kind, number, client) for of_kind in due.values())
            )

    async def _change_together(self, works: Sequence[Work], number: int, client: AdminClient) -> None:
        """Make one change of each resource. All of them are of one kind."""
        await asyncio.gather(
            *(self._reports.change_started(work.member, work.changes[number]) for work in works)
        )
        items = [ResourceChange(work.resource, work.changes[number]) for work in works]
        errors = await self._apply(works[0].member.handler, client, items)
        for work, (_, change), error in zip(works, items, errors, strict=True):
            if error is None:
                self._reports.change_done(work.member, change)
                work.changed.append(change)
                work.member.pending_status |= work.member.handler.status_after(change)
                continue
            if isinstance(error, AdminError):
                await self._reports.change_failed(work.member, change, error)
            self._fail(work, error)

    async def _apply(
        self, handler: KindHandler, client: AdminClient, items: Sequence[ResourceChange]
    ) -> Sequence[Exception | None]:
        """Return what failed, by change. Changes of which one meets a fault of the operator are made one by one."""
        try:
            return await handler.apply(client, items)
        except Exception as error:
            if len(items) == 1:
                return [error]
        return [error for item in items for error in await self._apply(handler, client, [item])]

    def _fail(self, work: Work, error: Exception) -> None:
        """Store why a resource can't be changed further in this pass."""
        if isinstance(error, ApiError):
            is_closing = error.is_of_terminating_namespace
            code = NAMESPACE_TERMINATING if is_closing else API_SERVER
            work.failure = Failure(code=code, message=str(error), is_retried=not is_closing)
            return
        if not isinstance(error, AdminError):
            self._fault(work.member, error)
        work.failure = self._failure_of(work.member, error)

    async def _finish(self, work: Work) -> None:
        """Report what failed, and decide when the resource is due again."""
        member, failure = work.member, work.failure
        result = replace(work.result, failure=failure)
        if failure is not None:
            member.failures_in_a_row += 1
            await self._reports.write_failure(member, result)
            if failure.is_fault:
                member.fault = failure.message
                await self._reports.warn(member, OPERATOR_FAULT, failure.message)
        else:
            member.failures_in_a_row = 0
        self._rest(member, self._rest_ms(member, result, has_changed=bool(work.changed)))
        work.is_finished = True

    def _fault(self, member: Member, error: Exception) -> None:
        self._shared.fault(member.label, error, (member.metric_labels,))

    def _failure_of(self, member: Member, error: Exception) -> Failure:
        return failure_of(error, is_first=member.failures_in_a_row + 1 < STALLED_AFTER_FAILURES)

    def _rest_ms(self, member: Member, result: EntityResult, *, has_changed: bool) -> int:
        if result.failure is not None and (result.failure.is_retried or has_changed):
            return self._requeue_policy.after_failures(max(1, member.failures_in_a_row))
        if result.is_paused or result.failure is not None:
            return self._requeue_policy.asleep_ms
        if has_changed or (result.plan is not None and result.plan.continues):
            return self._requeue_policy.working_ms
        return (
            WAITING_MS if result.plan is not None and result.plan.waits else self._requeue_policy.settled_ms
        )

    async def _loaded(self, member: Member) -> Work | None:
        """Return the resource; None if it is invalid or not allowed, which is reported."""
        member.is_admitted = False
        reason, message = NOT_ALLOWED, self._targets.refusal_of(member.body)
        try:
            served = read_entity(member.body, f"namespace {member.namespace}")
        except ManifestError as error:
            reason, message = INVALID_MANIFEST, str(error)
        if message is not None:
            if is_deleted(member.body):
                await self._let_go(member, f"nothing was deleted: {message}")
                return None
            failure = Failure(code=reason, message=message, is_retried=False)
            await self._reports.write_failure(member, EntityResult(failure=failure))
            if reason == NOT_ALLOWED:
                await self._reports.warn(member, reason, message)
            self._rest(member, self._requeue_policy.asleep_ms)
            return None
        member.unknown = served.unknown
        await self._reports.record_unknown_fields(member)
        return Work(member=member, resource=served.resource, name=member.handler.name_of(served.resource))

    def _rest(self, member: Member, rest_ms: int) -> None:
        """Set when a resource is due again, with jitter, so that targets are not due at the same time.

        One that was settled may be taken earlier. Others rest for the whole time, which may be a back-off.
        """
        now_ms = self._now_ms()
        member.due_ms = now_ms + round(rest_ms * random.uniform(1 - JITTER, 1))
        settled_ms = self._requeue_policy.settled_ms
        early_ms = round(settled_ms * EARLY_FRACTION) if rest_ms >= settled_ms else 0
        member.early_ms = max(now_ms + 1, member.due_ms - early_ms)

    async def _client_of(self, config: AdminConfig) -> AdminClient:
        if self._client is None or self._client[0] != config:
            await self._close_client()
            self._client = config, self._make_client(config)
        return self._client[1]

    async def _close_client(self) -> None:
        client, self._client = self._client, None
        if client is not None:
            await client[1].close()

    async def _let_go(self, member: Member, note: str | None) -> None:
        """Allow a deleted resource to be removed; `note` says that nothing was deleted in Kafka."""
        if note is not None:
            await self._reports.warn(member, NOTHING_DELETED, note)
        member.is_cleared = True
        self._claims.release(member.uid)
        self._cleared.set()

    def _count(self, due: Iterable[Member], duration_s: float) -> None:
        kinds: dict[tuple[str, str], list[Member]] = {}
        for member in due:
            kinds.setdefault(member.metric_labels, []).append(member)
        for (kind, namespace), members in kinds.items():
            has_failed = bool(self._failures_in_a_row) or any(member.failures_in_a_row for member in members)
            self._shared.metrics.count_pass(kind, namespace, duration_s, has_failed=has_failed)
