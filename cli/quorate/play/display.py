"""The output of `quorate play`: progress, the state of a cluster, commands to try next, and the logs of nodes."""

import shlex
import shutil
import sys
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import BinaryIO, Self, TextIO

from quorate_operator.planning.cluster import NodeState
from quorate_operator.runtime.local.status import ClusterStatus
from quorate_operator.runtime.local.supervisor import Event, Snapshot
from quorate_operator.view.texts import WITHOUT_LEADER, quorum_words
from rich.console import Console, Group
from rich.live import Live
from rich.spinner import Spinner
from rich.table import Table
from rich.text import Text

STATE_STYLES = {
    NodeState.READY: "green",
    NodeState.CRASHED: "bold red",
    NodeState.UNREADY: "yellow",
    NodeState.STARTING: "yellow",
}


WIDTH_WITH_DIRECTORY_IDS = 92
WIDTH_OF_FILES = 120
"""The width of output to a file or pipe, in columns."""
FOLLOW_EVERY_S = 0.2
TAIL_BYTES_MAX = 1024 * 1024
Write = Callable[[str], None]


def console_for(stream: TextIO) -> Console:
    """A console that writes to the stream."""
    return Console(file=stream, width=None if stream.isatty() else WIDTH_OF_FILES)


class ProgressDisplay:
    """Shows the progress of a cluster: a live table on a terminal, else a line for each event."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._live: Live | None = None
        self._last_line = ""
        self.seen = 0
        """The sequence number of the last event that was shown."""

    def __enter__(self) -> Self:
        if self._console.is_terminal:
            self._live = Live(console=self._console, refresh_per_second=8, transient=True)
            self._live.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._live is not None:
            self._live.stop()
            self._live = None

    def say(self, text: str) -> None:
        """Show a step before the cluster exists. Each text replaces the previous one."""
        if self._live is not None:
            self._live.update(Spinner("dots", text=Text(text)))
        elif (line := text.split(":", maxsplit=1)[0]) != self._last_line:
            self._last_line = line
            self._console.print(line, highlight=False)

    def note(self, text: str) -> None:
        """Print a line."""
        self._console.print(Text(text), soft_wrap=True)

    def warn(self, text: str) -> None:
        """Print a line as a warning."""
        self._console.print(Text(text, style="yellow"), soft_wrap=True)

    def show(self, snapshot: Snapshot) -> None:
        """Show the state of the cluster."""
        self.show_events(snapshot.events)
        if self._live is not None:
            waits = "; ".join(snapshot.waits) or "working"
            waiting = Spinner("dots", text=Text(f"waiting for {waits}" if snapshot.waits else waits))
            self._live.update(Group(node_table(snapshot.status, self._console.width), waiting))

    def show_events(self, events: Sequence[Event]) -> None:
        """Print events."""
        for event in events:
            self.seen = event.sequence
            self._console.print(Text(f"  {event.text}", style="dim"), soft_wrap=True)


def show_status(console: Console, status: ClusterStatus) -> None:
    """The state of a cluster as text."""
    quorum = status.quorum
    led = (
        quorum_words(quorum.leader_id, quorum.leader_epoch, quorum.high_watermark, quorum.kraft_version)
        if quorum
        else WITHOUT_LEADER
    )
    ready = Text("ready", style="green") if status.ready else Text("not ready", style="yellow")
    head = Text.assemble(f"{status.name} ({status.cluster_id}): ", ready, f"; the quorum is {led}")
    console.print(head, soft_wrap=True)
    console.print(node_table(status, console.width))
    for node in status.nodes:
        if node.problem is not None:
            console.print(Text(f"{node.label}: {node.problem}", "yellow"), soft_wrap=True)
    if status.bootstrap_servers:
        console.print(f"bootstrap servers      {status.bootstrap_servers}", highlight=False, soft_wrap=True)
    console.print(f"bootstrap controllers  {status.bootstrap_controllers}", highlight=False, soft_wrap=True)
    for option, file in (
        ("--bootstrap-server", status.client_config),
        ("--bootstrap-controller", status.controllers_client_config),
    ):
        if file is not None:
            line = f"with {option} use --command-config {_shown_path(Path(file))}"
            console.print(line, highlight=False, soft_wrap=True)
    if status.java:
        console.print(f"Kafka runs on          {status.java}", highlight=False, soft_wrap=True)
    show_plan(console, status)


def show_plan(console: Console, status: ClusterStatus) -> None:
    """Show the remaining steps, the refusals, and the old addresses that clients can still use."""
    steps, refusals = status.plan["steps"], status.plan["refusals"]
    if steps:
        console.print("\nremaining steps:", highlight=False)
    for place, step in enumerate(steps, start=1):
        console.print(Text(f"  {place}. {step['text']}"), soft_wrap=True)
    for refusal in refusals:
        console.print(Text(f"refused ({refusal['code']}): {refusal['message']}", "yellow"), soft_wrap=True)
    if status.trouble:
        console.print(Text(f"the last step failed: {status.trouble}", "yellow"), soft_wrap=True)
    for address in status.addresses:
        if address["retiredAtMs"] is not None:
            users = "" if address["connections"] is None else f", {address['connections']} connections"
            text = f"{address['address']} is no longer advertised and still leads to node {address['nodeId']}{users}"
            console.print(Text(text), soft_wrap=True)


def node_table(status: ClusterStatus, width: int) -> Table:
    """A row for each node, with the directory ids if they fit into `width` columns."""
    leader_id = status.quorum.leader_id if status.quorum else None
    table = Table(box=None, pad_edge=False, header_style="dim")
    headings = ["NODE", "STATE", "ADDRESS", "PID", "MEMORY"]
    if width >= WIDTH_WITH_DIRECTORY_IDS:
        headings.append("DIRECTORY ID")
    for heading in headings:
        table.add_column(heading, no_wrap=True, justify="right" if heading in ("PID", "MEMORY") else "left")
    for node in status.nodes:
        state = f"{node.state}, active" if node.node_id == leader_id else node.state
        cells: list[str | Text] = [
            node.label,
            Text(state, style=STATE_STYLES.get(NodeState(node.state), "")),
            node.address,
            "" if node.pid is None else str(node.pid),
            "" if node.rss_bytes is None else f"{node.rss_bytes / 2**20:.0f} MB",
            node.directory_id or "",
        ]
        table.add_row(*cells[: len(headings)])
    return table


def next_lines(status: ClusterStatus, tools: Path, arguments: Sequence[str]) -> list[str]:
    """Commands to try next, ready to be typed. `arguments` are the options that select the cluster, if needed."""
    lines = []
    if status.bootstrap_servers:
        tool = _shown_path(tools)
        lines += [
            f"{tool}/kafka-topics --create --topic greetings --partitions 3",
            f"echo 'hello, quorum' | {tool}/kafka-console-producer --topic greetings",
            f"{tool}/kafka-console-consumer --topic greetings --from-beginning --max-messages 1",
            f"{tool}/kafka-metadata-quorum describe --status",
        ]
    if status.quorum is not None:
        kill = command_line(f"kill {status.quorum.leader_id}", arguments)
        lines.append(f"{kill}    # another controller takes over")
    return [*lines, command_line("status", arguments)]


def command_line(command: str, arguments: Sequence[str]) -> str:
    """A command of `quorate play`, as a user can type it in the working directory."""
    return " ".join([_own_name(), "play", command, *map(shlex.quote, arguments)])


def show_next(console: Console, lines: Sequence[str], ending: str) -> None:
    """Commands to try next, and how to stop the cluster."""
    console.print("\nTry next, in another terminal:" if ending.startswith("Ctrl") else "\nTry next:")
    for line in lines:
        console.print(f"  {line}", highlight=False, markup=False, soft_wrap=True)
    console.print(ending, highlight=False, soft_wrap=True)


def _own_name() -> str:
    """The name of this command: `quorate` if the PATH has it, otherwise its path."""
    script = Path(sys.argv[0])
    found = shutil.which("quorate")
    if found and script.name == "quorate" and Path(found).resolve() == script.resolve():
        return "quorate"
    return shlex.quote(_shown_path(script)) if script.name == "quorate" else "python -m quorate"


def _shown_path(path: Path) -> str:
    """The path, relative to the working directory if it is below it, and quoted for a shell."""
    path = path.absolute()
    here = Path.cwd()
    return shlex.quote(str(path.relative_to(here)) if path.is_relative_to(here) else str(path))


def print_logs(logs: Mapping[str, Path], lines: int, write: Write) -> None:
    """The last lines of each log, with the node's name in front where there are several."""
    for label, log in logs.items():
        for line in tail(log, lines):
            write(f"{_prefix(label, logs)}{line}\n")


