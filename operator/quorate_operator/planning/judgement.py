"""The judgement that doctor and operator share (`quorate_admin.diagnosis.ClusterFacts`), of what was observed."""

from quorate_admin.diagnosis import ClusterFacts, JudgedReplica, NodeKind, RegisteredNode
from quorate_protocol.features import KRAFT_VERSION

from quorate_operator.planning.cluster import ObservedCluster, ObservedRegistration, ObservedVoter

NOTHING_KNOWN = ClusterFacts()


def judge(observed: ObservedCluster) -> ClusterFacts:
    """Returns what holds for the cluster. Observers leave out brokers, so that only controllers can be judged."""
    if observed.kafka is None:
        return NOTHING_KNOWN
    quorum = observed.kafka.quorum
    return ClusterFacts(
        leader_id=quorum.leader_id,
        voters=tuple(_replica(one) for _, one in sorted(quorum.voters.items())),
        observers=tuple(_replica(one) for one in quorum.observers),
        registrations=tuple(_registered(one) for _, one in sorted(observed.kafka.registrations.items())),
        finalized={**observed.kafka.features, KRAFT_VERSION: quorum.kraft_version},
    )


def _replica(one: ObservedVoter) -> JudgedReplica:
    return JudgedReplica(node_id=one.node_id, follows=one.follows, caught_up=one.caught_up)


def _registered(one: ObservedRegistration) -> RegisteredNode:
    return RegisteredNode(
        kind=NodeKind(one.role.value),
        node_id=one.node_id,
        endpoints=tuple((address.host, address.port) for address in one.endpoints.values()),
        features=one.features,
        fenced=one.fenced,
    )
