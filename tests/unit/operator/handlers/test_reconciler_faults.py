"""Faults of the operator: the reconcile of the cluster is restarted, and the fault is reported."""

import asyncio
from types import SimpleNamespace
from typing import Any, cast

import pytest
from kit.reconciles import filled, shared_parts
from kit.waiting import HANG_S
from prometheus_client import generate_latest
from quorate_operator.handlers import reconciler as reconciler_module
from quorate_operator.handlers.reconciler import ClusterReconciler
from quorate_operator.runtime.loop import PassResult, RequeuePolicy
from quorate_operator.web.snapshots import ClusterKey

KEY = ClusterKey("kafka", "quorum")
FAULTS_TOTAL = b'quorate_reconcile_faults_total{kind="KafkaController",namespace="kafka"} 2.0'


class Bench:
    """A reconciler whose loop does as the test says."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(
            reconciler_module,
            "REQUEUE_POLICY",
            RequeuePolicy(working_ms=0, settled_ms=0, asleep_ms=0, retry_ms_min=0, retry_ms_max=0),
        )
        self.is_closed = False
        self.shared = shared_parts()
        runtime = SimpleNamespace(close=self._close)
        self.reconciler = ClusterReconciler(
            KEY, self.shared, cast("Any", runtime), cast("Any", None), fill=filled
        )
        self._faults: list[Exception] = []
        self.runs = 0
        self.is_running = asyncio.Event()
        monkeypatch.setattr(self.reconciler, "_loop", SimpleNamespace(run=self._run))

    def metrics(self) -> bytes:
        return generate_latest(self.shared.metrics.registry)

    async def _close(self) -> None:
        self.is_closed = True

    def fail_with(self, *errors: Exception) -> None:
        """Have the loop end by these errors, one after the other, and then continue."""
        self._faults = list(errors)

    async def _run(self) -> None:
        self.runs += 1
        if self._faults:
            raise self._faults.pop(0)
        self.is_running.set()
        await asyncio.get_running_loop().create_future()


async def test_a_loop_that_a_fault_ended_begins_again(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    bench = Bench(monkeypatch)
    bench.fail_with(ValueError("no such field"), RuntimeError("twice"))
    task = asyncio.create_task(bench.reconciler.run())
    async with asyncio.timeout(HANG_S):
        await bench.is_running.wait()
    assert bench.runs == 3
    assert FAULTS_TOTAL in bench.metrics()
    assert [str(record.exc_info[1]) for record in caplog.records if record.exc_info] == [
        "no such field",
        "twice",
    ]
    (note,) = bench.shared.liveness.notes()
    assert note == f"{KEY}: a fault of the operator, see its log: RuntimeError"
    assert bench.shared.liveness.fault() is None
    await bench.reconciler.finished(PassResult())
    assert bench.shared.liveness.notes() == []
    task.cancel()
    await asyncio.wait([task])
    assert bench.is_closed


async def test_a_fault_in_a_pass_is_counted_and_its_text_stays_in_the_log(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """An unforeseen error may quote a secret."""
    bench = Bench(monkeypatch)
    await bench.reconciler.finished(PassResult(error=ValueError("hunter2"), failures_in_a_row=1))
    assert FAULTS_TOTAL.replace(b"2.0", b"1.0") in bench.metrics()
    snapshot = bench.shared.snapshots.find(KEY)
    assert snapshot is not None
    assert snapshot.problem == "a fault of the operator, see its log: ValueError"
    assert bench.shared.liveness.notes() == [f"{KEY}: {snapshot.problem}"]
    assert "hunter2" in caplog.text


def test_the_pause_grows_with_faults_in_a_row() -> None:
    rests = [reconciler_module.REQUEUE_POLICY.after_failures(number) for number in (1, 2, 3, 7, 100)]
    assert rests == [1_000, 2_000, 4_000, 60_000, 60_000]
