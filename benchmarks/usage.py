"""Memory and processor time of a process and its children."""

from __future__ import annotations

import threading
from contextlib import suppress
from typing import Final

import psutil

SAMPLE_SECONDS: Final = 0.1


class ProcessUsage:
    """Samples a process and its children until `stop`. A process that ends between two samples is missed."""

    def __init__(self, pid: int) -> None:
        self.memory_bytes_max = 0
        """The maximum of all processes together; shared pages count once."""
        self._cpu: dict[tuple[int, float], tuple[str, float]] = {}
        self._process = psutil.Process(pid)
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._sample, daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """End the sampling."""
        self._stopped.set()
        self._thread.join()

    @property
    def cpu_seconds(self) -> float:
        """The processor time of all processes, also of those that have ended."""
        return sum(seconds for _, seconds in self._cpu.values())

    def cpu_seconds_of(self, program: str) -> float:
        """The processor time of the processes of one program."""
        return sum(seconds for name, seconds in self._cpu.values() if name == program)

    def _sample(self) -> None:
        while not self._stopped.wait(SAMPLE_SECONDS):
            memory_bytes = 0
            with suppress(psutil.Error):
                for process in (self._process, *self._process.children(recursive=True)):
                    with suppress(psutil.Error), process.oneshot():
                        usage = (process.name(), sum(process.cpu_times()[:2]))
                        self._cpu[process.pid, process.create_time()] = usage
                        # Spark forks its Python processes: most of their pages are those of one daemon.
                        memory_bytes += process.memory_full_info().pss
            self.memory_bytes_max = max(self.memory_bytes_max, memory_bytes)
