"""What a release says of itself: its section of the changelog, and a tag that is its version."""

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]


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
