"""`quorate acls`: options, what is asked, text, JSON and errors."""

import asyncio
from collections.abc import Iterable
from typing import Any

import pytest
from kit.scripted_admin import ScriptedAdmin
from kit.tool_runner import run_tool, usage_error
from quorate.console import UsageError
from quorate.console.jopt import parse_principals
from quorate.main import app
from quorate.tools.acls.command import (
    CLUSTER,
    AclArguments,
    check_options,
    check_to_add,
    entries_by_filter,
    parse_operation,
    parse_pattern_type,
    resource_filters,
)
from quorate_admin.errors import ServerError
from quorate_admin.results import Results
from quorate_admin.types.acls import (
    ANY_ACL,
    AccessControlEntry,
    AccessControlEntryFilter,
    AclBinding,
    AclBindingFilter,
    AclDeletion,
    ResourcePattern,
    ResourcePatternFilter,
)
from quorate_admin.types.credentials import KafkaPrincipal
from quorate_protocol.errors import ErrorCode
from quorate_protocol.kafka.enums import (
    SUPPORTED_OPERATIONS,
    AclOperation,
    AclPermissionType,
    PatternType,
    ResourceType,
)
from typer.testing import CliRunner, Result

AT = ("--bootstrap-server", "localhost:9092")
ALICE = ("User:alice",)
TOPIC = ResourcePattern(resource_type=ResourceType.TOPIC, name="t")
TOPIC_FILTER = ResourcePatternFilter(
    resource_type=ResourceType.TOPIC, name="t", pattern_type=PatternType.LITERAL
)
READ_T = AclBinding(
    pattern=TOPIC, entry=AccessControlEntry(principal="User:alice", operation=AclOperation.READ)
)
WRITE_T = AclBinding(
    pattern=TOPIC,
    entry=AccessControlEntry(
        principal="User:bob",
        host="1.2.3.4",
        operation=AclOperation.WRITE,
        permission_type=AclPermissionType.DENY,
    ),
)
PATTERN_TEXT = "ResourcePattern(resourceType=TOPIC, name=t, patternType=LITERAL)"
READ_TEXT = "(principal=User:alice, host=*, operation=READ, permissionType=ALLOW)"
WRITE_TEXT = "(principal=User:bob, host=1.2.3.4, operation=WRITE, permissionType=DENY)"


def kinds(entries: Iterable[AccessControlEntry]) -> set[tuple[str, str, str, str]]:
    """Entries as short tuples."""
    return {
        (entry.principal, entry.host, entry.operation.name, entry.permission_type.name) for entry in entries
    }


def by_resource(arguments: AclArguments) -> dict[str, set[str]]:
    """The operations for each resource that is named."""
    return {
        f"{resource.resource_type} {resource.name}": {entry.operation.name for entry in entries}
        for resource, entries in entries_by_filter(arguments).items()
    }


# Options


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ("--list --producer", "--list can't be used with --producer"),
        ("--list --allow-host", "--list can't be used with --allow-host"),
        ("--list --deny-principal", "--list can't be used with --deny-principal"),
        ("--add --producer --topic --operation", "--producer can't be used with --operation"),
        ("--add --consumer --topic --group --deny-host", "--consumer can't be used with --deny-host"),
        ("--add --principal", "--principal can be used with --list only"),
        ("--add --producer", "--producer needs --topic"),
        ("--add --idempotent", "--idempotent needs --producer"),
        ("--add --consumer --topic", "--consumer needs --group"),
        ("--add --consumer --topic --group --cluster", "--consumer can't be used with --cluster"),
        (
            "--add --consumer --topic --group --transactional-id",
            "--consumer can't be used with --transactional-id",
        ),
        ("--remove --topic --allow-host", "--allow-host needs --allow-principal"),
        ("--remove --topic --deny-host", "--deny-host needs --deny-principal"),
        (
            "--remove --topic --operation",
            "--remove with --operation needs --allow-principal or --deny-principal",
        ),
    ],
)
def test_options_that_do_not_go_together(options: str, expected: str) -> None:
    """The refusals of kafka-acls, and of what would remove more than is said."""
    assert expected in usage_error(check_options, options)


@pytest.mark.parametrize(
    "options",
    [
        "--list --topic --group --principal --resource-pattern-type",
        "--add --producer --consumer --idempotent --topic --group --transactional-id --allow-principal --allow-host",
        "--remove --cluster --operation --deny-principal --deny-host --force",
        "--remove --topic",
    ],
)
def test_options_that_go_together(options: str) -> None:
    assert check_options(["--bootstrap-controller", *options.split()]) == options.split(maxsplit=1)[0]


