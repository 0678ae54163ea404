"""Child processes, the control socket and logs: the parts of the local runtime that touch the system."""

import asyncio
import os
import signal
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import psutil
import pytest
from kit.waiting import HANG_S, until
from quorate.play.display import follow_logs, print_logs
from quorate_operator.runtime.local import child_process
from quorate_operator.runtime.local.child_process import ChildProcess, describe_exit
from quorate_operator.runtime.local.control_socket import (
    REQUEST_SIZE_BYTES_MAX,
    RESPONSE_SIZE_BYTES_MAX,
    call,
    serve,
)
from quorate_operator.runtime.local.directory import PlayDirectory
from quorate_operator.runtime.local.errors import NotRunningError, PlayError

STUBBORN = "trap '' TERM; echo ready; while :; do sleep 0.05; done"


async def started(tmp_path: Path, script: str) -> tuple[ChildProcess, asyncio.Event]:
    """A shell script as a child process, and the event of its end."""
    ended = asyncio.Event()
    child = ChildProcess.start(
        ["/bin/sh", "-c", script], directory=tmp_path, log=tmp_path / "node.log", on_exit=ended.set
    )
    return child, ended


async def said(tmp_path: Path, text: str) -> None:
    """Wait until the child has written something."""
    await until(lambda: text in (tmp_path / "node.log").read_text(), f"the child to say {text!r}")


async def test_an_end_is_reported_once_with_its_reason(tmp_path: Path) -> None:
    child, ended = await started(tmp_path, "echo out; echo err >&2; exit 3")
    await asyncio.wait_for(ended.wait(), HANG_S)
    assert (child.runs, child.exit_reason, child.rss_bytes) == (False, "exit status 3", None)
    assert (tmp_path / "node.log").read_text() == "out\nerr\n"
    child.send_signal(signal.SIGKILL)  # no process of the same id is hit


async def test_the_last_error_is_that_of_the_process_itself(tmp_path: Path) -> None:
    async def error(script: str) -> str | None:
        child, ended = await started(tmp_path, script)
        await asyncio.wait_for(ended.wait(), HANG_S)
        return child.last_error

    assert await error("echo 'error: log.dirs: in use'; exit 1") == "error: log.dirs: in use"
    assert await error("exit 1") is None, "what the former process wrote"
    assert await error("echo started; kill -9 $$") is None, "it could not say why"
    assert await error("echo error: of no matter; exit 0") is None


async def test_stop_asks_first_and_kills_after_the_grace(tmp_path: Path) -> None:
    polite, _ = await started(tmp_path, "echo ready; sleep 60")
    await said(tmp_path, "ready")
    assert await polite.stop(grace_ms=HANG_S * 1000)
    assert polite.exit_reason == "killed by SIGTERM"
    (tmp_path / "node.log").unlink()
    stubborn, _ = await started(tmp_path, STUBBORN)
    await said(tmp_path, "ready")
    assert not await stubborn.stop(grace_ms=100)
    assert stubborn.exit_reason == "killed by SIGKILL"
    suspended, _ = await started(tmp_path, "sleep 60")
    suspended.send_signal(signal.SIGSTOP)
    assert await suspended.stop(grace_ms=HANG_S * 1000)


async def test_a_child_is_out_of_reach_of_the_terminal(tmp_path: Path) -> None:
    child, ended = await started(tmp_path, "sleep 60")
    assert os.getpgid(child.pid) == child.pid != os.getpgid(0)
    await child.stop(grace_ms=HANG_S * 1000)
    assert ended.is_set()


def test_a_child_dies_with_its_supervisor(tmp_path: Path) -> None:
    script = f"""
import asyncio, pathlib
from quorate_operator.runtime.local.child_process import ChildProcess
async def main():
    here = pathlib.Path({str(tmp_path)!r})
    child = ChildProcess.start(["sleep", "60"], directory=here, log=here / "log", on_exit=lambda: None)
    print(child.pid, flush=True)
    await asyncio.sleep(60)
asyncio.run(main())
"""
    with subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, text=True) as parent:
        assert parent.stdout is not None
        orphan = psutil.Process(int(parent.stdout.readline()))
        parent.kill()
    gone, alive = psutil.wait_procs([orphan], timeout=HANG_S)
    assert alive == [] or alive[0].status() == psutil.STATUS_ZOMBIE, (gone, alive)


def test_exits_are_told_by_name() -> None:
    assert describe_exit(1) == "exit status 1"
    assert describe_exit(-signal.SIGSEGV) == "killed by SIGSEGV"
    assert describe_exit(-40) == "killed by signal 40"


