"""quorum-state: Kafka's bytes in both versions, and what is refused."""

import json
from pathlib import Path
from uuid import UUID

import pytest
from quorate_controller.raft.model import ReplicaKey
from quorate_controller.raft.startup import HardState
from quorate_controller.storage.errors import CorruptFileError
from quorate_controller.storage.os_filesystem import OsFileSystem
from quorate_controller.storage.quorum_state import QuorumStateFile

DIRECTORY_ID = UUID("18c84144-6502-49a8-9f28-cc7613f0f26e")


def test_version_1_has_kafkas_bytes(os_files: OsFileSystem, tmp_path: Path):
    """Write and compare with what a Java controller of 4.3.1 wrote; read it back."""
    path = tmp_path / "quorum-state"
    file = QuorumStateFile(os_files, path)
    assert file.read() is None
    file.write(HardState(leader_epoch=1, leader_id=3000), kraft_version=1)
    assert path.read_text() == (
        '{"leaderId":3000,"leaderEpoch":1,"votedId":-1,"votedDirectoryId":"AAAAAAAAAAAAAAAAAAAAAA",'
        '"data_version":1}'
    )
    voted = HardState(leader_epoch=7, voted_key=ReplicaKey(node_id=2, directory_id=DIRECTORY_ID))
    file.write(voted, kraft_version=1)
    assert json.loads(path.read_text())["votedDirectoryId"] == "GMhBRGUCSaifKMx2E_Dybg"
    assert file.read() == voted
    assert [entry.name for entry in tmp_path.iterdir()] == ["quorum-state"]


def test_version_0_has_kafkas_bytes(os_files: OsFileSystem, tmp_path: Path):
    """Write for a static quorum: ids only; the directory id of a vote is not kept, as in Kafka."""
    path = tmp_path / "quorum-state"
    file = QuorumStateFile(os_files, path)
    vote = HardState(leader_epoch=7, voted_key=ReplicaKey(node_id=2, directory_id=DIRECTORY_ID))
    file.write(vote, kraft_version=0, voter_ids=(3, 1, 2))
    assert path.read_text() == (
        '{"clusterId":"","leaderId":-1,"leaderEpoch":7,"votedId":2,"appliedOffset":0,'
        '"currentVoters":[{"voterId":1},{"voterId":2},{"voterId":3}],"data_version":0}'
    )
    assert file.read() == HardState(leader_epoch=7, voted_key=ReplicaKey(node_id=2))


@pytest.mark.parametrize(
    "content",
    [
        "",
        "[]",
        "{}",
        "[" * 50_000,
        '{"leaderId":1',
        '{"leaderId":1,"leaderEpoch":1,"votedId":-1,"votedDirectoryId":"AAAAAAAAAAAAAAAAAAAAAA","data_version":2}',
        '{"leaderId":1,"leaderEpoch":-1,"votedId":-1,"votedDirectoryId":"AAAAAAAAAAAAAAAAAAAAAA","data_version":1}',
        '{"leaderId":1,"leaderEpoch":2147483648,"votedId":-1,"votedDirectoryId":"AAAAAAAAAAAAAAAAAAAAAA","data_version":1}',
        '{"leaderId":-2,"leaderEpoch":1,"votedId":-1,"votedDirectoryId":"AAAAAAAAAAAAAAAAAAAAAA","data_version":1}',
        '{"leaderId":1,"leaderEpoch":"1","votedId":-1,"votedDirectoryId":"AAAAAAAAAAAAAAAAAAAAAA","data_version":1}',
        '{"leaderId":1,"leaderEpoch":1,"votedId":-1,"votedDirectoryId":"A","data_version":1}',
    ],
)
def test_damaged_state_is_refused(os_files: OsFileSystem, tmp_path: Path, content: str):
    """A vote must not be forgotten: the error names the file and has advice."""
    path = tmp_path / "quorum-state"
    path.write_text(content)
    with pytest.raises(CorruptFileError, match=r"quorum-state: is not a quorum state.*remove this node"):
        QuorumStateFile(os_files, path).read()
