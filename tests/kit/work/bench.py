"""Measures cases on an image: the work of each step with its encoding, replay and batch, and of the undo."""

from __future__ import annotations

import gc
import math
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from random import Random
from typing import TYPE_CHECKING, Any, Final

from kit.controller_parts import LoneQuorum
from kit.work.counter import Stopwatch, WorkCounter, visible
from kit.work.large_image import SENDER, Size, build
from kit.work.requests_of_apis import TOKEN_SECRET, Case, Place, Run
from quorate_controller.control.api import ControlConfig, ControlError, ControlResult, RequestContext
from quorate_controller.control.controller import QuorumController
from quorate_controller.node.metadata import MetadataState
from quorate_controller.process import GC_THRESHOLDS
from quorate_controller.security.access import RestrictedAccess
from quorate_controller.security.authorizer import Authorizer
from quorate_protocol.image.image import RECORDS_PER_STEP

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from quorate_protocol.records.framing import MetadataRecord

NOW_MS: Final = 1_000_000
STEP_LINES_MAX: Final = 600_000
"""The budget of a step: some 20 to 30 milliseconds."""
INDIVISIBLE_LINES_MAX: Final = 7_000_000
"""The budget of what cannot be divided: a topic with 10,000 partitions takes some 200 milliseconds."""
LINEAR: Final = 1.35
"""Growth above this exponent is more than linear. A request that may have too many records takes its steps twice: 1.3
if a tenth of it does not.
"""
CONSTANT: Final = 0.25
"""Growth up to this exponent is ignored."""
UNDO_MAX: Final = 5
"""An undo may take this many times as many lines as what it undoes."""
ROUNDING: Final = 1_000
"""Lines that do not matter."""


@dataclass(frozen=True, slots=True)
class Measured:
    """The work of a request in lines, step by step, and of the undo of all that it wrote."""

    steps: tuple[int, ...]
    undo: int

    @property
    def total(self) -> int:
        return sum(self.steps)

    @property
    def longest(self) -> int:
        return max(self.steps)


class WorkBench:
    """The image of a cluster that is a share of the full size. Each request meets the same image."""

    def __init__(self, size: Size, counter: WorkCounter | Stopwatch) -> None:
        self.size = size
        self.image = build(size)
        self._authorizer = Authorizer(self.image)
        list(self._authorizer.acls.matching(0, ""))  # so that it has read all ACLs
        self._counter = counter
        self.place = Place(size, self.image)

    def decide(self, request: Any) -> Measured:
        """Decide on a request, replay it and undo it. A refusal of the whole request is a decision, too."""
        metadata, steps = self._active()
        context = RequestContext(
            now_ms=NOW_MS,
            next_offset=self.image.end_offset,
            api_version=type(request).__version__,
            principal=SENDER,
            forwarded=True,
            access=self._access(),
        )
        self._run_steps(metadata, lambda: metadata.control.decide(request, context), steps)
        return self._undone(steps)

    def run(self, case: Case, items: int) -> Measured:
        """Run a case with this many items."""
        made = case.make(self.place, items)
        match case.run:
            case Run.DECISION:
                return self.decide(made)
            case Run.REPLAY:
                return self.replay(made)
            case Run.TICK:
                return self.tick(made)

    def tick(self, prepare: Callable[[QuorumController], ControlResult | None]) -> Measured:
        """Do one thing that no request asks for."""
        metadata, steps = self._active()
        self._run_steps(metadata, lambda: prepare(metadata.control), steps)
        return self._undone(steps)

    def replay(self, records: Sequence[MetadataRecord]) -> Measured:
        """Replay records as a standby does, a step at a time, and undo them."""
        steps = []
        for start in range(0, len(records), RECORDS_PER_STEP):
            some = records[start : start + RECORDS_PER_STEP]
            self._counter.run(
                lambda some=some: self.image.replay_all(some, base_offset=self.image.end_offset)
            )
            steps.append(self._counter.counted)
        self.image.advance(end_offset=self.image.end_offset, epoch=2, timestamp_ms=NOW_MS)
        return self._undone(steps)

    def _active(self) -> tuple[MetadataState, list[int]]:
        control = self._control()
        control.activate(NOW_MS)
        return MetadataState(self.image, control, clock=lambda: NOW_MS), []

    def _control(self) -> QuorumController:
        config = ControlConfig(node_id=3000, cluster_id="cluster", delegation_token_secret=TOKEN_SECRET)
        return QuorumController(config, self.image, Random(1), LoneQuorum(), authorizer=self._authorizer)

    def _access(self) -> RestrictedAccess:
        return RestrictedAccess(
            self._authorizer,
            principal=SENDER,
            host="127.0.0.1",
            api="",
            audit=lambda _: None,
            audits_allowed=False,
        )

    def _run_steps(
        self, metadata: MetadataState, decide: Callable[[], ControlResult | None], counts: list[int]
    ) -> None:
        """Run all steps as a node does, and replay the records of each."""

        def first() -> ControlResult | None:
            return _write(metadata, decide())

        try:
            result = self._count(first, counts)
            steps = result.steps if result else None
            while steps is not None and self._count(lambda: _next(metadata, steps), counts):
                pass
        except ControlError:
            pass

    def _count(self, work: Callable[[], Any], counts: list[int]) -> Any:
        try:
            return self._counter.run(work)
        finally:
            counts.append(self._counter.counted)

    def _undone(self, steps: list[int]) -> Measured:
        self._counter.run(lambda: self.image.revert_to(self.image.committed_end_offset))
        return Measured(tuple(steps), self._counter.counted)


