"""Raising kraft.version from 0 to 1: from here on the voters are in the log (KIP-853)."""

from typing import TYPE_CHECKING

from kio.schema.errors import ErrorCode
from quorate_protocol.errors import ProtocolError

from quorate_controller.raft.records import kraft_version_record
from quorate_controller.raft.roles.leader import Leader

if TYPE_CHECKING:
    from quorate_protocol.records.control import ControlRecord

    from quorate_controller.raft.replica import Replica


def upgrade_kraft_version(replica: "Replica", kraft_version: int, *, validate_only: bool) -> int | None:
    """Append the new level, and the voters as their UpdateRaftVoter requests describe them.

    Returns the offset of the last record; None when there is nothing to append, or with `validate_only`.

    Raises:
        ProtocolError: NOT_LEADER_OR_FOLLOWER; INVALID_UPDATE_VERSION with the reason.
    """
    leader = replica.state
    if not isinstance(leader, Leader):
        raise ProtocolError(ErrorCode.not_leader_or_follower, "this replica is not the current leader")
    current = replica.history.kraft_version
    if kraft_version == current:
        return None
    how = f"Invalid upgrade of kraft.version from version {current} to {kraft_version}"
    if kraft_version < current:
        raise ProtocolError(ErrorCode.invalid_update_version, f"{how} because the new version is a downgrade")
    voters = leader.volatile_voters
    if voters is None or not voters.supports(kraft_version):
        raise ProtocolError(
            ErrorCode.invalid_update_version, f"{how} because not all of the voters support it"
        )
    assert voters.ids == replica.voters.ids, "static voters do not change"
    unknown = [voter.node_id for voter in voters if voter.key.directory_id is None]
    if unknown:
        raise ProtocolError(
            ErrorCode.invalid_update_version,
            f"{how} because the directory ids of voters {unknown} are not known",
        )
    if validate_only:
        return None
    records: list[ControlRecord] = [kraft_version_record(kraft_version)]
    if voters != replica.voters:
        records.append(voters.to_record())
    return replica.append_control(records)
