"""Directories that pass between a stock Java controller and ours, in the middle of a cluster's life."""

import json
import os
import subprocess
import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path

import pytest
from kit.kafka import stock_kafka_of
from kit.one_controller import java_command, running, write_config
from kit.releases import RELEASES
from kit.waiting import eventually
from quorate_controller.commands import app
from quorate_controller.raft.startup import HardState
from quorate_controller.storage.bootstrap import bootstrap_checkpoints, read_bootstrap_records
from quorate_controller.storage.controller_storage import (
    ControllerStorage,
    StorageConfig,
    read_snapshot_quorum,
)
from quorate_controller.storage.errors import DirectoryInUseError
from quorate_controller.storage.log import LogConfig
from quorate_controller.storage.os_filesystem import OsFileSystem
from quorate_operator.runtime.local.stock_kafka import Kafka
from quorate_protocol.properties import parse_properties
from quorate_protocol.records.batch import build_batch, decode_batches
from quorate_protocol.records.control import decode_control
from quorate_protocol.records.framing import encode_record
from quorate_protocol.records.generated import NoOpRecord
from typer.testing import CliRunner

pytestmark = pytest.mark.integration

PARTITION = "__cluster_metadata-0"
CLUSTER_ID = "MkU3OEVBNTcwNTJENDM2Qg"
DIRECTORY_ID = "JEXY6aqzQY-32P5TStzaFg"
SEGMENT_BYTES = 20_000
WAIT_S = 90

Java = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture
def java(stock_kafka: Kafka) -> Java:
    """`java(main_class, *arguments)` runs a stock tool to its end."""

    def run(main_class: str, *arguments: object) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            java_command(stock_kafka, main_class, *arguments),
            capture_output=True,
            text=True,
            timeout=WAIT_S,
            check=False,
        )

    return run


def running_kafka(kafka: Kafka, config: Path) -> AbstractContextManager[subprocess.Popen[bytes]]:
    """A stock node, killed at the end."""
    return running(java_command(kafka, "kafka.Kafka", config), config.with_suffix(".log"))


def without_times(path: Path) -> object:
    """The content of a checkpoint without timestamps and checksums."""
    return [
        (
            batch.base_offset,
            batch.partition_leader_epoch,
            batch.is_control,
            [(r.key, r.value if not batch.is_control else control_text(r)) for r in batch.records],
        )
        for batch in decode_batches(path.read_bytes())
    ]


def control_text(record: object) -> str:
    """A control record without the time that a snapshot header carries."""
    control = decode_control(record)  # type: ignore[arg-type]
    return str(control) if not hasattr(control, "last_contained_log_timestamp") else "header"


DYNAMIC = "controller.quorum.bootstrap.servers=ADDRESS"
STATIC = "controller.quorum.voters=3000@ADDRESS"
ALICE = "SCRAM-SHA-256=[name=alice,password=secret,iterations=8192,salt=c2FsdA==]"
FORMATS = [
    pytest.param([DYNAMIC], "controller", ["-N", "-r", "4.3"], id="no voters"),
    pytest.param(
        [DYNAMIC],
        "controller",
        ["-I", f"3000@h:9093:{DIRECTORY_ID},3001@i:9094:MvDxzVmcRsaTz33bUuRU6A", "-r", "4.3", "-S", ALICE],
        id="initial controllers",
    ),
    pytest.param([STATIC], "controller", ["-f", "transaction.version=0", "-r", "4.2"], id="static voters"),
    pytest.param([STATIC], "controller", ["-f", "metadata.version=29", "-S", ALICE], id="user"),
    pytest.param([DYNAMIC], "controller", ["-s", "-r", "4.3"], id="standalone"),
]
BROKERS = [
    pytest.param(
        [DYNAMIC], "broker", ["-I", f"3001@h:9093:{DIRECTORY_ID}", "-r", "3.9"], id="broker with voters"
    ),
    pytest.param(["controller.quorum.voters=9@ADDRESS"], "broker", ["-r", "4.1"], id="broker"),
]


def format_with_both(
    kafka: Kafka, tmp_path: Path, lines: list[str], roles: str, arguments: list[str]
) -> tuple[Path, Path]:
    """Format the same node with ours and with a release of Kafka. Returns the directories."""
    config = write_config(tmp_path, *lines, roles=roles)
    data, ours = tmp_path / "data", tmp_path / "ours"
    result = CliRunner().invoke(app, ["format", "-c", str(config), "-t", CLUSTER_ID, *arguments])
    assert result.exit_code == 0, result.output
    data.rename(ours)
    command = java_command(kafka, "kafka.tools.StorageTool", "format", "-c", config, "-t", CLUSTER_ID)
    theirs = subprocess.run(
        [*command, *arguments], capture_output=True, text=True, timeout=WAIT_S, check=False
    )
    assert theirs.returncode == 0, theirs.stderr
    assert result.stdout.splitlines()[-1] in theirs.stdout
    return ours, data


