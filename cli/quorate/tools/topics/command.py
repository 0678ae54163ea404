"""The command `quorate topics`."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Any

import typer
from quorate_admin.errors import (
    ErrorCode,
    RequestTimeoutError,
    ServerError,
    UnreachableError,
    UnsupportedByServerError,
)
from quorate_protocol.java_expressions import UnsupportedExpressionError, compile_java
from quorate_protocol.kafka.metadata_log import INTERNAL_TOPICS
from quorate_protocol.plain_data import dataclass
from quorate_protocol.uuids import ZERO_UUID_TEXT, uuid_from_text, uuid_to_text

from quorate.console import (
    INT32_MAX,
    CommandError,
    UsageError,
    examples,
    option,
    parse_ids,
    run,
    show,
    tool_app,
    tool_options,
    warn,
    write,
)
from quorate.console.jopt import given_options, one_action, only_with, options_command, refuse, require

if TYPE_CHECKING:
    import uuid

    from quorate_admin.client import AdminClient
    from quorate_admin.types.partitions import PartitionReassignment, TopicPartition

    from quorate.tools.topics.describe import DescribedTopic

ACTIONS = {
    "--create": "Create a topic.",
    "--list": "List the names of topics.",
    "--alter": "Give topics more partitions.",
    "--describe": "Describe topics and their partitions.",
    "--delete": "Delete topics.",
}
REPORTS = {
    "--under-replicated-partitions": "Only partitions with replicas that are not in sync.",
    "--unavailable-partitions": "Only partitions without a live leader.",
    "--under-min-isr-partitions": "Only partitions below min.insync.replicas.",
    "--at-min-isr-partitions": "Only partitions at min.insync.replicas.",
}


FLAGS = {
    **REPORTS,
    "--topics-with-overrides": "Only topics with overridden configs.",
    "--if-exists": "Succeed if the topic does not exist.",
    "--if-not-exists": "Succeed if the topic already exists.",
    "--exclude-internal": "Exclude Kafka's internal topics.",
}
REPLICATION_FACTOR_MAX = 2**15 - 1
_COLLISION_WARNING = (
    "WARNING: Due to limitations in metric names, topics with a period ('.') or underscore ('_') could collide."
    " To avoid issues it is best to use either, but not both.\n"
)
_ONLY_TOPIC_ID = (
    "Only topic id will be used when both --topic and --topic-id are specified"
    " and topicId is not Uuid.ZERO_UUID\n"
)
REASSIGNMENTS_TIMEOUT_MS = 3_000
"""How long the active controller may take to list reassignments, where other controllers describe the rest."""


def check_options(given: Collection[str]) -> str:
    """Return the action. Raises UsageError for options that exclude each other."""
    action = one_action(given, tuple(ACTIONS))
    if "--bootstrap-controller" in given and action not in {"--list", "--describe"}:
        raise UsageError(f"{action} needs --bootstrap-server; controllers list and describe topics only")
    if action not in {"--list", "--describe"}:
        require(given, action, "--topic")
    if "--describe" in given and "--if-exists" in given and not {"--topic", "--topic-id"} & set(given):
        raise UsageError("--describe with --if-exists needs --topic or --topic-id")
    if "--alter" in given and "--config" in given:
        raise UsageError(
            "--alter can't be used with --config; `quorate configs` alters the configs of topics"
        )
    require(given, "--alter", "--partitions")
    for name, actions in {
        "--config": ("--create",),
        "--partitions": ("--create", "--alter"),
        "--replication-factor": ("--create",),
        "--replica-assignment": ("--create", "--alter"),
        "--topics-with-overrides": ("--describe",),
        "--if-exists": ("--alter", "--delete", "--describe"),
        "--if-not-exists": ("--create",),
        "--exclude-internal": ("--list", "--describe"),
        **dict.fromkeys(REPORTS, ("--describe",)),
    }.items():
        only_with(given, name, actions)
    if action == "--create":
        refuse(given, "--replica-assignment", ("--partitions", "--replication-factor"))
    refuse(given, "--topics-with-overrides", REPORTS)
    return action


def parse_replica_assignment(text: str) -> dict[int, tuple[int, ...]]:
    """Partition -> brokers, from `0:1,1:2`: a comma between partitions, a colon between brokers.

    Raises UsageError.
    """
    assignment: dict[int, tuple[int, ...]] = {}
    for partition, part in enumerate(text.split(",")):
        try:
            brokers = tuple(parse_ids(part, ":"))
        except ValueError:
            raise UsageError(
                f"--replica-assignment {text!r}: {part!r} of partition {partition} is not a list of broker ids"
                f" from 0 to {INT32_MAX} separated by colons, such as 0:1"
            ) from None
        if len(set(brokers)) < len(brokers):
            raise UsageError(
                f"--replica-assignment {text!r}: {part!r} of partition {partition} names a broker twice;"
                " a partition has at most one replica on a broker"
            )
        if len(brokers) != len(assignment.get(0, brokers)):
            raise UsageError(
                f"--replica-assignment {text!r}: partition {partition} has {len(brokers)} replicas and partition 0"
                f" has {len(assignment[0])}; all must have the same number"
            )
        assignment[partition] = brokers
    return assignment


def parse_configs(pairs: Iterable[str]) -> dict[str, str]:
    """The configs of a new topic, from several `name=value`. Raises UsageError."""
    configs: dict[str, str] = {}
    for text in pairs:
        name, *value = (part.strip() for part in text.split("="))
        if len(value) != 1 or not name or not value[0]:
            raise UsageError(f"--config {text!r} is not name=value")
        configs[name] = value[0]
    return configs


def check_counts(partitions: int | None, replication_factor: int | None) -> None:
    """Check partitions and replication factor. Raises UsageError."""
    if partitions is not None and not 1 <= partitions <= INT32_MAX:
        raise UsageError(f"--partitions {partitions}: it must be greater than 0, and at most {INT32_MAX}")
    if replication_factor is not None and not 1 <= replication_factor <= REPLICATION_FACTOR_MAX:
        raise UsageError(
            f"--replication-factor {replication_factor}: it must be between 1 and {REPLICATION_FACTOR_MAX}"
        )


def select_topics(names: Iterable[str], include: str | None, *, exclude_internal: bool) -> Sequence[str]:
    """The sorted names that match `--topic`: a regular expression, or several, separated by commas.

    Raises UsageError.
    """
    wanted = [name for name in sorted(names) if not (exclude_internal and name in INTERNAL_TOPICS)]
    if include is None:
        return wanted
    pattern = include.strip().replace(",", "|").replace(" ", "").lstrip("\"'").rstrip("\"'")
    try:
        expression = compile_java(pattern, is_for_ascii=True)  # as names of topics are
    except UnsupportedExpressionError as error:
        raise UsageError(f"--topic {include!r} is no regular expression that is supported: {error}") from None
    return [name for name in wanted if expression.fullmatch(name)]


def may_collide(name: str) -> bool:
    """Whether metrics, which replace dots by underscores, could confuse the name with another topic's."""
    return "." in name or "_" in name