@pytest.mark.parametrize("text", ["Read", "read", "READ"])
def test_operations_are_read_in_any_case(text: str) -> None:
    assert parse_operation(text) is AclOperation.READ
    assert parse_operation("DescribeConfigs") is parse_operation("describe_configs")
    for wrong in ("Any", "Unknown", "Reed"):
        with pytest.raises(UsageError, match=f"--operation '{wrong}': it must be one of All, Read, Write"):
            parse_operation(wrong)


def test_pattern_types_and_principals_are_read() -> None:
    """The message names option, value and what is allowed."""
    assert parse_pattern_type("Prefixed") is PatternType.PREFIXED
    with pytest.raises(
        UsageError, match="--resource-pattern-type: 'x' is not one of ANY, MATCH, LITERAL, PREFIXED"
    ):
        parse_pattern_type("x")
    principals = parse_principals("--principal", [" User:a ", "User:b:c"])
    assert principals == [KafkaPrincipal("User", "a"), KafkaPrincipal("User", "b:c")]
    with pytest.raises(UsageError, match="--principal: 'a' is not Type:name"):
        parse_principals("--principal", ["a"])


def test_resources_of_all_kinds() -> None:
    arguments = AclArguments(
        topics=["t", " t"],
        groups=["g"],
        transactional_ids=["x"],
        delegation_tokens=["d"],
        user_principals=["User:u"],
        cluster=True,
    )
    named = [
        (resource_filter.resource_type.name, resource_filter.name)
        for resource_filter in resource_filters(arguments)
    ]
    assert named == [
        ("TOPIC", "t"),
        ("GROUP", "g"),
        ("TRANSACTIONAL_ID", "x"),
        ("DELEGATION_TOKEN", "d"),
        ("USER", "User:u"),
        ("CLUSTER", "kafka-cluster"),
    ]
    prefixed = AclArguments(topics=["t"], cluster=True, pattern_type=PatternType.PREFIXED)
    assert [resource_filter.pattern_type for resource_filter in resource_filters(prefixed)] == [
        PatternType.PREFIXED
    ]


def test_entries_are_all_combinations() -> None:
    """Several principals, hosts and operations in one line."""
    (entries,) = entries_by_filter(
        AclArguments(
            topics=["t"],
            operations=["Read", "Write"],
            allow_principals=["User:a", "User:b"],
            allow_hosts=["1.1.1.1", "2.2.2.2"],
            deny_principals=["User:c"],
        )
    ).values()
    allowed = {
        (principal, host, operation, "ALLOW")
        for principal in ("User:a", "User:b")
        for host in ("1.1.1.1", "2.2.2.2")
        for operation in ("READ", "WRITE")
    }
    assert kinds(entries) == allowed | {("User:c", "*", "READ", "DENY"), ("User:c", "*", "WRITE", "DENY")}


def test_without_an_operation_all_is_meant() -> None:
    assert by_resource(AclArguments(topics=["t"], allow_principals=ALICE)) == {"TOPIC t": {"ALL"}}


def test_producers_and_consumers_get_what_they_need() -> None:
    producer = AclArguments(
        topics=["t"], transactional_ids=["x"], allow_principals=ALICE, producer=True, idempotent=True
    )
    assert by_resource(producer) == {
        "TOPIC t": {"WRITE", "CREATE", "DESCRIBE"},
        "TRANSACTIONAL_ID x": {"WRITE", "DESCRIBE"},
        "CLUSTER kafka-cluster": {"IDEMPOTENT_WRITE"},
    }
    consumer = AclArguments(topics=["t"], groups=["g"], allow_principals=ALICE, consumer=True)
    assert by_resource(consumer) == {"TOPIC t": {"READ", "DESCRIBE"}, "GROUP g": {"READ"}}
    both = AclArguments(topics=["t"], groups=["g"], allow_principals=ALICE, consumer=True, producer=True)
    assert by_resource(both) == {"TOPIC t": {"READ", "WRITE", "CREATE", "DESCRIBE"}, "GROUP g": {"READ"}}


@pytest.mark.parametrize("resource_type", list(SUPPORTED_OPERATIONS))
def test_operations_that_a_resource_does_not_have(resource_type: ResourceType) -> None:
    names = {
        ResourceType.TOPIC: {"topics": ["x"]},
        ResourceType.GROUP: {"groups": ["x"]},
        ResourceType.CLUSTER: {"cluster": True},
        ResourceType.TRANSACTIONAL_ID: {"transactional_ids": ["x"]},
        ResourceType.DELEGATION_TOKEN: {"delegation_tokens": ["x"]},
        ResourceType.USER: {"user_principals": ["User:x"]},
    }
    for operation in set(AclOperation) - {AclOperation.UNKNOWN, AclOperation.ANY}:
        wanted: dict[str, Any] = {
            **names[resource_type],
            "operations": [operation.name],
            "allow_principals": ALICE,
        }
        if operation is AclOperation.ALL or operation in SUPPORTED_OPERATIONS[resource_type]:
            assert len(entries_by_filter(AclArguments(**wanted))) == 1
        else:
            with pytest.raises(UsageError, match=f"ResourceType {resource_type} only supports operations"):
                entries_by_filter(AclArguments(**wanted))


