"""`quorate lake tail`: follows a running quorum and adds its records to a lake."""

import hashlib
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession

from pyspark_quorate import register
from pyspark_quorate.errors import LakeError
from pyspark_quorate.jobs import store_tasks, table_build
from pyspark_quorate.jobs.lake import Lake
from pyspark_quorate.jobs.progress import Steps
from pyspark_quorate.source.stream_options import source_of
from pyspark_quorate.tables.contract import Table

WAIT_S = 1
BUILDING_SHARE_MAX = 0.2
"""The maximum share of the time in which tables are built: those of a long history take long."""


@dataclass(frozen=True, slots=True)
class FollowedQuorum:
    """The followed quorum and its client configuration."""

    bootstrap_controllers: str
    command_config: Path | None = None

    @property
    def source(self) -> str:
        """The controllers, as in the column `source`."""
        return source_of(self.bootstrap_controllers)

    @property
    def name(self) -> str:
        """The name of the stream; a stream of the same controllers continues where the last one ended."""
        return hashlib.sha256(self.source.encode()).hexdigest()[:16]


def follow(
    spark: SparkSession,
    lake: Lake,
    followed: FollowedQuorum,
    steps: Steps,
    *,
    tables: Sequence[Table],
    trigger_s: float | None,
    refresh_s: float,
    is_stopped: Callable[[], bool] = lambda: False,
) -> int:
    """Add batches until `is_stopped`, or with `trigger_s` None until there are no more. Returns their number.

    Each batch is a commit that records the batch's number, so that a batch that Spark repeats after a crash is not
    added twice. Tables are built at most every `refresh_s`, less often if that takes long, and at the end. Call it
    within `Lake.writing`.

    Raises:
        LakeError: if the query fails, for example because the quorum can't be followed.
    """
    register(spark)
    batch_writer = _BatchWriter(lake, followed)
    reader = spark.readStream.format("quorate").option("noOps", "true")
    reader = reader.option("bootstrapControllers", followed.bootstrap_controllers)
    if followed.command_config is not None:
        reader = reader.option("configFile", str(followed.command_config.absolute()))
    writer = reader.load().writeStream.foreachBatch(batch_writer.add)
    writer = writer.option("checkpointLocation", str(lake.stream(followed.name)))
    writer = (
        writer.trigger(availableNow=True)
        if trigger_s is None
        else writer.trigger(processingTime=f"{int(trigger_s * 1000)} milliseconds")
    )
    steps.begin(f"following {followed.bootstrap_controllers}")
    due_s = time.monotonic() + refresh_s
    query = writer.start()
    try:
        while not (query.awaitTermination(WAIT_S) or is_stopped()):
            begun_s = time.monotonic()
            if begun_s >= due_s:
                with batch_writer.pausing:
                    table_build.build(spark, lake, tables, steps)
                due_s = next_build_s(begun_s, time.monotonic(), refresh_s)
    except StreamingQueryException as error:
        raise LakeError(f"following {followed.bootstrap_controllers} ended: {_reason(error)}") from error
    finally:
        query.stop()
    with batch_writer.pausing:
        table_build.build(spark, lake, tables, steps)
    return batch_writer.batches


def next_build_s(begun_s: float, ended_s: float, refresh_s: float) -> float:
    """When the tables are built again after a build that took from `begun_s` to `ended_s`."""
    took_s = ended_s - begun_s
    return ended_s + max(refresh_s, took_s / BUILDING_SHARE_MAX - took_s)


class _BatchWriter:
    """Adds batches to the lake, in Spark's thread, except while `pausing` is held."""

    def __init__(self, lake: Lake, followed: FollowedQuorum) -> None:
        self._lake = lake
        self._name = followed.name
        self._again: tuple[str, ...] = ()
        self.pausing = threading.Lock()
        self.batches = 0
        if not lake.stream(followed.name).exists():
            # Spark starts over: its batch numbers are unrelated to those in the state.
            self._again = (followed.source,)
            streams = {name: number for name, number in lake.state.streams.items() if name != self._name}
            lake.state = replace(lake.state, streams=streams)

    def add(self, batch: DataFrame, number: int) -> None:
        """Add one batch; `number` is Spark's."""
        with self.pausing:
            lake = self._lake
            if number <= lake.state.streams.get(self._name, -1):
                return
            files = store_tasks.store_frame(batch, store_tasks.store_plan(lake, self._again))
            commit = lake.state.commit + 1
            state = replace(
                lake.state,
                clusters={
                    **lake.state.clusters,
                    **dict.fromkeys((file.cluster_id for file in files), commit),
                },
                streams={**lake.state.streams, self._name: number},
            )
            lake.commit(store_tasks.staged_change(lake, files), state)
            self.batches += 1


def _reason(error: StreamingQueryException) -> str:
    """The reason in one line, without Spark's plan."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    reasons = [line for line in lines if "Error:" in line]
    return reasons[-1] if reasons else lines[0]
