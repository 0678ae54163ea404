"""Whether the simulation finds a mistake that a test has planted."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final

from kit.simulator.invariants import InvariantViolation
from kit.simulator.scenario import run_seed

if TYPE_CHECKING:
    from collections.abc import Callable

    from kit.simulator.shape import Shape

log = logging.getLogger(__name__)

SEEDS_MAX: Final = 100


def first_violation(shape_of: Callable[[int], Shape], first: int = 1) -> InvariantViolation:
    """Run seeds until one breaks a promise. Raises AssertionError if none does.

    `first` saves time where the seed that finds the mistake is known. After a change of the code it is another one.
    """
    for seed in (*range(first, SEEDS_MAX + 1), *range(1, first)):
        try:
            run_seed(seed, shape_of(seed))
        except InvariantViolation as violation:
            log.info("found by %s with seed %d", violation.name, seed)
            return violation
    raise AssertionError(f"{SEEDS_MAX} seeds did not find the bug")