def test_what_can_not_be_added() -> None:
    matching = AclArguments(topics=["t"], allow_principals=ALICE, pattern_type=PatternType.MATCH)
    with pytest.raises(UsageError, match="--resource-pattern-type MATCH can't be used with --add"):
        check_to_add(matching, entries_by_filter(matching))
    nobody = AclArguments(topics=["t"])
    with pytest.raises(UsageError, match="--add needs --allow-principal or --deny-principal"):
        check_to_add(nobody, entries_by_filter(nobody))
    with pytest.raises(UsageError, match="name a resource: --topic"):
        entries_by_filter(AclArguments(allow_principals=ALICE))


# Commands


async def test_acls_are_added_that_are_not_there(admin: ScriptedAdmin) -> None:
    admin.responses |= {"describe_acls": (READ_T,), "create_acls": Results()}
    add = ("acls", *AT, "--add", "--topic", "t", "--allow-principal", "User:alice")
    ran = await run_tool(*add, "--operation", "Read", "--operation", "Describe")
    describe = READ_TEXT.replace("READ", "DESCRIBE")
    assert ran.stdout == (
        f"Acl (pattern={PATTERN_TEXT}, entry={READ_TEXT}) already exists.\n"
        f"Adding ACLs for resource `{PATTERN_TEXT}`: \n \t{describe}\n\n"
    )
    assert ran.exit_code == 0
    assert admin.calls_of("describe_acls")[0].args == (AclBindingFilter(pattern=TOPIC_FILTER),)
    ((created,),) = (call.args for call in admin.calls_of("create_acls"))
    assert [binding.entry.operation for binding in created] == [AclOperation.DESCRIBE]
    again = await run_tool(*add, "--operation", "Read")
    assert again.stdout == f"Acl (pattern={PATTERN_TEXT}, entry={READ_TEXT}) already exists.\n"
    assert len(admin.calls_of("create_acls")) == 1


READ_JSON = {
    "resourceType": "TOPIC",
    "resourceName": "t",
    "patternType": "LITERAL",
    "principal": "User:alice",
    "host": "*",
    "operation": "READ",
    "permissionType": "ALLOW",
}


async def test_additions_for_programs_have_the_documented_shape(admin: ScriptedAdmin) -> None:
    admin.responses |= {"describe_acls": (), "create_acls": Results()}
    add = ("acls", *AT, "--add", "--topic", "t", *("--allow-principal", "User:alice", "--operation", "Read"))
    assert (await run_tool(*add, "-o", "json")).json == {"added": [READ_JSON], "existing": []}
    admin.responses["describe_acls"] = (READ_T,)
    assert (await run_tool(*add, "-o", "json")).json == {"added": [], "existing": [READ_JSON]}


async def test_a_refusal_to_add_is_a_failure(admin: ScriptedAdmin) -> None:
    """The server's reason reaches the person."""
    refusal = ServerError(ErrorCode.security_disabled, "No Authorizer is configured.")
    admin.responses |= {"describe_acls": (), "create_acls": Results({}, {READ_T: refusal})}
    add = ("acls", *AT, "--add", "--topic", "t", "--allow-principal", "User:alice", "--operation", "Read")
    ran = await run_tool(*add)
    assert ran.exit_code == 1
    assert ran.stderr == "error: SECURITY_DISABLED: No Authorizer is configured.\n"


async def test_acls_are_listed(admin: ScriptedAdmin) -> None:
    admin.responses["describe_acls"] = (WRITE_T, READ_T)
    both = f"Current ACLs for resource `{PATTERN_TEXT}`:\n\t{READ_TEXT}\n\t{WRITE_TEXT}\n\n"
    assert (await run_tool("acls", *AT, "--list")).stdout == both
    assert admin.calls[-1].args == (ANY_ACL,)
    ran = await run_tool("acls", *AT, "--list", "--topic", "t", "--cluster")
    assert ran.stdout == both
    assert [call.args[0].pattern for call in admin.calls[1:]] == [TOPIC_FILTER, CLUSTER]
    repeated = [f"--principal={principal}" for principal in ("User:alice", "User:eve", " User:alice")]
    ran = await run_tool("acls", *AT, "--list", *repeated)
    assert ran.stdout == (
        "ACLs for principal `User:alice`\n"
        f"Current ACLs for resource `{PATTERN_TEXT}`:\n\t{READ_TEXT}\n\n"
        "ACLs for principal `User:eve`\n"
    )
    ran = await run_tool("acls", *AT, "--list", "--principal", "User:alice", "-o", "json")
    assert ran.json == {"acls": [READ_JSON]}
    admin.responses["describe_acls"] = ()
    assert (await run_tool("acls", *AT, "--list")).stdout == ""


