"""`quorate play`: a whole cluster on this machine, from its manifests."""

import asyncio
import os
import signal
import sys
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AbstractContextManager, suppress
from pathlib import Path
from typing import Annotated

import typer
from quorate_operator.models.manifests import ManifestError, load_manifests
from quorate_operator.planning.steps import StepError
from quorate_operator.runtime.local import play_session
from quorate_operator.runtime.local.directory import PlayDirectory
from quorate_operator.runtime.local.errors import (
    AlreadyRunningError,
    NotAnsweringError,
    NotRunningError,
    PlayError,
)
from quorate_operator.runtime.local.layout import Layout
from quorate_operator.runtime.local.status import ClusterStatus, idle_status
from quorate_operator.runtime.local.supervisor import Snapshot

from quorate.console import (
    Output,
    examples,
    flag,
    option,
    parse_duration_s,
    plain_app,
    print_json,
    report_failures,
    write,
)
from quorate.play.display import (
    ProgressDisplay,
    command_line,
    console_for,
    follow_logs,
    next_lines,
    print_logs,
    show_next,
    show_status,
    tail,
)
from quorate.play.options import QUICKSTART, DirOption, FileOption, LongFileOption, OutputOption, given
from quorate.play.patience import Patience
from quorate.play.plan_command import EXAMPLES as EXAMPLES_OF_PLAN
from quorate.play.plan_command import plan

SHOW_EVERY_S = 0.2
SUPERVISOR_TIMEOUT_S = 5
CRASHES_MAX = 3
"""The number of crashes in a row after which a node of a starting cluster counts as failed."""

EXAMPLES = examples(
    "quorate play",
    "quorate play plan -f cluster.yaml",
    "quorate play -f cluster.yaml --detach",
    "quorate play kill 3000",
)

app = plain_app(add_completion=False)


def _signal(text: str) -> signal.Signals:
    name = text.upper() if text.upper().startswith("SIG") else f"SIG{text.upper()}"
    try:
        return signal.Signals[name]
    except KeyError:
        raise typer.BadParameter(f"{text!r} is not the name of a signal, as KILL, TERM or STOP are") from None


@app.callback(invoke_without_command=True, epilog=EXAMPLES)
def play(
    context: typer.Context,
    *,
    file: FileOption = None,
    directory: DirOption = None,
    detach: Annotated[
        bool, flag("--detach", "Return when the cluster is ready and leave it running.")
    ] = False,
    wait_s: Annotated[
        float,
        option(
            "TIME",
            "How long to wait without progress until the cluster is ready, such as 90s or 2m.",
            names=("--wait",),
            parser=parse_duration_s,
        ),
    ] = "120s",  # type: ignore[assignment]  # parsed like a value on the command line
    without_brokers: Annotated[
        bool, flag("--without-brokers", "Run the controllers alone, which needs no Java.")
    ] = False,
    output: OutputOption = Output.TABLE,
) -> None:
    """Run a cluster on this machine: three Python controllers and a stock Kafka broker, unless FILE has others.

    It runs until Ctrl-C, or with --detach until `quorate play stop`.
    Data is kept in DIR, and the next run continues with it.
    If the cluster runs already, FILE is applied to it step by step. --wait counts from the last progress.
    Brokers need Java on this machine.
    """
    if context.invoked_subcommand is not None:
        context.obj = (file, directory)
        return
    with _report_failures():
        manifest, source = play_session.read_manifests(file or [QUICKSTART])
        name = load_manifests(manifest, source).controllers.metadata.name
        progress = ProgressDisplay(console_for(sys.stderr))
        found = play_session.directory_of(name, directory)
        progress.note(f"Starting cluster {name} in {found.path}")
        try:
            with progress:
                prepared = play_session.prepare(
                    manifest, source, directory, os.environ, progress.say, without_brokers=without_brokers
                )
        except AlreadyRunningError:
            with progress:
                request = play_session.ask_for(
                    manifest, source, directory, os.environ, progress.say, without_brokers=without_brokers
                )
                request = play_session.prepared_to_start(request, progress.say)
            _warn(progress, request.notes)
            asyncio.run(_apply_to_running(request, progress, wait_s, output))
            return
        _warn(progress, prepared.notes)
        run = _detached if detach else _in_foreground
        asyncio.run(run(prepared.layout, progress, wait_s, output))


