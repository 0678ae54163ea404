"""Print what CHANGELOG.md says of a version: the text of a release."""

import argparse
import re
import sys
from pathlib import Path

CHANGELOG = Path(__file__).parents[1] / "CHANGELOG.md"
_HEADING = re.compile(r"^## \[([^\]]+)\]", re.MULTILINE)


def section(text: str, version: str) -> str:
    """Return the text below the heading of a version, without it. Raises ValueError without one, or without text."""
    headings = list(_HEADING.finditer(text))
    for number, heading in enumerate(headings):
        if heading[1] == version:
            end = headings[number + 1].start() if number + 1 < len(headings) else len(text)
            body = text[heading.end() : end].partition("\n")[2].strip()
            if not body:
                raise ValueError(f"the section [{version}] is empty")
            return f"{body}\n"
    known = ", ".join(f"[{heading[1]}]" for heading in headings) or "none"
    raise ValueError(f"there is no section [{version}]; there are: {known}")


def main() -> int:
    """The exit code."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("version", help="for instance 0.1.0, or Unreleased")
    try:
        print(section(CHANGELOG.read_text(), parser.parse_args().version), end="")
    except ValueError as error:
        print(f"error: {CHANGELOG.name}: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
