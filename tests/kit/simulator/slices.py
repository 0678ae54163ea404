"""Slices so small that each long work takes many of them, as in production only where a cluster is large.

While slices are this small a turn takes a moment of simulated time, so that others come in between.
"""

from __future__ import annotations

from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, Final
from unittest import mock

from quorate_controller.control import broker_transitions, elections, steps
from quorate_controller.node import metadata, request_processor, slices

if TYPE_CHECKING:
    from collections.abc import Iterator

LIMITS: Final = (
    (broker_transitions, "CHANGES_PER_SLICE_MAX", 2),
    (broker_transitions, "PARTITIONS_PER_SLICE_MAX", 5),
    (broker_transitions, "STEP_PAUSE_MS", 20),
    (elections, "ELECTIONS_PER_PASS_MAX", 2),
    (elections, "EXAMINED_PER_STEP_MAX", 5),
    (metadata, "REPLAY_READ_BYTES", 300),
    (request_processor, "STEPS_PER_SLICE_MAX", 1),
    (slices, "STEPS_PER_SLICE_MAX", 1),
    (steps, "STEP_WORK_MAX", 50),
)
"""Module, name and value. A limit that is renamed fails here."""
TURN_MS: Final = 5


@contextmanager
def small_slices(*, enabled: bool) -> Iterator[None]:
    """Apply the limits for as long as it lasts."""
    with ExitStack() as stack:
        for module, name, value in LIMITS if enabled else ():
            stack.enter_context(mock.patch.object(module, name, value))
        yield
