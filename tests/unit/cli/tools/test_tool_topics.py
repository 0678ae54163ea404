"""`quorate topics`: options, what is asked, text, JSON and errors."""

import uuid
from dataclasses import replace
from typing import Any

import pytest
from kit.scripted_admin import ScriptedAdmin
from kit.tool_runner import run_tool, usage_error
from quorate.console import UsageError
from quorate.tools.topics.command import (
    REASSIGNMENTS_TIMEOUT_MS,
    check_counts,
    check_options,
    parse_configs,
    parse_replica_assignment,
    select_topics,
)
from quorate.tools.topics.describe import (
    DescribedTopic,
    Reports,
    combine,
    description_json,
    description_text,
    select,
)
from quorate_admin.errors import ServerError, UnreachableError, UnsupportedByServerError
from quorate_admin.results import Results
from quorate_admin.types.cluster import ClusterDescription
from quorate_admin.types.configs import ConfigEntry, ConfigResource
from quorate_admin.types.partitions import PartitionReassignment, TopicPartition
from quorate_admin.types.topics import (
    NewPartitions,
    NewTopic,
    PartitionDescription,
    TopicDescription,
    TopicListing,
)
from quorate_protocol.errors import ErrorCode
from quorate_protocol.kafka.enums import ConfigResourceType, ConfigSource
from quorate_protocol.uuids import uuid_to_text

AT = ("--bootstrap-server", "localhost:9092")
AT_CONTROLLERS = ("--bootstrap-controller", "localhost:9093")
ID = uuid.UUID(int=1 << 100)
ID_TEXT = uuid_to_text(ID)


def partition(number: int = 0, **fields: Any) -> PartitionDescription:
    """A healthy partition on the brokers 1 and 2, but for the given fields."""
    healthy = PartitionDescription(
        partition=number,
        leader=1,
        leader_epoch=5,
        replicas=(1, 2),
        isr=(1, 2),
        offline_replicas=(),
        eligible_leader_replicas=(),
        last_known_elr=(),
    )
    return replace(healthy, **fields)


def topic(name: str, *partitions: PartitionDescription, topic_id: uuid.UUID | None = ID) -> TopicDescription:
    """A topic."""
    return TopicDescription(
        name=name,
        topic_id=topic_id,
        is_internal=False,
        partitions=partitions or (partition(),),
        authorized_operations=None,
    )


def entry(name: str, value: str | None, source: ConfigSource = ConfigSource.DEFAULT_CONFIG) -> ConfigEntry:
    """A config of a topic."""
    return ConfigEntry(name=name, value=value, source=source, is_sensitive=False, is_read_only=False)


CONFIGS = [entry("min.insync.replicas", "2"), entry("cleanup.policy", "delete")]
OVERRIDDEN = [*CONFIGS, entry("retention.ms", "1", ConfigSource.DYNAMIC_TOPIC_CONFIG)]


def described(*topics: TopicDescription, moving: PartitionReassignment | None = None) -> list[DescribedTopic]:
    """Topics with configs, of which the first partition of the first may be moving."""
    under_way = {TopicPartition(topics[0].name, 0): moving} if moving else {}
    return combine(topics, {described.name: CONFIGS for described in topics}, under_way)


# Options


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ("--create", "--create needs --topic"),
        ("--delete", "--delete needs --topic"),
        ("--alter --topic", "--alter needs --partitions"),
        ("--alter --topic --partitions --config", "--alter can't be used with --config; `quorate configs`"),
        ("--describe --if-exists", "needs --topic or --topic-id"),
        ("--list --config", "--config can be used with --create only"),
        ("--describe --partitions", "--partitions can be used with --create or --alter only"),
        ("--list --replication-factor", "--replication-factor can be used with --create only"),
        ("--list --replica-assignment", "--replica-assignment can be used with --create or --alter only"),
        ("--create --topic --replica-assignment --partitions", "can't be used with --partitions"),
        (
            "--create --topic --replica-assignment --replication-factor",
            "can't be used with --replication-factor",
        ),
        ("--list --unavailable-partitions", "--unavailable-partitions can be used with --describe only"),
        (
            "--describe --topics-with-overrides --at-min-isr-partitions",
            "--topics-with-overrides can't be used",
        ),
        (
            "--create --topic --if-exists",
            "--if-exists can be used with --alter or --delete or --describe only",
        ),
        ("--delete --topic --if-not-exists", "--if-not-exists can be used with --create only"),
        (
            "--delete --topic --exclude-internal",
            "--exclude-internal can be used with --list or --describe only",
        ),
    ],
)
def test_options_that_do_not_go_together(options: str, expected: str) -> None:
    assert expected in usage_error(check_options, options)


