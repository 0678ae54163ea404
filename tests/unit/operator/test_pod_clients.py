"""What clients in pods print becomes what was acknowledged to them."""

import json

from kit.operators.pod_clients import records_of, topics_of


def test_records_and_their_longest_pause() -> None:
    lines = [
        {"timestamp": 1_000, "name": "startup_complete"},
        *(
            {"timestamp": at_ms, "name": "producer_send_success", "key": None, "value": f"{number}"}
            for number, at_ms in enumerate((1_050, 1_100, 8_600, 8_650))
        ),
        {"timestamp": 8_700, "name": "producer_send_error", "value": "4", "message": "timed out"},
    ]
    log = "\n".join(["[2026] WARN (a.Logger)", *(json.dumps(line) for line in lines), '{"timestamp": 87'])
    found = records_of(log)
    assert found.names == ["0", "1", "2", "3"]
    assert found.failures == ["4: timed out"]
    assert found.pauses.longest_s == 7.5


def test_topics_and_their_longest_pause() -> None:
    responses = (("a", None, 1_000), ("b", "no answer", 21_000), ("c", None, 21_500))
    lines = [json.dumps({"topic": name, "error": error, "timestamp": at}) for name, error, at in responses]
    found = topics_of("\n".join(lines))
    assert (found.names, found.failures) == (["a", "c"], ["b: no answer"])
    assert found.pauses.longest_s == 20.5
