"""`quorate configs`: what is asked, text, JSON and errors."""

from pathlib import Path
from typing import Any

import pytest
from kit.scripted_admin import ScriptedAdmin, brokers
from kit.tool_runner import run_tool
from quorate_admin.errors import ServerError, UnsupportedByServerError, UnsupportedEndpointError
from quorate_admin.results import Results
from quorate_admin.types.cluster import GroupListing
from quorate_admin.types.configs import AlterConfigOp, ConfigEntry, ConfigResource, ConfigSynonym
from quorate_admin.types.credentials import (
    ScramCredentialInfo,
    UserScramCredentialsDescription,
)
from quorate_admin.types.quotas import (
    ClientQuotaAlteration,
    ClientQuotaEntity,
    ClientQuotaFilter,
    ClientQuotaFilterComponent,
)
from quorate_protocol.errors import ErrorCode
from quorate_protocol.kafka.enums import (
    ConfigOpType,
    ConfigResourceType,
    ConfigSource,
    QuotaMatch,
    ScramMechanism,
)

AT = ("--bootstrap-server", "localhost:9092")
AT_CONTROLLER = ("--bootstrap-controller", "localhost:9093")


# --describe


def entry(name: str, value: str | None, source: ConfigSource, **fields: Any) -> ConfigEntry:
    """A config."""
    return ConfigEntry(
        name=name, value=value, source=source, is_read_only=False, **{"is_sensitive": False} | fields
    )


TOPIC_ENTRIES = (
    entry("segment.ms", "5", ConfigSource.DEFAULT_CONFIG),
    entry(
        "retention.ms",
        "1",
        ConfigSource.DYNAMIC_TOPIC_CONFIG,
        synonyms=(
            ConfigSynonym(name="retention.ms", value="1", source=ConfigSource.DYNAMIC_TOPIC_CONFIG),
            ConfigSynonym(name="log.retention.ms", value=None, source=ConfigSource.STATIC_BROKER_CONFIG),
        ),
    ),
    entry("flush.ms", None, ConfigSource.DYNAMIC_TOPIC_CONFIG, is_sensitive=True),
)


def configured(admin: ScriptedAdmin, *entries: ConfigEntry) -> None:
    """Every resource has these configs."""
    admin.responses["describe_configs"] = lambda resources, **_: Results(
        dict.fromkeys(resources, entries), {}
    )


async def test_a_topic_is_described(admin: ScriptedAdmin) -> None:
    admin.responses["list_topics"] = {"t": None}
    configured(admin, *TOPIC_ENTRIES)
    retention = (
        "  retention.ms=1 sensitive=false synonyms={DYNAMIC_TOPIC_CONFIG:retention.ms=1, "
        "STATIC_BROKER_CONFIG:log.retention.ms=null}\n"
    )
    flush = "  flush.ms=null sensitive=true synonyms={}\n"
    for whose in (("--topic", "t"), ("--entity-type", "topics", "--entity-name", "t")):
        ran = await run_tool("configs", *AT, "--describe", *whose)
        assert ran.exit_code == 0
        assert ran.stdout == f"Dynamic configs for topic t are:\n{flush}{retention}"
    ran = await run_tool("configs", *AT, "--describe", "--topic", "t", "--all")
    segment = "  segment.ms=5 sensitive=false synonyms={}\n"
    assert ran.stdout == f"All configs for topic t are:\n{flush}{retention}{segment}"


async def test_the_description_for_programs_has_the_documented_shape(admin: ScriptedAdmin) -> None:
    admin.responses["list_topics"] = {"t": None}
    configured(admin, TOPIC_ENTRIES[1])
    ran = await run_tool("configs", *AT, "--describe", "--topic", "t", "-o", "json")
    assert ran.json == {
        "configs": [
            {
                "entityType": "topics",
                "entityName": "t",
                "entries": [
                    {
                        "name": "retention.ms",
                        "value": "1",
                        "source": "DYNAMIC_TOPIC_CONFIG",
                        "isSensitive": False,
                        "isReadOnly": False,
                        "synonyms": [
                            {"name": "retention.ms", "value": "1", "source": "DYNAMIC_TOPIC_CONFIG"},
                            {"name": "log.retention.ms", "value": None, "source": "STATIC_BROKER_CONFIG"},
                        ],
                    }
                ],
            }
        ]
    }


