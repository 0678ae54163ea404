"""The fold against the same tables as declarative Spark plans, row by row."""

from collections import Counter
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from kit.lake.comparing import assert_same_tables
from kit.lake.folding import fold_rows
from kit.lake.oracle import make_quorum
from kit.lake.oracle_worlds import make_world, rows_of
from kit.lake.plans.registry import make_all
from pyspark.sql import SparkSession
from pyspark.sql import functions as f
from pyspark_quorate import rows
from pyspark_quorate.tables.registry import TABLES

GAPS = (
    ("torn-tail", 3, None),
    ("corrupt-batch", None, None),
    ("corrupt-batch", 5, 9),
    ("unknown-record", 10**6, 10**6 + 1),
)


def gaps_of(cluster_id: str) -> list[tuple[Any, ...]]:
    """Gaps that a source found, each twice."""
    return 2 * [
        (
            *(cluster_id, f"{cluster_id}/0.log", rows.GAP, first, 0, None, None, reason, None),
            f'{{"endOffset": {"null" if end is None else end}, "detail": "d"}}',
        )
        for reason, first, end in GAPS
    ]


# Hypothesis tries 0 first, always; without it, its one example is another one each time.
@pytest.mark.timeout(900)
@settings(
    max_examples=1,
    deadline=None,
    phases=(Phase.explicit, Phase.generate),
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(seed=st.integers(0, 2**32).filter(bool))
def test_the_fold_makes_what_the_plans_make(spark: SparkSession, seed: int) -> None:
    """One pass with little state says what windows and joins over everything say, in every column."""
    raw = [row for number in range(40) for row in make_quorum(seed + number, 1 + number).rows]
    raw += [row for number in range(60) for row in rows_of(make_world(seed + number, 20 + number % 41))]
    raw += [row for cluster in sorted({one[0] for one in raw}) for row in gaps_of(cluster)]
    frame = spark.createDataFrame(raw, rows.SCHEMA).localCheckpoint()
    made = make_all(frame, lambda one: one.localCheckpoint())
    made["records"] = made["records"].withColumn("payload", f.to_json("payload"))
    folded = fold_rows(raw, TABLES)
    assert all(Counter(row["cluster_id"] for row in found) for found in folded.values()), (
        "every table has rows"
    )
    assert_same_tables(folded, made)
