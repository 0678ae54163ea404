"""Progress of a job: bars on stderr if it is a terminal."""

import sys
import threading
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

POLL_EVERY_S: Final = 0.25


class Steps:
    """Receives the progress of a job. This one shows nothing."""

    def begin(self, title: str, total: int | None = None) -> None:
        """Start a new phase, of `total` steps if known."""

    def say(self, text: str) -> None:
        """Describe the current step."""

    def advance(self, count: int = 1) -> None:
        """Count finished steps."""

    def watching(self, spark: "SparkSession") -> AbstractContextManager[None]:  # noqa: ARG002
        """Show the tasks of this session within the context."""
        return nullcontext()


class Bars(Steps):
    """A bar for the steps, and one for the tasks of the stages that Spark runs."""

    def __init__(self, progress: Any) -> None:
        self._progress = progress
        self._steps = progress.add_task("", total=None)

    def begin(self, title: str, total: int | None = None) -> None:
        """A new bar."""
        self._progress.reset(self._steps, description=title, total=total)

    def say(self, text: str) -> None:
        """Set the text before the bar."""
        self._progress.update(self._steps, description=text)

    def advance(self, count: int = 1) -> None:
        """Move the bar."""
        self._progress.advance(self._steps, count)

    @contextmanager
    def watching(self, spark: "SparkSession") -> Iterator[None]:
        """Follow the tasks of a session."""
        tasks = self._progress.add_task("tasks", total=None, visible=False)
        ended = threading.Event()
        arguments = (spark.sparkContext.statusTracker(), tasks, ended)
        thread = threading.Thread(target=self._follow, args=arguments, daemon=True)
        thread.start()
        try:
            yield
        finally:
            ended.set()
            thread.join()

    def _follow(self, tracker: Any, tasks: Any, ended: threading.Event) -> None:
        while not ended.wait(POLL_EVERY_S):
            stages = [tracker.getStageInfo(stage_id) for stage_id in tracker.getActiveStageIds()]
            found = [stage for stage in stages if stage is not None]
            self._progress.update(
                tasks,
                visible=bool(found),
                total=sum(stage.numTasks for stage in found) or None,
                completed=sum(stage.numCompletedTasks for stage in found),
            )


@contextmanager
def steps_shown() -> Iterator[Steps]:
    """Bars where stderr is a terminal, else nothing; closed with the context."""
    if not sys.stderr.isatty():
        yield Steps()
        return
    from rich.console import Console  # noqa: PLC0415 - only for a terminal
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn  # noqa: PLC0415

    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as progress:
        yield Bars(progress)
