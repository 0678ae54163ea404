"""The request to rebuild a lost quorum: which loss, and whose disk is kept."""

from typing import Annotated

from pydantic import Field

from quorate_operator.models.base import ClusterId, Model, NodeId

LEADER_EPOCH_MAX = 2**31 - 1


class Recovery(Model):
    """A request to rebuild a quorum that lost a majority of its disks. It is for one loss alone."""

    survivor: NodeId = Field(
        description="The node id of the controller whose disk is kept. What is not on that disk is lost."
    )
    cluster_id: ClusterId = Field(description="The cluster: status.clusterId.")
    leader_epoch: Annotated[int, Field(ge=0, le=LEADER_EPOCH_MAX)] = Field(
        description="The last leader epoch of the lost quorum: status.formation.leaderEpoch."
    )