async def test_brokers_are_described_one_all_and_by_default(admin: ScriptedAdmin) -> None:
    admin.responses["describe_cluster"] = brokers(2, 1)
    configured(
        admin,
        entry("a", "1", ConfigSource.DYNAMIC_BROKER_CONFIG),
        entry("b", "2", ConfigSource.DYNAMIC_DEFAULT_BROKER_CONFIG),
    )
    text = "Dynamic configs for broker {} are:\n  a=1 sensitive=false synonyms={{}}\n"
    default = "Default configs for brokers in the cluster are:\n  b=2 sensitive=false synonyms={}\n"
    assert (await run_tool("configs", *AT, "--describe", "--broker", "1")).stdout == text.format(1)
    assert (await run_tool("configs", *AT, "--describe", "--broker-defaults")).stdout == default
    ran = await run_tool("configs", *AT_CONTROLLER, "--describe", "--entity-type", "brokers")
    assert ran.stdout == text.format(1) + text.format(2) + default


async def test_loggers_are_described_all(admin: ScriptedAdmin) -> None:
    admin.responses["describe_cluster"] = brokers(1)
    configured(admin, entry("kafka", "INFO", ConfigSource.DYNAMIC_BROKER_LOGGER_CONFIG))
    ran = await run_tool("configs", *AT, "--describe", "--broker-logger", "1")
    assert (
        ran.stdout == "Dynamic configs for broker-logger 1 are:\n  kafka=INFO sensitive=false synonyms={}\n"
    )


@pytest.mark.parametrize(
    ("whose", "missing"),
    [
        (("--topic", "z"), "topic 'z'"),
        (("--broker", "7"), "broker '7'"),
        (("--broker-logger", "7"), "broker-logger '7'"),
        (("--client-metrics", "z"), "client-metric 'z'"),
        (("--group", "z"), "group 'z'"),
    ],
)
async def test_what_does_not_exist_is_reported(
    admin: ScriptedAdmin, whose: tuple[str, str], missing: str
) -> None:
    admin.responses |= {
        "list_topics": {},
        "describe_cluster": brokers(1),
        "list_config_resources": (),
        "list_groups": (),
    }
    ran = await run_tool("configs", *AT, "--describe", *whose)
    assert (ran.exit_code, ran.stdout) == (
        0,
        f"The {missing} doesn't exist and doesn't have dynamic config.\n",
    )
    assert (await run_tool("configs", *AT, "--describe", *whose, "-o", "json")).json == {"configs": []}


@pytest.mark.parametrize(
    ("listed", "names"),
    [
        (
            (ConfigResource(ConfigResourceType.GROUP, "h"), ConfigResource(ConfigResourceType.GROUP, "g")),
            ["g", "h"],
        ),
        (UnsupportedByServerError("old"), ["g"]),
        (ServerError(ErrorCode.cluster_authorization_failed), ["g"]),
    ],
)
async def test_groups_with_members_and_with_configs(
    admin: ScriptedAdmin, listed: object, names: list[str]
) -> None:
    group = GroupListing(group_id="g", group_type="consumer", protocol_type="", group_state="")
    admin.responses |= {"list_groups": (group,), "list_config_resources": listed}
    configured(admin, entry("a", "1", ConfigSource.DYNAMIC_GROUP_CONFIG))
    ran = await run_tool("configs", *AT, "--describe", "--entity-type", "groups", "-o", "json")
    assert [entity["entityName"] for entity in ran.json["configs"]] == names


