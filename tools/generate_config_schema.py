"""Write what Kafka's ConfigDefs say about topic, broker, group and client-metrics configs as package data.

ConfigSchema.java, beside this file, runs against Kafka's jars (``java`` in source-file mode) and prints them. There
is one table for all supported releases: a config that the oldest does not know has the release that introduced it in
``since``. What releases that are not given know is taken from the files.

    python tools/generate_config_schema.py --jars ~/kafka-4.3.1/libs --jars ~/kafka-4.4.0/libs  # write the files
    python tools/generate_config_schema.py --jars ~/kafka-4.4.0/libs --check  # exit with 1 when they are outdated
"""

import argparse
import json
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from generated import add_check, settle, version_of
from quorate_protocol.kafka.releases import NEWEST_RELEASE, OLDEST_RELEASE, RELEASES

TOOLS = Path(__file__).resolve().parent
DATA = TOOLS.parent / "protocol" / "quorate_protocol" / "kafka"
DEFINITIONS = DATA / "config_schema.json"
DOCUMENTATION = DATA / "config_documentation.json"
PUBLIC = DATA / "public_configs.json"
"""Names of the configs that are not passwords, for the lake, which leaves out all other values."""

SECTIONS = ("topic", "broker", "group", "client_metrics")
KINDS = {
    "Range": "range",
    "ValidString": "one_of",
    "CaseInsensitiveValidString": "one_of_ignoring_case",
    "ValidList": "list",
    "NonEmptyString": "non_empty",
    "NonNullValidator": "non_null",
    "ThrottledReplicaListValidator": "throttled_replicas",
}
NAMED_KINDS = {"compression.gzip.level": "gzip_level", "share.auto.offset.reset": "share_offset_reset"}
"""Validators that Kafka wrote for one config, whose classes have no telling name."""
UNCHECKED = {"ControllerQuorumBootstrapServersValidator", "ControllerQuorumVotersValidator"}
"""Validators of configs that can't be altered."""


def read_schema(jars: Path, java: str) -> dict[str, Any]:
    """Run ConfigSchema.java and parse what it prints."""
    command = [java, "-cp", str(jars / "*"), str(TOOLS / "ConfigSchema.java")]
    printed = subprocess.run(
        command, check=True, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    )
    schema: dict[str, Any] = json.loads(printed.stdout)
    return schema


def render_check(name: str, check: Mapping[str, Any]) -> dict[str, Any] | None:
    """Our notation of a validator; an unknown one is an error, so that a new Kafka is looked at."""
    if check["kind"] in UNCHECKED:
        return None
    kind = NAMED_KINDS.get(name) or KINDS[check["kind"]]
    return {"kind": kind} | {
        key: value for key, value in check.items() if key not in ("kind", "text") and value not in (None, [])
    }


def render_definition(name: str, definition: Mapping[str, Any]) -> dict[str, Any]:
    """One definition without its documentation."""
    rendered = {key: value for key, value in definition.items() if key not in ("documentation", "check")}
    if "check" in definition and (check := render_check(name, definition["check"])):
        rendered["check"] = check
    return rendered


def render(sections: Mapping[str, Any]) -> str:
    """JSON with one config per line, so that differences between Kafka versions read well."""
    parts = []
    for section, content in sections.items():
        items = content.items() if isinstance(content, dict) else ((None, item) for item in content)
        lines = [
            f"{json.dumps(name)}: {json.dumps(value)}" if name else json.dumps(value) for name, value in items
        ]
        left, right = "{}" if isinstance(content, dict) else "[]"
        parts.append(f"{json.dumps(section)}: {left}\n" + ",\n".join(lines) + f"\n{right}")
    return "{\n" + ",\n".join(parts) + "\n}\n"


def definitions_of(schema: Mapping[str, Any]) -> dict[str, Any]:
    """What a release knows, in our notation."""
    definitions: dict[str, Any] = {
        section: {name: render_definition(name, value) for name, value in schema[section].items()}
        for section in SECTIONS
    }
    return definitions | {"security_configs": schema["security_configs"]}


def documentation_of(schema: Mapping[str, Any]) -> dict[str, Any]:
    """What a release says about its configs."""
    return {
        section: {name: value["documentation"] for name, value in schema[section].items()}
        for section in SECTIONS
    }


def kept_definitions(release: str) -> dict[str, Any]:
    """What a release knows, from the file."""
    content = json.loads(DEFINITIONS.read_text())
    later = set(list(RELEASES)[list(RELEASES).index(release) + 1 :])
    definitions: dict[str, Any] = {
        section: {
            name: {key: value for key, value in definition.items() if key != "since"}
            for name, definition in content[section].items()
            if definition.get("since") not in later
        }
        for section in SECTIONS
    }
    return definitions | {"security_configs": content["security_configs"]}


def merge(releases: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
    """One table of what the releases know, oldest first.

    Raises:
        ValueError: a release has dropped or changed a config. The controller would need a schema for each release.
    """
    merged: dict[str, Any] = {}
    for release, definitions in releases.items():
        for section, content in merged.items():
            known = definitions[section]
            differing = [name for name in content if known_as(content, name) != known_as(known, name)]
            if differing:
                raise ValueError(f"Kafka {release} has other {section} than before: {', '.join(differing)}")
        since = {} if release == OLDEST_RELEASE else {"since": release}
        merged = {
            section: {
                name: merged.get(section, {}).get(name, value | since) for name, value in content.items()
            }
            if isinstance(content, dict)
            else content
            for section, content in definitions.items()
        }
    return merged


def known_as(content: Mapping[str, Any] | Sequence[str], name: str) -> Any:
    """The definition of a config, whatever release it is from; of security configs, whether there is one."""
    if not isinstance(content, Mapping):
        return name in content
    definition = content.get(name)
    return definition and {key: value for key, value in definition.items() if key != "since"}


def generate(schemas: Mapping[str, Mapping[str, Any]]) -> dict[Path, str]:
    """The files of the package and their content. `schemas`: what releases know, by version."""
    merged = merge(
        {
            release: definitions_of(schemas[release]) if release in schemas else kept_definitions(release)
            for release in RELEASES
        }
    )
    # The newest release documents what all know.
    newest = schemas.get(NEWEST_RELEASE)
    documentation = json.loads(DOCUMENTATION.read_text()) if newest is None else documentation_of(newest)
    public = {
        section: {
            name: definition["type"]
            for name, definition in merged[section].items()
            if not definition.get("sensitive")
        }
        for section in SECTIONS
    }
    return {DEFINITIONS: render(merged), DOCUMENTATION: render(documentation), PUBLIC: render(public)}


def main() -> int:
    """Write or compare; the exit code is 1 when a file is not up to date."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--jars",
        type=Path,
        required=True,
        action="append",
        help="directory with Kafka's jars (libs/); once for each release",
    )
    parser.add_argument("--java", default="java", help="the java command, 17 or later")
    add_check(parser)
    options = parser.parse_args()
    schemas = {version_of(jars): read_schema(jars, options.java) for jars in options.jars}
    return settle(generate(schemas), is_check=options.check)


if __name__ == "__main__":
    sys.exit(main())
