"""The log of stock Kafka as JSON: each line is an object with the fields of our controllers, exceptions included."""

import json
import subprocess
from pathlib import Path

import pytest
from quorate_operator.properties import LOG4J2_OF

pytestmark = [pytest.mark.integration, pytest.mark.timeout(120)]

PROPERTIES = """\
process.roles=broker
node.id=0
controller.listener.names=CONTROLLER
controller.quorum.bootstrap.servers=localhost:1
listeners=A://localhost:0
inter.broker.listener.name=A
listener.security.protocol.map=A:PLAINTEXT,CONTROLLER:PLAINTEXT
num.io.threads="three"
"""


def test_each_line_is_an_object_of_json(kafka_jars: Path, tmp_path: Path) -> None:
    """A broker with a value that is no number ends with an exception, whose text has quotes and several lines."""
    logging, properties = tmp_path / "log4j2.properties", tmp_path / "server.properties"
    logging.write_text(LOG4J2_OF["JSON"])
    properties.write_text(PROPERTIES)
    ended = subprocess.run(
        [
            *("java", "-Xmx128m", "-cp", f"{kafka_jars}/*", f"-Dlog4j2.configurationFile={logging}"),
            *("kafka.Kafka", f"{properties}"),
        ],
        capture_output=True,
        text=True,
        check=False,
    )
    assert ended.returncode != 0
    lines = [json.loads(line) for line in ended.stdout.splitlines()]
    assert lines
    assert all(line.keys() - {"traceback"} == {"time", "level", "logger", "event"} for line in lines)
    (traceback,) = (line["traceback"] for line in lines if "traceback" in line)
    assert 'Invalid value "three" for configuration num.io.threads' in traceback
    assert "\n\tat " in traceback