EXAMPLES = examples(
    "quorate topics -b localhost:9092 --create --topic orders --partitions 3",
    "quorate topics -b localhost:9092 --describe --under-replicated-partitions",
    "quorate topics -C localhost:9093 --list",
)

app = tool_app()


@dataclass(frozen=True, slots=True, kw_only=True)
class Selection:
    """The topics of an action."""

    include: str | None
    exclude_internal: bool
    if_exists: bool

    async def names(self, admin: "AdminClient") -> list[str]:
        """The names of the selected topics that exist. Raises CommandError if none exists, but one must."""
        listed = await admin.list_topics(list_internal=not self.exclude_internal)
        names = list(select_topics(listed, self.include, exclude_internal=self.exclude_internal))
        if self.include and not names and not self.if_exists:
            raise CommandError(f"Topic '{self.include}' does not exist as expected")
        return names


@app.command(cls=options_command(ACTIONS, FLAGS), epilog=EXAMPLES)
def topics(
    context: typer.Context,
    *,
    topic: Annotated[
        str | None,
        option("TOPIC", "The topic; but for --create, a regular expression or several, comma-separated."),
    ] = None,
    topic_id: Annotated[
        str | None, option("ID", "The topic to describe; takes precedence over --topic.")
    ] = None,
    config: Annotated[
        list[str] | None, option("NAME=VALUE", "A config of the new topic; repeatable.")
    ] = None,
    delete_config: Annotated[list[str] | None, option("NAME", None, hidden=True)] = None,
    partitions: Annotated[
        int | None,
        option(
            "N", "Total number of partitions; with --create the cluster's default applies.", max=INT32_MAX
        ),
    ] = None,
    replication_factor: Annotated[
        int | None, option("N", "Replicas of each partition (default: that of the cluster).")
    ] = None,
    replica_assignment: Annotated[
        str | None,
        option(
            "0:1,1:2,...",
            "Brokers of each partition, separated by colons; partitions are separated by commas.",
        ),
    ] = None,
    partition_size_limit_per_response: Annotated[
        int | None, option("N", "Partitions per request (default: 2000).", max=INT32_MAX)
    ] = None,
) -> None:
    """Create, delete, describe, or change topics.

    Give exactly one of --create, --list, --alter, --describe and --delete.
    """
    given = given_options(context)
    action = check_options(given)
    if delete_config:
        warn("--delete-config has no effect; `quorate configs` deletes the configs of topics")
    if_exists = "--if-exists" in given
    selection = Selection(include=topic, exclude_internal="--exclude-internal" in given, if_exists=if_exists)
    assignment = parse_replica_assignment(replica_assignment) if replica_assignment else {}
    if action == "--create":
        assert topic is not None
        check_counts(partitions, replication_factor)
        _create(
            context,
            topic,
            partitions=partitions,
            replication_factor=replication_factor,
            assignment=assignment,
            configs=parse_configs(config or ()),
            if_not_exists="--if-not-exists" in given,
        )
    elif action == "--list":
        _list(context, selection)
    elif action == "--alter":
        assert partitions is not None
        _alter(context, selection, partitions, assignment)
    elif action == "--delete":
        _delete(context, selection)
    else:
        from quorate.tools.topics.describe import Reports

        reports = Reports(
            under_replicated="--under-replicated-partitions" in given,
            unavailable="--unavailable-partitions" in given,
            under_min_isr="--under-min-isr-partitions" in given,
            at_min_isr="--at-min-isr-partitions" in given,
            topics_with_overrides="--topics-with-overrides" in given,
        )
        if if_exists and topic is not None and topic_id is not None and not tool_options(context).is_json:
            write(_ONLY_TOPIC_ID)
        _describe(context, selection, _topic_id(topic_id), reports, partition_size_limit_per_response)


