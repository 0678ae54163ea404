"""Write the table of what was run with each release of Kafka into docs/compatibility.md, from reports of test runs.

Run the tests beside each release first:

    for version in 4.3.1 4.4.0; do QUORATE_KAFKA_VERSION=$version make test-rungs; done
"""

import json
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from quorate_protocol.kafka.releases import RELEASES

ROOT: Final = Path(__file__).parents[1]
REPORTS: Final = ROOT / "test-reports" / "compatibility"
PAGE: Final = ROOT / "docs" / "compatibility.md"
BEGIN, END = "<!-- tools/compatibility.py -->\n", "<!-- end -->\n"
HEAD: Final = """\
Integration tests beside each release ([kit/compatibility.py](../tests/kit/compatibility.py) has their files), counted
in runs of {day}:

"""


def table(reports: dict[str, dict[str, dict[str, int]]]) -> str:
    """Return the table; `reports` has the counts of passed and failed tests by release and counterpart."""
    rows = list(dict.fromkeys(name for report in reports.values() for name in report))
    lines = [
        "| | " + " | ".join(f"Kafka {version}" for version in reports) + " |",
        "|---|" + "---|" * len(reports),
    ]
    for name in rows:
        cells = (_cell(report.get(name, {})) for report in reports.values())
        lines.append(f"| {name} | " + " | ".join(cells) + " |")
    return "\n".join(lines) + "\n"


def _cell(counts: dict[str, int]) -> str:
    passed, failed = counts.get("passed", 0), counts.get("failed", 0)
    return (
        f"{passed} tests passed" + (f", {failed} failed" if failed else "") if passed + failed else "not run"
    )


def main() -> int:
    """Return the exit code."""
    files = {version: REPORTS / f"{version}.json" for version in RELEASES}
    missing = [version for version, file in files.items() if not file.exists()]
    if missing:
        print(f"no report of a test run beside Kafka {', '.join(missing)}.\n{__doc__}", file=sys.stderr)
        return 1
    text = PAGE.read_text()
    before, _, rest = text.partition(BEGIN)
    _, _, after = rest.partition(END)
    reports = {version: json.loads(file.read_text()) for version, file in files.items()}
    oldest = datetime.fromtimestamp(min(file.stat().st_mtime for file in files.values()), UTC)
    head = HEAD.format(day=f"{oldest.day} {oldest:%B %Y}")
    PAGE.write_text(f"{before}{BEGIN}{head}{table(reports)}{END}{after}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
