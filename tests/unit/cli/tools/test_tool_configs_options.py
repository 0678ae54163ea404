"""`quorate configs`: whose configs the options mean, and what is to become of them."""

import pytest
from quorate.console import UsageError
from quorate.tools.configs.changes import (
    Changes,
    check_changes,
    check_keys,
    credential_alterations,
    parse_add_config,
    parse_delete_config,
    quota_values,
)
from quorate.tools.configs.entities import Entities, check_alter, check_describe, resolve
from quorate_admin.types.credentials import (
    UserScramCredentialDeletion,
    UserScramCredentialUpsertion,
)
from quorate_protocol.kafka.enums import (
    ScramMechanism,
)


def entities(*pairs: tuple[str, str]) -> Entities:
    """Entities of these types and names."""
    return Entities(types=tuple(kind for kind, _ in pairs), names=tuple(name for _, name in pairs))


def changes(to_delete: tuple[str, ...] = (), **to_set: str) -> Changes:
    """What to set and delete; names with `_` as they are."""
    return Changes(to_set=to_set, to_delete=to_delete)


# Entities


def test_names_and_defaults_belong_to_types_by_their_order() -> None:
    given = ("--entity-type", "--entity-default", "--entity-type", "--entity-name")
    assert resolve(given, ["users", "clients"], ["app"], {}) == entities(("users", ""), ("clients", "app"))
    given = ("--entity-name", "--entity-type", "--entity-default", "--entity-type")
    assert resolve(given, ["users", "clients"], ["app"], {}) == entities(("users", "app"), ("clients", ""))


def test_one_option_stands_for_type_and_name() -> None:
    """The options of KIP-543."""
    assert resolve(("--topic",), (), (), {"--topic": "t"}) == entities(("topics", "t"))
    assert resolve(("--ip-defaults",), (), (), {}) == entities(("ips", ""))
    assert resolve(("--user-defaults", "--client"), (), (), {"--client": "app"}) == entities(
        ("clients", "app"), ("users", "")
    )


@pytest.mark.parametrize(
    ("given", "types", "names", "shortcuts", "expected"),
    [
        (
            "--entity-type",
            ["topic"],
            [],
            {},
            "--entity-type 'topic': the type must be one of topics, clients",
        ),
        ("", [], [], {}, "give --entity-type, or one of --topic"),
        (
            "--entity-type --entity-type",
            ["topics", "topics"],
            [],
            {},
            "the entity type topics is given 2 times",
        ),
        (
            "--entity-type --entity-type",
            ["topics", "users"],
            [],
            {},
            "topics and users can't be given together",
        ),
        (
            "--entity-type --topic",
            ["topics"],
            [],
            {"--topic": "t"},
            "--entity-type can't be used with --topic",
        ),
        ("--entity-name --user-defaults", [], ["u"], {}, "--entity-name can't be used with --user-defaults"),
        ("--broker", [], [], {"--broker": "b"}, "the entity name for brokers must be a numeric node id"),
    ],
)
def test_entities_that_can_not_be_meant(
    given: str, types: list[str], names: list[str], shortcuts: dict[str, str], expected: str
) -> None:
    with pytest.raises(UsageError) as raised:
        resolve(given.split(), types, names, shortcuts)
    assert expected in raised.value.message


@pytest.mark.parametrize(
    ("wanted", "given", "expected"),
    [
        (
            entities(("topics", "")),
            "--entity-default",
            "--entity-default can't be used with --describe of topics",
        ),
        (
            Entities(types=("broker-loggers",), names=()),
            "",
            "--describe of broker-loggers needs --entity-name",
        ),
        (Entities(types=("users",), names=("a", "b")), "", "more entity names than entity types"),
    ],
)
def test_what_can_not_be_described(wanted: Entities, given: str, expected: str) -> None:
    with pytest.raises(UsageError) as raised:
        check_describe(wanted, given.split())
    assert expected in raised.value.message


@pytest.mark.parametrize(
    ("wanted", "given", "expected"),
    [
        (Entities(types=("topics",), names=()), "--add-config", "--alter of topics needs --entity-name"),
        (entities(("topics", "")), "--add-config", "--alter of topics needs --entity-name"),
        (Entities(types=("users",), names=()), "--add-config", "--entity-name or --entity-default"),
        (
            Entities(types=("users", "clients"), names=("a",)),
            "--add-config",
            "one entity name for each entity type: 2 and not 1",
        ),
        (entities(("topics", "t")), "--add-config --add-config-file", "can't be given together"),
        (entities(("topics", "t")), "", "--alter needs --add-config, --add-config-file or --delete-config"),
    ],
)
def test_what_can_not_be_altered(wanted: Entities, given: str, expected: str) -> None:
    with pytest.raises(UsageError) as raised:
        check_alter(wanted, given.split())
    assert expected in raised.value.message


