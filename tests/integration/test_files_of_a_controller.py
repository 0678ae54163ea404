"""A controller keeps file descriptors for its log, however many sockets strangers hold."""

import socket
import subprocess
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from kit.cluster import free_ports
from kit.one_controller import quorate_command, running, write_config
from kit.waiting import HANG_S, eventually

CLUSTER_ID = "MkU3OEVBNTcwNTJENDM2Qk"
FILES_MAX = 320
STRANGERS = 400
OWN_FILES_MAX = 100
"""Files, sockets of the process itself and libraries; the rest of the 200 stays for the log."""


def ready(port: int) -> bool:
    """Whether the node says so to a newcomer within the seconds of a probe."""
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/readyz", timeout=10) as page:
            return bool(page.status == 200)
    except (urllib.error.URLError, OSError):
        return False


def run(command: list[str]) -> None:
    done = subprocess.run(command, capture_output=True, text=True, timeout=HANG_S, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.fixture
def crowd() -> Iterator[ExitStack]:
    with ExitStack() as stack:
        yield stack


def half_requests(crowd: ExitStack, port: int, data: bytes) -> list[socket.socket]:
    """Connections of many strangers on which the beginning of a request was sent."""
    found = []
    for number in range(STRANGERS):
        address = (f"127.0.1.{number % 40 + 1}", 0)
        connection = crowd.enter_context(
            socket.create_connection(("127.0.0.1", port), timeout=HANG_S, source_address=address)
        )
        connection.sendall(data)
        found.append(connection)
    return found


def test_sockets_of_strangers_never_take_the_files_of_the_log(tmp_path: Path, crowd: ExitStack) -> None:
    """Half-sent requests can't keep a controller from opening its own files, which would end it."""
    port = free_ports(2)
    http_port = port + 1
    config = write_config(
        tmp_path,
        f"quorate.http.listener=127.0.0.1:{http_port}",
        "controller.quorum.bootstrap.servers=ADDRESS",
        address=f"127.0.0.1:{port}",
    )
    run(quorate_command("controller", "format", "--standalone", "-t", CLUSTER_ID, "-c", config))
    command = quorate_command("controller", "run", "-c", config)
    limited = ["sh", "-c", f'ulimit -n {FILES_MAX} && exec "$@"', "sh", *command]
    with running(limited, tmp_path / "log") as process:
        eventually(lambda: ready(http_port), HANG_S, "a leader")
        half_requests(crowd, http_port, b"GET /m")
        half_requests(crowd, port, b"\x00\x00\x01\x00\x00")
        assert ready(http_port), (tmp_path / "log").read_text()
        assert len(list(Path(f"/proc/{process.pid}/fd").iterdir())) <= FILES_MAX - 200 + OWN_FILES_MAX
        run(
            quorate_command(
                "metadata-quorum", "--bootstrap-controller", f"127.0.0.1:{port}", "describe", "--status"
            )
        )
        assert process.poll() is None
        assert "Too many open files" not in (tmp_path / "log").read_text()
