"""How long a Lease is held: it is renewed, and what depends on it ends in time when that fails."""

import asyncio
import gc
from collections.abc import Awaitable, Callable
from typing import Any, cast

import pytest
from quorate_operator.runtime.kubernetes.api import ApiError, Kind
from quorate_operator.runtime.kubernetes.leases import Lease, LeaseLostError

DURATION_S = 16


class _VirtualTime(asyncio.SelectorEventLoop):
    """A loop whose time is that of the next timer, so that nothing is waited for."""

    def __init__(self) -> None:
        self._now = 0.0
        super().__init__()

    def time(self) -> float:
        return self._now

    def _run_once(self) -> None:
        if not self._ready and self._scheduled:  # type: ignore[attr-defined]
            self._now = max(self._now, self._scheduled[0].when())  # type: ignore[attr-defined]
        super()._run_once()  # type: ignore[misc]


class _Api:
    """Has one Lease. From `silent_s` on it does not answer."""

    def __init__(self, silent_s: float = float("inf")) -> None:
        self.silent_s = silent_s
        self.lease: dict[str, Any] | None = None
        self.renewals = 0

    def is_terminating(self, _namespace: str) -> bool:
        return False

    async def get(self, _kind: Kind, _namespace: str, _name: str) -> dict[str, Any] | None:
        await self._respond()
        return self.lease

    async def create(self, _kind: Kind, _namespace: str, body: dict[str, Any]) -> dict[str, Any]:
        return await self.replace(_kind, _namespace, body)

    async def replace(self, _kind: Kind, _namespace: str, body: dict[str, Any]) -> dict[str, Any]:
        await self._respond()
        self.renewals += 1
        self.lease = {**body, "metadata": {"name": "lease", "resourceVersion": f"{self.renewals}"}}
        return self.lease

    async def _respond(self) -> None:
        if asyncio.get_running_loop().time() >= self.silent_s:
            await asyncio.Event().wait()


def _run(work: Callable[[Lease], Awaitable[None]], api: _Api) -> float:
    """Run some work with a Lease. Returns how many seconds it took."""

    async def run() -> float:
        loop = asyncio.get_running_loop()
        await work(Lease(cast("Any", api), "kafka", "lease", "me", duration_s=DURATION_S, clock=loop.time))
        return loop.time()

    with asyncio.Runner(loop_factory=_VirtualTime) as runner:
        return runner.run(run())


@pytest.mark.parametrize("silent_s", [0.5, 5.0, 13.0])
def test_a_leader_ends_when_its_lease_does(silent_s: float) -> None:
    async def lead(lease: Lease) -> None:
        await lease.acquire()
        with pytest.raises(LeaseLostError, match="could not be renewed in time"):
            await lease.renew()

    last_renewal_s = silent_s // (DURATION_S / 4) * (DURATION_S / 4)
    assert _run(lead, _Api(silent_s)) == pytest.approx(last_renewal_s + DURATION_S, abs=0.01)


def test_why_a_lease_can_not_be_taken_is_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    """A standby without rights, or without an API server, says so."""

    async def lead(lease: Lease) -> None:
        await lease.acquire()

    class Refusing(_Api):
        async def _respond(self) -> None:
            now_s = asyncio.get_running_loop().time()
            if now_s < 10:
                raise ApiError(403, "Forbidden", "leases is forbidden")
            if now_s < 20:
                await asyncio.Event().wait()

    assert _run(lead, Refusing()) >= 20
    assert [record.getMessage() for record in caplog.records] == [
        f"the Lease kafka/lease can't be acquired: {problem}"
        for problem in (ApiError(403, "Forbidden", "leases is forbidden"), "no response in 8 s")
    ]


def test_a_lease_is_renewed_for_a_step_that_takes_long() -> None:
    """A rebuild of minutes is done by one process alone."""
    api = _Api()

    async def work(lease: Lease) -> None:
        async with lease.held(1.0):
            for _ in range(20):
                await asyncio.sleep(DURATION_S)
                assert lease.is_held

    assert _run(work, api) == pytest.approx(20 * DURATION_S)
    assert api.renewals >= 20
    assert api.lease is not None
    assert api.lease["spec"]["holderIdentity"] == ""


