"""The line that says why a process ended."""

import pytest
from quorate_operator.runtime.last_error import LENGTH_MAX, last_error

KAFKA = """\
[2026-11-28 09:00:00,001] INFO starting (kafka.server.BrokerServer)
[2026-11-28 09:00:00,002] ERROR Exiting Kafka due to fatal exception (kafka.Kafka$)
org.apache.kafka.common.config.ConfigException: Invalid value none for configuration num.io.threads
\tat org.apache.kafka.common.config.ConfigDef.parseType(ConfigDef.java:767)
\t... 7 more
[2026-11-28 09:00:00,003] INFO App info kafka.server for 0 unregistered (o.a.k.AppInfoParser)
"""
CAUSED = """\
[2026-11-28 09:00:00,002] ERROR Encountered fatal fault (o.a.k.server.fault.ProcessTerminatingFaultHandler)
java.lang.RuntimeException: could not start
\tat kafka.Kafka.main(Kafka.scala:10)
Caused by: java.nio.file.AccessDeniedException: /var/lib/quorate/data
\tat java.base/sun.nio.fs.UnixException.translate(UnixException.java:90)
"""
PYTHON = """\
Traceback (most recent call last):
  File "/usr/bin/quorate", line 8, in <module>
    main()
    ^^^^^^
quorate_controller.errors.StorageError: log.dirs: /data: no space left on device
"""
JSON = """\
{"ts": 1, "level": "ERROR", "event": "the log can't be read", "error": "segment 7: checksum"}
{"ts": 2, "level": "INFO", "event": "stopped"}
"""


@pytest.mark.parametrize(
    ("log", "expected"),
    [
        ("", None),
        ("\n \n", None),
        (
            KAFKA,
            "org.apache.kafka.common.config.ConfigException: Invalid value none for configuration num.io.threads",
        ),
        (KAFKA.splitlines()[1], "Exiting Kafka due to fatal exception"),
        (CAUSED, "java.nio.file.AccessDeniedException: /var/lib/quorate/data"),
        (PYTHON, "quorate_controller.errors.StorageError: log.dirs: /data: no space left on device"),
        (JSON, "the log can't be read: segment 7: checksum"),
        ('{"level": "FATAL", "event": "a halt"}\n{"level": "INFO", "event": "stopped"}', "a halt"),
        ('{"level":"ERROR","event":" "}', '{"level":"ERROR","event":" "}'),
        ('ERROR no disk\n{"level": "ERROR"}\n{"level": "ERROR", "event": "\\n"}', "no disk"),
        ("quorate: error: log.dirs: in use\n", "error: log.dirs: in use"),
        (
            'Exception in thread "main" java.lang.OutOfMemoryError: Java heap space',
            "java.lang.OutOfMemoryError: Java heap space",
        ),
        ("first\nlast\n", "last"),
        ("{no json", "{no json"),
        ("error: a\x1b[31mb", "error: a [31mb"),
    ],
)
def test_the_line_that_names_the_error_is_found(log: str, expected: str | None) -> None:
    assert last_error(log) == expected


def test_a_log_without_a_marked_error_may_say_nothing() -> None:
    """A process that was killed wrote no last words: what it wrote last is not the reason."""
    assert last_error("first\nlast\n", marked_only=True) is None
    assert last_error(JSON, marked_only=True) is not None


def test_a_long_line_is_cut() -> None:
    found = last_error(f"error: {'x' * 1000}")
    assert found is not None
    assert len(found) == LENGTH_MAX
