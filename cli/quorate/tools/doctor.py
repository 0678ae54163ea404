"""`quorate doctor`: problems of a cluster and blockers of upgrades, with commands to fix them."""

import os
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Any

import typer

from quorate.console import (
    CommandError,
    ToolCommand,
    UsageError,
    admin_config,
    aligned_text,
    examples,
    option,
    print_failure,
    run,
    show,
    tool_app,
    tool_options,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

    from quorate_admin.client import AdminClient
    from quorate_admin.config import AdminConfig
    from quorate_admin.diagnosis import ClientFacts, Diagnosis, Examination, FeatureOutlook, Finding
    from quorate_admin.diagnosis.history import Past, Row

WIDTH = 110
_LABEL_WIDTH = 9
LAKE_TIMEOUT_S = 300
_COLOURS = {"danger": typer.colors.RED, "blocked": typer.colors.MAGENTA, "warning": typer.colors.YELLOW}

EXAMPLES = examples(
    "quorate doctor -C localhost:9093",
    "quorate doctor -b localhost:9092 -o json",
    "quorate doctor -b broker-0:9092 --clients http://broker-0:9404/metrics,http://broker-1:9404/metrics",
)

app = tool_app()


@app.command(cls=ToolCommand, epilog=EXAMPLES)
def doctor(
    context: typer.Context,
    history: Annotated[
        str | None, option("LAKE", "A lake of `quorate lake`, to report the history of blockers.")
    ] = None,
    clients: Annotated[
        str | None,
        option("URL,...", "The metrics of the brokers, to report clients that a change of hosts would lose."),
    ] = None,
) -> None:
    """Examine a cluster and report problems and blockers of upgrades, with the next command for each.

    It reports a missing leader; voters, observers and brokers that are down, lag, or are not registered; partitions
    without a leader or below min.insync.replicas; addresses that differ; registrations of stopped nodes, and the
    feature levels that they block; and what it could not examine. It changes nothing. With --bootstrap-controller it
    works without brokers, and reads registrations that brokers do not return. With --history it reports since when a
    node has blocked a level, when it last registered, until when it was a voter, and which node has its address now.
    With --clients it reports which clients of the brokers do not start again at their bootstrap servers when all
    hosts change; the URLs are those of Prometheus' JMX exporter in each broker.

    Exit code: 0 if there are no findings or only notes, 1 if there are others or no node answers, 2 if the command
    line is wrong.
    """
    from quorate_admin.diagnosis import Commands, diagnose

    options = tool_options(context)
    config = admin_config(options)
    facts = _examine(context, config, clients)
    file = None if options.command_config is None else str(options.command_config)
    found = diagnose(facts, Commands.through(options.bootstrap_arguments, facts, file))
    pasts, problem = _pasts(history, facts, found)
    show(
        context,
        lambda: diagnosis_text(facts, found, _paint, pasts),
        lambda: diagnosis_json(facts, found, pasts),
    )
    if problem is not None:
        print_failure(str(problem))
    if problem is not None or not found.is_healthy:
        raise typer.Exit(1)


def _examine(context: typer.Context, config: "AdminConfig", clients: str | None) -> "Examination":
    """The facts of the cluster and, if there are URLs of metrics, of its clients."""
    from quorate_admin.examination import examine

    if clients is None:
        return run(lambda admin: examine(admin, config), context, is_watched=False)
    from dataclasses import replace

    from quorate_admin.client_metrics import parse_urls, read_clients
    from quorate_admin.errors import ConfigError

    try:
        urls = parse_urls(clients)
    except ConfigError as error:
        raise UsageError(f"--clients: {error}") from error

    async def with_clients(admin: "AdminClient") -> "Examination":
        return replace(await examine(admin, config), clients=await read_clients(urls))

    return run(with_clients, context, is_watched=False)


Paint = Callable[[str, str], str]
"""Colours a text by severity."""
Pasts = Mapping[int, "Past"]
"""The history by index of the finding."""


def diagnosis_text(
    facts: "Examination",
    diagnosis: "Diagnosis",
    paint: Paint = lambda _, text: text,
    pasts: Pasts | None = None,
) -> str:
    """A diagnosis as text."""
    known = pasts or {}
    parts = [
        _summary(facts),
        *(
            _finding_text(finding, paint, known.get(place))
            for place, finding in enumerate(diagnosis.findings)
        ),
    ]
    if not diagnosis.findings:
        parts.append("Nothing is wrong.\n")
    if diagnosis.outlooks:
        parts.append(_outlook_text(diagnosis.outlooks))
    if facts.clients is not None:
        parts.append(_clients_text(facts.clients))
    return "\n".join(parts)


def diagnosis_json(
    facts: "Examination", diagnosis: "Diagnosis", pasts: Pasts | None = None
) -> dict[str, Any]:
    """A diagnosis as JSON."""
    from quorate_admin.diagnosis.history import past_json

    return {
        "clusterId": facts.cluster_id,
        "healthy": diagnosis.is_healthy,
        "leaderId": None if facts.quorum is None else facts.quorum.leader_id,
        "registrationsFromLog": facts.is_log_read,
        "partitions": _partitions_json(facts),
        "clients": None if facts.clients is None else _clients_json(facts.clients),
        "findings": [
            {
                "id": finding.finding_id,
                "severity": finding.severity,
                "code": finding.code,
                "message": finding.message,
                "evidence": finding.evidence,
                "advice": finding.advice,
                "commands": list(finding.commands),
                "nodeKind": finding.node_kind,
                "nodeId": finding.node_id,
                "blocks": {feature: list(levels) for feature, levels in finding.blocks.items()},
                "count": finding.count,
                "examples": list(finding.examples),
                **({} if pasts is None else {"past": past_json(pasts[place]) if place in pasts else None}),
            }
            for place, finding in enumerate(diagnosis.findings)
        ],
        "features": [
            {
                "feature": outlook.feature,
                "finalizedLevel": outlook.finalized,
                "reachableLevel": outlook.reachable,
                "highestLevel": outlook.target,
                "blockers": [
                    {
                        "nodeKind": blocker.kind,
                        "nodeId": blocker.node_id,
                        "registered": blocker.is_registered,
                        "minLevel": blocker.lowest,
                        "maxLevel": blocker.highest,
                    }
                    for blocker in outlook.blockers
                ],
                "obstacle": outlook.obstacle,
            }
            for outlook in diagnosis.outlooks
        ],
    }


def _partitions_json(facts: "Examination") -> dict[str, int] | None:
    known = facts.partitions
    if known is None:
        return None
    return {
        "topics": known.topics,
        "partitions": known.partitions,
        "offline": known.offline.count,
        "underMinIsr": known.under_min_isr.count,
    }


def _clients_json(clients: "ClientFacts") -> dict[str, Any]:
    judged = [(client, *client.judge()) for client in clients.clients]
    return {
        "brokersExamined": len(clients.examined),
        "connections": [
            {
                "name": client.name,
                "version": client.version,
                "listener": client.listener,
                "connections": client.connections,
                "rebootstraps": rebootstraps,
                "reason": reason,
            }
            for client, rebootstraps, reason in judged
        ],
        "apiVersionsRequests": {str(version): count for version, count in clients.api_versions.items()},
        "misrouted": sum(clients.misrouted.values()),
    }


def _summary(facts: "Examination") -> str:
    from quorate_admin.diagnosis import Subject
    from quorate_protocol.features import KRAFT_VERSION, METADATA_VERSION, metadata_version_name

    level = facts.finalized(METADATA_VERSION)
    if Subject.QUORUM in facts.unexamined:
        quorum = "leader unknown"
    elif facts.quorum is None:
        quorum = "no leader"
    else:
        count = len(facts.quorum.voters)
        quorum = f"leader {facts.quorum.leader_id}, {count} voter{'s' if count > 1 else ''}"
    if facts.cluster_id is None or level == 0:
        # A controller that has found no leader since its start does not know its cluster's metadata.
        known = "" if facts.cluster_id is None else f" {facts.cluster_id}"
        return f"Cluster{known}: {quorum}, {METADATA_VERSION} unknown\n"
    return (
        f"Cluster {facts.cluster_id}: {quorum}, {METADATA_VERSION} {level} ({metadata_version_name(level)}), "
        f"{KRAFT_VERSION} {facts.finalized(KRAFT_VERSION)}{_partitions_text(facts)}\n"
    )


def _partitions_text(facts: "Examination") -> str:
    known = facts.partitions
    if known is None:
        return ""
    return f", {known.partitions} partition{'' if known.partitions == 1 else 's'}"


def _pasts(
    lake: str | None, facts: "Examination", diagnosis: "Diagnosis"
) -> tuple[Pasts | None, CommandError | None]:
    """The history of each finding that has one, or the error of the lake, which is reported after the findings."""
    if lake is None or facts.cluster_id is None:
        return None, None
    from quorate_admin.diagnosis.history import HistoryError, past_of

    try:
        tables = read_lake(lake, facts.cluster_id)
        found = {place: past_of(finding, tables) for place, finding in enumerate(diagnosis.findings)}
    except CommandError as error:
        return None, error
    except HistoryError as error:
        return None, CommandError(f"--history {lake}: {error}")
    return {place: past for place, past in found.items() if past is not None}, None


def read_lake(lake: str, cluster_id: str) -> "Mapping[str, Sequence[Row]]":
    """The tables of a lake with the history of one cluster, read by `quorate lake` in a process of its own.

    That process imports Arrow, which is too slow for a tool's start.

    Raises:
        CommandError: the process can't be started, fails or takes too long.
        HistoryError: its output is not what `quorate lake show` prints.
    """
    import json
    import subprocess

    from quorate_admin.diagnosis.history import HistoryError, parse_tables, show_arguments

    # -P: do not import modules from the working directory.
    command = [sys.executable, "-P", "-m", "quorate", *show_arguments(lake, cluster_id)]
    try:
        ran = subprocess.run(  # noqa: S603 - ours
            command,
            capture_output=True,
            text=True,
            timeout=LAKE_TIMEOUT_S,
            check=False,
            env={**os.environ, "NO_COLOR": "1"},
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise CommandError(f"--history {lake}: it can't be read: {error}") from error
    if ran.returncode != 0:
        raise CommandError(f"--history {lake}: {_last_line(ran.stderr)}")
    try:
        return parse_tables(json.loads(ran.stdout))
    except json.JSONDecodeError as error:
        raise HistoryError(f"the output is not JSON: {error}") from error


def _last_line(errors: str) -> str:
    """The last line of stderr."""
    lines = [line.removeprefix("error: ") for line in errors.splitlines() if line.strip()]
    return lines[-1] if lines else "it can't be read"


def _finding_text(finding: "Finding", paint: Paint, past: "Past | None" = None) -> str:
    from quorate_admin.diagnosis.history import past_lines

    label = f"{finding.severity.upper():<{_LABEL_WIDTH}}"
    lines = [paint(finding.severity, label) + finding.message]
    history = None if past is None else " ".join(past_lines(finding, past))
    # The advice comes last, because it ends with a colon and the commands follow.
    for text in (finding.evidence, history, finding.advice):
        if text is not None:
            lines += _wrapped(text)
    lines += [
        f"{'':{_LABEL_WIDTH}}  $ {command}" for command in finding.commands
    ]  # never broken: to be copied
    return "\n".join(lines) + "\n"


def _wrapped(text: str) -> list[str]:
    import textwrap

    indent = " " * _LABEL_WIDTH
    return textwrap.wrap(text, WIDTH, initial_indent=indent, subsequent_indent=indent, break_long_words=False)


def _outlook_text(outlooks: "tuple[FeatureOutlook, ...]") -> str:
    rows = [("Feature", "Finalized", "Possible", "Known", "Held back by")]
    rows += [
        (
            outlook.feature,
            str(outlook.finalized),
            str(outlook.reachable),
            str(outlook.target),
            ", ".join(_holders(outlook)),
        )
        for outlook in outlooks
    ]
    return aligned_text(rows)


def _clients_text(clients: "ClientFacts") -> str:
    """The clients, and what the brokers have received in ApiVersions."""
    rows = [("Client", "Version", "Listener", "Connections", "Starts again")]
    rows += [
        (client.name, client.version, client.listener, str(client.connections), str(client.judge()[0]))
        for client in clients.clients
    ]
    requests = ", ".join(f"{count} of version {version}" for version, count in clients.api_versions.items())
    return aligned_text(rows) + (
        f"\nApiVersions requests since the brokers started: {requests}\n" if requests else ""
    )


def _holders(outlook: "FeatureOutlook") -> "Iterator[str]":
    for blocker in outlook.blockers:
        yield f"{blocker.kind} {blocker.node_id}{'' if blocker.is_registered else ' (not registered)'}"
    if outlook.obstacle is not None:
        yield outlook.obstacle


def _paint(severity: str, text: str) -> str:
    if not sys.stdout.isatty() or "NO_COLOR" in os.environ:
        return text
    return typer.style(text, fg=_COLOURS.get(severity), bold=True)
