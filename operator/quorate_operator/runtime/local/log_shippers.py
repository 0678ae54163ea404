"""Ships the logs of played controllers: one process for each running one, if the manifest has a history."""

import asyncio
import signal
from collections.abc import Callable

from quorate_operator.planning.cluster import Role
from quorate_operator.runtime.local.child_process import ChildProcess
from quorate_operator.runtime.local.layout import QUORATE, Layout

INTERVAL = "5s"
STOP_GRACE_MS = 5_000


class Shippers:
    """The processes by node id. `wake` is called whenever one has ended."""

    def __init__(self, wake: Callable[[], None]) -> None:
        self._wake = wake
        self._processes: dict[int, ChildProcess] = {}

    def run(self, layout: Layout, running: frozenset[int]) -> None:
        """Starts missing processes, ends the others, and trims their logs. Raises OSError.

        Active segments are shipped, too, so that the history is up to date at once.
        """
        wanted = {
            node_id: Role.CONTROLLER.label(node_id)
            for node_id in running
            if layout.desired.keeps_history and layout.identity.nodes[node_id].role is Role.CONTROLLER
        }
        for node_id, process in list(self._processes.items()):
            if not process.runs:
                del self._processes[node_id]
            elif node_id not in wanted:
                process.send_signal(signal.SIGTERM)
            else:
                process.trim_log()
        for node_id, label in wanted.items():
            if node_id not in self._processes:
                self._processes[node_id] = self._start(layout, label)

    async def close(self) -> None:
        """Ends all of them. Raises PlayError."""
        await asyncio.gather(*(process.stop(STOP_GRACE_MS) for process in self._processes.values()))

    def _start(self, layout: Layout, label: str) -> ChildProcess:
        command = [*QUORATE, "controller", "ship", "--follow", "--interval", INTERVAL, "--include-active"]
        command += [
            "--log-dir",
            str(layout.directory.node_data(label)),
            "--to",
            str(layout.directory.history),
        ]
        return ChildProcess.start(
            command,
            directory=layout.directory.path,
            log=layout.directory.ship_log(label),
            on_exit=self._wake,
        )
