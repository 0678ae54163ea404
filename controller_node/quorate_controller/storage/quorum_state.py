"""`quorum-state`: the hard state of a raft replica, as one line of JSON.

data_version 0 belongs to kraft.version 0 (static voters, only node ids), 1 to kraft.version 1 (directory ids).
The field names are those of QuorumStateData in Kafka's raft module.
"""

import json
from collections.abc import Iterable
from pathlib import Path

from quorate_protocol.uuids import ZERO_UUID_TEXT, uuid_from_text, uuid_to_text

from quorate_controller.raft.model import EPOCH_MAX, NO_NODE_ID, ReplicaKey
from quorate_controller.raft.startup import KRAFT_VERSION_STATIC, HardState
from quorate_controller.storage.errors import CorruptFileError
from quorate_controller.storage.filesystem import FileSystem, write_atomically

QUORUM_STATE = "quorum-state"
_FILE_BYTES_MAX = 1024 * 1024
_VERSION_MAX = 1


class QuorumStateFile:
    """The file in the partition's directory."""

    def __init__(self, file_system: FileSystem, path: Path) -> None:
        self._file_system = file_system
        self._path = path

    def read(self) -> HardState | None:
        """The last saved state, or None. Raises CorruptFileError if it can't be parsed."""
        if not self._file_system.exists(self._path):
            return None
        content = self._file_system.read_file(self._path, _FILE_BYTES_MAX)
        try:
            return _parse(json.loads(content))
        except (ValueError, KeyError, TypeError, RecursionError) as error:
            raise CorruptFileError(
                self._path,
                f"is not a quorum state of version 0 or 1 ({error})",
                advice="Without it this node may vote twice in one epoch. If the other voters are healthy, "
                "remove this node from the voter set, format an empty directory and add it again",
            ) from error

    def write(self, state: HardState, *, kraft_version: int, voter_ids: Iterable[int] = ()) -> None:
        """Save durably. Only data_version 0 has `voter_ids`."""
        voted_id = NO_NODE_ID if state.voted_key is None else state.voted_key.node_id
        fields: dict[str, object]
        if kraft_version == KRAFT_VERSION_STATIC:
            fields = {
                "clusterId": "",
                "leaderId": state.leader_id,
                "leaderEpoch": state.leader_epoch,
                "votedId": voted_id,
                "appliedOffset": 0,
                "currentVoters": [{"voterId": node_id} for node_id in sorted(voter_ids)],
                "data_version": 0,
            }
        else:
            directory_id = None if state.voted_key is None else state.voted_key.directory_id
            fields = {
                "leaderId": state.leader_id,
                "leaderEpoch": state.leader_epoch,
                "votedId": voted_id,
                "votedDirectoryId": ZERO_UUID_TEXT if directory_id is None else uuid_to_text(directory_id),
                "data_version": 1,
            }
        content = json.dumps(fields, separators=(",", ":"))
        write_atomically(self._file_system, self._path, content.encode())


def _parse(fields: object) -> HardState:
    if not isinstance(fields, dict):
        raise TypeError("not a JSON object")
    version = _number(fields, "data_version")
    if not 0 <= version <= _VERSION_MAX:
        raise ValueError(f"data_version {version}")
    voted_id = _number(fields, "votedId")
    directory_id = None
    if version > 0 and fields["votedDirectoryId"] != ZERO_UUID_TEXT:
        directory_id = uuid_from_text(str(fields["votedDirectoryId"]))
    return HardState(
        leader_epoch=_number(fields, "leaderEpoch", minimum=0),
        leader_id=_number(fields, "leaderId"),
        voted_key=None if voted_id == NO_NODE_ID else ReplicaKey(node_id=voted_id, directory_id=directory_id),
    )


def _number(fields: dict[str, object], name: str, *, minimum: int = NO_NODE_ID) -> int:
    value = fields[name]
    if not isinstance(value, int) or isinstance(value, bool):
        raise TypeError(f"{name} is not a number: {value!r}")
    if not minimum <= value <= EPOCH_MAX:  # ids are of the same type
        raise ValueError(f"{name} is {value}; {minimum} to {EPOCH_MAX} is allowed")
    return value