app.command(epilog=EXAMPLES_OF_PLAN)(plan)


@app.command()
def status(
    context: typer.Context,
    file: FileOption = None,
    directory: DirOption = None,
    output: OutputOption = Output.TABLE,
) -> None:
    """Show the state of a cluster, running or not."""
    with _report_failures():
        found = _find(context, file, directory)
        try:
            state = asyncio.run(play_session.ask_snapshot(found)).status
        except NotRunningError:
            state = idle_status(play_session.recall(found))
        _show_state(state, output)


@app.command()
def stop(context: typer.Context, file: FileOption = None, directory: DirOption = None) -> None:
    """Stop a cluster in order: brokers first, the active controller last. Its data is kept."""
    with _report_failures():
        found = _find(context, file, directory)
        try:
            asyncio.run(_stop(found, ProgressDisplay(console_for(sys.stderr))))
            write("Stopped.\n")
        except NotRunningError:
            console_for(sys.stderr).print(f"The cluster in {found.path} is not running.", highlight=False)


@app.command()
def logs(
    context: typer.Context,
    *,
    node: Annotated[
        str | None, typer.Argument(help="Node, such as 3000 or controller-3000 (default: all).")
    ] = None,
    file: LongFileOption = None,
    directory: DirOption = None,
    follow: Annotated[bool, option(None, "Keep printing new lines.", names=("--follow", "-f"))] = False,
    lines: Annotated[
        int, option(None, "Number of last lines of each log.", names=("--lines", "-n"), min=0)
    ] = 50,
) -> None:
    """Print the logs of one or all nodes."""
    with _report_failures():
        layout = play_session.recall(_find(context, file, directory))
        wanted = play_session.node_id_of(layout, node) if node is not None else None
        selected = {
            node.label: layout.directory.node_log(node.label)
            for node in layout.desired.nodes
            if wanted in (None, node.node_id)
        }
        show = follow_logs if follow else print_logs
        show(selected, lines, write)


@app.command()
def kill(
    context: typer.Context,
    node: Annotated[str, typer.Argument(help="Node, such as 3000 or controller-3000.")],
    file: FileOption = None,
    directory: DirOption = None,
    number: Annotated[
        signal.Signals,
        option("NAME", "The signal: KILL, TERM, STOP, CONT ...", names=("--signal",), parser=_signal),
    ] = "KILL",  # type: ignore[assignment]  # parsed like a value on the command line
) -> None:
    """Send a signal to the process of a node. A process that ends is restarted."""
    with _report_failures():
        found = _find(context, file, directory)
        node_id = play_session.node_id_of(play_session.recall(found), node)
        pid = asyncio.run(play_session.ask_kill(found, node_id, number))
        write(f"sent {number.name} to node {node_id} (pid {pid})\n")


@app.command(hidden=True)
def supervise(
    directory: Annotated[Path, option(None, None, names=("--dir",))],
    lock_descriptor: Annotated[int, option(None, None)],
) -> None:
    """Supervise a prepared cluster: what `play --detach` leaves behind."""
    with _report_failures():
        found = PlayDirectory(directory)
        found.adopt(lock_descriptor)
        layout = play_session.recall_to_run(found, os.environ)
        asyncio.run(_supervise(layout))


async def _supervise(layout: Layout) -> None:
    await play_session.supervise(layout, play_session.supervisor_of(layout, os.environ))