@pytest.mark.parametrize(
    "options",
    [
        "--list --topic --exclude-internal",
        "--describe --topic --topic-id --if-exists",
        "--describe --under-replicated-partitions --unavailable-partitions",
        "--create --topic --partitions --replication-factor --config --if-not-exists",
        "--alter --topic --partitions --replica-assignment --if-exists",
        "--delete --topic --if-exists",
    ],
)
def test_options_that_go_together(options: str) -> None:
    assert check_options(["--bootstrap-server", *options.split()]) == options.split(maxsplit=1)[0]


def test_a_replica_assignment_is_read() -> None:
    """Commas between partitions, colons between brokers."""
    assert parse_replica_assignment("0:1, 1:2") == {0: (0, 1), 1: (1, 2)}


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("0:a", "'0:a' of partition 0 is not a list of broker ids"),
        ("0:1,", "'' of partition 1 is not a list of broker ids"),
        ("0:1,1:1", "'1:1' of partition 1 names a broker twice"),
        ("0:1,2", "partition 1 has 1 replicas and partition 0 has 2"),
    ],
)
def test_a_wrong_replica_assignment_is_reported(text: str, expected: str) -> None:
    """The message names option, value and fault."""
    with pytest.raises(UsageError) as raised:
        parse_replica_assignment(text)
    assert f"--replica-assignment {text!r}" in raised.value.message
    assert expected in raised.value.message


def test_configs_are_read() -> None:
    assert parse_configs(["a=1", "b = 2"]) == {"a": "1", "b": "2"}


@pytest.mark.parametrize("text", ["a", "a=", "a=b=c", "=1"])
def test_a_wrong_config_is_reported(text: str) -> None:
    with pytest.raises(UsageError, match="is not name=value"):
        parse_configs([text])


@pytest.mark.parametrize(("partitions", "factor"), [(0, None), (None, 0), (None, 32768)])
def test_impossible_numbers_are_reported(partitions: int | None, factor: int | None) -> None:
    with pytest.raises(UsageError, match="it must be"):
        check_counts(partitions, factor)
    check_counts(1, 32767)


def test_topics_are_selected_by_expression_and_list() -> None:
    names = ["b", "a", "ab", "__consumer_offsets"]
    assert select_topics(names, None, exclude_internal=False) == ["__consumer_offsets", "a", "ab", "b"]
    assert select_topics(names, None, exclude_internal=True) == ["a", "ab", "b"]
    assert select_topics(names, "a.*", exclude_internal=False) == ["a", "ab"]
    assert select_topics(names, " 'a, b' ", exclude_internal=False) == ["a", "b"]
    with pytest.raises(UsageError, match=r"--topic 'a\(' is no regular expression that is supported: a gro"):
        select_topics(names, "a(", exclude_internal=False)


# Text


def test_a_topic_is_described_as_by_kafka() -> None:
    first = topic(
        "first",
        partition(),
        partition(1, leader=None, isr=(2,), eligible_leader_replicas=(1,), last_known_elr=(1, 2)),
    )
    second = topic("second", partition(eligible_leader_replicas=None, last_known_elr=None), topic_id=None)
    both = combine([first, second], {"first": OVERRIDDEN, "second": CONFIGS}, {})
    assert description_text(both, Reports()) == (
        f"Topic: first\tTopicId: {ID_TEXT}\tPartitionCount: 2\tReplicationFactor: 2\tConfigs: retention.ms=1\n"
        "\tTopic: first\tPartition: 0\tLeader: 1\tReplicas: 1,2\tIsr: 1,2\tElr: \tLastKnownElr: \n"
        "\tTopic: first\tPartition: 1\tLeader: none\tReplicas: 1,2\tIsr: 2\tElr: 1\tLastKnownElr: 1,2\n"
        "Topic: second\tPartitionCount: 1\tReplicationFactor: 2\tConfigs: \n"
        "\tTopic: second\tPartition: 0\tLeader: 1\tReplicas: 1,2\tIsr: 1,2\tElr: N/A\tLastKnownElr: N/A\n"
    )