async def test_a_refusal_to_list_is_a_failure(admin: ScriptedAdmin) -> None:
    admin.responses |= {"list_groups": (), "list_config_resources": ServerError(ErrorCode.invalid_request)}
    ran = await run_tool("configs", *AT, "--describe", "--entity-type", "groups")
    assert ran.exit_code == 1
    assert "INVALID_REQUEST" in ran.stderr


QUOTAS = {
    ClientQuotaEntity.of({"user": "alice"}): {"request_percentage": 12.5, "producer_byte_rate": 1024.0},
    ClientQuotaEntity.of({"user": None, "client-id": "app"}): {"consumer_byte_rate": 1e9},
}
USERS = Results(
    {
        "alice": UserScramCredentialsDescription(
            user="alice",
            credentials=(
                ScramCredentialInfo(mechanism=ScramMechanism.SCRAM_SHA_256, iterations=8192),
                ScramCredentialInfo(mechanism=ScramMechanism.SCRAM_SHA_512, iterations=4096),
            ),
        )
    },
    {
        "bob": ServerError(ErrorCode.resource_not_found),
        "eve": ServerError(ErrorCode.duplicate_resource, "asked twice"),
    },
)


async def test_users_are_described_with_quotas_and_credentials(admin: ScriptedAdmin) -> None:
    admin.responses |= {"describe_client_quotas": QUOTAS, "describe_user_scram_credentials": USERS}
    ran = await run_tool("configs", *AT, "--describe", "--entity-type", "users")
    assert sorted(ran.stdout.splitlines()) == [
        "Error retrieving SCRAM credential configs for user-principal 'eve': DUPLICATE_RESOURCE: asked twice",
        "Quota configs for the default user-principal, client-id 'app' are consumer_byte_rate=1.0E9",
        "Quota configs for user-principal 'alice' are request_percentage=12.5, producer_byte_rate=1024.0",
        (
            "SCRAM credential configs for user-principal 'alice' are SCRAM-SHA-256=iterations=8192,"
            " SCRAM-SHA-512=iterations=4096"
        ),
    ]
    assert admin.calls[0].args == (
        ClientQuotaFilter(
            components=(ClientQuotaFilterComponent(entity_type="user", match=QuotaMatch.SPECIFIED),),
            is_strict=True,
        ),
    )
    assert admin.calls[1].args == ((),)


async def test_quotas_for_programs_have_the_documented_shape(admin: ScriptedAdmin) -> None:
    admin.responses |= {"describe_client_quotas": QUOTAS, "describe_user_scram_credentials": USERS}
    ran = await run_tool("configs", *AT, "--describe", "--entity-type", "users", "-o", "json")
    assert ran.json == {
        "quotas": [
            {"entity": {"client-id": "app", "user": None}, "values": {"consumer_byte_rate": 1e9}},
            {
                "entity": {"user": "alice"},
                "values": {"producer_byte_rate": 1024.0, "request_percentage": 12.5},
            },
        ],
        "scramCredentials": [
            {
                "user": "alice",
                "credentials": [
                    {"mechanism": "SCRAM-SHA-256", "iterations": 8192},
                    {"mechanism": "SCRAM-SHA-512", "iterations": 4096},
                ],
            }
        ],
    }


@pytest.mark.parametrize(
    ("whose", "components"),
    [
        (("--user-defaults",), [("user", QuotaMatch.DEFAULT, None)]),
        (
            ("--user", "u", "--client", "c"),
            [("client-id", QuotaMatch.EXACT, "c"), ("user", QuotaMatch.EXACT, "u")],
        ),
        (("--entity-type", "clients"), [("client-id", QuotaMatch.SPECIFIED, None)]),
        (("--ip", "127.0.0.1"), [("ip", QuotaMatch.EXACT, "127.0.0.1")]),
        (("--ip-defaults",), [("ip", QuotaMatch.DEFAULT, None)]),
    ],
)
async def test_only_users_are_asked_for_credentials(
    admin: ScriptedAdmin, whose: tuple[str, ...], components: list[tuple[str, QuotaMatch, str | None]]
) -> None:
    admin.responses["describe_client_quotas"] = {}
    ran = await run_tool("configs", *AT, "--describe", *whose)
    assert (ran.exit_code, ran.stdout) == (0, "")
    (call,) = admin.calls
    asked = [
        (component.entity_type, component.match, component.name) for component in call.args[0].components
    ]
    assert asked == components


