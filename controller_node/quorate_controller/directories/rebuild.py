"""Makes a stopped controller the only voter of its quorum, after the permanent loss of a majority of disks.

Kafka has no tool for it: RemoveRaftVoter (KIP-853) needs the lost majority. The last VotersRecord of the log,
committed or not, decides the voters, so a VotersRecord with this controller alone is appended to its log. That
commits its whole log; records that only the others had are lost.
"""

from uuid import UUID

from quorate_protocol.kafka.metadata_log import METADATA_DIRECTORY
from quorate_protocol.plain_data import dataclass
from quorate_protocol.records.control import encode_control_batch

from quorate_controller.config import ControllerConfig
from quorate_controller.directories.format import SUPPORTED_KRAFT_VERSIONS
from quorate_controller.raft.model import Endpoint, ReplicaKey, Voter
from quorate_controller.raft.startup import KRAFT_VERSION_DYNAMIC, HardState
from quorate_controller.raft.voters import VoterSet
from quorate_controller.storage.controller_storage import ControllerStorage
from quorate_controller.storage.errors import StorageError
from quorate_controller.storage.filesystem import FileSystem


@dataclass(frozen=True, slots=True, kw_only=True)
class RebuiltQuorum:
    """The result of a rebuild: the former voters, and the offset of the record with the only voter."""

    node_id: int
    directory_id: UUID
    former_voters: tuple[int, ...]
    leader_epoch: int
    offset: int
    cluster_id: str
    address: str
    """`host:port` at which the other controllers and tools reach it."""

    @property
    def next_steps(self) -> tuple[str, ...]:
        """The remaining work of the administrator, in order. Without other former voters, one step."""
        tool = f"quorate metadata-quorum --bootstrap-controller {self.address}"
        start = f"Start node {self.node_id}, and wait until it leads: {tool} describe --status"
        others = ", ".join(str(node_id) for node_id in self.former_voters if node_id != self.node_id)
        if not others:
            return (start,)
        remove = (
            f"Do not start {others} with their old disks: they may have records that this quorum lacks, and could "
            "elect a leader of their own. Move their log directories away"
        )
        rejoin = (
            f"On each of them: quorate controller format --config FILE --cluster-id {self.cluster_id} "
            f"--no-initial-controllers, with {self.address} in controller.quorum.bootstrap.servers and without "
            "controller.quorum.voters. Then start it"
        )
        add = f"Add one after the other, each once it has caught up: {tool} --command-config FILE add-controller"
        return start, remove, rejoin, add


def rebuild_quorum(
    file_system: FileSystem, config: ControllerConfig, *, now_ms: int, above_epoch: int = 0
) -> RebuiltQuorum:
    """Make the controller of this configuration the only voter. Durable on return.

    Its leader epoch is above that of its disk and above `above_epoch`, the highest one that is known.

    Raises:
        StorageError: the controller runs, is not formatted, or its quorum is static. Nothing was changed.
    """
    storage = ControllerStorage.open(file_system, config.storage)
    try:
        return _rebuild(storage, config, now_ms, above_epoch)
    finally:
        storage.close()


def _rebuild(
    storage: ControllerStorage, config: ControllerConfig, now_ms: int, above_epoch: int
) -> RebuiltQuorum:
    state = storage.log_state()
    if not state.voters or not any(
        change.kraft_version >= KRAFT_VERSION_DYNAMIC for change in state.kraft_versions
    ):
        raise StorageError(
            config.storage.metadata_log_dir / METADATA_DIRECTORY,
            "has no voters: the quorum is static (kraft.version 0), or this controller was never a voter",
            advice="For a static quorum, set controller.quorum.voters to the survivor alone",
        )
    survivor = Voter(
        key=ReplicaKey(node_id=config.node_id, directory_id=storage.directory_id),
        endpoints=tuple(
            Endpoint(
                listener=advertised_listener.name,
                host=advertised_listener.host,
                port=advertised_listener.port,
            )
            for advertised_listener in config.advertised_listeners
        ),
        kraft_versions=SUPPORTED_KRAFT_VERSIONS,
    )
    # An epoch of its own: if a returning former voter had the same epoch with other records, their logs could not
    # be distinguished.
    log_epoch = state.epochs[-1].epoch if state.epochs else 0
    snapshot_epoch = state.snapshot_id.epoch if state.snapshot_id is not None else 0
    epoch = max(storage.hard_state.leader_epoch, log_epoch, snapshot_epoch, above_epoch) + 1
    # The epoch first: a log with an epoch above quorum-state would be reported as damaged.
    storage.save_hard_state(HardState(leader_epoch=epoch), kraft_version=KRAFT_VERSION_DYNAMIC)
    record = VoterSet.of((survivor,)).to_record()
    offset = state.end_offset
    storage.append(encode_control_batch([record], offset, epoch, now_ms))
    storage.flush()
    return RebuiltQuorum(
        node_id=config.node_id,
        directory_id=storage.directory_id,
        former_voters=tuple(voter.node_id for voter in state.voters[-1].voters.voters),
        leader_epoch=epoch,
        offset=offset,
        cluster_id=storage.cluster_id,
        address=f"{survivor.endpoints[0].host}:{survivor.endpoints[0].port}",
    )
