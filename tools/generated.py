"""What the generators share: files are written, or with --check compared with what is there."""

import sys
from argparse import ArgumentParser
from collections.abc import Mapping
from pathlib import Path

import yaml


class _Dumper(yaml.SafeDumper):
    """Writes out what occurs twice: anchors are hard to read, and some tools refuse them."""

    def ignore_aliases(self, _data: object) -> bool:
        return True


def dump(*documents: object) -> str:
    """YAML with the keys in the order that they have."""
    return yaml.dump_all(documents, Dumper=_Dumper, sort_keys=False, width=110)


def version_of(jars: Path) -> str:
    """The version of the Kafka whose jars are in a directory, by the name of the one for clients."""
    (jar,) = jars.glob("kafka-clients-*.jar")
    return jar.stem.removeprefix("kafka-clients-")


def add_check(parser: ArgumentParser) -> None:
    """The option of every generator."""
    parser.add_argument(
        "--check", action="store_true", help="write nothing; fail when a file is not up to date"
    )


def settle(files: Mapping[Path, str | None], *, is_check: bool) -> int:
    """Write the files that have another text, and delete those without one. The exit code.

    `is_check`: only name them on stderr; 1 when there are any.
    """
    present = {path: path.read_text() if path.is_file() else None for path in files}
    outdated = [path for path, text in files.items() if present[path] != text]
    for path in outdated:
        text = files[path]
        if is_check:
            print(f"{path} is not up to date: run tools/{Path(sys.argv[0]).name}", file=sys.stderr)
        elif text is None:
            path.unlink()
        else:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
    return 1 if is_check and outdated else 0
