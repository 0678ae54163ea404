"""The tree of the metadata shell equals what Kafka's shell prints of the same files.

Recorded by `tools/capture_metadata_trees.py`.
"""

from pathlib import Path

import pytest
from quorate.tools.metadata_shell.shell_builtins import COMMANDS, ShellState
from quorate.tools.metadata_shell.sources import load_directory, load_file, visible
from quorate.tools.metadata_shell.tree import image_root

GOLDEN = Path(__file__).parent
TREES = GOLDEN / "metadata_shell"
FILES = {
    "current-log": GOLDEN / "data" / "current" / "00000000000000000000.log",
    "current-checkpoint": GOLDEN / "data" / "current" / "00000000000000000218-0000000001.checkpoint",
    "oldest-log": GOLDEN / "data" / "oldest" / "00000000000000000000.log",
    "everything": TREES / "everything.checkpoint",
}
DEFAULT_QUOTA = "  user(<default>):\n    request_percentage:\n      50.0\n"


def tree_of(path: Path, target: str = "/image") -> tuple[str, list[str]]:
    """What our `tree` prints, and what it has to say about the files."""
    loaded = load_directory(path) if path.is_dir() else load_file(path)
    state = ShellState(image_root(*visible(loaded.image), lambda: "0"))
    return "".join(f"{line}\n" for line in COMMANDS["tree"].run(state, [target])), loaded.notes


def without_provenance(tree: str) -> list[str]:
    """The lines that do not say where the log ends."""
    return [line for line in tree.splitlines() if not line.startswith("  offset ")]


@pytest.mark.parametrize("name", FILES)
def test_trees_are_kafkas(name: str) -> None:
    ours, notes = tree_of(FILES[name])
    kafkas = (TREES / f"{name}.txt").read_text()
    assert ours.replace(DEFAULT_QUOTA, "") == kafkas.replace("clientQuotas:\n  :\n", "clientQuotas:\n")
    assert (DEFAULT_QUOTA in ours) == ("\n  :\n" in kafkas)
    assert notes == []


def test_a_directory_continues_its_checkpoint_with_the_log(tmp_path: Path) -> None:
    directory = tmp_path / "__cluster_metadata-0"
    directory.mkdir()
    for file in (GOLDEN / "data" / "current").iterdir():
        (directory / file.name).write_bytes(file.read_bytes())
    trees = [tree_of(tmp_path)]
    for checkpoint in sorted(directory.glob("0*.checkpoint"), reverse=True):
        checkpoint.unlink()
        trees.append(tree_of(directory))
    assert len(trees) == 3
    assert trees.count(trees[0]) == 3
    assert "offset 254, epoch 3" in trees[0][0]


def test_a_torn_end_is_left_out_and_told(tmp_path: Path) -> None:
    log = FILES["current-log"].read_bytes()
    whole, _ = tree_of(FILES["current-log"])
    file = tmp_path / "00000000000000000000.log"
    for cut in (1, 30, 60):
        file.write_bytes(log[:-cut])
        tree, notes = tree_of(file)
        assert without_provenance(tree) == without_provenance(whole)
        assert tree != whole
        assert len(notes) == 1 or not notes  # none when the cut is between two batches
    file.write_bytes(log[:-1])
    assert "are left out" in tree_of(file)[1][0]