def _topic_id(text: str | None) -> "uuid.UUID | None":
    """The topic id; None for the zero id."""
    if text is None or text == ZERO_UUID_TEXT:
        return None
    try:
        return uuid_from_text(text)
    except ValueError as error:
        raise UsageError(f"--topic-id: {error}") from None


def _create(
    context: typer.Context,
    name: str,
    *,
    partitions: int | None,
    replication_factor: int | None,
    assignment: Mapping[int, tuple[int, ...]],
    configs: Mapping[str, str],
    if_not_exists: bool,
) -> None:
    async def create(admin: "AdminClient") -> bool:
        from quorate_admin.types.topics import NewTopic

        new = NewTopic(
            name=name,
            partitions=-1 if partitions is None else partitions,
            replication_factor=-1 if replication_factor is None else replication_factor,
            assignments=assignment,
            configs=configs,
        )
        results = await admin.create_topics([new], retry_on_quota_violation=False)
        try:
            results.raise_any()
        except ServerError as error:
            if if_not_exists and error.error_code is ErrorCode.topic_already_exists:
                return False
            raise
        return True

    if may_collide(name) and not tool_options(context).is_json:
        write(_COLLISION_WARNING)
    created = run(create, context)
    show(
        context,
        lambda: f"Created topic {name}.\n" if created else "",
        lambda: {"topic": name, "created": created},
    )


def _list(context: typer.Context, selection: Selection) -> None:
    async def names(admin: "AdminClient") -> list[str]:
        listed = await admin.list_topics(list_internal=not selection.exclude_internal)
        return list(select_topics(listed, selection.include, exclude_internal=selection.exclude_internal))

    found = run(names, context)
    show(context, lambda: "\n".join(found) + "\n", lambda: {"topics": found})


