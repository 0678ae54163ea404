"""The client's configuration from Kafka's properties and the options of a tool."""

import logging

import pytest
from quorate_admin.client import AdminClient
from quorate_admin.config import Address, AdminConfig, MetadataRecoveryStrategy
from quorate_admin.errors import ConfigError

BROKER = {"bootstrap.servers": "b:1"}


def test_defaults_are_kafkas() -> None:
    config = AdminConfig.from_properties(BROKER)
    assert config.bootstrap_servers == (Address("b", 1),)
    assert (config.request_timeout_ms, config.default_api_timeout_ms, config.retries) == (
        30_000,
        60_000,
        2**31 - 1,
    )
    assert (config.retry_backoff_ms, config.retry_backoff_max_ms) == (100, 1_000)
    assert (config.reconnect_backoff_ms, config.reconnect_backoff_max_ms) == (50, 1_000)
    assert (config.metadata_max_age_ms, config.socket_connection_setup_timeout_ms) == (300_000, 10_000)
    assert config.metadata_recovery_strategy is MetadataRecoveryStrategy.REBOOTSTRAP
    assert config.metadata_recovery_rebootstrap_trigger_ms == 300_000
    assert config.metadata_cluster_check_enable


def test_each_property_is_read() -> None:
    config = AdminConfig.from_properties(
        {
            "bootstrap.controllers": " c:1 , [::1]:2",
            "client.id": "me",
            "request.timeout.ms": " 1 ",
            "default.api.timeout.ms": "2",
            "retries": "3",
            "retry.backoff.ms": "4",
            "retry.backoff.max.ms": "5",
            "reconnect.backoff.ms": "6",
            "reconnect.backoff.max.ms": "7",
            "socket.connection.setup.timeout.ms": "8",
            "metadata.max.age.ms": "9",
            "metadata.recovery.strategy": "None",
            "metadata.recovery.rebootstrap.trigger.ms": "10",
            "metadata.cluster.check.enable": "FALSE",
        }
    )
    assert config == AdminConfig(
        bootstrap_controllers=(Address("c", 1), Address("::1", 2)),
        client_id="me",
        request_timeout_ms=1,
        default_api_timeout_ms=2,
        retries=3,
        retry_backoff_ms=4,
        retry_backoff_max_ms=5,
        reconnect_backoff_ms=6,
        reconnect_backoff_max_ms=7,
        socket_connection_setup_timeout_ms=8,
        metadata_max_age_ms=9,
        metadata_recovery_strategy=MetadataRecoveryStrategy.NONE,
        metadata_recovery_rebootstrap_trigger_ms=10,
        metadata_cluster_check_enable=False,
    )


def test_an_option_replaces_both_properties() -> None:
    """KIP-919."""
    config = AdminConfig.from_properties(BROKER, bootstrap_controllers="c:1,d:2")
    assert (config.bootstrap_servers, config.bootstrap_controllers) == (
        (),
        (Address("c", 1), Address("d", 2)),
    )
    config = AdminConfig.from_properties({"bootstrap.controllers": "c:1"}, bootstrap_servers=["b:1"])
    assert (config.is_to_controllers, config.bootstrap) == (False, (Address("b", 1),))


@pytest.mark.parametrize(
    ("properties", "said"),
    [
        ({}, "give either bootstrap.servers or bootstrap.controllers"),
        ({"bootstrap.servers": ""}, "give either"),
        (BROKER | {"bootstrap.controllers": "c:1"}, "are both set: give one of them"),
        ({"bootstrap.servers": "b"}, "bootstrap.servers: 'b' is not host:port; allowed is a list such as"),
        (BROKER | {"retries": "-1"}, "retries=-1: allowed is a whole number from 0 to 2147483647"),
        (BROKER | {"retries": "2147483648"}, "retries=2147483648: allowed"),
        (BROKER | {"request.timeout.ms": "soon"}, "request.timeout.ms=soon: allowed"),
        (
            BROKER | {"metadata.recovery.strategy": "x"},
            "metadata.recovery.strategy=x: allowed are rebootstrap and none",
        ),
        (
            BROKER | {"metadata.cluster.check.enable": "1"},
            "metadata.cluster.check.enable=1: allowed are true and false",
        ),
        (
            BROKER | {"default.api.timeout.ms": "1"},
            "default.api.timeout.ms=1: allowed is request.timeout.ms (30000)",
        ),
        (BROKER | {"security.protocol": "x"}, "security.protocol=x: allowed are"),
    ],
)
def test_wrong_values_name_key_value_and_what_is_allowed(properties: dict[str, str], said: str) -> None:
    with pytest.raises(ConfigError) as refused:
        AdminConfig.from_properties(properties)
    assert said in str(refused.value)


def test_a_long_request_makes_the_whole_as_long() -> None:
    assert (
        AdminConfig.from_properties(BROKER | {"request.timeout.ms": "90000"}).default_api_timeout_ms == 90_000
    )


def test_unknown_properties_are_ignored_with_a_warning(caplog: pytest.LogCaptureFixture) -> None:
    """A file that several clients share works, a misspelled key is reported."""
    with caplog.at_level(logging.DEBUG, "quorate_admin"):
        AdminConfig.from_properties(BROKER | {"acks": "all", "send.buffer.bytes": "1", "ssl.provider": "x"})
    reported = {record.getMessage(): record.levelname for record in caplog.records}
    assert reported == {
        "acks is not a property of an admin client: ignored": "WARNING",
        "send.buffer.bytes has no effect here": "DEBUG",
        "ssl.provider has no effect here": "DEBUG",
    }


def test_the_client_takes_a_configuration_addresses_or_both() -> None:
    config = AdminConfig.from_properties(BROKER)
    assert AdminClient(config)._config is config
    assert AdminClient(config, retries=1)._config.retries == 1
    assert AdminClient(config, bootstrap_controllers=["c:1"])._config.bootstrap == (Address("c", 1),)
    assert AdminClient(bootstrap_servers=["b:1"], client_id="me")._config.client_id == "me"
    for arguments in ({}, {"bootstrap_servers": ["h:1"], "bootstrap_controllers": ["h:1"]}):
        with pytest.raises(ConfigError):
            AdminClient(**arguments)  # type: ignore[arg-type]
