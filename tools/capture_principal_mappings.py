"""Ask Kafka's own class for the principals that rules of ssl.principal.mapping.rules make of names.

    python tools/capture_principal_mappings.py --jars ~/kafka-4.4.0/libs

The pairs are random, from a fixed seed: `tests/kit/principal_mappings.py` makes them. Each line of
`tests/golden/principal_mappings.json` is one pair with the name of the principal, or null where Kafka refuses the
rules or the replacement, or where no rule matches.
"""

import argparse
import json
import sys
from pathlib import Path


def main() -> None:
    """Capture."""
    sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests"))
    from kit.principal_mappings import CAPTURED, map_by_java, pairs_to_capture  # noqa: PLC0415 - of the tests

    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--jars", type=Path, required=True, help="directory with Kafka's jars (libs/)")
    pairs = pairs_to_capture()
    principals = map_by_java(parser.parse_args().jars, pairs)
    lines = [json.dumps([*pair, principal]) for pair, principal in zip(pairs, principals, strict=True)]
    CAPTURED.write_text("[\n" + ",\n".join(lines) + "\n]\n")


if __name__ == "__main__":
    main()
