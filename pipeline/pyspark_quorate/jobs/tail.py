"""`quorate lake tail`: follow a living quorum into a lake."""

import hashlib
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession

from pyspark_quorate import register
from pyspark_quorate.jobs import building, raw
from pyspark_quorate.jobs.lake import Change, Lake
from pyspark_quorate.jobs.progress import Steps
from pyspark_quorate.jobs.state import LakeError
from pyspark_quorate.tables.contract import Table

WAIT_S = 1


@dataclass(frozen=True, slots=True)
class Followed:
    """The quorum that is followed, and how it is reached."""

    bootstrap_controllers: str
    command_config: Path | None = None

    @property
    def source(self) -> str:
        """The controllers as rows name them."""
        return ",".join(part.strip() for part in self.bootstrap_controllers.split(",") if part.strip())

    @property
    def name(self) -> str:
        """Names the stream: the same controllers are followed on from where it ended."""
        return hashlib.sha256(self.source.encode()).hexdigest()[:16]


def follow(
    spark: SparkSession,
    lake: Lake,
    followed: Followed,
    steps: Steps,
    *,
    tables: Sequence[Table],
    trigger_s: float | None,
    refresh_s: float,
    is_stopped: Callable[[], bool] = lambda: False,
) -> int:
    """Take in batches until `is_stopped`, or with `trigger_s` None until there is no more; how many there were.

    Each batch is a commit that remembers its number, so that one that Spark repeats after a crash is not taken in
    twice. Tables are made at most every `refresh_s`, and at the end. Within `Lake.writing`.
    """
    register(spark)
    taker = _Taker(lake, followed)
    reader = spark.readStream.format("quorate").option("noOps", "true")
    reader = reader.option("bootstrapControllers", followed.bootstrap_controllers)
    if followed.command_config is not None:
        reader = reader.option("configFile", str(followed.command_config.absolute()))
    writer = reader.load().writeStream.foreachBatch(taker.take)
    writer = writer.option("checkpointLocation", str(lake.stream(followed.name)))
    writer = (
        writer.trigger(availableNow=True)
        if trigger_s is None
        else writer.trigger(processingTime=f"{int(trigger_s * 1000)} milliseconds")
    )
    steps.begin(f"following {followed.bootstrap_controllers}")
    refreshed_s = time.monotonic()
    query = writer.start()
    try:
        while not (query.awaitTermination(WAIT_S) or is_stopped()):
            if time.monotonic() - refreshed_s >= refresh_s:
                with taker.pausing:
                    building.build(spark, lake, tables, steps)
                refreshed_s = time.monotonic()
    except StreamingQueryException as error:
        raise LakeError(f"following {followed.bootstrap_controllers} ended: {_reason(error)}") from error
    finally:
        query.stop()
    with taker.pausing:
        building.build(spark, lake, tables, steps)
    return taker.batches


class _Taker:
    """Takes batches into the lake, in the thread that Spark calls it in, except while `pausing` is held."""

    def __init__(self, lake: Lake, followed: Followed) -> None:
        self._lake = lake
        self._name = followed.name
        self._again: tuple[str, ...] = ()
        self.pausing = threading.Lock()
        self.batches = 0
        if not lake.stream(followed.name).exists():
            # Spark begins anew: its numbers say nothing about what the lake has.
            self._again = (followed.source,)
            streams = {name: number for name, number in lake.state.streams.items() if name != self._name}
            lake.state = replace(lake.state, streams=streams)

    def take(self, batch: DataFrame, number: int) -> None:
        """One batch, by Spark's number of it."""
        with self.pausing:
            lake = self._lake
            if number <= lake.state.streams.get(self._name, -1):
                return
            clusters = raw.stage_rows(batch.sparkSession, lake, batch, self._again)
            commit = lake.state.commit + 1
            state = replace(
                lake.state,
                clusters={**lake.state.clusters, **dict.fromkeys(clusters, commit)},
                streams={**lake.state.streams, self._name: number},
            )
            lake.commit(Change(place=raw.staged_moves(lake)), state)
            self.batches += 1


def _reason(error: StreamingQueryException) -> str:
    """The line that says why, without Spark's plan."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    told = [line for line in lines if "Error:" in line]
    return told[-1] if told else lines[0]
