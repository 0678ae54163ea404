"""Where Kafka comes from: Java, KAFKA_HOME, the cache, Maven. Java and Maven are small scripts here."""

from collections.abc import Callable
from pathlib import Path

import pytest
from quorate_operator.runtime.local import java as java_lookup
from quorate_operator.runtime.local.errors import KafkaUnavailableError
from quorate_operator.runtime.local.stock_kafka import Kafka, KafkaShell, find_kafka
from quorate_protocol.files import cache_directory

JAVA_17 = "echo 'openjdk version \"17.0.15\" 2025-04-15' >&2"
FETCH = """
for argument in "$@"; do case "$argument" in -DoutputDirectory=*) out="${argument#*=}" ;; esac; done
echo "Downloaded from central: https://example.org/a.jar (1 kB)"
mkdir -p "$out" && touch "$out/kafka_2.13-4.3.1.jar" "$out/kafka-tools-4.3.1.jar"
echo run >> "$(dirname "$0")/runs"
"""

Script = Callable[[str, str], None]


@pytest.fixture
def bin_directory(tmp_path: Path) -> Path:
    """The only directory in PATH but the system's own."""
    directory = tmp_path / "bin"
    directory.mkdir()
    return directory


@pytest.fixture
def script(bin_directory: Path) -> Script:
    """Put a shell script into PATH."""

    def write(name: str, body: str) -> None:
        file = bin_directory / name
        file.write_text(f"#!/bin/sh\n{body}\n")
        file.chmod(0o755)

    return write


@pytest.fixture
def environment(bin_directory: Path, tmp_path: Path) -> dict[str, str]:
    """An environment in which java and mvn are what the test wrote."""
    tools = tmp_path / "system"
    tools.mkdir()
    for name in ("sh", "mkdir", "touch", "dirname", "sleep"):
        found = next(path for path in (Path("/bin") / name, Path("/usr/bin") / name) if path.exists())
        (tools / name).symlink_to(found)
    return {"PATH": f"{bin_directory}:{tools}", "XDG_CACHE_HOME": str(tmp_path / "cache")}


@pytest.fixture(autouse=True)
def no_wheel(monkeypatch: pytest.MonkeyPatch) -> None:
    """No package of this Python has a Java."""
    monkeypatch.setattr(java_lookup, "WHEEL", "no_package_of_this_name")


def refusal(environment: dict[str, str]) -> str:
    """The message when there is no Kafka to be had."""
    with pytest.raises(KafkaUnavailableError) as refused:
        find_kafka("4.3.1", environment, lambda _: None)
    return str(refused.value)


def test_maven_fetches_once(script: Script, environment: dict[str, str], bin_directory: Path) -> None:
    script("java", JAVA_17)
    script("mvn", FETCH)
    reported: list[str] = []
    kafka = find_kafka("4.3.1", environment, reported.append)
    assert kafka.libs == Path(environment["XDG_CACHE_HOME"]) / "quorate" / "kafka-4.3.1" / "libs"
    assert reported == [
        "fetching Kafka 4.3.1 with Maven, once",
        "fetching Kafka 4.3.1 with Maven, once: 1 files",
    ]
    assert find_kafka("4.3.1", environment, reported.append) == kafka
    assert (bin_directory / "runs").read_text() == "run\n"
    assert len(reported) == 2


def test_a_fetch_that_fails_leaves_nothing_behind(script: Script, environment: dict[str, str]) -> None:
    script("java", JAVA_17)
    script("mvn", f'{FETCH}\necho "[ERROR] no route to host"\nexit 1')
    assert "Maven could not fetch Kafka 4.3.1 (exit status 1):\n  [ERROR] no route to host" in refusal(
        environment
    )
    cache = Path(environment["XDG_CACHE_HOME"]) / "quorate"
    assert [path.name for path in cache.iterdir()] == ["kafka-4.3.1.lock"]


def test_missing_java_is_told_with_the_remedy(environment: dict[str, str]) -> None:
    assert refusal(environment) == (
        "no java in PATH: install Java 17 or newer (on Debian: apt-get install openjdk-17-jre-headless, anywhere: "
        "pip install 'quorate[java]')"
    )
    assert "no java in JAVA_HOME (/nowhere)" in refusal(environment | {"JAVA_HOME": "/nowhere"})