def test_a_reassignment_is_shown_and_does_not_count_as_replicas() -> None:
    moving = PartitionReassignment(replicas=(1, 2, 3), adding_replicas=(3,), removing_replicas=())
    found = described(topic("t", partition(replicas=(1, 2, 3))), moving=moving)
    text = description_text(found, Reports())
    assert "\tReplicationFactor: 2\t" in text
    assert "\tIsr: 1,2\tAdding Replicas: 3\tRemoving Replicas: \tElr: " in text
    assert select(found, Reports(under_replicated=True), {1, 2, 3}) == []


def test_a_reassignment_that_has_just_ended_does_not_count() -> None:
    moving = PartitionReassignment(replicas=(1, 2, 9), adding_replicas=(9,), removing_replicas=(8,))
    (found,) = described(topic("t"), moving=moving)
    assert found.replication_factor == 2


@pytest.mark.parametrize(
    ("reports", "numbers"),
    [
        (Reports(under_replicated=True), [1, 2, 3]),
        (Reports(unavailable=True), [3, 4]),
        (Reports(under_min_isr=True), [1, 2, 3]),
        (Reports(at_min_isr=True), [0, 4]),
        (Reports(unavailable=True, at_min_isr=True), [0, 3, 4]),
    ],
)
def test_partitions_are_reported_by_their_state(reports: Reports, numbers: list[int]) -> None:
    found = described(
        topic(
            "t",
            partition(0),
            partition(1, isr=(1,)),
            partition(2, isr=()),
            partition(3, leader=None, isr=(1,)),
            partition(4, leader=7),
        )
    )
    (selected,) = select(found, reports, {1, 2})
    assert [partition.info.partition for partition in selected.partitions] == numbers
    assert description_text([selected], reports).count("\n") == len(numbers)


def test_topics_with_overrides_are_reported_without_partitions() -> None:
    found = combine([topic("a"), topic("b")], {"a": CONFIGS, "b": OVERRIDDEN}, {})
    reports = Reports(topics_with_overrides=True)
    text = description_text(select(found, reports, set()), reports)
    assert text.startswith("Topic: b\t")
    assert text.count("\n") == 1


def test_the_description_for_programs_has_the_documented_shape() -> None:
    moving = PartitionReassignment(replicas=(1, 2, 3), adding_replicas=(3,), removing_replicas=(1,))
    assert description_json(described(topic("t"), moving=moving)) == {
        "topics": [
            {
                "name": "t",
                "topicId": ID_TEXT,
                "isInternal": False,
                "partitionCount": 1,
                "replicationFactor": 2,
                "configs": {},
                "partitions": [
                    {
                        "partition": 0,
                        "leader": 1,
                        "leaderEpoch": 5,
                        "replicas": [1, 2],
                        "isr": [1, 2],
                        "offlineReplicas": [],
                        "addingReplicas": [3],
                        "removingReplicas": [1],
                        "eligibleLeaderReplicas": [],
                        "lastKnownElr": [],
                    }
                ],
            }
        ]
    }


# Commands


def listing(*names: str) -> dict[str, TopicListing]:
    """What list_topics answers."""
    return {name: TopicListing(name=name, topic_id=ID, is_internal=False) for name in names}


async def test_a_topic_is_created(admin: ScriptedAdmin) -> None:
    admin.responses["create_topics"] = Results({"t": None}, {})
    options = (
        "--create",
        "--topic",
        "t",
        "--partitions",
        "3",
        "--replication-factor",
        "2",
        "--config",
        "a=b",
    )
    ran = await run_tool("topics", *AT, *options)
    assert (ran.exit_code, ran.stdout, ran.stderr) == (0, "Created topic t.\n", "")
    (call,) = admin.calls
    assert call.args == ([NewTopic(name="t", partitions=3, replication_factor=2, configs={"a": "b"})],)
    assert call.kwargs == {"retry_on_quota_violation": False}
    assert (await run_tool("topics", *AT, *options, "-o", "json")).json == {"topic": "t", "created": True}


async def test_a_topic_is_created_with_its_replicas(admin: ScriptedAdmin) -> None:
    admin.responses["create_topics"] = Results({"a.b": None}, {})
    ran = await run_tool("topics", *AT, "--create", "--topic", "a.b", "--replica-assignment", "0:1,1:0")
    assert ran.stdout.startswith("WARNING: Due to limitations in metric names")
    assert ran.stdout.endswith("\nCreated topic a.b.\n")
    assert admin.calls[0].args == ([NewTopic(name="a.b", assignments={0: (0, 1), 1: (1, 0)})],)


