"""The periodic tasks of the active controller."""

from collections.abc import Callable
from typing import Final

from quorate_protocol.plain_data import dataclass
from quorate_protocol.records.generated import NoOpRecord

from quorate_controller.control.api import STEP_PAUSE_MS, ControlConfig, ControlResult
from quorate_controller.control.delegation_tokens import DelegationTokenManager
from quorate_controller.control.elections import Elections

Step = Callable[[int], tuple[ControlResult, bool]]
"""Does a bounded part of a task, given the time; True when it has more to do."""

NO_OP: Final = (ControlResult(records=(NoOpRecord(),)), False)


@dataclass(slots=True)
class _Task:
    interval_ms: int
    step: Step
    due_ms: int = 0


class Schedule:
    """Periodic tasks, each due one interval after it was last done.

    The NoOpRecords make the high watermark move, so that everybody learns that the cluster is alive
    (KIP-835).
    """

    def __init__(self, config: ControlConfig, elections: Elections, tokens: DelegationTokenManager) -> None:
        self._tasks = [
            _Task(config.unclean_election_check_interval_ms, lambda _: elections.elect_unclean_leaders())
        ]
        if config.max_idle_interval_ms > 0:
            self._tasks.append(_Task(config.max_idle_interval_ms, lambda _: NO_OP))
        if config.leader_imbalance_check_enable:
            self._tasks.append(
                _Task(config.leader_imbalance_check_interval_ms, lambda _: elections.balance_leaders())
            )
        if config.delegation_token_secret is not None:
            self._tasks.append(_Task(config.delegation_token_expiry_check_interval_ms, tokens.sweep))

    def start(self, now_ms: int) -> None:
        """Begins the first interval of each task."""
        for task in self._tasks:
            task.due_ms = now_ms + task.interval_ms

    @property
    def deadline_ms(self) -> int:
        """When the next task is due."""
        return min(task.due_ms for task in self._tasks)

    def run_one(self, now_ms: int) -> ControlResult | None:
        """Runs the task that has been due longest, or a step of it. Returns None if there is nothing to write."""
        task = min(self._tasks, key=lambda task: task.due_ms)
        if task.due_ms > now_ms:
            return None
        result, has_more = task.step(now_ms)
        task.due_ms = now_ms + (STEP_PAUSE_MS if has_more else task.interval_ms)
        return result if result.records else None
