"""Formatting: files, voters, refusals."""

from pathlib import Path
from random import Random

import pytest
from quorate_controller.config import FormatTarget, parse_format_target
from quorate_controller.directories.format import (
    DirectoryKind,
    FormatError,
    FormatOptions,
    FormatResult,
    QuorumChoice,
    format_directories,
    parse_features,
    parse_initial_controllers,
)
from quorate_controller.raft.model import Endpoint
from quorate_controller.storage.bootstrap import encode_bootstrap_checkpoint, read_bootstrap_records
from quorate_controller.storage.controller_storage import read_snapshot_quorum
from quorate_controller.storage.errors import StorageError
from quorate_controller.storage.meta_properties import read_meta_properties
from quorate_controller.storage.os_filesystem import OsFileSystem
from quorate_protocol.features import KRAFT_VERSION, METADATA_VERSION
from quorate_protocol.kafka.releases import RELEASES, Release
from quorate_protocol.records.generated import FeatureLevelRecord
from quorate_protocol.uuids import uuid_from_text

CLUSTER_ID = "MkU3OEVBNTcwNTJENDM2Qg"
TWO = "3000@h:9093:JEXY6aqzQY-32P5TStzaFg,3001@[::1]:9094:MvDxzVmcRsaTz33bUuRU6A"
CHECKPOINT = "__cluster_metadata-0/00000000000000000000-0000000000.checkpoint"


def target(tmp_path: Path, **changes: str) -> FormatTarget:
    """A controller of a dynamic quorum with two directories."""
    properties = {
        "process.roles": "controller",
        "node.id": "3000",
        "controller.listener.names": "CONTROLLER",
        "listeners": "CONTROLLER://:9093",
        "controller.quorum.bootstrap.servers": "h:9093",
        "log.dirs": f"{tmp_path}/b,{tmp_path}/a",
        "metadata.log.dir": f"{tmp_path}/b",
    }
    properties.update({key.replace("_", "."): value for key, value in changes.items()})
    return parse_format_target({key: value for key, value in properties.items() if value})


def format_with(os_files: OsFileSystem, node: FormatTarget, **options: object) -> FormatResult:
    """Format for CLUSTER_ID."""
    parsed = FormatOptions(**{"cluster_id": CLUSTER_ID} | options)  # type: ignore[arg-type]
    return format_directories(os_files, node, parsed, now_ms=1234)


def files(tmp_path: Path) -> set[str]:
    """Relative names of all files."""
    return {str(path.relative_to(tmp_path)) for path in tmp_path.rglob("*") if path.is_file()}


def features(os_files: OsFileSystem, directory: Path) -> dict[str, int]:
    """What bootstrap.checkpoint says."""
    bootstrap = read_bootstrap_records(os_files, directory)
    assert bootstrap.path == directory / "bootstrap.checkpoint"
    return {record.name: record.feature_level for record in bootstrap.records}  # type: ignore[union-attr]


def test_standalone_controller_is_its_own_voter(os_files: OsFileSystem, tmp_path: Path):
    """--standalone: 0-0.checkpoint names this node, its directory id, and localhost for want of a host."""
    result = format_with(os_files, target(tmp_path), quorum=QuorumChoice.STANDALONE)
    assert [(entry.path.name, entry.kind, entry.is_new) for entry in result.directories] == [
        ("a", DirectoryKind.DATA, True),
        ("b", DirectoryKind.DYNAMIC_METADATA_VOTER, True),
    ]
    assert files(tmp_path) == {
        "a/bootstrap.checkpoint",
        "a/meta.properties",
        "b/bootstrap.checkpoint",
        "b/meta.properties",
        f"b/{CHECKPOINT}",
    }
    properties = read_meta_properties(os_files, tmp_path / "b")
    assert properties is not None
    assert (properties.cluster_id, properties.node_id) == (CLUSTER_ID, 3000)
    assert properties.directory_id == result.directories[1].directory_id
    quorum = read_snapshot_quorum((tmp_path / "b" / CHECKPOINT).read_bytes())
    assert quorum.kraft_version == 1
    assert quorum.voters is not None
    assert [voter.key.directory_id for voter in quorum.voters] == [properties.directory_id]
    assert next(iter(quorum.voters)).endpoints == (
        Endpoint(listener="CONTROLLER", host="localhost", port=9093),
    )
    assert quorum.last_contained_log_timestamp_ms == 1234