def test_a_step_is_cancelled_when_its_lease_is_lost() -> None:
    ended: list[float] = []

    async def step(lease: Lease) -> None:
        async with lease.held(1.0):
            try:
                await asyncio.sleep(300)
            finally:
                ended.append(asyncio.get_running_loop().time())

    async def work(lease: Lease) -> None:
        with pytest.raises(LeaseLostError, match="could not be renewed in time"):
            await step(lease)

    _run(work, _Api(1.0))
    assert ended == [pytest.approx(DURATION_S, abs=0.01)]


def test_an_error_of_the_step_itself_stays_what_it_is() -> None:
    async def step(lease: Lease) -> None:
        async with lease.held(1.0):
            raise TimeoutError("of its own")

    async def work(lease: Lease) -> None:
        with pytest.raises(TimeoutError, match="of its own"):
            await step(lease)

    _run(work, _Api())


def test_steps_of_one_process_hold_a_lease_together() -> None:
    """Brokers are stopped at the same time, and the first that has ended does not free the others' Lease."""
    api = _Api()
    held: list[bool] = []

    async def work(lease: Lease) -> None:
        async def step(duration_s: float) -> None:
            async with lease.held(1.0):
                await asyncio.sleep(duration_s)
                held.append(lease.is_held)

        await asyncio.gather(*(step(place * DURATION_S) for place in range(10)))

    assert _run(work, api) == pytest.approx(9 * DURATION_S, abs=0.1)
    assert held == [True] * 10
    assert api.lease is not None
    assert api.lease["spec"]["holderIdentity"] == ""
    assert api.renewals < 9 * 4 + 9, "the renewals of one"


def test_a_lease_is_not_waited_for_in_a_namespace_that_is_being_deleted() -> None:
    class Terminating(_Api):
        async def create(self, _kind: Kind, _namespace: str, _body: dict[str, Any]) -> dict[str, Any]:
            raise ApiError(403, "Forbidden", "is being terminated", ["NamespaceTerminating"])

    async def work(lease: Lease) -> None:
        with pytest.raises(ApiError, match="is being terminated"):
            async with lease.held(60.0):
                pass

    assert _run(work, Terminating()) == 0


class _Ending(_Api):
    """Its namespace is being deleted: what is there can be changed, and nothing can be created."""

    def is_terminating(self, _namespace: str) -> bool:
        return True

    async def create(self, _kind: Kind, _namespace: str, _body: dict[str, Any]) -> dict[str, Any]:
        raise ApiError(403, "Forbidden", "is being terminated", ["NamespaceTerminating"])


def test_a_lease_that_is_there_is_renewed_in_a_namespace_that_is_being_deleted() -> None:
    """Brokers are stopped in order there, too."""
    api = _Ending()
    api.lease = {"metadata": {"name": "lease", "resourceVersion": "0"}, "spec": {}}

    async def work(lease: Lease) -> None:
        async with lease.held(1.0):
            await asyncio.sleep(20 * DURATION_S)
            assert lease.is_held

    assert _run(work, api) == pytest.approx(20 * DURATION_S)


def test_a_lease_that_is_deleted_with_its_namespace_expires() -> None:
    class Deleted(_Ending):
        async def replace(self, kind: Kind, namespace: str, body: dict[str, Any]) -> dict[str, Any]:
            if asyncio.get_running_loop().time() < DURATION_S:
                return await super().replace(kind, namespace, body)
            self.lease = None
            raise ApiError(404, "NotFound", "no such Lease")

    api = Deleted()
    api.lease = {"metadata": {"name": "lease", "resourceVersion": "0"}, "spec": {}}
    unwatched: list[dict[str, Any]] = []

    async def work(lease: Lease) -> None:
        asyncio.get_running_loop().set_exception_handler(lambda _, context: unwatched.append(context))
        with pytest.raises(LeaseLostError, match="could not be renewed in time"):
            async with lease.held(1.0):
                await asyncio.sleep(20 * DURATION_S)
        gc.collect()

    last_renewal_s = DURATION_S * 3 / 4
    assert _run(work, api) == pytest.approx(last_renewal_s + DURATION_S, abs=0.01)
    assert unwatched == []