def follow_logs(logs: Mapping[str, Path], lines: int, write: Write) -> None:
    """The last lines of each log and then what is added, until interrupted."""
    with ExitStack() as files:
        followed = {label: _Followed(log, files) for label, log in logs.items()}
        print_logs(logs, lines, write)
        while True:
            for label, log in followed.items():
                for line in log.new_lines():
                    write(f"{_prefix(label, logs)}{line}\n")
            time.sleep(FOLLOW_EVERY_S)


def tail(log: Path, lines: int) -> list[str]:
    """The last lines of a log; none if it is not there."""
    try:
        with log.open("rb") as file:
            size = file.seek(0, 2)
            file.seek(max(0, size - TAIL_BYTES_MAX))
            text = file.read().decode(errors="replace")
    except FileNotFoundError:
        return []
    return list(deque(text.splitlines(), maxlen=lines))


class _Followed:
    """A log that is read to its end again and again; from its start, if it was truncated."""

    def __init__(self, log: Path, files: ExitStack) -> None:
        self._log = log
        self._files = files
        self._file: BinaryIO | None = None
        self._rest = b""
        self._open(at_end=True)

    def new_lines(self) -> list[str]:
        """Return the complete lines that were added since the last call."""
        if self._file is None:
            self._open(at_end=False)
        if self._file is None:
            return []
        if self._log.exists() and self._log.stat().st_size < self._file.tell():
            self._file.seek(0)
        *whole, self._rest = (self._rest + self._file.read()).split(b"\n")
        return [line.decode(errors="replace") for line in whole]

    def _open(self, *, at_end: bool) -> None:
        if self._log.exists():
            self._file = self._files.enter_context(self._log.open("rb"))
            if at_end:
                self._file.seek(0, 2)


def _prefix(label: str, logs: Mapping[str, Path]) -> str:
    return f"{label} | " if len(logs) > 1 else ""
