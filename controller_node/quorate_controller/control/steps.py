"""Decisions and reads in steps of one budget, so that every turn of a controller is short.

A handler whose work depends on the size of its request, or of the cluster, is a generator:

- `yield None` when the budget is spent: other events come before its next step;
- `yield` a `ControlResult`: a part of the decision is complete. The node replays it and appends it as a batch of its
  own, so that the next step, and other decisions in between, see it (`Parts` collects the records);
- `return` the response of a read, or a `ControlResult` with the last records and the response.

A part is atomic: a topic with its partitions, the configs of a resource, a client quota. Different parts succeed or
fail alone, like their entries in the response: after a leader change in between, the first parts remain, and the
client gets NOT_CONTROLLER and may retry. Each step looks up the state again, since the image may have changed.

`StepBudget` bounds a step. An indivisible piece of work may exceed it: the largest is a topic with 10,000
partitions.
"""

from collections.abc import Generator
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from quorate_controller.control.api import ControlResult, check_number_of_records

if TYPE_CHECKING:
    from collections.abc import Collection

    from quorate_protocol.records.framing import MetadataRecord

LOOK: Final = 1
"""The work of examining an object, below a microsecond: the unit of `StepBudget`."""

ITEM: Final = 10
"""The work of checking an item of a request and adding its result to the response."""

RECORD: Final = 20
"""The work of a record, with its encoding, its replay and its part of the batch."""

STEP_WORK_MAX: Final = 10_000
"""The work of a step: 500 records, 1,000 items or 10,000 looks, some 10 milliseconds each."""

BYTES_PER_LOOK: Final = 100
"""Bytes of long texts in a record that count as one unit: a part with long texts must fit a batch, too."""

Steps = Generator[ControlResult | None, None, Any]


def text_work(*texts: str | None) -> int:
    """Return the work of writing these texts."""
    return sum(len(text) for text in texts if text) // BYTES_PER_LOOK


class StepBudget:
    """The work that is left in the present step."""

    def __init__(self) -> None:
        self._left = STEP_WORK_MAX

    def spend(self, work: int) -> bool:
        """Add to the work of the step. Returns True if the step is over; the next step begins then."""
        self._left -= work
        if self._left > 0:
            return False
        self._left = STEP_WORK_MAX
        return True


def work_of(result: ControlResult) -> int:
    """Return the work of a decision so far: a whole step if it has more steps, else that of its records."""
    return STEP_WORK_MAX if result.has_begun else ITEM + RECORD * len(result.records)


class Parts:
    """The records of a decision in steps: each step returns its new records as one part."""

    def __init__(self, *, is_dry: bool = False, atomic: bool = True, is_checked: bool = False) -> None:
        """With `is_dry` nothing is written; with `is_checked` the number of records is bounded."""
        self._is_dry = is_dry
        self._atomic = atomic
        self._is_checked = is_checked
        self._budget = StepBudget()
        self._records: list[MetadataRecord] = []
        self.count = 0
        """The number of all records so far."""

    @classmethod
    def checking(cls) -> "Parts":
        """Return parts that are counted and not written.

        A request with too many records is refused as a whole. The same steps run twice: to count the records, and
        to write them.
        """
        return cls(is_dry=True, is_checked=True)

    def add(self, records: "Collection[MetadataRecord]", work: int = ITEM) -> bool:
        """Add the records of an item of the request. Returns True if the step is over: then yield `pop()`.

        Raises:
            ControlError: POLICY_VIOLATION for more than 10,000 records where they are checked.
        """
        self.count += len(records)
        if self._is_checked:
            check_number_of_records(self.count)
        if not self._is_dry:
            self._records += records
        return self._budget.spend(work + RECORD * len(records))

    def pop(self) -> ControlResult | None:
        """Remove and return the completed part; None if it has no records."""
        records, self._records = tuple(self._records), []
        return ControlResult(records=records, atomic=self._atomic) if records else None

    def last(self, response: Any) -> ControlResult:
        """Return the last part, with the response."""
        return ControlResult(records=tuple(self._records), atomic=self._atomic, response=response)


def begun(steps: Steps) -> ControlResult:
    """Run the first step of a decision. Most decisions have no other."""
    try:
        first = next(steps)
    except StopIteration as ended:
        result: ControlResult = ended.value
        return result
    return replace(first or ControlResult(), steps=steps, has_begun=True)