async def test_a_topic_that_exists_is_a_failure_unless_allowed(admin: ScriptedAdmin) -> None:
    exists = ServerError(ErrorCode.topic_already_exists, "Topic 't' already exists.")
    admin.responses["create_topics"] = Results({}, {"t": exists})
    create = ("topics", *AT, "--create", "--topic", "t")
    ran = await run_tool(*create)
    assert (ran.exit_code, ran.stdout) == (1, "")
    assert ran.stderr == "error: TOPIC_ALREADY_EXISTS: Topic 't' already exists.\n"
    ran = await run_tool(*create, "--if-not-exists")
    assert (ran.exit_code, ran.stdout, ran.stderr) == (0, "", "")
    ran = await run_tool(*create, "--if-not-exists", "-o", "json")
    assert ran.json == {"topic": "t", "created": False}
    admin.responses["create_topics"] = Results({}, {"t": ServerError(ErrorCode.policy_violation, "No.")})
    assert (await run_tool(*create, "--if-not-exists")).exit_code == 1


async def test_topics_are_listed(admin: ScriptedAdmin) -> None:
    admin.responses["list_topics"] = listing("b", "a", "__consumer_offsets")
    assert (await run_tool("topics", *AT, "--list")).stdout == "__consumer_offsets\na\nb\n"
    assert (await run_tool("topics", *AT, "--list", "--topic", "a|b")).stdout == "a\nb\n"
    assert (await run_tool("topics", *AT, "--list", "--topic", "z")).stdout == "\n"
    assert (await run_tool("topics", *AT, "--list", "--exclude-internal", "-o", "json")).json == {
        "topics": ["a", "b"]
    }
    assert [call.kwargs["list_internal"] for call in admin.calls] == [True, True, True, False]


async def test_partitions_are_added(admin: ScriptedAdmin) -> None:
    admin.responses["list_topics"] = listing("a", "b")
    admin.responses["create_partitions"] = Results()
    ran = await run_tool("topics", *AT, "--alter", "--topic", "a|b", "--partitions", "3")
    assert (ran.exit_code, ran.stdout) == (0, "")
    assert admin.calls[-1].args == ({name: NewPartitions(total_count=3) for name in "ab"},)
    admin.responses["describe_topics"] = Results({"a": topic("a")}, {})
    await run_tool(
        "topics", *AT, "--alter", "--topic", "a", "--partitions", "2", "--replica-assignment", "1:2,2:1"
    )
    assert admin.calls[-1].args == ({"a": NewPartitions(total_count=2, assignments=[(2, 1)])},)


@pytest.mark.parametrize("action", [("--alter", "--partitions", "3"), ("--delete",), ("--describe",)])
async def test_a_topic_that_is_not_there(admin: ScriptedAdmin, action: tuple[str, ...]) -> None:
    admin.responses["list_topics"] = listing("a")
    ran = await run_tool("topics", *AT, *action, "--topic", "z")
    assert (ran.exit_code, ran.stdout) == (1, "")
    assert ran.stderr == "error: Topic 'z' does not exist as expected\n"
    ran = await run_tool("topics", *AT, *action, "--topic", "z", "--if-exists")
    assert (ran.exit_code, ran.stdout, ran.stderr) == (0, "", "")
    assert {call.name for call in admin.calls} == {"list_topics"}


async def test_topics_are_deleted(admin: ScriptedAdmin) -> None:
    admin.responses["list_topics"] = listing("a", "b", "c")
    admin.responses["delete_topics"] = Results({"a": None, "b": None}, {})
    ran = await run_tool("topics", *AT, "--delete", "--topic", "a|b", "-o", "json")
    assert ran.json == {"deleted": ["a", "b"]}
    assert admin.calls[-1].args == (["a", "b"],)
    admin.responses["delete_topics"] = Results({}, {"c": ServerError(ErrorCode.topic_deletion_disabled)})
    ran = await run_tool("topics", *AT, "--delete", "--topic", "c")
    assert ran.exit_code == 1
    assert "TOPIC_DELETION_DISABLED" in ran.stderr


def describing(admin: ScriptedAdmin) -> None:
    """Script the responses to --describe of the topic `t`."""
    admin.responses |= {
        "list_topics": listing("t"),
        "describe_topics": lambda wanted, **_: Results({name: topic("t") for name in wanted}, {}),
        "describe_configs": Results({ConfigResource(ConfigResourceType.TOPIC, "t"): tuple(CONFIGS)}, {}),
        "list_partition_reassignments": {},
        "describe_cluster": ClusterDescription(cluster_id="c", controller_id=1, nodes=()),
    }