@pytest.mark.parametrize(
    ("body", "fault"),
    [
        ("echo 'java version \"1.8.0_402\"'", "is Java 8; Kafka needs Java 17 or newer"),
        ("echo 'openjdk version \"11.0.2\"' >&2", "is Java 11; Kafka needs Java 17 or newer"),
        ("echo nonsense", "is no Java runtime that reports its version"),
    ],
)
def test_unusable_java_is_refused(script: Script, environment: dict[str, str], body: str, fault: str) -> None:
    script("java", body)
    assert fault in refusal(environment)


def test_missing_maven_is_told_with_both_remedies(script: Script, environment: dict[str, str]) -> None:
    script("java", JAVA_17)
    said = refusal(environment)
    assert "apt-get install maven" in said
    assert "KAFKA_HOME" in said


def test_kafka_home_wins(script: Script, environment: dict[str, str], tmp_path: Path) -> None:
    script("java", JAVA_17)
    libs = tmp_path / "home" / "libs"
    libs.mkdir(parents=True)
    (libs / "kafka_2.13-4.2.0.jar").touch()
    (libs / "kafka-tools-4.2.0.jar").touch()
    kafka = find_kafka("4.3.1", environment | {"KAFKA_HOME": str(libs.parent)}, lambda _: None)
    assert (kafka.version, kafka.libs) == ("4.2.0", libs)
    assert kafka.command("a.Main", "x", jvm=("-Xmx1m",))[1:] == ["-Xmx1m", "-cp", f"{libs}/*", "a.Main", "x"]


def test_a_release_without_shell_borrows_it(
    script: Script, environment: dict[str, str], bin_directory: Path
) -> None:
    script("java", JAVA_17)
    script("mvn", f'echo "$@" >> "$(dirname "$0")/arguments"{FETCH}')
    kafka = find_kafka("4.4.0", environment, lambda _: None)
    cache = Path(environment["XDG_CACHE_HOME"]) / "quorate"
    assert kafka.shell == KafkaShell(version="4.3.1", libs=cache / "kafka-4.3.1" / "libs")
    shell = "org.apache.kafka.shell.MetadataShell"
    assert [kafka.command(tool)[2:] for tool in ("kafka.Kafka", "kafka.admin.ConfigCommand", shell)] == [
        [f"{cache}/kafka-4.4.0/libs/*", "kafka.Kafka"],
        [f"{cache}/kafka-4.4.0/libs/*", "org.apache.kafka.tools.ConfigCommand"],
        [f"{cache}/kafka-4.3.1/libs/*", shell],
    ]
    assert (kafka.version_of("kafka.Kafka"), kafka.version_of(shell)) == ("4.4.0", "4.3.1")
    first, second = (bin_directory / "arguments").read_text().splitlines()
    assert "-Dkafka.version=4.4.0 -Dwithout-shell " in first
    assert "-Dkafka.version=4.3.1 dependency:copy-dependencies" in second


def test_a_cache_from_before_the_tools_is_completed(script: Script, environment: dict[str, str]) -> None:
    """A release whose tools were published late gets them, below nodes that run from the cache."""
    script("java", JAVA_17)
    script("mvn", FETCH)
    libs = Path(environment["XDG_CACHE_HOME"]) / "quorate" / "kafka-4.3.1" / "libs"
    libs.mkdir(parents=True)
    (libs / "kafka_2.13-4.3.1.jar").write_text("in use")
    assert find_kafka("4.3.1", environment, lambda _: None).libs == libs
    assert sorted(path.name for path in libs.iterdir()) == ["kafka-tools-4.3.1.jar", "kafka_2.13-4.3.1.jar"]
    assert (libs / "kafka_2.13-4.3.1.jar").read_text() == "in use"


def test_a_tool_that_moved_is_found() -> None:
    kafka = Kafka(version="4.10.0", java="java", libs=Path("/libs"))
    assert kafka.command("kafka.admin.ConfigCommand")[-1] == "org.apache.kafka.tools.ConfigCommand"


def test_a_kafka_home_without_kafka_is_refused(
    script: Script, environment: dict[str, str], tmp_path: Path
) -> None:
    script("java", JAVA_17)
    assert "has no kafka_2.*.jar" in refusal(environment | {"KAFKA_HOME": str(tmp_path)})


def test_a_relative_cache_home_is_ignored() -> None:
    assert cache_directory({"XDG_CACHE_HOME": "here"}) == Path.home() / ".cache" / "quorate"
