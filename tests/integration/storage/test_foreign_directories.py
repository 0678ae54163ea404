"""Directories that one program formatted and another one starts: what the new cluster begins with.

docs/compatibility.md has the result as a table, and each of its cells is tried here.
"""

import asyncio
import re
import shutil
import subprocess
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest
from kit.kafka import stock_kafka_of
from kit.metadata import end_offset, image_of
from kit.one_controller import NODE_ID, free_address, java_command, quorate_command, running, write_config
from kit.releases import RELEASES
from kit.waiting import eventually
from quorate_admin.config import AdminConfig
from quorate_admin.errors import AdminError
from quorate_admin.metadata_log import load_live_image
from quorate_admin.sync import SyncAdminClient
from quorate_controller.directories.scram import parse_scram_users
from quorate_protocol.features import (
    METADATA_VERSION,
    default_levels,
    metadata_version_name,
    metadata_version_named,
)
from quorate_protocol.image import MetadataImage
from quorate_protocol.image.security import ScramCredential
from quorate_protocol.kafka.metadata_log import METADATA_DIRECTORY

pytestmark = pytest.mark.integration

PAGE = Path(__file__).parents[3] / "docs" / "compatibility.md"
HEADING = "## Formatted by, started by"
QUORATE = "Quorate"
CLUSTER_ID = "MkU3OEVBNTcwNTJENDM2Qg"
ALICE = 'SCRAM-SHA-512=[name=alice,password=secret,iterations=8192,salt="c2FsdCBvZiBhbGljZQ=="]'
FEATURES = {"transaction.version": 1}
"""Not the default of a level: a default could have come from the program that starts."""
QUORUMS = {
    "static": ("controller.quorum.voters=3000@ADDRESS", ()),
    "dynamic": ("controller.quorum.bootstrap.servers=ADDRESS", ("--standalone",)),
}
WAIT_S = 90
LOOK_MS = 5_000
BEGUN_AT = 12
"""Behind the leader's control records and the transaction with levels and user."""

KEPT = "kept"


@dataclass(frozen=True, slots=True)
class Formatting:
    """The formatting tool, and the release whose level it uses."""

    by: str
    release: str

    @property
    def title(self) -> str:
        """The first column of the table."""
        return f"{program(self.by)}, `--release-version {self.release}`"


def program(name: str) -> str:
    """The title of a program."""
    return name if name == QUORATE else f"Kafka {name}"


FORMATTINGS = [
    Formatting(by, release.rpartition(".")[0])
    for by in (*RELEASES, QUORATE)
    for release in RELEASES
    if by == QUORATE or RELEASES.index(release) <= RELEASES.index(by)
]
STARTERS = (*RELEASES, QUORATE)


def command_of(name: str, command: str, *arguments: object) -> list[str]:
    """The command of a program that formats a node, or runs it; Kafka's name for it may be another."""
    if name == QUORATE:
        return quorate_command("controller", command, *arguments)
    if command == "format":
        return java_command(stock_kafka_of(name), "kafka.tools.StorageTool", "format", *arguments)
    return java_command(stock_kafka_of(name), "kafka.Kafka", *arguments[1:])


def cells_of(page: Path) -> dict[str, list[str]]:
    """The table of the page: the cells behind the first one of each row."""
    section = page.read_text().partition(f"\n{HEADING}\n")[2].partition("\n## ")[0]
    rows = [line.strip("| ").split(" | ") for line in section.splitlines() if line.startswith("| ")]
    return {title: cells for title, *cells in rows}


@dataclass(frozen=True, slots=True)
class Formatted:
    """A formatted directory, and where its controller has to listen: the voters of a dynamic quorum name it."""

    directory: Path
    address: str


Format = Callable[[str, Formatting], Formatted]


@pytest.fixture(scope="module")
def formatted(tmp_path_factory: pytest.TempPathFactory) -> Format:
    """`formatted(quorum, formatting)`: a directory that is made once and must be copied."""
    done: dict[tuple[str, Formatting], Formatted] = {}

    def make(quorum: str, formatting: Formatting) -> Formatted:
        if (quorum, formatting) not in done:
            place = tmp_path_factory.mktemp("formatted")
            line, options = QUORUMS[quorum]
            address = free_address()
            config = write_config(place, line, address=address)
            levels = [f"--feature={name}={level}" for name, level in FEATURES.items()]
            arguments = ["--config", config, "--cluster-id", CLUSTER_ID, "--add-scram", ALICE, *levels]
            arguments += ["--release-version", formatting.release, *options]
            command = command_of(formatting.by, "format", *arguments)
            ran = subprocess.run(command, capture_output=True, text=True, timeout=WAIT_S, check=False)
            assert ran.returncode == 0, ran.stdout + ran.stderr
            done[quorum, formatting] = Formatted(place / "data", address)
        return done[quorum, formatting]

    return make


