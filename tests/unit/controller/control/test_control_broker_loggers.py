"""BROKER_LOGGER: the levels of the very node that is asked, active or not (KIP-412, KIP-919)."""

from typing import Any

import pytest
from quorate_controller.control.api import ControlError
from quorate_protocol.errors import ErrorCode
from quorate_protocol.kafka.enums import ConfigResourceType, ConfigSource, ConfigType
from quorate_protocol.kafka.generated import alter_configs_request as legacy
from quorate_protocol.kafka.generated.describe_configs_request import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
)
from quorate_protocol.kafka.generated.incremental_alter_configs_request import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)

TOPIC, LOGGER = ConfigResourceType.TOPIC, ConfigResourceType.BROKER_LOGGER
SET, DELETE, APPEND, SUBTRACT = 0, 1, 2, 3
DONE = (ErrorCode.none, None)
NOT_A_LEVEL = (
    "Cannot set the log level of kafka to {} as it is not a supported log level. "
    "Valid log levels are DEBUG, ERROR, FATAL, INFO, TRACE, WARN"
)


def resource(
    name: str, *operations: tuple[str, int, str | None], resource_type: int = LOGGER
) -> AlterConfigsResource:
    return AlterConfigsResource(
        resource_type=resource_type,
        resource_name=name,
        configs=tuple(
            AlterableConfig(name=logger, config_operation=operation, value=level)
            for logger, operation, level in operations
        ),
    )


def alter(*resources: AlterConfigsResource, validate_only: bool = False) -> IncrementalAlterConfigsRequest:
    return IncrementalAlterConfigsRequest(resources=resources, validate_only=validate_only)


def results(response: Any) -> list[tuple[ErrorCode, str | None]]:
    return [(resource.error_code, resource.error_message) for resource in response.responses]


def describe(harness: Any, name: str = "3000", *keys: str) -> Any:
    asked = DescribeConfigsResource(resource_type=LOGGER, resource_name=name, configuration_keys=keys or None)
    request = DescribeConfigsRequest(resources=(asked,), include_synonyms=True, include_documentation=True)
    (result,) = harness.apply(request).results
    return result


def test_levels_are_set_described_and_removed(harness: Any) -> None:
    """What is set is what is read, in the form of Kafka's entries."""
    assert results(harness.apply(alter(resource("3000", ("kafka", SET, "TRACE"))))) == [DONE]
    assert harness.records == []
    (entry,) = describe(harness, "3000", "kafka").configs
    assert (entry.name, entry.value, entry.config_source, entry.config_type) == (
        "kafka",
        "TRACE",
        ConfigSource.DYNAMIC_BROKER_LOGGER_CONFIG,
        ConfigType.UNKNOWN,
    )
    assert not any((entry.read_only, entry.is_sensitive, entry.synonyms, entry.documentation))
    harness.apply(alter(resource("3000", ("kafka", DELETE, None), ("root", SET, "ERROR"))))
    assert {config.name: config.value for config in describe(harness).configs} == {
        "kafka": "ERROR",
        "root": "ERROR",
    }


@pytest.mark.parametrize(
    ("name", "operation", "error_code", "message"),
    [
        ("x", ("kafka", SET, "INFO"), "invalid_request", "Node id must be an integer, but it is: x"),
        ("", ("kafka", SET, "INFO"), "invalid_request", "Node id must be an integer, but it is: "),
        (
            "4294970296",
            ("kafka", SET, "INFO"),
            "invalid_request",
            "Node id must be an integer, but it is: 4294970296",
        ),
        ("7", ("kafka", SET, "INFO"), "invalid_request", "Unexpected node id. Expected 3000, but received 7"),
        ("3000", ("x", SET, "INFO"), "invalid_config", "Logger x does not exist!"),
        ("3000", ("x", DELETE, None), "invalid_config", "Logger x does not exist!"),
        ("3000", ("kafka", SET, "info"), "invalid_config", NOT_A_LEVEL.format("info")),
        ("3000", ("kafka", SET, "OFF"), "invalid_config", NOT_A_LEVEL.format("OFF")),
        (
            "3000",
            ("kafka", SET, None),
            "unknown_server_error",
            "The server experienced an unexpected error when processing the request.",
        ),
        (
            "3000",
            ("root", DELETE, None),
            "invalid_request",
            "Removing the log level of the root logger is not allowed",
        ),
        (
            "3000",
            ("kafka", APPEND, "INFO"),
            "invalid_request",
            "APPEND operation is not allowed for the BROKER_LOGGER resource",
        ),
        (
            "3000",
            ("kafka", SUBTRACT, "INFO"),
            "invalid_request",
            "SUBTRACT operation is not allowed for the BROKER_LOGGER resource",
        ),
    ],
)
def test_changes_that_are_refused(
    harness: Any, name: str, operation: tuple[str, int, str | None], error_code: str, message: str
) -> None:
    """Kafka's code and text, and nothing of the resource is done."""
    bad, good = resource(name, ("root", SET, "WARN"), operation), resource("3000", ("root", SET, "FATAL"))
    assert results(harness.apply(alter(bad, good))) == [(ErrorCode[error_code], message), DONE]
    assert harness.loggers.set == {"root": "FATAL", "kafka": None}


def test_validation_changes_nothing(harness: Any) -> None:
    assert results(harness.apply(alter(resource("3000", ("root", SET, "DEBUG")), validate_only=True))) == [
        DONE
    ]
    assert harness.loggers.set["root"] == "INFO"


def test_a_standby_changes_its_own_levels(harness: Any) -> None:
    harness.control.deactivate()
    levels = resource("3000", ("kafka", SET, "WARN"))
    assert results(harness.apply(alter(levels))) == [DONE]
    assert describe(harness, "3000", "kafka").configs[0].value == "WARN"
    assert results(harness.apply(alter())) == []
    mixed = alter(levels, resource("t", ("retention.ms", SET, "1"), resource_type=TOPIC))
    for request, forwarded in ((alter(levels), True), (mixed, False)):
        with pytest.raises(ControlError) as caught:
            harness.apply(request, forwarded=forwarded)
        assert caught.value.error_code is ErrorCode.not_controller


def test_levels_beside_configs(harness: Any) -> None:
    harness.start_broker(1)
    harness.add_topic("t", 1)
    topic = resource("t", ("retention.ms", SET, "1"), resource_type=TOPIC)
    levels = (resource("3000", ("kafka", SET, "WARN")), resource("3000", ("kafka", SET, "ERROR")))
    response = harness.apply(alter(*levels, topic))
    assert results(response) == [DONE] * 3
    assert [resource.resource_type for resource in response.responses] == [TOPIC, LOGGER, LOGGER]
    assert len(harness.records) == 1
    assert harness.loggers.set["kafka"] == "ERROR"


def test_the_old_request_has_no_loggers(harness: Any) -> None:
    """AlterConfigs would remove all levels that it does not name."""
    levels = legacy.AlterConfigsResource(resource_type=LOGGER, resource_name="3000", configs=())
    response = harness.apply(legacy.AlterConfigsRequest(resources=(levels,), validate_only=False))
    assert results(response) == [(ErrorCode.invalid_request, "Unexpected resource type BROKER_LOGGER.")]
