"""The moment after a power cut: what tools, doctor, play and operator say while controllers come back, one by one."""

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from kit.power_cut.asking import COLUMNS
from kit.power_cut.scenario import LEADER_LAST, ORDERS, Row, cut, powered

QUORUMS = ("static", "dynamic")


@pytest.mark.parametrize(
    ("implementation", "quorums", "orders"),
    [
        pytest.param("python", ("dynamic",), (LEADER_LAST,), id="smoke"),
        pytest.param("python", QUORUMS, ORDERS, id="python"),
        pytest.param("java", QUORUMS, ORDERS, id="java"),
    ],
)
def test_what_is_said_is_true(
    implementation: str, quorums: Sequence[str], orders: Sequence[str], tmp_path: Path, kafka_jars: Path
) -> None:
    """An administrator learns within 10 s who is missing, and nothing that is false."""

    def rows(quorum: str) -> list[Row]:
        facts = {"quorum": quorum, "implementation": implementation}
        with powered(tmp_path / quorum / "cluster", kafka_jars, **facts) as cluster:
            return [row for order in orders for row in cut(cluster, **facts, order=order)]

    with ThreadPoolExecutor() as pool:
        found = [row for of_quorum in pool.map(rows, quorums) for row in of_quorum]
    assert len(found) == 3 * len(quorums) * len(orders)
    assert all(tuple(line.tool for line in row.said) == COLUMNS for row in found)
    wrong = [
        f"{row.quorum}, {row.order}, {row.back} of 3 back, {row.truth}: {problem}\n"
        + "\n".join(f"{line.tool} ({line.exit_code}, {line.seconds:.1f} s): {line.text}" for line in row.said)
        for row in found
        for problem in row.problems
    ]
    assert not wrong, "\n".join(wrong)
