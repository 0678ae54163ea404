"""What a release says of itself: its section of the changelog, and a tag that is its version."""

import importlib.util
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).parents[3]
TEXT = """# Changelog

## [Unreleased]

## [0.2.0] - 2026-12-01

### Added

- Two.

## [0.1.0] - 2026-11-01

- One.
"""


@pytest.fixture(scope="module")
def changelog() -> ModuleType:
    """tools/changelog.py."""
    spec = importlib.util.spec_from_file_location("changelog", ROOT / "tools" / "changelog.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_a_section_ends_where_the_next_begins(changelog: ModuleType) -> None:
    assert changelog.section(TEXT, "0.2.0") == "### Added\n\n- Two.\n"
    assert changelog.section(TEXT, "0.1.0") == "- One.\n"


@pytest.mark.parametrize(
    ("version", "problem"),
    [
        ("0.3.0", r"no section \[0.3.0\]; there are: \[Unreleased\], \[0.2.0\], \[0.1.0\]"),
        ("Unreleased", r"the section \[Unreleased\] is empty"),
        ("0.1", r"no section \[0.1\]"),
    ],
)
def test_a_release_without_a_text_is_refused(changelog: ModuleType, version: str, problem: str) -> None:
    with pytest.raises(ValueError, match=problem):
        changelog.section(TEXT, version)


def test_our_changelog_has_sections() -> None:
    script = [sys.executable, str(ROOT / "tools" / "changelog.py")]
    reported = subprocess.run([*script, "Unreleased"], capture_output=True, text=True, check=True).stdout
    assert "### Added" in reported
    missing = subprocess.run([*script, "9.9.9"], capture_output=True, text=True, check=False)
    assert (missing.returncode, missing.stdout) == (1, "")
    assert "there is no section [9.9.9]" in missing.stderr


@pytest.mark.parametrize(("tag", "code"), [("v9.9.9", 1), ("0.1.0", 1)])
def test_a_tag_of_another_version_is_refused(tag: str, code: int) -> None:
    ran = subprocess.run(
        [sys.executable, ROOT / "tools" / "version.py", "--check", "--tag", tag],
        capture_output=True,
        text=True,
        check=False,
    )
    assert ran.returncode == code
    assert f"the tag {tag!r} is not v" in ran.stderr
