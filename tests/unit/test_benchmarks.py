"""What `make bench` says of its figures, and the load generator that both implementations get."""

import importlib
import os
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from itertools import count
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
CONNECTIONS = 3
REQUESTS = 20


@pytest.fixture
def report(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(str(ROOT))
    return importlib.import_module("benchmarks.report")


@pytest.fixture
def load(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(str(ROOT))
    return importlib.import_module("benchmarks.load")


def test_no_memory_is_mapped_for_a_response() -> None:
    """glibc raises its threshold when large blocks are freed; the setting keeps the initial value."""
    script = """
import resource, socket
from benchmarks.client import RECEIVE_BYTES

ours, theirs = socket.socketpair()
responses = []
before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
for _ in range(1000):
    theirs.send(bytes(100))
    responses.append(ours.recv(RECEIVE_BYTES))
print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
"""
    environment = {**os.environ, "MALLOC_MMAP_THRESHOLD_": str(128 * 1024)}
    faults = subprocess.run(
        [sys.executable, "-c", script], cwd=ROOT, env=environment, check=True, capture_output=True, text=True
    ).stdout
    assert int(faults) < 1000


@pytest.mark.parametrize(
    ("ours", "theirs", "higher_is_better", "expected"),
    [
        ([1.0, 2.0], [2.1, 3.0], False, "ahead"),
        ([1.0, 2.0], [2.1, 3.0], True, "behind"),
        ([3.0, 4.0], [1.0, 2.9], False, "behind"),
        ([3.0, 4.0], [1.0, 2.9], True, "ahead"),
        ([1.0, 2.5], [2.1, 3.0], False, "level"),
    ],
)
def test_only_rounds_that_do_not_overlap_decide(
    report: ModuleType, ours: list[float], theirs: list[float], higher_is_better: bool, expected: str
) -> None:
    assert report.verdict(ours, theirs, higher_is_better=higher_is_better) == expected


def test_the_better_linger_of_kafka_is_compared(report: ModuleType) -> None:
    runs: dict[str, list[dict[str, Any]]] = {
        "Quorate": [{"rate": 100.0, "seconds": 0.010}],
        "Kafka": [{"rate": 200.0, "seconds": 0.040}],
        "Kafka, linger 0": [{"rate": 50.0, "seconds": 0.020}],
    }
    rate = report.Row("rate", "each second", report.tables.count, "load", higher_is_better=True)
    seconds = report.Row("seconds", "p50", report.tables.milliseconds, "load")
    assert report.comparison(rate, runs) == ("each second", "100", "200", "50", "0.50x", "behind")
    assert report.comparison(seconds, runs)[-2:] == ("0.50x", "ahead")


def test_a_failed_part_says_why_and_is_not_compared(report: ModuleType) -> None:
    runs: dict[str, list[dict[str, Any]]] = {
        "Quorate": [{"load failed": "closed by the peer"}],
        "Kafka": [{"seconds": 0.040}],
        "Kafka, linger 0": [{"seconds": 0.020}],
    }
    row = report.Row("seconds", "p50", report.tables.milliseconds, "load")
    assert report.comparison(row, runs) == ("p50", "closed by the peer", "40.00 ms", "20.00 ms", "", "")


@pytest.fixture
def server() -> Iterator[tuple[tuple[str, int], list[int]]]:
    """Echo frames in two pieces. The list gets the number of frames that it had at once on a connection."""
    at_once: list[int] = []

    def serve(connection: socket.socket) -> None:
        with connection:
            while data := connection.recv(65_536):
                at_once.append(len(data) // 8)
                connection.sendall(data[:5])
                connection.sendall(data[5:])

    def accept() -> None:
        for _ in range(CONNECTIONS):
            threads.append(threading.Thread(target=serve, args=(listener.accept()[0],)))
            threads[-1].start()

    threads = [threading.Thread(target=accept)]
    with socket.create_server(("127.0.0.1", 0)) as listener:
        threads[0].start()
        yield listener.getsockname(), at_once
        for thread in threads:
            thread.join(10)


def test_a_load_has_one_request_in_flight_on_each_connection(
    load: ModuleType, server: tuple[tuple[str, int], list[int]]
) -> None:
    address, at_once = server
    frames = (b"\0\0\0\x04" + number.to_bytes(4, "big") for number in count())
    measured = load.drive(address, [frames] * CONNECTIONS, REQUESTS)
    expected = [b"\0\0\0\x04" + number.to_bytes(4, "big") for number in range(REQUESTS)]
    assert sorted(measured.responses) == expected
    assert at_once == [1] * REQUESTS
    assert len(measured.latencies) == REQUESTS
    assert 0 < max(measured.latencies) <= measured.seconds
