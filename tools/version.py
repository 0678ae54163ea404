"""Write the version of pyproject.toml into the files that can't read it: chart, images, the native codec, pages.

kustomize/base follows from the chart (tools/kustomize_base.py).
"""

import argparse
import re
import sys
import tomllib
from pathlib import Path

from generated import add_check, settle

ROOT = Path(__file__).parents[1]
PLACES = {
    "Dockerfile": (r"-t \S+/quorate:(\S+)", r"ARG VERSION=(\S+)"),
    "charts/quorate/Chart.yaml": (r"^version: (\S+)", r'^appVersion: "(\S+)"'),
    "docker/lake/Dockerfile": (r"-t \S+/quorate-lake:(\S+)", r"ARG VERSION=(\S+)"),
    "docs/lake.md": (r"quorate-lake:([\w.]+)",),
    "docs/operations/day-two.md": (r"quorate-lake:([\w.]+)",),
    "examples/gitops/operator/kustomization.yaml": (r"newTag: (\S+)",),
    "protocol/quorate_protocol/wire/versions.py": (r'SOFTWARE_VERSION: Final = "([^"]+)"',),
    "native/Cargo.lock": (r'name = "quorate-native"\nversion = "([^"]+)"',),
    "native/Cargo.toml": (r'^version = "([^"]+)"',),
    "native/pyproject.toml": (r'^version = "([^"]+)"',),
    "pyproject.toml": (r'"quorate-native==([^"]+)"',),
    "kustomize/base/operator.yaml": (
        r"app.kubernetes.io/version: (\S+)",
        r"(?:image|value): \S+/quorate(?:-lake)?:(\S+)",
    ),
}
"""Patterns by file; their group is the version."""


def version() -> str:
    """The version of the distribution."""
    with (ROOT / "pyproject.toml").open("rb") as file:
        return str(tomllib.load(file)["project"]["version"])


def rewritten(text: str, patterns: tuple[str, ...], wanted: str) -> str:
    """The text with the wanted version wherever a pattern finds one. Raises ValueError for one that finds none."""
    for pattern in patterns:
        text, count = re.subn(
            pattern, lambda match: match[0].replace(match[1], wanted), text, flags=re.MULTILINE
        )
        if not count:
            raise ValueError(f"nothing matches {pattern}")
    return text


def main() -> int:
    """The exit code."""
    parser = argparse.ArgumentParser(description=__doc__)
    add_check(parser)
    parser.add_argument("--tag", help="fail unless this is `v` and the version")
    arguments = parser.parse_args()
    wanted = version()
    if arguments.tag not in (None, f"v{wanted}"):
        print(
            f"error: the tag {arguments.tag!r} is not v{wanted}, which pyproject.toml says", file=sys.stderr
        )
        return 1
    files = {
        ROOT / name: rewritten((ROOT / name).read_text(), patterns, wanted)
        for name, patterns in PLACES.items()
    }
    return settle(files, is_check=arguments.check)


if __name__ == "__main__":
    sys.exit(main())
