"""Decisions and reads in steps of one budget, so that every turn of a controller is short.

A handler whose work depends on the size of its request, or of the cluster, is a generator:

- `yield None` after it has looked at much: the events of others come before its next step;
- `yield` a `ControlResult`: a part of the decision is complete. The node replays it and appends it as a batch of its
  own, so that the next step, and the decisions of others in between, see it (`Parts` collects the records);
- `return` the response of a read, or a `ControlResult` with the last records and the response.

What shares a part is written as a whole or not at all: a topic with its partitions, the configs of a resource, a
client quota. What belongs to different parts succeeds or fails alone, like its entry in the response: a leader that
is deposed in between leaves the first parts behind, and its client gets NOT_CONTROLLER and may ask again. Nothing
that a step has found out is valid in the next one, unless it is looked up again.

`StepBudget` says when a step is over. One piece of work that cannot be divided may exceed it: the largest is a topic
with 10,000 partitions.
"""

from collections.abc import Generator
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from quorate_controller.control.api import ControlResult, check_number_of_records

if TYPE_CHECKING:
    from collections.abc import Collection

    from quorate_protocol.records.framing import MetadataRecord

LOOK: Final = 1
"""The work of looking at a thing, below a microsecond: the unit of `StepBudget`."""

ITEM: Final = 10
"""The work of checking an item of a request and adding its result to the response."""

RECORD: Final = 20
"""The work of a record, with its encoding, its replay and its part of the batch."""

STEP_WORK_MAX: Final = 10_000
"""The work of a step: 500 records, 1,000 items or 10,000 looks, some 10 milliseconds each."""

BYTES_PER_LOOK: Final = 100
"""Bytes of text that a record has beyond its usual ones: a part of long texts must fit a batch, too."""

Steps = Generator[ControlResult | None, None, Any]


def text_work(*texts: str | None) -> int:
    """Return the work of writing these texts."""
    return sum(len(text) for text in texts if text) // BYTES_PER_LOOK


class StepBudget:
    """The work that is left in the present step."""

    def __init__(self) -> None:
        self._left = STEP_WORK_MAX

    def spend(self, work: int) -> bool:
        """Note that this much was done. Returns True if the step is over; the next one begins then."""
        self._left -= work
        if self._left > 0:
            return False
        self._left = STEP_WORK_MAX
        return True


def work_of(result: ControlResult) -> int:
    """Return the work of a decision so far: a whole step if there are more of them, else that of its records."""
    return STEP_WORK_MAX if result.has_begun else ITEM + RECORD * len(result.records)


class Parts:
    """The records of a decision, which its steps find: each step hands over those that are new, as one part."""

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

        A request that takes too many records is refused as a whole, so that they are counted before the first part
        is written: by the same steps, which are taken twice.
        """
        return cls(is_dry=True, is_checked=True)

    def add(self, records: "Collection[MetadataRecord]", work: int = ITEM) -> bool:
        """Add what an item of the request writes. Returns True if the step is over: then yield `take()`.

        Raises:
            ControlError: POLICY_VIOLATION for more than 10,000 records where they are checked.
        """
        self.count += len(records)
        if self._is_checked:
            check_number_of_records(self.count)
        if not self._is_dry:
            self._records += records
        return self._budget.spend(work + RECORD * len(records))

    def take(self) -> ControlResult | None:
        """Return the part that is complete; None if it has no records."""
        records, self._records = tuple(self._records), []
        return ControlResult(records=records, atomic=self._atomic) if records else None

    def last(self, response: Any) -> ControlResult:
        """Return the last part, with the response."""
        return ControlResult(records=tuple(self._records), atomic=self._atomic, response=response)


def begun(steps: Steps) -> ControlResult:
    """Take the first step of a decision. Most decisions have no other."""
    try:
        first = next(steps)
    except StopIteration as ended:
        result: ControlResult = ended.value
        return result
    return replace(first or ControlResult(), steps=steps, has_begun=True)