def test_initial_controllers_give_the_directory_id(os_files: OsFileSystem, tmp_path: Path):
    """--initial-controllers: a listed node gets its id from the list, another node gets the voters."""
    result = format_with(
        os_files,
        target(tmp_path),
        quorum=QuorumChoice.INITIAL_CONTROLLERS,
        initial_controllers=parse_initial_controllers(TWO),
    )
    assert result.directories[1].directory_id == uuid_from_text("JEXY6aqzQY-32P5TStzaFg")
    other = target(tmp_path, node_id="9", log_dirs=f"{tmp_path}/c", metadata_log_dir="")
    result = format_with(
        os_files,
        other,
        quorum=QuorumChoice.INITIAL_CONTROLLERS,
        initial_controllers=parse_initial_controllers(TWO),
    )
    assert result.directories[0].kind is DirectoryKind.DYNAMIC_METADATA
    quorum = read_snapshot_quorum((tmp_path / "c" / CHECKPOINT).read_bytes())
    assert quorum.voters is not None
    assert [(v.node_id, v.endpoints[0].host, v.endpoints[0].port) for v in quorum.voters] == [
        (3000, "h", 9093),
        (3001, "::1", 9094),
    ]


@pytest.mark.parametrize(
    ("changes", "quorum"),
    [
        pytest.param({}, QuorumChoice.NO_INITIAL_CONTROLLERS, id="joins later"),
        pytest.param(
            {"controller_quorum_voters": "3000@h:9093"}, QuorumChoice.UNSPECIFIED, id="static voters"
        ),
        pytest.param(
            {"process_roles": "broker", "listeners": "B://:1"}, QuorumChoice.UNSPECIFIED, id="broker"
        ),
    ],
)
def test_others_get_no_voters(
    os_files: OsFileSystem, tmp_path: Path, changes: dict[str, str], quorum: QuorumChoice
):
    """Without initial voters there are only meta.properties and bootstrap.checkpoint."""
    result = format_with(os_files, target(tmp_path, **changes), quorum=quorum)
    assert result.directories[1].kind is DirectoryKind.METADATA
    assert files(tmp_path) == {
        "a/bootstrap.checkpoint",
        "a/meta.properties",
        "b/bootstrap.checkpoint",
        "b/meta.properties",
    }


def test_features_follow_the_release(os_files: OsFileSystem, tmp_path: Path):
    """Defaults are those of 4.4.0; an older release has fewer; single features can be set."""
    defaults = {
        "metadata.version": 33,
        "eligible.leader.replicas.version": 1,
        "group.version": 1,
        "share.version": 2,
        "streams.version": 1,
        "transaction.version": 2,
    }
    static = {"controller_quorum_voters": "3000@h:9093"}

    def formatted(name: str, **options: object) -> dict[str, int]:
        node = target(tmp_path, log_dirs=f"{tmp_path}/{name}", metadata_log_dir="", **static)
        format_with(os_files, node, **options)
        return features(os_files, tmp_path / name)

    assert formatted("default") == defaults
    assert list(formatted("order")) == list(defaults)
    assert formatted("old", release_version="3.7") == {"metadata.version": 19}
    assert formatted("level", features={"metadata.version": 20}) == {"metadata.version": 20}
    without = formatted("off", features={"transaction.version": 0, "group.version": 0})
    assert without == {name: level for name, level in defaults.items() if name[0] not in "tg"}