def _alter(
    context: typer.Context, selection: Selection, partitions: int, assignment: Mapping[int, tuple[int, ...]]
) -> None:
    async def alter(admin: "AdminClient") -> list[str]:
        from quorate_admin.types.topics import NewPartitions

        names = await selection.names(admin)
        if not names:
            return names
        if assignment:
            described = await admin.describe_topics(names)
            new = {
                name: NewPartitions(
                    total_count=partitions,
                    assignments=list(assignment.values())[len(described[name].partitions) :],
                )
                for name in names
            }
        else:
            new = dict.fromkeys(names, NewPartitions(total_count=partitions))
        results = await admin.create_partitions(new, retry_on_quota_violation=False)
        results.raise_any()
        return names

    altered = run(alter, context)
    show(context, lambda: "", lambda: {"altered": altered, "partitionCount": partitions})


def _delete(context: typer.Context, selection: Selection) -> None:
    async def delete(admin: "AdminClient") -> list[str]:
        names = await selection.names(admin)
        if names:
            results = await admin.delete_topics(names, retry_on_quota_violation=False)
            results.raise_any()
        return names

    deleted = run(delete, context)
    show(context, lambda: "", lambda: {"deleted": deleted})


def _describe(
    context: typer.Context,
    selection: Selection,
    topic_id: "uuid.UUID | None",
    reports: Any,
    partitions_per_response: int | None,
) -> None:
    import asyncio

    from quorate_admin.operations.topics import PARTITIONS_PER_RESPONSE
    from quorate_admin.types.configs import ConfigResource
    from quorate_admin.types.partitions import TopicPartition
    from quorate_protocol.kafka.enums import ConfigResourceType

    from quorate.tools.topics import describe

    is_at_controllers = tool_options(context).bootstrap_controller is not None

    async def ask(admin: "AdminClient") -> "list[DescribedTopic]":
        wanted = await (
            selection.names(admin) if topic_id is None else _existing_id(admin, topic_id, selection)
        )
        if not wanted:
            return []
        described = await admin.describe_topics(
            wanted, partitions_per_response=partitions_per_response or PARTITIONS_PER_RESPONSE
        )
        topics = [described[topic] for topic in wanted]
        resources = {topic.name: ConfigResource(ConfigResourceType.TOPIC, topic.name) for topic in topics}
        configs, reassignments, cluster = await asyncio.gather(
            admin.describe_configs(resources.values()),
            _reassignments(
                admin,
                [TopicPartition(topic.name, info.partition) for topic in topics for info in topic.partitions],
                REASSIGNMENTS_TIMEOUT_MS if is_at_controllers else None,
            ),
            admin.describe_cluster(),
        )
        combined = describe.combine(
            topics, {name: configs[resource] for name, resource in resources.items()}, reassignments
        )
        # Controllers describe themselves. A leader that they report is registered and not fenced.
        live = None if is_at_controllers else {node.node_id for node in cluster.nodes}
        return describe.select(combined, reports, live)

    found = run(ask, context)
    show(
        context,
        lambda: describe.description_text(found, reports),
        lambda: describe.description_json(found),
    )


async def _existing_id(
    admin: "AdminClient", topic_id: "uuid.UUID", selection: Selection
) -> "list[uuid.UUID]":
    listed = await admin.list_topics(list_internal=not selection.exclude_internal)
    if any(topic.topic_id == topic_id for topic in listed.values()):
        return [topic_id]
    if selection.if_exists:
        return []
    raise CommandError(f"TopicId '{uuid_to_text(topic_id)}' does not exist as expected")


async def _reassignments(
    admin: "AdminClient", partitions: "list[TopicPartition]", timeout_ms: int | None
) -> "Mapping[TopicPartition, PartitionReassignment]":
    """The reassignments in progress; none if the server does not return them, or not to this client.

    Only the active controller returns them; `timeout_ms` is set where topics are described without it, too.
    """
    try:
        return await admin.list_partition_reassignments(partitions, timeout_ms=timeout_ms)
    except UnsupportedByServerError:
        return {}
    except (UnreachableError, RequestTimeoutError, ServerError) as error:
        code = error.error_code if isinstance(error, ServerError) else ErrorCode.not_controller
        if code is ErrorCode.cluster_authorization_failed:
            return {}
        if timeout_ms is None or code is not ErrorCode.not_controller:
            raise
        warn(f"reassignments are not shown, because no active controller answers: {error}")
        return {}
