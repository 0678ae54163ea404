"""Types, ranges and checks of Kafka's configs, as data."""

import time

import pytest
from quorate_protocol.kafka.config_schema import (
    ConfigValueError,
    Definition,
    Synonym,
    broker_definitions,
    client_metrics_definitions,
    documentation,
    group_definitions,
    parse_type,
    security_configs,
    topic_definitions,
)
from quorate_protocol.kafka.enums import ConfigType

SECTIONS = {
    "topic": topic_definitions,
    "broker": broker_definitions,
    "group": group_definitions,
    "client_metrics": client_metrics_definitions,
}
REQUIRED = {"node.id", "process.roles", "controller.listener.names"}


@pytest.mark.parametrize("section", SECTIONS)
def test_every_default_passes_its_own_check(section):
    for name, definition in SECTIONS[section]().items():
        if name not in REQUIRED:
            definition.parse(definition.default)


@pytest.mark.parametrize("section", SECTIONS)
def test_every_config_is_documented(section):
    """The two data files belong together."""
    assert documentation(section).keys() == SECTIONS[section]().keys()


def test_topic_configs_fall_back_to_existing_broker_configs():
    for definitions in (topic_definitions(), group_definitions()):
        for definition in definitions.values():
            for synonym in definition.synonyms:
                assert synonym.name in broker_definitions()
    assert topic_definitions()["retention.ms"].synonyms == (
        Synonym("log.retention.ms"),
        Synonym("log.retention.minutes", 60_000),
        Synonym("log.retention.hours", 3_600_000),
    )
    assert Synonym("log.retention.hours", 3_600_000).convert("2") == "7200000"
    assert Synonym("log.retention.hours", 3_600_000).convert("x") == "0"


def test_update_modes_of_broker_configs():
    modes = {name: definition.update_mode for name, definition in broker_definitions().items()}
    assert modes["node.id"] == "read-only"
    assert modes["log.retention.ms"] == "cluster-wide"
    assert modes["ssl.keystore.location"] == "per-broker"
    assert modes["leader.replication.throttled.rate"] == "cluster-wide"
    assert broker_definitions()["ssl.keystore.password"].sensitive
    assert "ssl.keystore.location" in security_configs()


@pytest.mark.parametrize(
    ("config_type", "text", "value"),
    [
        (ConfigType.BOOLEAN, " TRUE ", True),
        (ConfigType.BOOLEAN, "false", False),
        (ConfigType.INT, " 5 ", 5),
        (ConfigType.INT, "+5", 5),
        (ConfigType.INT, "-2147483648", -(2**31)),
        (ConfigType.SHORT, "32767", 32767),
        (ConfigType.LONG, "9223372036854775807", 2**63 - 1),
        (ConfigType.DOUBLE, "0.50", 0.5),
        (ConfigType.LIST, "a , b,c", ["a", "b", "c"]),
        (ConfigType.LIST, "", []),
        (ConfigType.LIST, ",", ["", ""]),
        (ConfigType.STRING, " x ", "x"),
        (ConfigType.CLASS, "org.example.Plugin", "org.example.Plugin"),
        (ConfigType.INT, None, None),
    ],
)
def test_values_are_parsed_as_kafka_does(config_type, text, value):
    assert parse_type("name", text, config_type) == value


@pytest.mark.parametrize(
    ("config_type", "text", "reason"),
    [
        (ConfigType.BOOLEAN, "yes", "Expected value to be either true or false"),
        (ConfigType.INT, "2147483648", "Not a number of type INT"),
        (ConfigType.INT, "1.0", "Not a number of type INT"),
        (ConfigType.INT, "", "Not a number of type INT"),
        (ConfigType.INT, "9" * 10_000, "Not a number of type INT"),
        (ConfigType.SHORT, "32768", "Not a number of type SHORT"),
        (ConfigType.LONG, "0x10", "Not a number of type LONG"),
        (ConfigType.LONG, "1_000", "Not a number of type LONG"),
        (ConfigType.DOUBLE, "a", "Not a number of type DOUBLE"),
    ],
)
def test_values_of_another_type_are_refused(config_type, text, reason):
    with pytest.raises(ConfigValueError) as caught:
        parse_type("name", text, config_type)
    assert str(caught.value) == f"Invalid value {text} for configuration name: {reason}"


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("retention.ms", "-2", "Invalid value -2 for configuration retention.ms: Value must be at least -1"),
        ("compression.lz4.level", "18", "Value must be no more than 17"),
        ("compression.type", "zip", "String must be one of: uncompressed, zstd, lz4, snappy, gzip, producer"),
        ("cleanup.policy", "compact,x", "Invalid value x for configuration cleanup.policy"),
        ("cleanup.policy", ",", "Configuration 'cleanup.policy' values must not be empty."),
        ("compression.gzip.level", "0", "Value must be between 1 and 9 or equal to -1"),
        ("leader.replication.throttled.replicas", "1:2,3", "Invalid value [1:2, 3] for configuration"),
    ],
)
def test_values_out_of_bounds_are_refused(name, text, message):
    """Each kind of check has Kafka's text."""
    with pytest.raises(ConfigValueError) as caught:
        topic_definitions()[name].parse(text)
    assert message in str(caught.value)


@pytest.mark.parametrize(
    ("section", "name", "text", "is_valid"),
    [
        ("broker", "log.dir", "", False),
        ("broker", "process.roles", None, False),
        ("broker", "group.consumer.migration.policy", "Upgrade", True),
        ("broker", "group.consumer.migration.policy", "x", False),
        ("broker", "remote.log.storage.manager.impl.prefix", "", False),
        ("broker", "authorizer.class.name", None, False),
        ("broker", "node.id", None, False),
        ("group", "share.auto.offset.reset", "Earliest", True),
        ("group", "share.auto.offset.reset", "by_duration:P1DT2H3M4.5S", True),
        ("group", "share.auto.offset.reset", "by_duration:-PT1H", False),
        ("group", "share.auto.offset.reset", "by_duration:P", False),
        ("group", "share.auto.offset.reset", "by_duration:PT", False),
        ("group", "share.auto.offset.reset", "none", False),
    ],
)
def test_rarer_checks(section, name, text, is_valid):
    definition = SECTIONS[section]()[name]
    if is_valid:
        definition.parse(text)
    else:
        with pytest.raises(ConfigValueError):
            definition.parse(text)


@pytest.mark.parametrize(
    ("name", "text", "shown"),
    [
        ("cleanup.policy", "compact , delete, compact", "compact,delete"),
        ("retention.ms", " +007 ", "7"),
        ("preallocate", "TRUE", "true"),
        ("min.cleanable.dirty.ratio", " 0.50", "0.50"),
    ],
)
def test_values_are_shown_normalized(name, text, shown):
    assert topic_definitions()[name].normalize(text) == shown


def test_a_config_without_value_is_shown_as_none():
    assert Definition(name="n", type=ConfigType.INT).normalize(None) is None


def test_a_list_is_split_in_linear_time():
    """A value of the maximum length cannot hold up the controller."""
    started_s = time.process_time()
    text = "a" + " " * 60_000 + "b"
    assert parse_type("x", f"{text} ,\tc\n, ,", ConfigType.LIST) == [text, "c", "", ""]
    assert time.process_time() - started_s < 5