@pytest.mark.parametrize(
    ("changes", "options", "message"),
    [
        ({}, {}, "you must specify one of the following: --standalone"),
        (
            {"process_roles": "broker"},
            {"quorum": QuorumChoice.STANDALONE},
            "only use --standalone on a contr",
        ),
        (
            {"controller_quorum_voters": "3000@h:9093"},
            {"quorum": QuorumChoice.STANDALONE},
            "cannot specify controller.quorum.voters and format",
        ),
        ({}, {"features": {"foo": 1}}, "Unsupported feature: foo. Supported features are: eligible"),
        ({}, {"features": {"group.version": 9}}, "No feature:group.version with feature level 9"),
        ({}, {"features": {"share.version": 3}}, "No feature:share.version with feature level 3"),
        ({}, {"features": {"metadata.version": 99}}, "Valid feature levels are from 7 to"),
        ({}, {"release_version": "4.5-IV0"}, "4.5-IV0 is not yet stable"),
        ({}, {"release_version": "9.9"}, "Unknown metadata.version '9.9'"),
        (
            {},
            {"release_version": "3.7", "features": {"metadata.version": 20}},
            "Use --release-version instead of --feature",
        ),
        (
            {},
            {"release_version": "3.9", "features": {"eligible.leader.replicas.version": 1}},
            "eligible.leader.replicas.version could not be set to 1 because it depends on metadata.version",
        ),
        ({}, {"features": {"kraft.version": 0}}, "Cannot set kraft.version to 0"),
        (
            {"controller_quorum_voters": "3000@h:9093"},
            {"features": {"kraft.version": 1}, "quorum": QuorumChoice.UNSPECIFIED},
            "Cannot set kraft.version to 1 unless",
        ),
        ({}, {"cluster_id": " "}, "--cluster-id: must not be empty"),
    ],
)
def test_wrong_options_write_nothing(
    os_files: OsFileSystem,
    tmp_path: Path,
    changes: dict[str, str],
    options: dict[str, object],
    message: str,
):
    """Each contradiction is reported like by kafka-storage, before anything is written."""
    if options:
        options = {"quorum": QuorumChoice.NO_INITIAL_CONTROLLERS} | options
    with pytest.raises(FormatError) as caught:
        format_with(os_files, target(tmp_path, **changes), **options)
    assert message in str(caught.value)
    assert files(tmp_path) == set()


@pytest.mark.parametrize(("version", "release"), RELEASES.items())
def test_a_release_by_its_version_has_its_levels(
    os_files: OsFileSystem, tmp_path: Path, version: str, release: Release
):
    result = format_with(os_files, target(tmp_path), quorum=QuorumChoice.STANDALONE, release_version=version)
    assert result.metadata_version == release.metadata_version
    written = features(os_files, tmp_path / "b")
    levels = {METADATA_VERSION: release.metadata_version, **release.feature_levels}
    del levels[KRAFT_VERSION]  # which is no record of the metadata log
    assert written == levels


def test_formatted_directories_are_kept(os_files: OsFileSystem, tmp_path: Path):
    """A second time is refused, or skipped with --ignore-formatted; an added directory is formatted."""
    only_b = target(tmp_path, log_dirs=f"{tmp_path}/b")
    first = format_with(os_files, only_b, quorum=QuorumChoice.STANDALONE)
    before = (tmp_path / "b" / CHECKPOINT).read_bytes()
    with pytest.raises(FormatError, match="/b is already formatted"):
        format_with(os_files, only_b, quorum=QuorumChoice.STANDALONE)
    both = format_with(os_files, target(tmp_path), quorum=QuorumChoice.STANDALONE, ignore_formatted=True)
    assert [entry.is_new for entry in both.directories] == [True, False]
    assert both.directories[1].directory_id == first.directories[0].directory_id
    assert (tmp_path / "b" / CHECKPOINT).read_bytes() == before