@pytest.mark.parametrize(("lines", "roles", "arguments"), [*FORMATS, *BROKERS])
def test_format_gives_what_kafka_storage_gives(
    tmp_path: Path, lines: list[str], roles: str, arguments: list[str]
):
    """Format the same node with both: the same files, modes and contents but for times and random ids.

    The files are those of Kafka 4.3, which 4.4 reads, too.
    """
    ours, data = format_with_both(stock_kafka_of("4.3.1"), tmp_path, lines, roles, arguments)
    names = sorted(path.relative_to(data) for path in data.rglob("*"))
    assert sorted(path.relative_to(ours) for path in ours.rglob("*")) == names
    standalone = "-s" in arguments
    for name in names:
        mine, other = ours / name, data / name
        if name.suffix == ".checkpoint":
            if not standalone or name.name == "bootstrap.checkpoint":
                assert without_times(mine) == without_times(other)
            assert mine.stat().st_mode == other.stat().st_mode
            assert mine.stat().st_size == other.stat().st_size
        elif name.name == "meta.properties":
            mine_read, other_read = (
                parse_properties((side / name).read_text("latin-1")) for side in (ours, data)
            )
            if "-I" not in arguments or roles == "broker":
                assert len(mine_read.pop("directory.id")) == len(other_read.pop("directory.id")) == 22
            assert mine_read == other_read


@pytest.mark.parametrize("release", RELEASES)
@pytest.mark.parametrize(("lines", "roles", "arguments"), FORMATS)
def test_format_says_what_kafka_storage_says(
    tmp_path: Path, release: str, lines: list[str], roles: str, arguments: list[str]
):
    """Format the same node with both: the same bootstrap records and voters, in whichever files they are."""
    ours, data = format_with_both(stock_kafka_of(release), tmp_path, lines, roles, arguments)
    mine, other = (read_bootstrap_records(OsFileSystem(), side) for side in (ours, data))
    assert mine.records == other.records != ()
    checkpoints = (bootstrap_checkpoints(side)[0] for side in (ours, data))
    voters = [
        read_snapshot_quorum(path.read_bytes()).voters if path.exists() else None for path in checkpoints
    ]
    if "-s" in arguments:
        assert [[voter.node_id for voter in found or ()] for found in voters] == [[3000], [3000]]
    else:
        assert voters[0] == voters[1]
        assert (voters[0] is not None) == ("-I" in arguments)


@pytest.fixture
def dynamic_node(java: Java, tmp_path: Path) -> Path:
    """The file of a standalone controller with small segments and many snapshots, formatted by Kafka."""
    config = write_config(
        tmp_path,
        "controller.quorum.bootstrap.servers=ADDRESS",
        "metadata.max.idle.interval.ms=5",
        f"internal.metadata.log.segment.bytes={SEGMENT_BYTES}",
        "metadata.log.max.record.bytes.between.snapshots=15000",
    )
    formatted = java("kafka.tools.StorageTool", "format", "-c", config, "-t", CLUSTER_ID, "-s")
    assert formatted.returncode == 0, formatted.stderr
    return config


def storage_config(data: Path) -> StorageConfig:
    """As in `dynamic_node`."""
    return StorageConfig(node_id=3000, metadata_log_dir=data, log=LogConfig(segment_bytes=SEGMENT_BYTES))


def append_as_leader(storage: ControllerStorage, epoch: int, count: int) -> None:
    """What a leader of ours writes, in short."""
    storage.save_hard_state(HardState(leader_epoch=epoch, leader_id=3000), kraft_version=1)
    now_ms = int(time.time() * 1000)
    for index in range(count):
        record = encode_record(NoOpRecord())
        storage.append(build_batch([record], storage.log.end_offset, epoch, now_ms + index))
        storage.flush()


def dump_problems(java: Java, *files: Path) -> list[str]:
    """What DumpLogSegments complains about in logs and indexes."""
    names = ",".join(map(str, files))
    problems = []
    for check in ([], ["--verify-index-only"], ["--index-sanity-check"]):
        wanted = names if not check else ",".join(map(str, [f for f in files if f.suffix != ".log"]))
        decoder = [] if check else ["--cluster-metadata-decoder"]
        dump = java("org.apache.kafka.tools.DumpLogSegments", *check, *decoder, "--files", wanted)
        assert dump.returncode == 0, dump.stderr
        problems += [
            line
            for line in dump.stdout.splitlines()
            if any(
                word in line
                for word in ("mismatch", "Mismatch", "not found", "out of order", "isvalid: false")
            )
            or "Non-consecutive" in line
        ]
    return problems