async def _in_foreground(layout: Layout, progress: ProgressDisplay, wait_s: float, output: Output) -> None:
    supervisor = play_session.supervisor_of(layout, os.environ)
    running = asyncio.create_task(play_session.supervise(layout, supervisor))
    failure: PlayError | StepError | None = None

    async def snapshot(since: int) -> Snapshot:
        if running.done():
            await running  # raises the error that ended it
        return await supervisor.snapshot(since)

    try:
        with progress:
            ready = await _until_ready(snapshot, layout, progress, Patience(wait_s))
        if ready is not None:
            _show_ready(ready, layout, output, "Ctrl-C stops the cluster.")
        while not running.done() and not supervisor.stopping:
            progress.show_events(supervisor.events_after(progress.seen))
            await asyncio.wait([running], timeout=SHOW_EVERY_S)
    except (PlayError, StepError) as error:
        failure = error
        if not supervisor.stopping:
            supervisor.request_stop()
    with progress:
        while not running.done():
            progress.show(await supervisor.snapshot(progress.seen))
            await asyncio.wait([running], timeout=SHOW_EVERY_S)
    progress.show_events(supervisor.events_after(progress.seen))
    ended_by = await running
    if failure is not None:
        raise failure
    progress.note(f"Stopped. Data is kept in {layout.directory.path}.")
    if ended_by is signal.SIGINT:
        raise typer.Exit(128 + ended_by)


async def _detached(layout: Layout, progress: ProgressDisplay, wait_s: float, output: Output) -> None:
    directory, patience = layout.directory, Patience(wait_s)
    play_session.supervise_detached(layout)

    async def snapshot(since: int) -> Snapshot:
        while True:
            try:
                return await _patient_snapshot(directory, since, patience)
            except NotRunningError:
                if not directory.held:
                    raise PlayError(_with_log("the supervisor ended", directory.supervisor_log)) from None
                await asyncio.sleep(SHOW_EVERY_S)  # it is starting

    try:
        with progress:
            ready = await _until_ready(snapshot, layout, progress, patience)
    except (PlayError, StepError, asyncio.CancelledError):  # the latter is Ctrl-C
        if directory.held:
            await _stop(directory, progress)
        raise
    if ready is None:
        raise PlayError("the cluster was stopped before it was ready")
    stop_line = command_line("stop", _selecting(directory))
    _show_ready(ready, layout, output, f"`{stop_line}` stops the cluster.")


async def _apply_to_running(
    request: play_session.Request, progress: ProgressDisplay, wait_s: float, output: Output
) -> None:
    """Send the manifest to the supervisor of the running cluster, and wait until it is applied."""
    directory = request.directory
    progress.seen = await _asked_to_play(request)
    progress.note("Already running; applying this manifest.")
    patience = Patience(wait_s)
    with progress:
        while True:
            snapshot = await _patient_snapshot(directory, progress.seen, patience)
            patience.note(snapshot.events)
            progress.show(snapshot)
            if snapshot.stopping:
                raise PlayError("the cluster was stopped before the manifest was applied")
            if snapshot.status.settled:
                break
            if patience.is_over:
                raise PlayError(_unsettled(snapshot, wait_s, directory))
            await asyncio.sleep(SHOW_EVERY_S)
    _show_state(snapshot.status, output)
    for refusal in snapshot.status.plan["refusals"]:
        progress.warn(f"refused ({refusal['code']}): {refusal['message']}")


async def _patient_snapshot(directory: PlayDirectory, since: int, patience: Patience) -> Snapshot:
    """Return the supervisor's snapshot. Asks again, as long as there is patience, if it does not answer."""
    while True:
        try:
            return await play_session.ask_snapshot(directory, since)
        except NotAnsweringError:
            if patience.is_over:
                raise


async def _asked_to_play(request: play_session.Request) -> int:
    """Send the request. Returns the number of the last event before it. Waits for a supervisor that is starting."""
    loop = asyncio.get_running_loop()
    deadline = loop.time() + SUPERVISOR_TIMEOUT_S
    while True:
        try:
            return await play_session.ask_play(request)
        except NotRunningError:
            if loop.time() >= deadline:
                raise AlreadyRunningError(
                    f"the cluster in {request.directory.path} is already running, and its supervisor does not answer"
                ) from None
            await asyncio.sleep(SHOW_EVERY_S)


