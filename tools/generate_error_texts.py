"""Write Kafka's own texts of its error codes as package data: clients show them where a response has no message.

ErrorTexts.java, beside this file, runs against the jars of Kafka's newest release (``java`` in source-file mode).

    python tools/generate_error_texts.py --jars ~/kafka-4.4.0/libs  # write the file
    python tools/generate_error_texts.py --jars ~/kafka-4.4.0/libs --check  # exit with 1 when it is outdated
"""

import argparse
import json
import subprocess
import sys
from pathlib import Path

from generated import add_check, settle

TOOLS = Path(__file__).resolve().parent
TEXTS = TOOLS.parent / "protocol" / "quorate_protocol" / "kafka" / "error_texts.json"


def main() -> int:
    """Write or compare; the exit code is 1 when the file is not up to date."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--jars", type=Path, required=True, help="directory with the newest release's jars (libs/)"
    )
    parser.add_argument("--java", default="java", help="the java command, 17 or later")
    add_check(parser)
    options = parser.parse_args()
    command = [options.java, "-cp", str(options.jars / "*"), str(TOOLS / "ErrorTexts.java")]
    printed = subprocess.run(
        command, check=True, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    )
    return settle({TEXTS: json.dumps(json.loads(printed.stdout), indent=0) + "\n"}, is_check=options.check)


if __name__ == "__main__":
    sys.exit(main())
