"""Long work in slices, so that turns stay short."""

from collections.abc import Callable, Generator
from typing import Final, TypeVar

STEPS_PER_SLICE_MAX: Final = 16
"""The most steps of a slice on a fast machine, or with a clock that stands still."""

_Result = TypeVar("_Result")


def run_slice(
    steps: Generator[object, None, _Result], clock: Callable[[], int], slice_ms: int
) -> _Result | None:
    """Do the next steps, until one ends `slice_ms` after the first began.

    Returns:
        The result of the work, or None while more steps are left.
    """
    begun_ms = clock()
    try:
        for _ in range(STEPS_PER_SLICE_MAX):
            next(steps)
            if clock() - begun_ms >= slice_ms:
                break
    except StopIteration as ended:
        result: _Result = ended.value
        return result
    return None
