"""`quorate features`: text, JSON and errors of its subcommands."""

import pytest
from kit.fake_cluster import FakeCluster, response_to
from kit.tool_runner import run_tool
from quorate.tools.features import description_json, description_text, update_json, update_text
from quorate_admin.errors import ServerError
from quorate_admin.types.cluster import FeatureDescription
from quorate_protocol.errors import ErrorCode
from quorate_protocol.features import metadata_version_name
from quorate_protocol.kafka.releases import DEFAULT_RELEASE, RELEASES

REFUSED = ServerError(ErrorCode.invalid_update_version, "Broker 0 only supports versions 7-30")


def test_levels_are_reported_as_by_kafka() -> None:
    found = FeatureDescription(
        finalized={"metadata.version": 30},
        finalized_epoch=12,
        supported={"metadata.version": (7, 99), "kraft.version": (0, 1)},
    )
    assert description_text(found) == (
        "Feature: kraft.version                             SupportedMinVersion: 0                "
        "SupportedMaxVersion: 1                FinalizedVersionLevel: 0                Epoch: 12\n"
        "Feature: metadata.version                          SupportedMinVersion: 3.3-IV3          "
        "SupportedMaxVersion: UNKNOWN 99       FinalizedVersionLevel: 4.3-IV0          Epoch: 12\n"
    )
    assert description_json(found)["features"][1] == {
        "feature": "metadata.version",
        "supportedMinVersion": 7,
        "supportedMaxVersion": 99,
        "finalizedVersionLevel": 30,
    }


def test_an_unknown_epoch_is_a_dash() -> None:
    found = FeatureDescription(finalized={}, finalized_epoch=-1, supported={"kraft.version": (0, 1)})
    assert description_text(found).endswith("Epoch: -\n")
    assert description_json(found)["finalizedFeaturesEpoch"] is None


@pytest.mark.parametrize(
    ("operation", "refusal", "dry_run", "text"),
    [
        ("upgrade", None, False, "a was upgraded to 2.\nb was upgraded to 1.\n"),
        ("upgrade", None, True, "a can be upgraded to 2.\nb can be upgraded to 1.\n"),
        ("downgrade", None, False, "a was downgraded to 2.\nb was downgraded to 1.\n"),
        ("disable", None, False, "a was disabled.\nb was disabled.\n"),
        ("disable", None, True, "a can be disabled.\nb can be disabled.\n"),
        (
            "upgrade",
            REFUSED,
            False,
            (
                "Could not upgrade a to 2. Broker 0 only supports versions 7-30\n"
                "Could not upgrade b to 1. Broker 0 only supports versions 7-30\n"
            ),
        ),
        (
            "disable",
            REFUSED,
            True,
            (
                "Can not disable a. Broker 0 only supports versions 7-30\n"
                "Can not disable b. Broker 0 only supports versions 7-30\n"
            ),
        ),
    ],
)
def test_changes_are_reported_as_by_kafka(
    operation: str, refusal: ServerError | None, dry_run: bool, text: str
) -> None:
    assert update_text(operation, {"b": 1, "a": 2}, refusal, dry_run=dry_run) == text
    reported = update_json(operation, {"b": 1, "a": 2}, refusal, dry_run=dry_run)
    assert reported["levels"] == {"a": 2, "b": 1}
    assert reported["error"] == (None if refusal is None else "INVALID_UPDATE_VERSION")


async def test_levels_are_asked_of_the_named_node() -> None:
    async with FakeCluster([1, 2]) as cluster:
        before = len(cluster.nodes[2].requests)
        ran = await run_tool("features", "-b", cluster.bootstrap[0], "describe", "--node-id", "2")
        assert len(cluster.nodes[2].requests) > before
    assert ran.exit_code == 0
    assert "FinalizedVersionLevel: 4.3-IV0" in ran.stdout