async def test_an_address_that_can_not_be_resolved_is_reported() -> None:
    ran = await run_tool("configs", *AT, "--describe", "--ip", "not..valid")
    assert ran.exit_code == 2
    assert "must be an IP address or a host name, not 'not..valid'" in " ".join(ran.stderr.split())


# --alter


def changed(resource: ConfigResource, deleted: tuple[str, ...] = (), **set_: str) -> Any:
    """The argument of incremental_alter_configs."""
    return (
        {
            resource: [
                *(AlterConfigOp(name=name, operation=ConfigOpType.DELETE) for name in deleted),
                *(AlterConfigOp(name=name, value=value) for name, value in set_.items()),
            ]
        },
    )


@pytest.mark.parametrize(
    ("whose", "resource", "expected"),
    [
        (("--topic", "t"), (ConfigResourceType.TOPIC, "t"), "config for topic t."),
        (("--broker", "1"), (ConfigResourceType.BROKER, "1"), "config for broker 1."),
        (
            ("--broker-defaults",),
            (ConfigResourceType.BROKER, ""),
            "default config for brokers in the cluster.",
        ),
        (("--group", "g"), (ConfigResourceType.GROUP, "g"), "config for group g."),
        (("--client-metrics", "m"), (ConfigResourceType.CLIENT_METRICS, "m"), "config for client-metric m."),
    ],
)
async def test_configs_are_altered(
    admin: ScriptedAdmin, whose: tuple[str, ...], resource: tuple[ConfigResourceType, str], expected: str
) -> None:
    admin.responses["incremental_alter_configs"] = Results()
    ran = await run_tool(
        "configs", *AT, "--alter", *whose, "--add-config", "a=[1,2]", "--delete-config", "b,c"
    )
    assert (ran.exit_code, ran.stdout) == (0, f"Completed updating {expected}\n")
    assert admin.calls[0].args == changed(ConfigResource(*resource), ("b", "c"), a="1,2")


async def test_an_alteration_for_programs_has_the_documented_shape(admin: ScriptedAdmin) -> None:
    """`-o json` is an interface, and repeats no value."""
    admin.responses["incremental_alter_configs"] = Results()
    ran = await run_tool(
        "configs", *AT, "--alter", "--broker-defaults", "--add-config", "a=secret", "-o", "json"
    )
    assert ran.json == {
        "entities": [{"entityType": "brokers", "entityName": None}],
        "set": ["a"],
        "deleted": [],
    }


async def test_configs_are_read_from_a_file(admin: ScriptedAdmin, tmp_path: Path) -> None:
    admin.responses["incremental_alter_configs"] = Results()
    file = tmp_path / "configs.properties"
    file.write_text("# comment\na=1\nb = x,y\n")
    alter = ("configs", *AT, "--alter", "--topic", "t", "--add-config-file", str(file))
    assert (await run_tool(*alter)).exit_code == 0
    assert admin.calls[0].args == changed(ConfigResource(ConfigResourceType.TOPIC, "t"), a="1", b="x,y")
    file.write_text("a%b=1\n")
    ran = await run_tool(*alter)
    assert ran.exit_code == 2
    assert "config name 'a%b'" in ran.stderr
    file.unlink()
    ran = await run_tool(*alter)
    assert (ran.exit_code, ran.stdout) == (1, "")
    assert f"--add-config-file {file}: No such file" in ran.stderr


