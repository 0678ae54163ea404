"""The soak: its network does what it says, it finds mistakes, and an end at any time leaves nothing behind."""

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from kit.cluster import processes_below
from kit.soak import runner
from kit.soak.mistakes import MISTAKES
from kit.soak.network import Network, SmallDisk, run
from kit.waiting import eventually

pytestmark = [pytest.mark.integration, pytest.mark.timeout(600)]

PORT = 9_000
LISTEN_S = 2.0
LISTENER = """
import socket, sys
with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as listener:
    listener.bind(("0.0.0.0", int(sys.argv[1])))
    listener.settimeout(float(sys.argv[2]))
    print("listening", flush=True)
    try:
        print(listener.recv(100).decode())
    except TimeoutError:
        print("nothing")
"""
SENDER = """
import socket, sys
with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sender:
    try:
        sender.sendto(b"heard", (sys.argv[1], int(sys.argv[2])))
    except PermissionError:
        pass  # the rule that drops it says so to the sender
"""
STOP_TIMEOUT_S = 120
SEED_OF_SPLITS, MINUTES = 4868, 1.2
"""In these 72 seconds a disk's fsync fails, and the leader and another controller are split from the rest twice."""
FOUND_BY = {
    "commits-alone": "not linearizable",
    "ignores-failed-fsync": "went on after a failed fsync",
}


@pytest.fixture
def network() -> Iterator[Network]:
    """A network of three nodes."""
    _require_parts()
    with Network({1: PORT, 2: PORT + 1, 3: PORT + 2}) as made:
        yield made


def _require_parts() -> None:
    if os.geteuid() != 0:
        pytest.skip("a soak needs root, for namespaces and mounts")
    if lacking := runner.missing_parts():
        pytest.skip(f"a soak needs {', '.join(lacking)}")


def hears(network: Network, receiver: int, sender: int) -> bool:
    """Whether a datagram of one node arrives at another."""
    with subprocess.Popen(
        [*network.enter(receiver), sys.executable, "-c", LISTENER, str(PORT), str(LISTEN_S)],
        stdout=subprocess.PIPE,
        text=True,
    ) as listener:
        assert listener.stdout is not None
        assert listener.stdout.readline() == "listening\n"
        run(*network.enter(sender), sys.executable, "-c", SENDER, network.host(receiver), str(PORT))
        return listener.stdout.readline() == "heard\n"


def test_a_node_is_cut_off_in_one_direction(network: Network) -> None:
    assert hears(network, 1, 2)
    network.cut(1, hears=False, is_heard=True)
    assert (hears(network, 1, 2), hears(network, 2, 1)) == (False, True)
    network.heal(1)
    network.cut(1, [2], hears=False, is_heard=True)
    assert (hears(network, 1, 2), hears(network, 1, 3)) == (False, True)
    network.heal(1)
    network.cut(1, hears=True, is_heard=False)
    assert (hears(network, 1, 2), hears(network, 2, 1)) == (True, False)
    network.heal(1)
    assert hears(network, 2, 1)


def test_packets_are_lost_and_delayed_until_it_is_healed(network: Network) -> None:
    network.lose(1, 1.0)
    assert not hears(network, 1, 2)
    network.heal(1)
    network.delay(1, 50)
    assert hears(network, 2, 1)
    network.heal(1)
    network.heal(1)  # there is nothing to remove, which is no error


def test_a_small_disk_is_full_and_has_room_again(tmp_path: Path) -> None:
    _require_parts()
    disk = SmallDisk(tmp_path / "disk", 1)
    try:
        file = disk.path / "file"
        file.write_bytes(bytes(10_000))
        disk.fill()
        with pytest.raises(OSError, match="No space left on device"):
            file.write_bytes(bytes(500_000))
        disk.free()
        file.write_bytes(bytes(500_000))
    finally:
        disk.close()
    assert list(disk.path.iterdir()) == []


def test_an_interrupted_soak_leaves_nothing_behind(tmp_path: Path, kafka_jars: Path) -> None:
    """Namespaces, links, mounts and processes are removed on SIGTERM."""
    _require_parts()
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    tests = Path(__file__).parents[1]
    environment = {
        **os.environ,
        "PYTHONPATH": str(tests),
        "TMPDIR": str(scratch),
        "QUORATE_KAFKA_JARS": str(kafka_jars),
    }
    with subprocess.Popen(
        [sys.executable, "-m", "kit.soak", "--minutes", "5", "--seed", "1"],
        cwd=tmp_path,
        env=environment,
        stdout=subprocess.PIPE,
        text=True,
    ) as soak:
        watchdog = threading.Timer(STOP_TIMEOUT_S, soak.kill)
        watchdog.start()
        try:
            assert soak.stdout is not None
            line = next(text for text in soak.stdout if "namespaces" in text)
            tag = line.split("namespaces ")[1].split("-")[0]
            assert tag in run("ip", "netns", "list")
            assert str(scratch) in Path("/proc/mounts").read_text()
            eventually(lambda: processes_below(scratch), STOP_TIMEOUT_S, "a node to start")
            soak.send_signal(signal.SIGTERM)
            soak.stdout.read()
            assert soak.wait() == 128 + signal.SIGTERM
        finally:
            watchdog.cancel()
    assert tag not in run("ip", "netns", "list")
    assert tag not in run("ip", "link")
    assert str(scratch) not in Path("/proc/mounts").read_text()
    assert processes_below(scratch) == []
    assert list(scratch.iterdir()) == []


@pytest.mark.timeout(900)  # those who can't recover are waited for
@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_mistake_is_found(
    mistake: str, tmp_path: Path, kafka_jars: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What the checker promises to find, it finds on real processes."""
    _require_parts()
    monkeypatch.chdir(tmp_path)  # where reports go
    result = runner.soak(SEED_OF_SPLITS, MINUTES, kafka_jars, print, mistake=mistake)
    assert FOUND_BY[mistake] in {violation.rule for violation in result.violations}