def test_directory_of_another_cluster_or_node_is_refused(os_files: OsFileSystem, tmp_path: Path):
    """--ignore-formatted skips only what belongs to this node of this cluster."""
    format_with(os_files, target(tmp_path), quorum=QuorumChoice.STANDALONE)
    again = {"quorum": QuorumChoice.STANDALONE, "ignore_formatted": True}
    with pytest.raises(StorageError, match=f"belongs to cluster {CLUSTER_ID}, not other"):
        format_with(os_files, target(tmp_path), cluster_id="other", **again)
    with pytest.raises(StorageError, match=r"belongs to node 3000, but node\.id is 7"):
        format_with(os_files, target(tmp_path, node_id="7"), **again)


def test_log_without_meta_properties_is_not_overwritten(os_files: OsFileSystem, tmp_path: Path):
    """Someone lost meta.properties: formatting would put a new identity on an old log."""
    partition = tmp_path / "b" / "__cluster_metadata-0"
    partition.mkdir(parents=True)
    (partition / "00000000000000000000.log").write_bytes(b"")
    with pytest.raises(FormatError, match=r"holds a metadata log although .*/b is not formatted"):
        format_with(os_files, target(tmp_path), quorum=QuorumChoice.STANDALONE)


def test_a_checkpoint_of_an_interrupted_format_does_not_stay(os_files: OsFileSystem, tmp_path: Path):
    node = target(tmp_path, controller_quorum_voters="3000@h:9093")
    left_over = tmp_path / "b" / CHECKPOINT
    left_over.parent.mkdir(parents=True)
    records = (FeatureLevelRecord(name="metadata.version", feature_level=20),)
    left_over.write_bytes(encode_bootstrap_checkpoint(records, 1))
    left_over.chmod(0o400)
    format_with(os_files, node, features={"metadata.version": 25})
    assert features(os_files, tmp_path / "b")["metadata.version"] == 25
    assert not left_over.exists()


def test_interrupted_formatting_can_be_repeated(new_crash_disk, power_loss, tmp_path: Path):
    """Lose power at every operation in turn; afterwards formatting again gives a whole directory."""
    node = target(tmp_path)
    options = FormatOptions(
        cluster_id=CLUSTER_ID,
        quorum=QuorumChoice.INITIAL_CONTROLLERS,
        initial_controllers=parse_initial_controllers(TWO),
        ignore_formatted=True,
    )
    for operations in range(60):
        disk = new_crash_disk()
        disk.power_loss_in = operations
        try:
            format_directories(disk, node, options, now_ms=1)
        except power_loss:
            disk.restart(Random(operations))
        disk.power_loss_in = None
        format_directories(disk, node, options, now_ms=2)
        for directory in node.log_dirs:
            properties = read_meta_properties(disk, directory)
            assert properties is not None
            assert len(read_bootstrap_records(disk, directory).records) == 6
        head = disk.read_file(node.metadata_log_dir / CHECKPOINT, 10_000)
        assert read_snapshot_quorum(head).voters is not None


@pytest.mark.parametrize(
    "text",
    [
        "",
        "3000",
        "3000@h:9093",
        "x@h:1:JEXY6aqzQY-32P5TStzaFg",
        "1@h:0:JEXY6aqzQY-32P5TStzaFg",
        f"{TWO},{TWO}",
    ],
)
def test_wrong_initial_controllers_are_refused(text: str):
    """The entry and the form it should have are named."""
    with pytest.raises(FormatError, match="--initial-controllers: "):
        parse_initial_controllers(text)


def test_wrong_directory_id_is_named():
    """Of an entry that is right otherwise, the directory id is what is wrong."""
    with pytest.raises(FormatError, match="the directory id 'bad' is not a uuid"):
        parse_initial_controllers("1@h:9093:bad")


@pytest.mark.parametrize("entry", ["foo", "foo=", "foo=x", "foo=-1"])
def test_wrong_features_are_refused(entry: str):
    """The entry and the form it should have are named."""
    with pytest.raises(FormatError, match=f"{entry!r} is not of the form name=level"):
        parse_features([entry])
    assert parse_features(["a.version=1", "b = 2"]) == {"a.version": 1, "b": 2}
