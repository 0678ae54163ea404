"""A Lease, which at most one process holds.

Each process measures with its own clock how long the Lease has been unchanged, so clocks may differ. A process that
takes over waits the whole duration once.
"""

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from datetime import UTC, datetime

from quorate_operator.runtime.kubernetes.api import LEASE, ApiError, KubernetesApi, Object

TRIES_PER_DURATION = 4

log = logging.getLogger(__name__)


class LeaseLostError(Exception):
    """Another process may hold the Lease by now."""


class Lease:
    """One holder's view of a Lease. Others may acquire it `duration_s` after its last renewal."""

    def __init__(
        self,
        api: KubernetesApi,
        namespace: str,
        name: str,
        holder: str,
        *,
        duration_s: int = 15,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._api = api
        self._namespace = namespace
        self._name = name
        self._holder = holder
        self._duration_s = duration_s
        self._clock = clock
        self._seen: tuple[str, float] | None = None
        self._held_until = -1.0
        self._mine: Object | None = None
        self._problem = ""
        self._users = 0
        """How many contexts of this process hold it together."""
        self._changing_users = asyncio.Lock()

    @property
    def is_held(self) -> bool:
        return self._clock() < self._held_until

    async def try_acquire(self) -> bool:
        """Acquire or renew it if it is free, ours, or was not renewed for its duration. Raises ApiError."""
        started = self._clock()
        # The holder caches the object, so that a renewal is one request.
        current = self._mine or await self._api.get(LEASE, self._namespace, self._name)
        self._mine = None
        try:
            if current is None:
                self._mine = await self._api.create(LEASE, self._namespace, self._object(None))
            elif self._may_acquire(current):
                self._mine = await self._api.replace(LEASE, self._namespace, self._object(current))
            else:
                return False
        except ApiError as error:
            if error.is_conflict or error.is_missing:  # another process was faster
                return False
            raise
        self._held_until = started + self._duration_s
        return True

    async def release(self) -> None:
        """Release it at once. Errors are ignored: it expires."""
        self._held_until = -1.0
        self._mine = None
        try:
            async with asyncio.timeout(self._duration_s / 2):
                current = await self._api.get(LEASE, self._namespace, self._name)
                if current is not None and current["spec"].get("holderIdentity") == self._holder:
                    current["spec"]["holderIdentity"] = ""
                    await self._api.replace(LEASE, self._namespace, current)
        except (ApiError, TimeoutError):
            return

    async def acquire(self) -> None:
        """Wait until it is held. Raises ApiError if its namespace is being deleted."""
        while not await self._try_quietly():  # noqa: ASYNC110 - the other holder is another process
            await asyncio.sleep(self._duration_s / TRIES_PER_DURATION)

    async def renew(self) -> None:
        """Renew it until cancelled. Raises LeaseLostError as soon as another process may hold it."""
        async with self._while_held():
            await asyncio.Event().wait()

    @asynccontextmanager
    async def held(self, timeout_s: float) -> AsyncIterator[None]:
        """Hold it while the context is open: renews it, and cancels the context as soon as it is lost.

        Contexts of one process may hold it together. The last one releases it.

        Raises:
            LeaseLostError: it can't be acquired in time, or was lost.
            ApiError: its namespace is being deleted.
        """
        try:
            async with asyncio.timeout(timeout_s), self._changing_users:
                if not (self._users and self.is_held):
                    await self.acquire()
                self._users += 1
        except TimeoutError:
            raise LeaseLostError(
                f"the Lease {self._namespace}/{self._name} is held by another process"
            ) from None
        try:
            async with self._while_held():
                yield
        finally:
            self._users -= 1
            async with self._changing_users:
                if not self._users:
                    await self.release()

    @asynccontextmanager
    async def _while_held(self) -> AsyncIterator[None]:
        """Renew it while the context is open. If it expires, cancel the context. Raises LeaseLostError."""
        try:
            async with asyncio.timeout(self._remaining_s()) as scope:
                renewing = asyncio.create_task(self._extend(scope))
                try:
                    yield
                finally:
                    renewing.cancel()
        except TimeoutError as error:
            if not scope.expired():
                raise
            raise LeaseLostError(
                f"the Lease {self._namespace}/{self._name} could not be renewed in time"
            ) from error

    async def _extend(self, scope: asyncio.Timeout) -> None:
        """Move the end of a context with each renewal, until it can't be renewed in its namespace any more."""
        with suppress(ApiError):
            while True:
                await asyncio.sleep(self._duration_s / TRIES_PER_DURATION)
                # Another context may have renewed it meanwhile.
                is_due = self._remaining_s() < self._duration_s * (1 - 1 / TRIES_PER_DURATION / 2)
                if (not is_due or await self._try_quietly()) and not scope.expired():
                    scope.reschedule(asyncio.get_running_loop().time() + self._remaining_s())

    def _remaining_s(self) -> float:
        return max(0.0, self._held_until - self._clock())

    async def _try_quietly(self) -> bool:
        """Try it; a failure counts as not held. Equal failures in a row are logged once.

        Raises ApiError if its namespace is being deleted.
        """
        try:
            async with asyncio.timeout(self._duration_s / 2):
                is_held = await self.try_acquire()
        except (ApiError, TimeoutError) as error:
            if isinstance(error, ApiError) and error.is_of_terminating_namespace:
                raise  # it will never be there
            problem = str(error) or f"no response in {self._duration_s / 2:g} s"
            if problem != self._problem:
                log.warning("the Lease %s/%s can't be acquired: %s", self._namespace, self._name, problem)
            self._problem = problem
            return False
        self._problem = ""
        return is_held

    def _may_acquire(self, current: Object) -> bool:
        spec = current.get("spec", {})
        if spec.get("holderIdentity") in (None, "", self._holder):
            return True
        version = current["metadata"]["resourceVersion"]
        if self._seen is None or self._seen[0] != version:
            self._seen = version, self._clock()
        duration_s = spec.get("leaseDurationSeconds") or self._duration_s
        return self._clock() - self._seen[1] > duration_s

    def _object(self, current: Object | None) -> Object:
        now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
        before = (current or {}).get("spec", {})
        is_same = before.get("holderIdentity") == self._holder
        return {
            "apiVersion": LEASE.api_version,
            "kind": LEASE.name,
            "metadata": current["metadata"] if current else {"name": self._name},
            "spec": {
                "holderIdentity": self._holder,
                "leaseDurationSeconds": self._duration_s,
                "acquireTime": before.get("acquireTime", now) if is_same else now,
                "renewTime": now,
                "leaseTransitions": before.get("leaseTransitions", 0) + (0 if is_same else 1),
            },
        }
