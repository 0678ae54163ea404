"""An event loop in a thread of its own, for tests that are not asynchronous themselves."""

import asyncio
import threading
from collections.abc import Coroutine
from typing import Any, TypeVar

STEP_TIMEOUT_S = 10

_Result = TypeVar("_Result")


class LoopThread:
    """Runs coroutines for other threads until it is closed."""

    def __init__(self, name: str) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name=name, daemon=True)
        self._thread.start()

    def do(self, step: Coroutine[Any, Any, _Result]) -> _Result:
        """The result of a step, within STEP_TIMEOUT_S."""
        return asyncio.run_coroutine_threadsafe(step, self._loop).result(STEP_TIMEOUT_S)

    def close(self) -> None:
        """End the loop once its tasks have ended by themselves: a connection that was just accepted is one, too."""
        try:
            self.do(_tasks_ended())
        finally:
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join(STEP_TIMEOUT_S)
            assert not self._thread.is_alive()
            self._loop.close()


async def _tasks_ended() -> None:
    this = asyncio.current_task()
    while others := asyncio.all_tasks() - {this}:
        await asyncio.wait(others)
    await asyncio.sleep(0)  # the last ones have closed connections: their transports end in the next turn
