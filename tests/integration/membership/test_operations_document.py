"""docs/operations/by-hand.md: every command line of it is run here, in the situation that the page describes."""

import shutil
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path

import pytest
from kit.cluster import manifests
from kit.document import run_block, shell_blocks
from kit.membership import Membership, refused, succeeded
from kit.waiting import eventually

pytestmark = pytest.mark.integration

PAGE = Path(__file__).parents[3] / "docs" / "operations" / "by-hand.md"
THREE = (3000, 3001, 3002)
NEW = 3003
GHOST = 3099
GHOSTS = "Ghost registrations"
REPEAT_TIMEOUT_S = 30


@pytest.fixture
def found(tmp_path: Path) -> Iterator[Callable[..., Membership]]:
    """Make a running quorum of three of ours, with a place for a fourth controller; closes it in the end."""
    made = []

    def make(**options: object) -> Membership:
        manifest = manifests(brokers=0, **options)
        cluster = Membership.found(tmp_path / "cluster", None, manifest, founders=len(THREE))
        made.append(cluster)
        return cluster.start_founders()

    try:
        yield make
    finally:
        for cluster in made:
            cluster.close()


def is_done(block: str, variables: Mapping[str, str]) -> bool:
    """Whether a block could be run to its end."""
    return run_block(block, variables).returncode == 0


def follow(
    cluster: Membership,
    title: str,
    node_id: int | None = None,
    directory_id: str = "",
    after: Mapping[str, Callable[[], None]] | None = None,
) -> list[str]:
    """Do what stands below a title; what each block printed. `after`: what is done after a block with a text."""
    printed = []
    for block in shell_blocks(PAGE)[title]:
        if block.startswith("quorate controller run"):
            assert block == 'quorate controller run --config "$CONFIG"'
            assert node_id is not None
            cluster.start(node_id)  # with this command, in the background
            cluster.await_observer(node_id)
            continue
        variables = {
            "CONTROLLERS": cluster.asks(),
            "NODE": str(node_id),
            "CONFIG": str(cluster.config_file(node_id)) if node_id in cluster.controllers else "",
            "DIRECTORY_ID": directory_id,
        }
        if "kraft.version=1" in block:  # "look who does not run, and repeat"
            eventually(partial(is_done, block, variables), REPEAT_TIMEOUT_S, "all voters to be heard")
            output = ""
        else:
            ran = run_block(block, variables)
            is_ill = title == GHOSTS and block.startswith("quorate doctor")
            output = refused(ran) if is_ill else succeeded(ran)
        printed.append(output)
        for text, wait in (after or {}).items():
            if text in block:
                wait()
    return printed


def test_every_title_with_commands_is_followed_here() -> None:
    source = Path(__file__).read_text()
    assert [title for title in shell_blocks(PAGE) if f'"{title}"' not in source] == []


def test_controllers_come_and_go_as_the_page_says(found: Callable[..., Membership]) -> None:
    """Look, add, replace a lost disk, remove and unregister."""
    cluster = found(controllers=4, metadata_version="4.4")
    status, *_ = follow(cluster, "Check the quorum")
    assert "CurrentVoters" in status
    cluster.write_config(NEW)
    follow(cluster, "Add a controller", NEW)
    cluster.await_voters(*THREE, NEW)

    lost = cluster.directory_id(NEW)
    cluster.kill(NEW)
    shutil.rmtree(cluster.data(NEW))
    follow(cluster, "Replace a lost disk", NEW, lost)
    cluster.await_voters(*THREE, NEW)
    assert cluster.directory_id(NEW) != lost

    follow(
        cluster,
        "Remove a controller",
        NEW,
        cluster.directory_id(NEW),
        after={"remove-controller": lambda: cluster.terminate(NEW)},
    )
    cluster.await_voters(*THREE)


def test_a_static_quorum_becomes_dynamic_as_the_page_says(found: Callable[..., Membership]) -> None:
    cluster = found(quorum="static", metadata_version="4.3")

    def restart() -> None:
        leader = cluster.await_leader()
        for node_id in sorted(THREE, key=lambda candidate: candidate == leader):
            cluster.forget_static_voters(node_id)
            cluster.await_voters(*THREE)

    *_, status = follow(cluster, "From static to dynamic voters", after={"kraft.version=1": restart})
    assert all(cluster.directory_id(node_id) in status for node_id in THREE)


def test_a_ghost_goes_as_the_page_says(found: Callable[..., Membership]) -> None:
    cluster = found(metadata_version="4.1")
    cluster.leave_ghost(GHOST)
    found_out, *_, upgraded = follow(cluster, GHOSTS, GHOST)
    assert str(GHOST) in found_out
    assert "metadata.version was upgraded to 30" in upgraded