def test_directory_goes_from_java_to_us_and_back(
    java: Java, stock_kafka: Kafka, dynamic_node: Path, tmp_path: Path
):
    """Kill a Java controller, continue with its directory, crash, and let a Java controller continue with ours.

    On the way: each refuses a directory that the other has open, full segments' indexes stay byte for byte,
    and DumpLogSegments finds nothing wrong in what we wrote.
    """
    data, partition = tmp_path / "data", tmp_path / "data" / PARTITION
    config = storage_config(data)
    with running_kafka(stock_kafka, dynamic_node):
        eventually(lambda: len(list(partition.glob("*.log"))) >= 2, WAIT_S, "a second segment")
        eventually(lambda: len(list(partition.glob("*.checkpoint"))) >= 3, WAIT_S, "two snapshots")
        with pytest.raises(DirectoryInUseError):
            ControllerStorage.open(OsFileSystem(), config)
    active = max(partition.glob("*.log")).stem
    assert (partition / f"{active}.index").stat().st_size > 1_000_000, "Java preallocates, and was killed"
    closed = {path: path.read_bytes() for path in partition.glob("*index") if path.stem != active}

    storage = ControllerStorage.open(OsFileSystem(), config)
    assert (partition / f"{active}.index").stat().st_size < 1000
    assert {path: path.read_bytes() for path in closed} == closed
    state = storage.log_state()
    assert storage.hard_state == HardState(leader_epoch=1, leader_id=3000)
    assert (state.start_offset, [entry.epoch for entry in state.epochs]) == (0, [1])
    assert state.snapshot_id is not None
    assert state.end_offset >= state.snapshot_id.offset > 0
    assert [voter.node_id for voter in state.voters[-1].voters] == [3000]
    append_as_leader(storage, epoch=5, count=500)
    end_offset = storage.log.end_offset
    refused = java("kafka.Kafka", dynamic_node)
    assert refused.returncode != 0
    files = sorted(path for path in partition.iterdir() if path.suffix in (".log", ".index", ".timeindex"))
    assert dump_problems(java, *files) == []
    crash(storage)

    with running_kafka(stock_kafka, dynamic_node) as process:
        quorum_state = partition / "quorum-state"
        eventually(
            lambda: json.loads(quorum_state.read_text())["leaderEpoch"] > 5,
            WAIT_S,
            "Java leading a later epoch",
        )
        eventually(
            lambda: (partition / "leader-epoch-checkpoint").read_text().count("\n") >= 5,
            WAIT_S,
            "its records",
        )
        eventually(
            lambda: max(partition.glob("*.checkpoint")).stem[:20] > f"{end_offset:020d}", WAIT_S, "a snapshot"
        )
        process.terminate()
        process.wait(timeout=WAIT_S)
    storage = ControllerStorage.open(OsFileSystem(), config)
    state = storage.log_state()
    assert [(entry.epoch, entry.start_offset) for entry in state.epochs][1:] == [
        (5, storage.log.epochs[1].start_offset),
        (6, end_offset),
    ]
    assert state.end_offset > end_offset
    storage.close()


def crash(storage: ControllerStorage) -> None:
    """Let go of files and locks as a killed process does: nothing is finished."""
    for lock in storage._locks:
        lock.release()


def test_static_quorum_state_has_javas_bytes(java: Java, stock_kafka: Kafka, tmp_path: Path):
    """kraft.version 0: what Java writes into quorum-state, we read, and write the same."""
    config_file = write_config(tmp_path, "controller.quorum.voters=3000@ADDRESS")
    formatted = java("kafka.tools.StorageTool", "format", "-c", config_file, "-t", CLUSTER_ID)
    assert formatted.returncode == 0, formatted.stderr
    data = tmp_path / "data"
    quorum_state = data / PARTITION / "quorum-state"
    with running_kafka(stock_kafka, config_file):
        eventually(
            lambda: quorum_state.exists() and '"leaderId":3000' in quorum_state.read_text(),
            WAIT_S,
            "a leader",
        )
    theirs = quorum_state.read_bytes()
    config = StorageConfig(node_id=3000, metadata_log_dir=data, static_voter_ids=(3000,))
    storage = ControllerStorage.open(OsFileSystem(), config)
    assert storage.hard_state == HardState(leader_epoch=1, leader_id=3000)
    os.truncate(quorum_state, 0)
    storage.save_hard_state(storage.hard_state, kraft_version=0)
    assert quorum_state.read_bytes() == theirs
    storage.close()
