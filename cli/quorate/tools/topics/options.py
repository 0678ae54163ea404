"""Parses and checks the options of `quorate topics`."""

from collections.abc import Collection, Iterable, Sequence

from quorate_protocol.java_expressions import UnsupportedExpressionError, compile_java
from quorate_protocol.kafka.metadata_log import INTERNAL_TOPICS

from quorate.console import INT32_MAX, UsageError, parse_ids
from quorate.console.jopt import one_action, only_with, refuse, require

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


def check_options(given: Collection[str]) -> str:
    """Returns the action. Raises UsageError for options that exclude each other."""
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
    for option, actions in {
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
        only_with(given, option, actions)
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