async def test_filters_may_match_any_pattern(admin: ScriptedAdmin) -> None:
    admin.responses["describe_acls"] = ()
    for text in ("any", "match"):
        await run_tool("acls", *AT, "--list", "--topic", "t", "--resource-pattern-type", text)
    asked = [call.args[0].pattern.pattern_type for call in admin.calls]
    assert asked == [PatternType.ANY, PatternType.MATCH]


def deleted(*bindings: AclBinding, error: ServerError | None = None) -> Any:
    """The results of delete_acls."""
    return lambda filters: Results(
        {
            acl_filter: tuple(AclDeletion(binding=binding, error=error) for binding in bindings)
            for acl_filter in filters
        },
        {},
    )


async def test_acls_are_removed_without_a_question_by_force(admin: ScriptedAdmin) -> None:
    admin.responses["delete_acls"] = deleted(READ_T)
    remove = ("acls", *AT, "--remove", "--topic", "t", "--force")
    ran = await run_tool(*remove)
    assert (ran.exit_code, ran.stdout, ran.stderr) == (0, "", "")
    assert admin.calls[-1].args == ([AclBindingFilter(pattern=TOPIC_FILTER)],)
    ran = await run_tool(*remove, "--allow-principal", "User:alice", "--operation", "Read", "-o", "json")
    assert ran.json == {"removed": [READ_JSON]}
    entry = AccessControlEntryFilter(
        principal="User:alice",
        host="*",
        operation=AclOperation.READ,
        permission_type=AclPermissionType.ALLOW,
    )
    assert admin.calls[-1].args == ([AclBindingFilter(pattern=TOPIC_FILTER, entry=entry)],)


async def removal(typed: str, *arguments: str) -> Result:
    """Run the tool with something to read."""
    return await asyncio.to_thread(
        CliRunner().invoke, app, ["acls", *AT, "--remove", *arguments], prog_name="quorate", input=typed
    )


ALL_OF_T = f"Are you sure you want to delete all ACLs for resource filter `{PATTERN_TEXT}`? (y/n)\n"


@pytest.mark.parametrize(("typed", "calls"), [("y\n", 1), ("Y\n", 1), ("n\n", 0), ("yes\n", 0), ("\n", 0)])
async def test_removal_asks_first(admin: ScriptedAdmin, typed: str, calls: int) -> None:
    admin.responses["delete_acls"] = deleted()
    ran = await removal(typed, "--topic", "t")
    assert (ran.exit_code, ran.stdout) == (0, ALL_OF_T)
    assert len(admin.calls) == calls


async def test_removal_asks_for_each_resource(admin: ScriptedAdmin) -> None:
    admin.responses["delete_acls"] = deleted()
    ran = await removal("n\ny\n", "--topic", "t", "--group", "g", "--allow-principal", "User:alice")
    question = (
        "Are you sure you want to remove ACLs: \n \t(principal=User:alice, host=*, operation=ALL,"
        " permissionType=ALLOW)\n from resource filter `{}`? (y/n)\n"
    )
    group = PATTERN_TEXT.replace("TOPIC", "GROUP").replace("name=t", "name=g")
    assert ran.stdout == question.format(PATTERN_TEXT) + question.format(group)
    (filters,) = admin.calls[0].args
    assert [acl_filter.pattern.resource_type for acl_filter in filters] == [ResourceType.GROUP]


async def test_without_input_nothing_is_removed(admin: ScriptedAdmin) -> None:
    ran = await removal("", "--topic", "t")
    assert ran.exit_code == 1
    assert (
        "there is no input that could confirm it, so nothing is removed; --force removes without confirmation"
        in ran.stderr
    )
    ran = await removal("n\n", "--topic", "t", "-o", "json")
    assert ran.stderr == ALL_OF_T
    assert ran.stdout == '{\n  "removed": []\n}\n'
    assert admin.calls == []


async def test_an_entry_that_could_not_be_removed_is_a_failure(admin: ScriptedAdmin) -> None:
    admin.responses["delete_acls"] = deleted(
        READ_T, error=ServerError(ErrorCode.cluster_authorization_failed)
    )
    ran = await run_tool("acls", *AT, "--remove", "--topic", "t", "--force")
    assert (ran.exit_code, ran.stderr) == (
        1,
        "error: CLUSTER_AUTHORIZATION_FAILED: Cluster authorization failed.\n",
    )