async def test_a_refused_config_is_a_failure(admin: ScriptedAdmin) -> None:
    """The server's reason reaches the person."""
    resource = ConfigResource(ConfigResourceType.TOPIC, "t")
    error = ServerError(ErrorCode.invalid_config, "Unknown topic config name: a")
    admin.responses["incremental_alter_configs"] = Results({}, {resource: error})
    ran = await run_tool("configs", *AT, "--alter", "--topic", "t", "--add-config", "a=1")
    assert (ran.exit_code, ran.stdout) == (1, "")
    assert ran.stderr == "error: INVALID_CONFIG: Unknown topic config name: a\n"


async def test_loggers_are_altered_if_there_are_such(admin: ScriptedAdmin) -> None:
    configured(admin, entry("kafka", "INFO", ConfigSource.DYNAMIC_BROKER_LOGGER_CONFIG))
    admin.responses["incremental_alter_configs"] = Results()
    alter = ("configs", *AT_CONTROLLER, "--alter", "--broker-logger", "3000", "--add-config")
    ran = await run_tool(*alter, "kafka=DEBUG")
    assert ran.stdout == "Completed updating config for broker-logger 3000.\n"
    admin.calls.clear()
    ran = await run_tool(*alter, "kafca=DEBUG")
    assert ran.exit_code == 1
    assert ran.stderr == "error: Invalid broker logger(s): kafca; there are kafka\n"
    assert admin.calls_of("incremental_alter_configs") == []


async def test_quotas_are_altered_at_controllers_too(admin: ScriptedAdmin) -> None:
    admin.responses["alter_client_quotas"] = Results()
    ran = await run_tool(
        "configs",
        *AT_CONTROLLER,
        "--alter",
        *("--entity-type", "users", "--entity-name", "u", "--entity-type", "clients", "--entity-default"),
        *("--add-config", "producer_byte_rate=1024"),
    )
    assert ran.stdout == "Completed updating config for user u.\n"
    entity = ClientQuotaEntity.of({"user": "u", "client-id": None})
    assert admin.calls[0].args == (
        [ClientQuotaAlteration(entity=entity, values={"producer_byte_rate": 1024.0})],
    )


async def test_a_quota_that_is_not_set_can_not_be_deleted(admin: ScriptedAdmin) -> None:
    """A typing error does not look like success."""
    admin.responses |= {
        "describe_client_quotas": {ClientQuotaEntity.of({"ip": None}): {"connection_creation_rate": 1.0}},
        "alter_client_quotas": Results(),
    }
    alter = ("configs", *AT, "--alter", "--ip-defaults", "--delete-config", "connection_creation_rate")
    assert (await run_tool(*alter)).stdout == "Completed updating default config for ips in the cluster.\n"
    admin.responses["describe_client_quotas"] = {}
    ran = await run_tool(*alter)
    assert (ran.exit_code, ran.stdout) == (1, "")
    assert "Invalid config(s): connection_creation_rate" in ran.stderr


async def test_credentials_are_altered(admin: ScriptedAdmin) -> None:
    admin.responses["alter_user_scram_credentials"] = Results({"u": None}, {})
    alter = ("configs", *AT, "--alter", "--user", "u", "--add-config", "SCRAM-SHA-512=[password=secret]")
    ran = await run_tool(*alter)
    assert ran.stdout == "Completed updating config for user u.\n"
    (alterations,) = admin.calls[0].args
    assert [(alteration.user, alteration.mechanism, alteration.password) for alteration in alterations] == [
        ("u", ScramMechanism.SCRAM_SHA_512, "secret")
    ]
    admin.responses["alter_user_scram_credentials"] = UnsupportedEndpointError("not at controllers")
    ran = await run_tool(*alter)
    assert (ran.exit_code, ran.stderr) == (1, "error: not at controllers\n")
