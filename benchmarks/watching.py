"""What a process and all that it starts take: memory, and processor time."""

from __future__ import annotations

import threading
from contextlib import suppress
from typing import Final

import psutil

SAMPLE_SECONDS: Final = 0.1


class Watch:
    """Looks at a process and its children until `stop`. A process that lives shorter than a sample is missed."""

    def __init__(self, pid: int) -> None:
        self.memory_bytes_max = 0
        """Of all processes together; pages that they share count once."""
        self._cpu: dict[tuple[int, float], tuple[str, float]] = {}
        self._process = psutil.Process(pid)
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._look, daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """End the watch."""
        self._stopped.set()
        self._thread.join()

    @property
    def cpu_seconds(self) -> float:
        """Of all processes, also those that have ended."""
        return sum(seconds for _, seconds in self._cpu.values())

    def cpu_seconds_of(self, program: str) -> float:
        """Of the processes of one program."""
        return sum(seconds for name, seconds in self._cpu.values() if name == program)

    def _look(self) -> None:
        while not self._stopped.wait(SAMPLE_SECONDS):
            memory_bytes = 0
            with suppress(psutil.Error):
                for each in (self._process, *self._process.children(recursive=True)):
                    with suppress(psutil.Error), each.oneshot():
                        self._cpu[each.pid, each.create_time()] = (each.name(), sum(each.cpu_times()[:2]))
                        # Spark forks its Python processes: most of their pages are those of one daemon.
                        memory_bytes += each.memory_full_info().pss
            self.memory_bytes_max = max(self.memory_bytes_max, memory_bytes)
