"""`quorate leader-election`: elect leaders of partitions, as kafka-leader-election does (KIP-183, KIP-460)."""

from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from quorate.console import (
    INT32_MAX,
    CommandError,
    ToolCommand,
    UsageError,
    examples,
    flag,
    id_option,
    option,
    parse_file,
    parse_json,
    run,
    show,
    tool_app,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from quorate_admin.errors import ServerError
    from quorate_admin.types.partitions import TopicPartition

_DEFAULTS = {"default.api.timeout.ms": "30000", "request.timeout.ms": "15000"}


class Election(StrEnum):
    """The type of an election."""

    PREFERRED = "preferred"
    UNCLEAN = "unclean"


class LeaderElectionCommand(ToolCommand):
    """A command with the former name that Kafka's tool has for --command-config."""

    DEPRECATED_CONFIG = "--admin.config"


EXAMPLES = examples(
    "quorate leader-election -b localhost:9092 --election-type preferred --all-topic-partitions",
)

app = tool_app()


@app.command(cls=LeaderElectionCommand, epilog=EXAMPLES)
def leader_election(
    context: typer.Context,
    *,
    election_type: Annotated[
        Election,
        option(
            None,
            "preferred: the first replica leads again. unclean: any live replica leads where there is no "
            "leader, and records may be lost.",
            case_sensitive=False,
        ),
    ],
    topic: Annotated[str | None, option(None, "The topic of a partition.")] = None,
    partition: Annotated[int | None, id_option("The partition of --topic.")] = None,
    all_topic_partitions: Annotated[
        bool, flag("--all-topic-partitions", "All partitions that need an election.")
    ] = False,
    path_to_json_file: Annotated[
        Path | None,
        option("FILE", 'Elect for what it lists: {"partitions": [{"topic": "foo", "partition": 1}]}.'),
    ] = None,
) -> None:
    """Elect leaders of a partition, of the partitions in a file, or of all partitions."""
    if (topic is not None) + all_topic_partitions + (path_to_json_file is not None) != 1:
        raise UsageError("give one of --topic, --all-topic-partitions and --path-to-json-file")
    if (topic is None) != (partition is None):
        raise UsageError("--topic and --partition go together")
    from quorate_admin.types.partitions import TopicPartition
    from quorate_protocol.kafka.enums import ElectionType

    kind = ElectionType[election_type.name]
    wanted: list[TopicPartition] | None = None
    if topic is not None and partition is not None:
        wanted = [TopicPartition(topic, partition)]
    elif path_to_json_file is not None:
        wanted = parse_file(path_to_json_file, "--path-to-json-file", parse_partitions)
    results = run(lambda admin: admin.elect_leaders(kind, wanted), context, defaults=_DEFAULTS)
    not_needed = {
        key for key, error in results.errors.items() if error.error_code.name == "election_not_needed"
    }
    failed = {key: error for key, error in results.errors.items() if key not in not_needed}
    show(
        context,
        lambda: results_text(kind.name, sorted(results.values), sorted(not_needed), failed),
        lambda: results_json(kind.name, sorted(results.values), sorted(not_needed), failed),
    )
    if failed:
        raise CommandError(f"{len(failed)} replica(s) could not be elected")


def results_text(
    kind: str,
    elected: "Sequence[TopicPartition]",
    not_needed: "Sequence[TopicPartition]",
    failed: "dict[TopicPartition, ServerError]",
) -> str:
    """What Kafka's tool prints."""
    text = ""
    if elected:
        text += f"Successfully completed leader election ({kind}) for partitions {_listed(elected)}\n"
    if not_needed:
        text += f"Valid replica already elected for partitions {_listed(not_needed)}\n"
    for partition, error in sorted(failed.items()):
        text += f"Error completing leader election ({kind}) for partition: {partition}: {error}\n"
    return text


def results_json(
    kind: str,
    elected: "Sequence[TopicPartition]",
    not_needed: "Sequence[TopicPartition]",
    failed: "dict[TopicPartition, ServerError]",
) -> dict[str, Any]:
    """The same as JSON."""

    def named(partition: "TopicPartition") -> dict[str, Any]:
        return {"topic": partition.topic, "partition": partition.partition}

    return {
        "electionType": kind,
        "elected": [named(partition) for partition in elected],
        "notNeeded": [named(partition) for partition in not_needed],
        "failed": [
            named(partition) | {"error": error.error_code.name.upper(), "errorMessage": error.message}
            for partition, error in sorted(failed.items())
        ],
    }


def parse_partitions(text: str) -> "list[TopicPartition]":
    """The partitions in a JSON text. Raises CommandError, which names the entry and what is allowed."""
    import json
    from collections import Counter

    from quorate_admin.types.partitions import TopicPartition

    content = parse_json(text)
    entries = content.get("partitions") if isinstance(content, dict) else None
    if not isinstance(entries, list):
        raise CommandError('it has no top-level list "partitions"')
    partitions = []
    for number, entry in enumerate(entries):
        match entry:
            case {"topic": str(topic), "partition": int(partition)} if (
                type(partition) is int and 0 <= partition <= INT32_MAX
            ):
                partitions.append(TopicPartition(topic, partition))
            case _:
                raise CommandError(
                    f"partitions[{number}] is {json.dumps(entry)}; "
                    'it must be {"topic": a string, "partition": a number from 0 to 2147483647}'
                )
    twice = sorted(str(partition) for partition, times in Counter(partitions).items() if times > 1)
    if twice:
        raise CommandError(f"{', '.join(twice)} occurs more than once")
    return partitions


def _listed(partitions: "Sequence[TopicPartition]") -> str:
    return ", ".join(str(partition) for partition in partitions)
