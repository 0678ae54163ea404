"""The command `quorate reassign-partitions`."""

from collections.abc import Awaitable, Callable, Collection
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from quorate.console import (
    examples,
    option,
    parse_file,
    print_json,
    run,
    show,
    tool_app,
    tool_options,
    write,
)
from quorate.console.jopt import given_options, one_action, options_command, refuse, require

if TYPE_CHECKING:
    from quorate_admin.client import AdminClient

    from quorate.tools.reassign_partitions.actions import Say

ACTIONS = {
    "--generate": "Propose where the partitions of topics could be; nothing is moved.",
    "--execute": "Begin to move partitions.",
    "--verify": "Report the progress of the moves; once all are complete, remove the throttles.",
    "--cancel": "Move back what is still moving.",
    "--list": "List all moves of partitions that are under way.",
}
FLAGS = {
    "--disable-rack-aware": "With --generate: ignore racks.",
    "--additional": "With --execute: in addition to reassignments in progress, or to change the throttle.",
    "--preserve-throttles": "With --verify, --cancel: keep the throttles.",
    "--disallow-replication-factor-change": "With --execute: refuse to change the number of replicas.",
}
_REQUIRED = {
    "--generate": ("--topics-to-move-json-file", "--broker-list"),
    "--execute": ("--reassignment-json-file",),
    "--verify": ("--reassignment-json-file",),
    "--cancel": ("--reassignment-json-file",),
    "--list": (),
}
_PERMITTED = {
    "--generate": ("--disable-rack-aware",),
    "--execute": (
        "--additional",
        "--throttle",
        "--replica-alter-log-dirs-throttle",
        "--timeout",
        "--disallow-replication-factor-change",
    ),
    "--verify": ("--preserve-throttles",),
    "--cancel": ("--preserve-throttles", "--timeout"),
    "--list": (),
}
_OPTIONS = {option for table in (_REQUIRED, _PERMITTED) for options in table.values() for option in options}
TIMEOUT_MS_DEFAULT = 10_000
CLIENT_DEFAULTS = {"client.id": "reassign-partitions-tool"}


EXAMPLES = examples(
    "quorate reassign-partitions -b localhost:9092 --generate --topics-to-move-json-file t.json --broker-list 1,2,3",
    "quorate reassign-partitions -b localhost:9092 --execute --reassignment-json-file moves.json",
    "quorate reassign-partitions -b localhost:9092 --verify --reassignment-json-file moves.json",
)

app = tool_app()


@app.command(cls=options_command(ACTIONS, FLAGS), epilog=EXAMPLES)
def reassign_partitions(
    context: typer.Context,
    *,
    reassignment_json_file: Annotated[
        Path | None,
        option(
            "FILE",
            "The assignment: "
            '{"version":1,"partitions":[{"topic":"t","partition":0,"replicas":[1,2],"log_dirs":["any","/d"]}]};'
            " log_dirs may be omitted.",
        ),
    ] = None,
    topics_to_move_json_file: Annotated[
        Path | None, option("FILE", 'With --generate: the topics, {"version":1,"topics":[{"topic":"t"}]}.')
    ] = None,
    broker_list: Annotated[str | None, option("ID,ID,...", "With --generate: the target brokers.")] = None,
    throttle: Annotated[
        int, option("BYTES", "With --execute: bytes per second between brokers.", show_default=False)
    ] = -1,
    replica_alter_log_dirs_throttle: Annotated[
        int, option("BYTES", "With --execute: bytes per second between directories.", show_default=False)
    ] = -1,
    timeout: Annotated[
        int, option("MS", "How long to wait until moves between directories can start.")
    ] = TIMEOUT_MS_DEFAULT,
) -> None:
    """Move replicas of partitions between brokers and log directories.

    Give exactly one action. With --bootstrap-controller, only --cancel and --list are possible.
    """
    given = given_options(context)
    action = check_options(given)
    preserve_throttles = "--preserve-throttles" in given
    if action == "--list":
        _list(context)
        return
    from quorate.tools.reassign_partitions import actions, files

    if action == "--generate":
        assert topics_to_move_json_file is not None
        assert broker_list is not None
        brokers = files.parse_broker_list(broker_list)
        topics = parse_file(topics_to_move_json_file, "--topics-to-move-json-file", files.parse_topics)
        _run(
            context,
            partial(
                actions.generate,
                topics=topics,
                brokers=brokers,
                rack_aware="--disable-rack-aware" not in given,
            ),
        )
        return
    assert reassignment_json_file is not None
    wanted = parse_file(reassignment_json_file, "--reassignment-json-file", files.parse_reassignment)
    if action == "--execute":
        execute = partial(
            actions.execute,
            wanted=wanted,
            limits=actions.Throttles(inter_broker=throttle, log_dirs=replica_alter_log_dirs_throttle),
            additional="--additional" in given,
            allow_replication_factor_change="--disallow-replication-factor-change" not in given,
            timeout_ms=timeout,
        )
        _run(context, execute)
    elif action == "--verify":
        _run(context, partial(actions.verify, wanted=wanted, preserve_throttles=preserve_throttles))
    else:
        cancel = partial(
            actions.cancel, wanted=wanted, preserve_throttles=preserve_throttles, timeout_ms=timeout
        )
        _run(context, cancel)


def check_options(given: Collection[str]) -> str:
    """Return the action. Raises UsageError for options that exclude each other."""
    action = one_action(given, tuple(ACTIONS))
    require(given, action, *_REQUIRED[action])
    refuse(given, action, sorted(_OPTIONS - {*_REQUIRED[action], *_PERMITTED[action]}))
    if action not in {"--cancel", "--list"}:
        refuse(given, action, ("--bootstrap-controller",))
    return action


def _run(context: typer.Context, work: "Callable[[AdminClient, Say], Awaitable[dict[str, Any]]]") -> None:
    """Print text as the action proceeds, or JSON at its end."""
    is_json = tool_options(context).is_json

    def say(text: str) -> None:
        if not is_json:
            write(text)

    content = run(lambda admin: work(admin, say), context, defaults=CLIENT_DEFAULTS)
    if is_json:
        print_json(content)


def _list(context: typer.Context) -> None:
    from quorate.tools.reassign_partitions import states

    found = run(lambda admin: admin.list_partition_reassignments(), context, defaults=CLIENT_DEFAULTS)
    show(context, lambda: states.reassignments_text(found), lambda: states.reassignments_json(found))
