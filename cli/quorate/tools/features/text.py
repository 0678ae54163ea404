"""Feature levels as text and as JSON."""

from collections.abc import Mapping, Sequence
from typing import Any

from quorate_admin.errors import ServerError
from quorate_admin.types.cluster import FeatureDescription
from quorate_protocol.features import (
    FEATURES,
    METADATA_VERSION,
    METADATA_VERSIONS,
    metadata_version_name,
)


def description_text(description: FeatureDescription) -> str:
    """What `kafka-features describe` prints: a line for each feature that the node supports."""
    epoch = str(description.finalized_epoch) if description.finalized_epoch >= 0 else "-"
    return "".join(
        f"Feature: {name:<40}  "
        f"SupportedMinVersion: {_level_text(name, lowest):<15}  "
        f"SupportedMaxVersion: {_level_text(name, highest):<15}  "
        f"FinalizedVersionLevel: {_level_text(name, description.finalized.get(name, 0)):<15}  "
        f"Epoch: {epoch}\n"
        for name, (lowest, highest) in sorted(description.supported.items())
    )


def description_json(description: FeatureDescription) -> dict[str, Any]:
    """The same as JSON: levels are numbers; `finalizedFeaturesEpoch` is null if it is unknown."""
    epoch = description.finalized_epoch
    return {
        "finalizedFeaturesEpoch": epoch if epoch >= 0 else None,
        "features": [
            {
                "feature": name,
                "supportedMinVersion": lowest,
                "supportedMaxVersion": highest,
                "finalizedVersionLevel": description.finalized.get(name, 0),
            }
            for name, (lowest, highest) in sorted(description.supported.items())
        ],
    }


def update_text(
    operation: str, levels: Mapping[str, int], refusal: ServerError | None, *, dry_run: bool
) -> str:
    """What `kafka-features upgrade`, `downgrade` and `disable` print: a line for each feature."""
    lines = []
    for name, level in sorted(levels.items()):
        target = "" if operation == "disable" else f" to {level}"
        if refusal is None:
            verb = "can be" if dry_run else "was"
            done = "disabled" if operation == "disable" else f"{operation}d"
            lines.append(f"{name} {verb} {done}{target}.\n")
        else:
            verb = "Can not" if dry_run else "Could not"
            lines.append(f"{verb} {operation} {name}{target}. {refusal.message or refusal}\n")
    return "".join(lines)


def update_json(
    operation: str, levels: Mapping[str, int], refusal: ServerError | None, *, dry_run: bool
) -> dict[str, Any]:
    """The same as JSON."""
    return {
        "operation": operation,
        "dryRun": dry_run,
        "levels": dict(sorted(levels.items())),
        "error": None if refusal is None else refusal.error_code.name.upper(),
        "errorMessage": None if refusal is None else refusal.message,
    }


def mapping_text(release: str, levels: Mapping[str, int]) -> str:
    """What `kafka-features version-mapping` prints."""
    return "".join(
        f"{name}={level} ({release})\n" if name == METADATA_VERSION else f"{name}={level}\n"
        for name, level in levels.items()
    )


def dependencies_text(levels: Sequence[tuple[str, int]]) -> str:
    """What `kafka-features feature-dependencies` prints."""
    lines = []
    for name, level in levels:
        title = f"{name}={level}"
        if name == METADATA_VERSION:
            title += f" ({metadata_version_name(level)})"
        needed = _dependencies(name, level)
        lines.append(f"{title} requires:\n" if needed else f"{title} has no dependencies.\n")
        lines += [
            f"    {other}={least} ({metadata_version_name(least)})\n" for other, least in needed.items()
        ]
    return "".join(lines)


def dependencies_json(levels: Sequence[tuple[str, int]]) -> list[dict[str, Any]]:
    """The same as JSON."""
    return [
        {"feature": name, "level": level, "dependencies": _dependencies(name, level)}
        for name, level in levels
    ]


def _dependencies(name: str, level: int) -> dict[str, int]:
    """The dependencies of a feature level; so far all of them are on metadata.version."""
    feature = FEATURES.get(name)
    needed = None if feature is None else feature.needs_metadata_version.get(level)
    return {} if needed is None else {METADATA_VERSION: needed}


def _level_text(name: str, level: int) -> str:
    if name != METADATA_VERSION:
        return str(level)
    version = METADATA_VERSIONS.get(level)
    return f"UNKNOWN {level}" if version is None else version.name
