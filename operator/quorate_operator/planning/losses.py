"""What was lost for good: volumes of machines that are gone, and a majority of a quorum's disks."""

from typing import NamedTuple


class RecoveryRequest(NamedTuple):
    """A request to rebuild a lost quorum. It is for one loss: that of this cluster, with this last leader epoch."""

    survivor: int
    """The controller whose disk is kept."""
    cluster_id: str
    leader_epoch: int

    def __str__(self) -> str:
        return (
            f"{{survivor: {self.survivor}, clusterId: {self.cluster_id}, leaderEpoch: {self.leader_epoch}}}"
        )


class LostVolumes(NamedTuple):
    """Volumes that the machine which has them will not give back by itself, or of which that is unknown."""

    reason: str
    """`the Kubernetes node worker-2, which has its volume, was removed`; without `is_known`, why it is unknown."""
    since_ms: int
    is_known: bool = True
    has_pod: bool = False
    """Whether the pod is still on that machine, where its process may run."""
