"""`quorate features`: feature levels as kafka-features shows and changes them (KIP-584, KIP-778, KIP-1022)."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Any

import typer
from quorate_admin.errors import ServerError
from quorate_protocol.features import (
    FEATURES,
    METADATA_VERSION,
    METADATA_VERSION_OF_NEW_CLUSTERS,
    METADATA_VERSIONS,
    SUPPORTED_FEATURES,
    metadata_version_name,
    metadata_version_named,
)

from quorate.console import (
    CommandError,
    LocalToolCommand,
    ToolCommand,
    ToolGroup,
    UsageError,
    examples,
    flag,
    id_option,
    option,
    run,
    show,
    tool_app,
    warn,
)

if TYPE_CHECKING:
    from quorate_admin.types.cluster import FeatureDescription
    from quorate_protocol.kafka.enums import UpgradeType

EXAMPLES = examples(
    "quorate features describe -b localhost:9092",
    "quorate features upgrade -b localhost:9092 --release-version 4.4",
)

app = tool_app(ToolGroup)

MetadataOption = Annotated[
    str | None,
    option("VERSION", "Deprecated: use --release-version or --feature.", names=("--metadata",)),
]
ReleaseVersionOption = Annotated[
    str | None,
    option("VERSION", "The default levels of a release, for instance 4.4.", names=("--release-version",)),
]
FeatureLevelsOption = Annotated[
    list[str] | None,
    option(
        "NAME=LEVEL", "A feature level, for instance metadata.version=30. Repeatable.", names=("--feature",)
    ),
]
UnsafeOption = Annotated[
    bool,
    flag("--unsafe", "Downgrade even if metadata is lost that the lower level can't represent."),
]
DryRunOption = Annotated[bool, flag("--dry-run", "Validate the change, but do not make it.")]


@app.callback(epilog=EXAMPLES)
def features() -> None:
    """Describe, upgrade, downgrade and disable feature levels.

    Options and output are those of kafka-features.
    """


@app.command(cls=ToolCommand)
def describe(
    context: typer.Context,
    *,
    node_id: Annotated[int | None, id_option("The node to ask (default: any).")] = None,
) -> None:
    """Show the supported levels of a node and the finalized levels of the cluster."""
    found = run(lambda admin: admin.describe_features(node_id=node_id), context)

    show(context, lambda: description_text(found), lambda: description_json(found))


@app.command(cls=ToolCommand)
def upgrade(
    context: typer.Context,
    *,
    metadata: MetadataOption = None,
    release_version: ReleaseVersionOption = None,
    feature: FeatureLevelsOption = None,
    dry_run: DryRunOption = False,
) -> None:
    """Upgrade features: all to the levels of a release, or each to a level of its own."""
    from quorate_protocol.kafka.enums import UpgradeType

    levels = _wanted_levels(metadata, release_version, feature)
    if release_version is not None:
        levels = {name: level for name, level in levels.items() if level > 0}  # level 0 is not an upgrade
    _update(context, "upgrade", levels, UpgradeType.UPGRADE, dry_run=dry_run)


@app.command(cls=ToolCommand)
def downgrade(
    context: typer.Context,
    *,
    metadata: MetadataOption = None,
    release_version: ReleaseVersionOption = None,
    feature: FeatureLevelsOption = None,
    unsafe: UnsafeOption = False,
    dry_run: DryRunOption = False,
) -> None:
    """Downgrade features: all to the levels of a release, or each to a level of its own."""
    levels = _wanted_levels(metadata, release_version, feature)
    _update(context, "downgrade", levels, _downgrade_type(unsafe=unsafe), dry_run=dry_run)


@app.command(cls=ToolCommand)
def disable(
    context: typer.Context,
    *,
    feature: Annotated[list[str] | None, option("NAME", "A feature to disable. Repeatable.")] = None,
    unsafe: UnsafeOption = False,
    dry_run: DryRunOption = False,
) -> None:
    """Disable features: downgrade them to level 0."""
    levels: dict[str, int] = {}
    for name in feature or ():
        _put_once(levels, name, 0)
    _update(context, "disable", levels, _downgrade_type(unsafe=unsafe), dry_run=dry_run)


@app.command("version-mapping", cls=LocalToolCommand)
def version_mapping(context: typer.Context, *, release_version: ReleaseVersionOption = None) -> None:
    """List the default levels of a release; by default, of the one that new clusters get."""
    release = release_version or metadata_version_name(METADATA_VERSION_OF_NEW_CLUSTERS)
    levels = _levels_of_release(release)
    show(context, lambda: mapping_text(release, levels), lambda: levels)


@app.command("feature-dependencies", cls=LocalToolCommand)
def feature_dependencies(
    context: typer.Context,
    *,
    feature: Annotated[list[str], option("NAME=LEVEL", "A feature level, for instance metadata.version=30.")],
) -> None:
    """List the dependencies of feature levels."""
    levels = [_name_and_level(text) for text in feature]
    for name, level in levels:
        _check_known(name, level)
    show(context, lambda: dependencies_text(levels), lambda: dependencies_json(levels))


def _downgrade_type(*, unsafe: bool) -> "UpgradeType":
    from quorate_protocol.kafka.enums import UpgradeType

    return UpgradeType.UNSAFE_DOWNGRADE if unsafe else UpgradeType.SAFE_DOWNGRADE


def _wanted_levels(
    metadata: str | None, release_version: str | None, features: list[str] | None
) -> dict[str, int]:
    """The levels of the three options by feature name. Raises UsageError and CommandError."""
    if release_version is not None:
        if metadata is not None or features:
            raise UsageError("--release-version can't be given together with --feature or --metadata")
        return _levels_of_release(release_version)
    levels: dict[str, int] = {}
    if metadata is not None:
        warn("--metadata is deprecated; use --release-version, or --feature metadata.version=LEVEL")
        levels["metadata.version"] = _metadata_level(metadata, "--metadata")
    for text in features or ():
        _put_once(levels, *_name_and_level(text))
    return levels


def _put_once(levels: dict[str, int], name: str, level: int) -> None:
    if name in levels:
        raise UsageError(f"{name} is given more than once")
    levels[name] = level


def _name_and_level(text: str) -> tuple[str, int]:
    name, equals, level = (part.strip() for part in text.partition("="))
    if not equals:
        raise UsageError(f"--feature {text}: it must be NAME=LEVEL, for instance metadata.version=30")
    if not (level.isascii() and level.isdigit() and len(level) < 6 and int(level) <= 32767):
        raise UsageError(f"--feature {text}: the level must be a number from 0 to 32767")
    return name, int(level)


def _metadata_level(text: str, option: str) -> int:
    try:
        return metadata_version_named(text)
    except ValueError as error:
        raise CommandError(f"{option}: {error}") from None


def _levels_of_release(text: str) -> dict[str, int]:
    """The default level of every feature at a release, metadata.version first."""
    level = _metadata_level(text, "--release-version")
    return {METADATA_VERSION: level} | {
        name: feature.default_level(level) for name, feature in FEATURES.items()
    }


def _check_known(name: str, level: int) -> None:
    if name not in SUPPORTED_FEATURES:
        raise CommandError(f"unknown feature {name!r}; known features are {', '.join(SUPPORTED_FEATURES)}")
    lowest, highest = SUPPORTED_FEATURES[name]
    if name == METADATA_VERSION:
        highest = max(METADATA_VERSIONS)  # including levels only for tests, as in Kafka's tool
    if not lowest <= level <= highest:
        raise CommandError(f"{name}={level}: unknown level; known levels are {lowest} to {highest}")


def _update(
    context: typer.Context,
    operation: str,
    levels: Mapping[str, int],
    upgrade_type: "UpgradeType",
    *,
    dry_run: bool,
) -> None:
    """Change levels and print the result of each. Either all levels change, or none does and the command fails."""
    from quorate_admin.types.cluster import FeatureUpdate

    if not levels:
        raise UsageError(f"name at least one feature to {operation}")
    if operation == "upgrade" and 0 in levels.values():
        name = next(name for name, level in levels.items() if level == 0)
        raise UsageError(
            f"--feature {name}=0: level 0 is a downgrade; use `features disable --feature {name}`"
        )
    updates = {
        name: FeatureUpdate(max_level=level, upgrade_type=upgrade_type) for name, level in levels.items()
    }
    refusal: ServerError | None = None
    try:
        run(lambda admin: admin.update_features(updates, validate_only=dry_run), context)
    except ServerError as error:
        refusal = error
    show(
        context,
        lambda: update_text(operation, levels, refusal, dry_run=dry_run),
        lambda: update_json(operation, levels, refusal, dry_run=dry_run),
    )
    if refusal is not None:
        raise CommandError(f"{len(levels)} out of {len(levels)} operation(s) failed.")


def description_text(description: "FeatureDescription") -> str:
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


def description_json(description: "FeatureDescription") -> dict[str, Any]:
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
