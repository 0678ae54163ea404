"""AOT caches: where they are kept, when they are used, and that each is made once. Java is a small script here.

Real ones are in tests/integration/play/test_aot_cache.py.
"""

import os
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from quorate_operator.runtime.local import aot_cache
from quorate_operator.runtime.local.java import Java
from quorate_operator.runtime.local.stock_kafka import Kafka, make_aot_cache

NODE = """#!/bin/sh
cache=
for argument in "$@"; do
    case "$argument" in
    -XX:AOTCacheOutput=*) cache="${argument#*=}" ;;
    -XX:AOTCache=*) [ "$(cat "${argument#*=}")" = content ]; exit ;;
    esac
done
[ -n "$cache" ] || exit 0
trap 'echo content > "$cache"; exit 143' TERM
echo run >> "$(dirname "$0")/runs"
echo "[1] Kafka Server started"
while :; do sleep 0.01; done
"""
FAILING = "#!/bin/sh\necho 'Error: no space left'\nexit 1\n"

Settings = tuple[Java, Path, dict[str, str]]


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    """A Java, a directory of jars, and an environment with a cache directory of its own."""
    home, libs = tmp_path / "java", tmp_path / "kafka-4.4.0" / "libs"
    for directory in (home / "bin", home / "lib", libs):
        directory.mkdir(parents=True)
    (home / "release").write_text('JAVA_VERSION="25.0.2"\n')
    (home / "lib" / "modules").touch()
    (libs / "kafka_2.13-4.4.0.jar").touch()
    program = home / "bin" / "java"
    program.write_text(NODE)
    program.chmod(0o755)
    java = Java(program=str(program), version="25.0.2", major=25, origin="JAVA_HOME")
    return java, libs, {"XDG_CACHE_HOME": str(tmp_path / "cache")}


def place(settings: Settings) -> Path:
    """Where the cache is kept."""
    found = aot_cache.cache_of(*settings)
    assert found is not None
    return found


def test_many_makers_run_a_node_once(settings: Settings) -> None:
    java, libs, _ = settings
    cache = place(settings)
    with ThreadPoolExecutor() as pool:
        for made in [pool.submit(aot_cache.make, cache, java.program, libs) for _ in range(4)]:
            made.result()
    assert cache.read_text() == "content\n"
    assert Path(java.program).with_name("runs").read_text() == "run\n"
    assert {path.suffix for path in cache.parent.iterdir()} == {".aot", ".lock"}


def test_a_cache_that_java_refuses_is_made_again(settings: Settings) -> None:
    java, libs, _ = settings
    cache = place(settings)
    aot_cache.make(cache, java.program, libs)
    cache.write_text("damaged")
    aot_cache.make(cache, java.program, libs)
    assert cache.read_text() == "content\n"
    assert Path(java.program).with_name("runs").read_text() == "run\n" * 2


def changed_release(java: Java, _: Path) -> None:
    Path(java.program).parents[1].joinpath("release").write_text('JAVA_VERSION="25.0.3"\n')


def changed_runtime(java: Java, _: Path) -> None:
    Path(java.program).parents[1].joinpath("lib", "modules").write_text("another build")


def changed_jar(_: Java, libs: Path) -> None:
    jar = libs / "kafka_2.13-4.4.0.jar"
    os.utime(jar, (time.time() + 10,) * 2)


def added_jar(_: Java, libs: Path) -> None:
    (libs / "plugin.jar").touch()


@pytest.mark.parametrize("change", [changed_release, changed_runtime, changed_jar, added_jar])
def test_a_stale_cache_is_not_the_one_that_is_looked_for(
    settings: Settings, change: Callable[[Java, Path], None]
) -> None:
    before = place(settings)
    assert place(settings) == before
    change(*settings[:2])
    assert place(settings) != before


def test_the_same_java_and_jars_elsewhere_have_the_same_cache(settings: Settings, tmp_path: Path) -> None:
    """As in virtual environments, and behind a link to the jars."""
    java, libs, environment = settings
    other = tmp_path / "other"
    other.symlink_to(Path(java.program).parents[1])
    (tmp_path / "home").mkdir()
    (tmp_path / "home" / "libs").symlink_to(libs)
    moved = Java(program=str(other / "bin" / "java"), version="25.0.2", major=25, origin="PATH")
    assert aot_cache.cache_of(moved, tmp_path / "home" / "libs", environment) == place(settings)
    assert place(settings).name.startswith("kafka-4.4.0-java-25.0.2-")


def test_older_javas_scripts_and_those_who_switch_it_off_have_none(settings: Settings) -> None:
    java, libs, environment = settings
    older = Java(program=java.program, version="21.0.1", major=21, origin="PATH")
    assert aot_cache.cache_of(older, libs, environment) is None
    assert aot_cache.cache_of(java, libs, {**environment, aot_cache.SWITCH: "off"}) is None
    (Path(java.program).parents[1] / "release").unlink()
    assert aot_cache.cache_of(java, libs, environment) is None


def test_nodes_use_it_once_it_is_made_unless_options_of_the_user_decide(settings: Settings) -> None:
    java, libs, _ = settings
    cache = place(settings)
    kafka = Kafka(version="4.4.0", java=java.program, libs=libs, cache=cache)
    assert kafka.command("kafka.Kafka")[1] == "-cp"
    reported: list[str] = []
    assert make_aot_cache(kafka, reported.append) is None
    assert make_aot_cache(kafka, reported.append) is None
    assert [text.partition(" on ")[0] for text in reported] == ["preparing Kafka 4.4.0 for fast starts"]
    assert kafka.command("kafka.Kafka", jvm=("-Xmx1g",))[1] == f"-XX:AOTCache={cache}"
    for own in (
        "-XX:AOTMode=off",
        "-XX:AOTCache=/mine.aot",
        "-Xshare:off",
        "-XX:SharedArchiveFile=/mine.jsa",
    ):
        assert kafka.command("kafka.Kafka", jvm=("-Xmx1g", own))[1:3] == ["-Xmx1g", own]


def test_a_cache_that_cannot_be_made_is_one_line_and_nodes_run_without(settings: Settings) -> None:
    java, libs, environment = settings
    Path(java.program).write_text(FAILING)
    kafka = Kafka(version="4.4.0", java=java.program, libs=libs, cache=place(settings))
    assert make_aot_cache(kafka, lambda _: None) == (
        "Kafka 4.4.0 starts slower, because its AOT cache could not be made: Java wrote none: Error: no space left"
    )
    assert kafka.command("kafka.Kafka")[1] == "-cp"
    blocked = Path(environment["XDG_CACHE_HOME"], "file")
    blocked.touch()
    cache = aot_cache.cache_of(java, libs, {"XDG_CACHE_HOME": str(blocked)})
    note = make_aot_cache(Kafka(version="4.4.0", java=java.program, libs=libs, cache=cache), lambda _: None)
    assert note is not None
    assert note.endswith("Not a directory")
