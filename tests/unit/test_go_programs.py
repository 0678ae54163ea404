"""What of the tests' Go programs is built, and when again."""

import os
import shutil
from pathlib import Path

import pytest
from kit.local_kubernetes import golang

NAME = "growing-volumes"
GO = """\
#!/bin/sh
if [ "$1" = env ]; then echo go1.26.0; exit; fi
while [ "$1" != -o ]; do shift; done
cp main.go "$2"
"""


def test_a_program_of_ours_is_built_when_its_source_changes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    compiler = tmp_path / "bin" / "go"
    compiler.parent.mkdir()
    compiler.write_text(GO)
    compiler.chmod(0o755)
    sources = shutil.copytree(golang.MODULES / NAME, tmp_path / "modules" / NAME)
    monkeypatch.setattr(golang, "MODULES", sources.parent)
    environment = {
        "XDG_CACHE_HOME": f"{tmp_path / 'cache'}",
        "PATH": f"{compiler.parent}:{os.environ['PATH']}",
    }
    said: list[str] = []

    def build() -> str:
        return golang.programs([NAME], environment, said.append)[NAME].read_text()

    main = sources / "main.go"
    first = main.read_text()
    assert build() == build() == first
    assert sum(text.startswith("building") for text in said) == 1
    main.write_text(f"{first}// changed\n")
    assert build() == main.read_text() != first