@pytest.mark.parametrize(
    "refusal",
    [
        UnsupportedByServerError("no version"),
        ServerError(ErrorCode.cluster_authorization_failed),
    ],
)
async def test_a_topic_is_described_without_reassignments(admin: ScriptedAdmin, refusal: Exception) -> None:
    describing(admin)
    admin.responses["list_partition_reassignments"] = refusal
    ran = await run_tool("topics", *AT, "--describe", "--topic", "t")
    assert ran.exit_code == 0
    assert ran.stdout.startswith("Topic: t\t")


async def test_another_refusal_about_reassignments_is_a_failure(admin: ScriptedAdmin) -> None:
    describing(admin)
    admin.responses["list_partition_reassignments"] = ServerError(ErrorCode.not_controller)
    ran = await run_tool("topics", *AT, "--describe")
    assert ran.exit_code == 1
    assert "NOT_CONTROLLER" in ran.stderr


@pytest.mark.parametrize(
    "failure",
    [UnreachableError({"h:9093": "refused"}), ServerError(ErrorCode.not_controller)],
)
async def test_controllers_describe_topics_without_a_leader(admin: ScriptedAdmin, failure: Exception) -> None:
    describing(admin)
    admin.responses["list_partition_reassignments"] = failure
    ran = await run_tool("topics", *AT_CONTROLLERS, "--describe")
    assert ran.exit_code == 0
    assert ran.stdout.startswith("Topic: t\t")
    assert "reassignments are not shown" in ran.stderr
    (call,) = admin.calls_of("list_partition_reassignments")
    assert call.kwargs["timeout_ms"] == REASSIGNMENTS_TIMEOUT_MS
    ran = await run_tool("topics", *AT_CONTROLLERS, "--describe", "--unavailable-partitions")
    led = [partition for partition in topic("t").partitions if partition.leader is not None]
    assert led
    assert not any(f"Partition: {partition.partition}\t" in ran.stdout for partition in led)


@pytest.mark.parametrize("action", ["--create", "--delete", "--alter --partitions 2"])
async def test_topics_are_changed_through_brokers(action: str) -> None:
    with pytest.raises(
        UsageError, match="needs --bootstrap-server; controllers list and describe topics only"
    ):
        check_options(["--bootstrap-controller", "--topic", *action.split()])


async def test_a_topic_is_described_by_id(admin: ScriptedAdmin) -> None:
    describing(admin)
    ran = await run_tool("topics", *AT, "--describe", "--topic-id", ID_TEXT, "--topic", "t", "--if-exists")
    assert ran.stdout.startswith("Only topic id will be used when both")
    assert admin.calls_of("describe_topics")[-1].args == ([ID],)
    other = uuid_to_text(uuid.UUID(int=2))
    ran = await run_tool("topics", *AT, "--describe", "--topic-id", other)
    assert (ran.exit_code, ran.stderr) == (1, f"error: TopicId '{other}' does not exist as expected\n")
    ran = await run_tool("topics", *AT, "--describe", "--topic-id", other, "--if-exists")
    assert (ran.exit_code, ran.stdout) == (0, "")
    await run_tool("topics", *AT, "--describe", "--topic-id", "A" * 22)
    assert admin.calls_of("describe_topics")[-1].args == (["t"],)
    ran = await run_tool("topics", *AT, "--describe", "--topic-id", "short")
    assert ran.exit_code == 2
    assert "--topic-id: 'short' is not a uuid" in ran.stderr


async def test_the_page_size_is_passed_on(admin: ScriptedAdmin) -> None:
    describing(admin)
    await run_tool("topics", *AT, "--describe", "--partition-size-limit-per-response", "20")
    await run_tool("topics", *AT, "--describe")
    sizes = [call.kwargs["partitions_per_response"] for call in admin.calls_of("describe_topics")]
    assert sizes == [20, 2000]


async def test_delete_config_warns_that_it_does_nothing(admin: ScriptedAdmin) -> None:
    admin.responses["list_topics"] = {}
    ran = await run_tool("topics", *AT, "--list", "--delete-config", "a")
    assert ran.exit_code == 0
    assert "--delete-config has no effect" in ran.stderr