def begun_with(command: list[str], address: str, log: Path) -> MetadataImage | str:
    """What a node that follows the log of this controller learns, or the message with which the controller ended."""
    config = AdminConfig.from_properties({}, bootstrap_controllers=[address])

    with running(command, log) as process:

        def observed() -> MetadataImage | str | None:
            if process.poll() is not None:
                text = log.read_text(errors="replace")
                found = re.search(r"(?:^error|Exception): (.+)$", text, re.MULTILINE)
                return found[1] if found else text
            try:
                image = asyncio.run(load_live_image(config, timeout_ms=LOOK_MS))
            except AdminError as error:
                raise ConnectionError(str(error)) from error
            return image if image.metadata_version else None

        return eventually(observed, WAIT_S, "the first records of the log", lambda: log.read_text()[-2000:])


def judged(found: MetadataImage | str, formatting: Formatting) -> str:
    """The cell of the table."""
    if isinstance(found, str):
        return f"refused: `{found}`"
    level = metadata_version_named(formatting.release)
    (alice,) = parse_scram_users([ALICE], generate_salt=bytes)
    wanted = {METADATA_VERSION: level, **default_levels(level), **FEATURES}
    users = {(alice.mechanism, alice.name): ScramCredential.from_record(alice)}
    if dict(found.features) == wanted and dict(found.scram) == users:
        return KEPT
    others = len(found.features) - 1
    return (
        f"lost: {METADATA_VERSION} {metadata_version_name(found.metadata_version)}, {others or 'no'} other features, "
        f"{len(found.scram) or 'no'} users"
    )


@pytest.mark.parametrize("starter", STARTERS)
@pytest.mark.parametrize(
    "formatting", FORMATTINGS, ids=lambda formatting: f"{formatting.by}-at-{formatting.release}"
)
@pytest.mark.parametrize("quorum", QUORUMS)
def test_what_was_formatted_is_what_the_cluster_begins_with(
    formatted: Format, quorum: str, formatting: Formatting, starter: str, tmp_path: Path
) -> None:
    """Level, features and user are kept, and where Kafka itself can't, docs say what becomes of them."""
    made = formatted(quorum, formatting)
    shutil.copytree(made.directory, tmp_path / "data")
    config = write_config(tmp_path, QUORUMS[quorum][0], address=made.address)
    command = command_of(starter, "run", "--config", config)
    cell = judged(begun_with(command, made.address, tmp_path / "controller.log"), formatting)
    is_older = starter != QUORATE and metadata_version_named(starter) < metadata_version_named(
        formatting.release if formatting.by == QUORATE else formatting.by
    )
    if not is_older:
        assert cell == KEPT
    documented = cells_of(PAGE)[formatting.title]
    assert documented[STARTERS.index(starter)] == cell, f"{formatting.title} started by {program(starter)}"


def followed_by(observer_id: int, address: str) -> bool:
    """Whether an observer has all that is committed, and the bootstrap records are."""
    try:
        with SyncAdminClient(bootstrap_controllers=[address]) as admin:
            quorum = admin.describe_metadata_quorum(timeout_ms=LOOK_MS)
    except AdminError as error:
        raise ConnectionError(str(error)) from error
    ends = {observer.node_id: observer.log_end_offset for observer in quorum.observers}
    return BEGUN_AT <= quorum.high_watermark <= ends.get(observer_id, -1)


@pytest.mark.parametrize(("formatter", "starter"), [(RELEASES[-1], QUORATE), (QUORATE, RELEASES[-1])])
def test_one_that_joins_later_follows_whatever_formatted_it(
    formatted: Format, formatter: str, starter: str, tmp_path: Path
) -> None:
    """Bootstrap records of a follower have no effect, and nothing in its directory keeps it from following."""
    made = formatted("dynamic", Formatting(QUORATE, "4.3"))
    shutil.copytree(made.directory, tmp_path / "leader")
    line = f"controller.quorum.bootstrap.servers={made.address}"
    leader = write_config(tmp_path, line, data="leader", address=made.address)
    joiner = write_config(tmp_path, line, data="joiner", node_id=NODE_ID + 1)
    arguments = ["--config", joiner, "--cluster-id", CLUSTER_ID, "--no-initial-controllers"]
    subprocess.run(
        command_of(formatter, "format", *arguments, "--release-version", "4.1"), check=True, timeout=WAIT_S
    )
    with (
        running(command_of(QUORATE, "run", "--config", leader), tmp_path / "leader.log"),
        running(command_of(starter, "run", "--config", joiner), tmp_path / "joiner.log"),
    ):
        eventually(
            lambda: followed_by(NODE_ID + 1, made.address),
            WAIT_S,
            "a follower that has the features",
            lambda: (tmp_path / "joiner.log").read_text()[-2000:],
        )
    partition = tmp_path / "joiner" / METADATA_DIRECTORY
    followed = image_of(partition, end_offset(partition)).features
    level = metadata_version_named("4.3")
    assert dict(followed) == {METADATA_VERSION: level, **default_levels(level), **FEATURES}


def test_the_page_has_the_whole_table() -> None:
    titles = cells_of(PAGE)
    assert list(titles) == ["formatted by", *(formatting.title for formatting in FORMATTINGS)]
    assert titles["formatted by"] == [f"started by {program(starter)}" for starter in STARTERS]
