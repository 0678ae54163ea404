"""Runs the tasks of a lake's jobs in this process, without a JVM: as Spark does, some of them more than once."""

import random
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Self, cast

from pyspark.sql import SparkSession


class LocalTasks:
    """Has the part of a SparkSession that jobs use to distribute tasks.

    Tasks run one after the other, in any order. Spark may run a task twice, and use either result.
    """

    defaultParallelism = 2  # noqa: N815 - Spark's name

    def __init__(self, chance: random.Random | None = None) -> None:
        """`chance`: the order of tasks and which of them run twice; None: in order, and once."""
        self._chance = chance
        self._items: Sequence[Any] = ()

    @property
    def sparkContext(self) -> Self:  # noqa: N802 - Spark's name
        """The context, which is the same object."""
        return self

    def parallelize(self, items: Iterable[Any], slices: int) -> Self:  # noqa: ARG002 - Spark's interface
        """Distribute items, a task for each."""
        self._items = list(items)
        return self

    def map(self, function: Callable[[Any], Any]) -> "_Mapped":
        """A job that applies a function to each item."""
        return _Mapped(self._items, function, self._chance)


class _Mapped:
    def __init__(
        self, items: Sequence[Any], function: Callable[[Any], Any], chance: random.Random | None
    ) -> None:
        self._items, self._function, self._chance = items, function, chance

    def collect(self) -> list[Any]:
        """Run the tasks. Returns their results, in the order of the items."""
        places = list(range(len(self._items)))
        if self._chance is not None:
            self._chance.shuffle(places)
        results: dict[int, Any] = {}
        for place in places:
            results[place] = self._function(self._items[place])
            if self._chance is not None and self._chance.random() < 0.1:
                again = self._function(self._items[place])
                results[place] = self._chance.choice((results[place], again))
        return [results[place] for place in range(len(places))]


def local_tasks(chance: random.Random | None = None) -> SparkSession:
    """`LocalTasks` in the place of a session."""
    return cast("SparkSession", LocalTasks(chance))
