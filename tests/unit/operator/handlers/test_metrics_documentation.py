"""docs/operator-metrics.md lists what the operator's /metrics shows, no more and no less."""

import re
from pathlib import Path

from quorate_operator.handlers.metrics import OperatorMetrics

DOCUMENT = Path(__file__).parents[4] / "docs" / "operator-metrics.md"


def test_each_metric_of_the_operator_is_documented() -> None:
    shown = {
        f"{family.name}_total" if family.type == "counter" else family.name
        for family in OperatorMetrics().registry.collect()
    }
    documented = set(re.findall(r"`(quorate_[a-z_]+)`", DOCUMENT.read_text()))
    assert documented == shown