def _unsettled(snapshot: Snapshot, wait_s: float, directory: PlayDirectory) -> str:
    waits = "; ".join(snapshot.waits) or "the nodes"
    trouble = f" The last step failed: {snapshot.status.trouble}." if snapshot.status.trouble else ""
    status_line = command_line("status", _selecting(directory))
    return (
        f"not applied, and no progress for {wait_s:g} s, still waiting for {waits}.{trouble} The cluster continues: "
        f"`{status_line}` shows the progress"
    )


def _warn(progress: ProgressDisplay, notes: Sequence[str]) -> None:
    for note in notes:
        progress.warn(note)


async def _until_ready(
    snapshot_since: Callable[[int], Awaitable[Snapshot]],
    layout: Layout,
    progress: ProgressDisplay,
    patience: Patience,
) -> Snapshot | None:
    """Return the first snapshot in which the cluster is ready; None if it was stopped before. Raises PlayError."""
    while True:
        snapshot = await snapshot_since(progress.seen)
        patience.note(snapshot.events)
        progress.show(snapshot)
        if snapshot.failure is not None:
            raise PlayError(snapshot.failure)
        if snapshot.stopping:
            return None
        if snapshot.status.ready:
            return snapshot
        crashing = [node_id for node_id, exits in snapshot.exits_in_a_row.items() if exits >= CRASHES_MAX]
        if crashing:
            label = layout.node(crashing[0]).label
            log = layout.directory.node_log(label)
            raise PlayError(_with_log(f"{label} crashed {CRASHES_MAX} times in a row while starting", log))
        if patience.is_over:
            waits = "; ".join(snapshot.waits) or "the nodes to start"
            raise PlayError(
                f"not ready, and no progress for {patience.wait_s:g} s, still waiting for {waits}. The logs are in "
                f"{layout.directory.path}; --wait 5m waits longer"
            )
        await asyncio.sleep(SHOW_EVERY_S)


async def _stop(directory: PlayDirectory, progress: ProgressDisplay) -> None:
    snapshot = await play_session.ask_snapshot(directory)
    progress.seen = max((event.sequence for event in snapshot.events), default=0)
    await play_session.ask_stop(directory)
    with progress:
        while directory.held:
            with suppress(NotRunningError):  # it may be about to release the lock
                progress.show(await play_session.ask_snapshot(directory, progress.seen))
            await asyncio.sleep(SHOW_EVERY_S)


def _show_ready(snapshot: Snapshot, layout: Layout, output: Output, ending: str) -> None:
    _show_state(snapshot.status, output)
    if output is not Output.JSON:
        lines = next_lines(snapshot.status, layout.directory.tools, _selecting(layout.directory))
        show_next(console_for(sys.stdout), lines, ending)


def _show_state(status: ClusterStatus, output: Output) -> None:
    if output is Output.JSON:
        print_json(status.as_json())
    else:
        show_status(console_for(sys.stdout), status)


def _find(context: typer.Context, file: list[Path] | None, directory: Path | None) -> PlayDirectory:
    """The directory of the cluster: --dir, the one named in --file, or the only one that exists."""
    file, directory = given(context, file, directory)
    if directory is None and file:
        name = load_manifests(*play_session.read_manifests(file)).controllers.metadata.name
        directory = play_session.directory_of(name, None).path
    if directory is None:
        played = play_session.played_clusters()
        if len(played) > 1:
            names = ", ".join(str(path) for path in played)
            raise PlayError(f"there are several played clusters ({names}); choose one with --dir")
        directory = played[0] if played else play_session.DEFAULT_ROOT
    found = PlayDirectory(directory)
    if not found.exists:
        raise PlayError(f"no cluster was played in {found.path}; choose one with --dir")
    return found


def _selecting(directory: PlayDirectory) -> list[str]:
    """The options that a command needs to find this cluster from the working directory; empty if it needs none."""
    played = [path.absolute() for path in play_session.played_clusters()]
    return [] if played == [directory.path] else ["--dir", str(directory.path)]


def _with_log(text: str, log: Path) -> str:
    last = "\n".join(f"  {line}" for line in tail(log, 8))
    return f"{text}; the end of {log}:\n{last}" if last else f"{text}; {log} is empty"


def _report_failures() -> AbstractContextManager[None]:
    return report_failures(PlayError, StepError, ManifestError)