def _write(metadata: MetadataState, result: ControlResult | None) -> ControlResult | None:
    if result is None:
        return None
    start = 0
    for values in metadata.encode_decision(result):
        records = result.records[start : start + len(values)]
        metadata.apply_decision(records, values, metadata.image.end_offset, NOW_MS)
        metadata.pop_batch(2, NOW_MS)
        start += len(values)
    return result


def _next(metadata: MetadataState, steps: Any) -> bool:
    try:
        part = next(steps)
    except StopIteration as ended:
        if isinstance(ended.value, ControlResult):
            _write(metadata, ended.value)
        return False
    _write(metadata, part)
    return True


@contextmanager
def benches(share: float, *, timed: bool = False) -> Iterator[tuple[WorkBench, WorkBench]]:
    """An image that is a share of the full size, and one of a tenth of it; with `timed` for microseconds."""
    counter = Stopwatch() if timed else WorkCounter()
    thresholds = gc.get_threshold()
    gc.set_threshold(*GC_THRESHOLDS)
    gc.disable()
    try:
        large = WorkBench(Size().times(share), counter)
        small = WorkBench(Size().times(share / 10), counter)
        # As a controller does with what it has loaded.
        gc.freeze()
        gc.enable()
        with nullcontext() if timed else visible(large.image, small.image):
            yield large, small
    finally:
        gc.enable()
        gc.unfreeze()
        gc.set_threshold(*thresholds)


@dataclass(frozen=True, slots=True)
class Row:
    """What was measured of a case, and what is wrong with it."""

    case: Case
    items: int
    measured: Measured
    by_items: float | None
    """The exponent of the growth with the items of the request; None if it has one."""
    by_cluster: float
    """The exponent of the growth with the cluster."""

    @property
    def problems(self) -> list[str]:
        """What the case breaks."""
        found = []
        budget = INDIVISIBLE_LINES_MAX if self.case.indivisible else STEP_LINES_MAX
        if self.measured.longest > budget:
            found.append(f"a step of {self.measured.longest} lines, at most {budget}")
        if self.by_items is not None and self.by_items > LINEAR:
            found.append(f"grows with its items to the power of {self.by_items:.2f}")
        if self.measured.undo > UNDO_MAX * self.measured.total + ROUNDING:
            found.append(f"the undo of {self.measured.total} lines takes {self.measured.undo}")
        allowed = LINEAR if self.case.follows_cluster else CONSTANT
        if self.by_cluster > allowed:
            found.append(f"grows with the cluster to the power of {self.by_cluster:.2f}")
        return found


def measure(case: Case, large: WorkBench, small: WorkBench, share: float) -> Row:
    """Measure a case on both images, and with a tenth of its items."""
    items = max(1, int(case.items * share)) if case.items > 100 else case.items
    few = max(1, items // 10)
    for bench in (large, small):  # what is computed once in a process is no work of a request
        bench.run(case, 1)
    of_few = large.run(case, few)
    of_many = large.run(case, items) if items > 1 else of_few
    elsewhere = small.run(case, few)
    return Row(
        case,
        items,
        of_many,
        exponent(of_many.total, of_few.total, items / few) if items > 1 else None,
        exponent(of_few.total, elsewhere.total, 10),
    )


def exponent(larger: int, smaller: int, ratio: float) -> float:
    """The power of the growth from one number of lines to another where the size grew by a ratio."""
    return math.log(larger / max(smaller, 1)) / math.log(ratio)