@pytest.mark.parametrize(
    ("arguments", "updates"),
    [
        (["upgrade", "--feature", "metadata.version=29"], [("metadata.version", 29, 1)]),
        (["upgrade", "--feature", "a=1", "--feature", " b = 2 "], [("a", 1, 1), ("b", 2, 1)]),
        (["upgrade", "--metadata", "4.0"], [("metadata.version", 25, 1)]),
        (["downgrade", "--feature", "a=1"], [("a", 1, 2)]),
        (["downgrade", "--feature", "a=0", "--unsafe"], [("a", 0, 3)]),
        (["disable", "--feature", "a", "--feature", "b"], [("a", 0, 2), ("b", 0, 2)]),
        (["disable", "--feature", "a", "--unsafe"], [("a", 0, 3)]),
        (
            ["upgrade", "--release-version", "4.0"],
            [
                ("metadata.version", 25, 1),
                ("kraft.version", 1, 1),
                ("transaction.version", 2, 1),
                ("group.version", 1, 1),
            ],
        ),
        *(
            (
                ["upgrade", "--release-version", release],
                [
                    ("metadata.version", 33, 1),
                    ("kraft.version", 1, 1),
                    ("transaction.version", 2, 1),
                    ("group.version", 1, 1),
                    ("eligible.leader.replicas.version", 1, 1),
                    ("share.version", 2, 1),
                    ("streams.version", 1, 1),
                ],
            )
            for release in ("4.4", "4.4.0")
        ),
        (
            ["downgrade", "--release-version", "3.9-IV0"],
            [
                ("metadata.version", 21, 2),
                ("kraft.version", 1, 2),
                ("transaction.version", 0, 2),
                ("group.version", 0, 2),
                ("eligible.leader.replicas.version", 0, 2),
                ("share.version", 0, 2),
                ("streams.version", 0, 2),
            ],
        ),
    ],
)
async def test_what_is_wanted_is_asked_for(arguments: list[str], updates: list[tuple[str, int, int]]) -> None:
    """Options to UpdateFeatures; 0 is no upgrade, but a downgrade."""
    async with FakeCluster() as cluster:
        cluster.handle("UpdateFeatures", lambda _: response_to("UpdateFeatures"))
        for dry_run in ([], ["--dry-run"]):
            ran = await run_tool("features", "-b", cluster.bootstrap[0], *arguments, *dry_run)
            assert ran.exit_code == 0
            reported = cluster.received("UpdateFeatures")[-1].body
            assert reported.validate_only is bool(dry_run)
            assert [
                (feature_update.feature, feature_update.max_version_level, feature_update.upgrade_type)
                for feature_update in reported.feature_updates
            ] == updates
            assert len(ran.stdout.splitlines()) == len(updates)


async def test_a_refusal_is_reported_for_each_feature_and_fails() -> None:
    """Kafka's text, and exit code 1."""
    refusal = response_to("UpdateFeatures", error_code=ErrorCode.invalid_update_version, error_message="No.")
    async with FakeCluster(handlers={"UpdateFeatures": lambda _: refusal}) as cluster:
        asked = ("features", "-b", cluster.bootstrap[0], "upgrade", "--feature", "a=1", "--feature", "b=1")
        ran = await run_tool(*asked)
        reported = await run_tool(*asked, "-o", "json", "--dry-run")
    assert ran.stdout == "Could not upgrade a to 1. No.\nCould not upgrade b to 1. No.\n"
    assert (ran.exit_code, ran.stderr) == (1, "error: 2 out of 2 operation(s) failed.\n")
    assert reported.exit_code == 1
    assert reported.json == {
        "operation": "upgrade",
        "dryRun": True,
        "levels": {"a": 1, "b": 1},
        "error": "INVALID_UPDATE_VERSION",
        "errorMessage": "No.",
    }


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["upgrade"], "name at least one feature to upgrade"),
        (["disable"], "name at least one feature to disable"),
        (["upgrade", "--feature", "a"], "--feature a: it must be NAME=LEVEL"),
        (["upgrade", "--feature", "a=x"], "the level must be a number from 0 to 32767"),
        (["upgrade", "--feature", "a=-1"], "the level must be a number from 0 to 32767"),
        (["upgrade", "--feature", "a=0"], "level 0 is a downgrade"),
        (["upgrade", "--feature", "a=1", "--feature", "a=2"], "a is given more than once"),
        (["disable", "--feature", "a", "--feature", "a"], "a is given more than once"),
        (["upgrade", "--release-version", "4.0", "--feature", "a=1"], "can't be given together"),
        (["describe", "--node-id", "-1"], "-1 is not in the range 0<=x<=2147483647"),
        (["feature-dependencies"], "Missing option"),
    ],
)
async def test_wrong_options_exit_with_2_before_any_request(arguments: list[str], expected: str) -> None:
    ran = await run_tool("features", "-b", "localhost:1", *arguments)
    assert (ran.exit_code, ran.stdout) == (2, "")
    assert expected in " ".join(ran.stderr.split())


