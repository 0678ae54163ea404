"""The API table and the message classes against kio's and the schemas inside Kafka's jars."""

import json
import re
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest
from kit.kafka import jars_of
from kit.releases import RELEASES
from quorate_protocol.errors import UnknownApi, UnsupportedVersion
from quorate_protocol.kafka.apis import (
    APIS,
    CONTROLLER_APIS,
    CONTROLLER_READ_APIS,
    SERVED_APIS,
    HandledBy,
    ListenerType,
    api_of,
    find_api,
)
from quorate_protocol.kafka.generated.api_versions_request import ApiVersionsRequest
from quorate_protocol.kafka.releases import NEWEST_RELEASE

DIFFERENCES = Path(__file__).parents[4] / "docs" / "protocol-differences.md"
ApiRow = tuple[str, int, int]
"""Name, lowest and highest version."""


def apis_in_jar(release: str) -> tuple[dict[int, ApiRow], set[int]]:
    """The APIs of a release by key, and those that its controllers accept, from the request schemas."""
    (jar,) = jars_of(release).glob("kafka-clients-*.jar")
    found: dict[int, ApiRow] = {}
    on_controller = set()
    with zipfile.ZipFile(jar) as archive:
        for name in archive.namelist():
            if not re.fullmatch(r"common/message/\w+Request\.json", name):
                continue
            schema = json.loads(re.sub(r"(?m)^\s*//.*$", "", archive.read(name).decode()))
            if schema["validVersions"] == "none":
                continue
            low, _, high = schema["validVersions"].partition("-")
            found[schema["apiKey"]] = (schema["name"].removesuffix("Request"), int(low), int(high or low))
            if "controller" in schema["listeners"]:
                on_controller.add(schema["apiKey"])
    return found, on_controller


@pytest.mark.parametrize("release", RELEASES)
def test_table_has_what_kafka_serves(release: str) -> None:
    expected, on_controller = apis_in_jar(release)
    has = {key: api for key, api in APIS.items() if api.version_max_in(release) is not None}
    assert {
        key: (api.name, api.version_min, api.version_max_in(release)) for key, api in has.items()
    } == expected
    assert has.keys() & CONTROLLER_APIS.keys() == on_controller


def test_what_kafkas_controllers_serve_is_served_or_has_a_reason() -> None:
    in_jar, on_controller = apis_in_jar(NEWEST_RELEASE)
    offered = {key: in_jar[key] for key in on_controller}
    served = {key: (api.name, api.version_min, api.version_max) for key, api in SERVED_APIS.items()}
    missing = {name for key, (name, _, _) in offered.items() if key not in served}
    assert {key: row for key, row in offered.items() if row[0] not in missing} == served
    rows = [line for line in DIFFERENCES.read_text().splitlines() if line.startswith("| ")]
    unexplained = {name for name in missing if not any(name in row and "not listed" in row for row in rows)}
    assert not unexplained, f"docs/protocol-differences.md has to say why {unexplained} are not listed"


def test_reads_of_controllers_are_those_of_brokers() -> None:
    """Only what brokers serve, in their versions, and nothing that a broker forwards or everybody is offered."""
    assert set(CONTROLLER_READ_APIS) == {41, 48, 50, 75}
    assert not CONTROLLER_READ_APIS.keys() & SERVED_APIS.keys()
    for key, api in CONTROLLER_READ_APIS.items():
        known = APIS[key]
        assert (api.name, api.version_min, api.version_max) == (
            known.name,
            known.version_min,
            known.version_max,
        )
        assert ListenerType.BROKER in api.listeners
        assert not api.is_forwardable


def test_served_apis_are_known_to_controllers_and_handled_by_one_part() -> None:
    by_part = {part: {key for key, api in APIS.items() if api.handled_by is part} for part in HandledBy}
    assert by_part == {
        HandledBy.RAFT: {1, 52, 53, 54, 59, 80, 81, 82},
        HandledBy.ACTIVE_CONTROLLER: {
            *(19, 20, 30, 31, 33, 37, 38, 39, 40, 43, 45, 46, 49, 51, 56, 57, 62, 63, 64, 67, 70, 73, 94)
        },
        HandledBy.ANY_CONTROLLER: {29, 32, 44, 60},
        HandledBy.LISTENER: {17, 18, 36, 55, 58},
    }
    assert SERVED_APIS.keys() == set().union(*by_part.values())
    assert SERVED_APIS.keys() <= CONTROLLER_APIS.keys()


@pytest.mark.parametrize("key", sorted(APIS))
def test_classes_of_every_version_can_be_loaded(key: int) -> None:
    api = APIS[key]
    for version in range(api.version_min, api.version_max + 1):
        for entity, kind in (
            (api.request_class(version), "Request"),
            (api.response_class(version), "Response"),
        ):
            assert entity.__name__ == f"{api.name}{kind}"
            assert (entity.__api_key__, entity.__version__) == (key, version)


def test_unknown_keys_and_versions_are_typed_errors() -> None:
    with pytest.raises(UnknownApi):
        find_api(95)
    with pytest.raises(UnsupportedVersion, match="4 to 18"):
        find_api(1).request_class(3)
    with pytest.raises(UnsupportedVersion):
        find_api(1).response_class(19)
    assert api_of(ApiVersionsRequest()) is CONTROLLER_APIS[18]


def test_importing_the_table_imports_no_message() -> None:
    program = (
        "import sys, quorate_protocol.wire.server, quorate_protocol.wire.client\n"
        "print([name for name in sys.modules if name.endswith(('_request', '_response'))])"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"
