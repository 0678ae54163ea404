"""The budget of a step is that of the next one, too."""

from quorate_controller.control.steps import ITEM, RECORD, STEP_WORK_MAX, Parts, StepBudget
from quorate_protocol.records.generated import NoOpRecord


def test_each_step_has_the_same_budget() -> None:
    """A large decision takes as few turns as it may."""
    budget = StepBudget()
    ends = [work for work in range(1, 3 * STEP_WORK_MAX + 1) if budget.spend(1)]
    assert ends == [STEP_WORK_MAX, 2 * STEP_WORK_MAX, 3 * STEP_WORK_MAX]


def test_parts_share_the_records_among_them() -> None:
    parts = Parts()
    per_step = -(-STEP_WORK_MAX // (ITEM + RECORD))
    taken = [parts.pop() for _ in range(3 * per_step) if parts.add([NoOpRecord()])]
    assert [len(part.records) for part in taken if part is not None] == [per_step] * 3
    assert parts.last(None).records == ()
    assert parts.pop() is None