@pytest.mark.parametrize(
    "arguments", [["upgrade", "--release-version", "9.9"], ["upgrade", "--metadata", "9.9"]]
)
async def test_an_unknown_release_is_reported_with_those_there_are(arguments: list[str]) -> None:
    """The message names option, value and what is allowed."""
    ran = await run_tool("features", "-b", "localhost:1", *arguments)
    assert ran.exit_code == 1
    assert (
        f"{arguments[1]}: Unknown metadata.version '9.9'. Supported metadata.version are: 3.3-IV3,"
        in ran.stderr
    )


async def test_the_levels_of_a_release_are_listed() -> None:
    assert (await run_tool("features", "version-mapping", "--release-version", "4.0")).stdout == (
        "metadata.version=25 (4.0)\nkraft.version=1\ntransaction.version=2\ngroup.version=1\n"
        "eligible.leader.replicas.version=0\nshare.version=0\nstreams.version=0\n"
    )
    assert (await run_tool("features", "version-mapping", "--release-version", "4.4")).stdout == (
        "metadata.version=33 (4.4)\nkraft.version=1\ntransaction.version=2\ngroup.version=1\n"
        "eligible.leader.replicas.version=1\nshare.version=2\nstreams.version=1\n"
    )
    level = RELEASES[DEFAULT_RELEASE].metadata_version
    assert (await run_tool("features", "version-mapping")).stdout.startswith(
        f"metadata.version={level} ({metadata_version_name(level)})\n"
    )
    reported = await run_tool("features", "version-mapping", "--release-version", "3.3", "-o", "json")
    assert reported.json["metadata.version"] == 7


async def test_dependencies_are_listed() -> None:
    asked = (
        "features", "feature-dependencies", "--feature", "eligible.leader.replicas.version=1", "--feature",
        "metadata.version=30", "--feature", "group.version=1", "--feature", "share.version=2", "--feature",
        "metadata.version=34",
    )  # fmt: skip
    assert (await run_tool(*asked)).stdout == (
        "eligible.leader.replicas.version=1 requires:\n    metadata.version=23 (4.0-IV1)\n"
        "metadata.version=30 (4.3-IV0) has no dependencies.\n"
        "group.version=1 has no dependencies.\n"
        "share.version=2 has no dependencies.\n"
        "metadata.version=34 (4.5-IV0) has no dependencies.\n"
    )
    assert (await run_tool(*asked, "-o", "json")).json[0] == {
        "feature": "eligible.leader.replicas.version",
        "level": 1,
        "dependencies": {"metadata.version": 23},
    }


@pytest.mark.parametrize(
    ("feature", "expected"),
    [
        ("foo=1", "unknown feature 'foo'; known features are metadata.version, kraft.version"),
        ("group.version=9", "group.version=9: unknown level; known levels are 0 to 1"),
        ("metadata.version=99", "metadata.version=99: unknown level; known levels are 7 to 34"),
    ],
)
async def test_dependencies_of_what_does_not_exist(feature: str, expected: str) -> None:
    ran = await run_tool("features", "feature-dependencies", "--feature", feature)
    assert (ran.exit_code, ran.stdout) == (1, "")
    assert expected in ran.stderr