# What is to become of them


@pytest.mark.parametrize(
    ("text", "configs"),
    [
        ("a=1", {"a": "1"}),
        ("a=1,b=2", {"a": "1", "b": "2"}),
        ("a = 1 , b=", {"a": "1", "b": ""}),
        ("a=[1,2],b=3", {"a": "1,2", "b": "3"}),
        ("a=[x=1,y=2]", {"a": "x=1,y=2"}),
        ("a=1,", {"a": "1"}),
    ],
)
def test_configs_to_add_are_read(text: str, configs: dict[str, str]) -> None:
    assert parse_add_config(text) == configs


@pytest.mark.parametrize("text", ["a", "a=1,b", "a=secret=x", ""])
def test_wrong_configs_to_add_are_reported_without_their_values(text: str) -> None:
    with pytest.raises(UsageError, match="must be followed by one = and its value") as raised:
        parse_add_config(text)
    assert "secret" not in raised.value.message


def test_names_are_checked_and_split() -> None:
    check_keys(["org.apache.Quota$Reaper", "a-b_c.1"])
    with pytest.raises(UsageError, match="config name 'a b'"):
        check_keys(["a b"])
    assert parse_delete_config(["a, b", "c"]) == ["a", "b", "c"]


@pytest.mark.parametrize(
    ("whose", "what", "expected"),
    [
        (entities(("ips", "::1")), changes(producer_byte_rate="1"), "they have connection_creation_rate"),
        (
            entities(("clients", "a")),
            changes(to_delete=("SCRAM-SHA-256",)),
            "clients have no config 'SCRAM-SHA-256'",
        ),
        (entities(("users", "a"), ("clients", "b")), changes(a="1"), "users and clients have no config 'a'"),
        (entities(("users", "a")), changes(a="1"), "users have no config 'a'"),
        (
            entities(("users", "")),
            changes(to_delete=("SCRAM-SHA-256",)),
            "--entity-default and --user-defaults can't be used",
        ),
        (
            entities(("users", "a")),
            changes(to_delete=("SCRAM-SHA-256",), producer_byte_rate="1"),
            "can't be altered together",
        ),
    ],
)
def test_changes_that_entities_do_not_take(whose: Entities, what: Changes, expected: str) -> None:
    with pytest.raises(UsageError) as raised:
        check_changes(whose, what)
    assert expected in raised.value.message


def test_quotas_are_numbers() -> None:
    assert quota_values(changes(("b",), a="1e3")) == {"a": 1000.0, "b": None}
    for text in ("1_000", "many"):
        with pytest.raises(UsageError, match=f"--add-config a={text}: a quota must be a number"):
            quota_values(changes(a=text))


def test_credentials_are_read() -> None:
    wanted = Changes(
        to_set={"SCRAM-SHA-256": "iterations=8192,password=a=b", "SCRAM-SHA-512": "iterations=-1,password=c"},
        to_delete=("SCRAM-SHA-256",),
    )
    assert credential_alterations("u", wanted) == [
        UserScramCredentialDeletion(user="u", mechanism=ScramMechanism.SCRAM_SHA_256),
        UserScramCredentialUpsertion(
            user="u", mechanism=ScramMechanism.SCRAM_SHA_256, password="a=b", iterations=8192
        ),
        UserScramCredentialUpsertion(
            user="u", mechanism=ScramMechanism.SCRAM_SHA_512, password="c", iterations=4096
        ),
    ]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("iterations=8192", "a credential is written SCRAM-SHA-256=[iterations=8192,password=…]"),
        ("secret", "a credential is written"),
        ("iterations=x,password=secret", "a credential is written"),
        ("iterations=4095,password=secret", "at least 4096 iterations are required"),
        ("iterations=1000001,password=secret", "at most 1000000 are allowed"),
        (f"iterations={'9' * 5000},password=secret", "a credential is written"),
    ],
)
def test_wrong_credentials_are_reported_without_the_password(text: str, expected: str) -> None:
    with pytest.raises(UsageError) as raised:
        credential_alterations("u", Changes(to_set={"SCRAM-SHA-256": text}, to_delete=()))
    assert expected in raised.value.message
    assert "secret" not in raised.value.message