async def test_logs_are_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A node that runs for weeks fills no disk."""
    monkeypatch.setattr(child_process, "LOG_SIZE_BYTES_MAX", 10)
    child, _ = await started(tmp_path, "echo 0123456789; sleep 60")
    await said(tmp_path, "9\n")
    child.trim_log()
    assert (tmp_path / "node.log").read_text() == ""
    assert (tmp_path / "node.log.1").read_text() == "0123456789\n"
    await child.stop(grace_ms=HANG_S * 1000)


async def test_commands_reach_the_supervisor_in_a_deep_directory(tmp_path: Path) -> None:
    directory = PlayDirectory(tmp_path / ("d" * 150))
    directory.lock()

    async def handle(command: str, arguments: Any) -> Any:
        if command == "refuse":
            raise PlayError("no")
        return [command, dict(arguments)]

    async with serve(directory, handle):
        assert await call(directory, "echo", a=1) == ["echo", {"a": 1}]
        with pytest.raises(PlayError, match=r"^no$"):
            await call(directory, "refuse")
        assert (directory.path / "control.sock").stat().st_mode & 0o077 == 0
    with pytest.raises(NotRunningError, match="does not run"):
        await call(directory, "echo")
    directory.release()


async def test_garbage_on_the_control_socket_is_refused(tmp_path: Path) -> None:
    directory = PlayDirectory(tmp_path)
    directory.lock()

    async def handle(command: str, arguments: Any) -> Any:
        return command, arguments

    async with serve(directory, handle):
        for garbage in (b"x\n", b"[]\n", b'{"command": 1}\n', b"x" * 100_000 + b"\n", b"[" * 100_000 + b"\n"):
            reader, writer = await asyncio.open_unix_connection(str(tmp_path / "control.sock"))
            writer.write(garbage)
            response = await reader.readline()
            reason = ": its lists and objects are nested too deeply" if garbage.startswith(b"[[") else ""
            assert response == b'{"error": "not a request%s"}\n' % reason.encode()
            writer.close()
            await writer.wait_closed()
        assert await call(directory, "still there") == ["still there", {}]
    directory.release()


@pytest.mark.parametrize("response", [b"x\n", b"[]\n", b"[" * 100_000 + b"\n"])
async def test_a_supervisor_that_answers_garbage_is_told(tmp_path: Path, response: bytes) -> None:
    directory = PlayDirectory(tmp_path)

    async def talk(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(response)
        writer.close()

    async with await asyncio.start_unix_server(talk, path=tmp_path / "control.sock"):
        with pytest.raises(
            PlayError, match=f"the supervisor of {tmp_path} sent neither a result nor an error"
        ):
            await call(directory, "status")


@pytest.mark.parametrize("size_bytes", [REQUEST_SIZE_BYTES_MAX + 1, RESPONSE_SIZE_BYTES_MAX + 1])
async def test_what_is_too_long_for_the_control_socket_is_told(tmp_path: Path, size_bytes: int) -> None:
    """No command ends with a traceback, or says that a cluster is down which runs."""
    directory = PlayDirectory(tmp_path)
    directory.lock()

    async def handle(_: str, arguments: Any) -> Any:
        return "x" * arguments["size_bytes"]

    async with serve(directory, handle):
        if size_bytes > RESPONSE_SIZE_BYTES_MAX:
            with pytest.raises(PlayError, match=f"^the supervisor of {tmp_path} sent too long a response"):
                await call(directory, "status", size_bytes=size_bytes)
        else:
            with pytest.raises(PlayError, match=rf"^the request status has \d+ bytes, at most {2 << 20} are"):
                await call(directory, "status", size_bytes=1, text="x" * size_bytes)
        assert await call(directory, "status", size_bytes=2) == "xx"
    directory.release()


def test_the_end_of_logs_is_printed_with_names_where_there_are_several(tmp_path: Path) -> None:
    (tmp_path / "a").write_text("1\n2\n3\n")
    (tmp_path / "b").write_text("4\n")
    out: list[str] = []
    print_logs({"a": tmp_path / "a"}, 2, out.append)
    print_logs({"a": tmp_path / "a", "b": tmp_path / "b", "c": tmp_path / "c"}, 1, out.append)
    assert out == ["2\n", "3\n", "a | 3\n", "b | 4\n"]


def test_logs_are_followed_through_growth_and_cutting(tmp_path: Path) -> None:
    """`play logs -f` shows whole lines."""
    log = tmp_path / "log"
    log.write_text("old\n")
    out: list[str] = []
    seen = threading.Event()

    class EnoughError(Exception):
        """Ends the following."""

    def write(text: str) -> None:
        out.append(text)
        seen.set()
        if text == "three\n":
            raise EnoughError

    def grow() -> None:
        for text, whole in (("on", False), ("e\n", True)):
            with log.open("a") as file:
                file.write(text)
            if whole:
                seen.wait(HANG_S)
        log.write_text("")
        with log.open("a") as file:
            file.write("three\n")

    writer = threading.Thread(target=lambda: (seen.wait(HANG_S), seen.clear(), grow()))
    writer.start()
    with pytest.raises(EnoughError):
        follow_logs({"log": log}, 10, write)
    writer.join()
    assert out == ["old\n", "one\n", "three\n"]
