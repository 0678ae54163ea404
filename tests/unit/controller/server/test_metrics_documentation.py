"""docs/metrics.md lists what /metrics shows, no more and no less."""

import dataclasses
import re
from pathlib import Path
from typing import Any

from quorate_controller.node.measurements import LatencyHistogram
from quorate_controller.server.counters import RequestCounters
from quorate_controller.server.metrics import MetricsPage, ServedCertificate, Usage
from quorate_protocol.errors import ErrorCode

DOCUMENT = Path(__file__).parents[4] / "docs" / "metrics.md"
CREATE_TOPICS = 19


async def test_each_metric_is_documented(rig: Any) -> None:
    histogram = LatencyHistogram()
    rig.node.node_status = dataclasses.replace(
        rig.node.node_status,
        commit_latency=histogram,
        event_queue_time=histogram,
        broker_states={5: 30},
        last_applied_timestamp_ms=1,
        latest_snapshot_timestamp_ms=1,
    )
    counters = RequestCounters()
    counters.requests[CREATE_TOPICS] += 1
    counters.errors[CREATE_TOPICS, ErrorCode.not_controller] += 1
    counters.seconds[CREATE_TOPICS].observe_ms(1)
    counters.denied["CreateTopics"] += 1
    served = {"CONTROLLER": ServedCertificate(not_after_s=1, refuses_files=False)}
    page = MetricsPage(rig.node, counters, usage=lambda: Usage(0, {"nodes": 0}, 0, served)).render().decode()
    shown = set(re.findall(r"^# TYPE (\S+)", page, re.MULTILINE))
    documented = set(re.findall(r"`((?:kafka|quorate|process)_\w*[a-z0-9])`", DOCUMENT.read_text()))
    assert documented == shown
