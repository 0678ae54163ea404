"""The levels of Python's loggers under Kafka's names."""

import logging
from collections.abc import Iterator

import pytest
from quorate_controller.structured_logs import ProcessLoggers

PACKAGE = "of_log_levels"
MODULE = f"{PACKAGE}.part.module"


@pytest.fixture(autouse=True)
def restored_levels() -> Iterator[None]:
    """Levels, and the loggers of these tests, are those of before."""
    root_level = logging.root.level
    logging.getLogger(MODULE)
    yield
    logging.root.setLevel(root_level)
    loggers = logging.root.manager.loggerDict
    for name in [name for name in loggers if name.partition(".")[0] == PACKAGE]:
        del loggers[name]


@pytest.mark.parametrize(
    ("kafka_name", "level"),
    [
        ("FATAL", logging.CRITICAL),
        ("ERROR", logging.ERROR),
        ("WARN", logging.WARNING),
        ("INFO", logging.INFO),
        ("DEBUG", logging.DEBUG),
    ],
)
def test_a_level_that_is_set_is_the_one_that_is_read(kafka_name: str, level: int) -> None:
    """Kafka's six names, with Python's meaning."""
    loggers = ProcessLoggers()
    loggers.set_level(MODULE, kafka_name)
    loggers.set_level("root", kafka_name)
    assert logging.getLogger(MODULE).level == logging.root.level == level
    assert loggers.levels()[MODULE] == loggers.levels()["root"] == kafka_name


def test_trace_writes_all_that_debug_does() -> None:
    ProcessLoggers().set_level(MODULE, "TRACE")
    assert ProcessLoggers().levels()[MODULE] == "TRACE"
    assert logging.getLogger(MODULE).isEnabledFor(logging.DEBUG)


def test_a_package_passes_its_level_on() -> None:
    loggers = ProcessLoggers()
    logging.root.setLevel(logging.ERROR)
    names = (PACKAGE, f"{PACKAGE}.part", MODULE)

    def levels() -> list[str]:
        return [loggers.levels()[name] for name in names]

    assert levels() == ["ERROR"] * 3
    loggers.set_level(PACKAGE, "INFO")
    assert levels() == ["INFO"] * 3
    loggers.set_level(f"{PACKAGE}.part", "FATAL")
    assert levels() == ["INFO", "FATAL", "FATAL"]
    assert not logging.getLogger(MODULE).isEnabledFor(logging.ERROR)
    loggers.set_level(f"{PACKAGE}.part", None)
    loggers.set_level(PACKAGE, None)
    assert levels() == ["ERROR"] * 3


def test_levels_between_and_below_kafkas() -> None:
    for level, kafka_name in ((99, "FATAL"), (35, "WARN"), (7, "TRACE"), (1, "TRACE")):
        logging.getLogger(MODULE).setLevel(level)
        assert ProcessLoggers().levels()[MODULE] == kafka_name


def test_a_change_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    """The log says why it has more or less lines from here on."""
    for level in ("DEBUG", None):
        ProcessLoggers().set_level(MODULE, level)
    facts = [record.facts for record in caplog.records if record.message == "log_level_changed"]
    assert facts == [
        {"changed_logger": MODULE, "to": "DEBUG"},
        {"changed_logger": MODULE, "to": "unset"},
    ]
