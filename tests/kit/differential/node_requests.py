"""Random requests of nodes: leaders that change ISRs, brokers and controllers that come and go."""

from typing import Any, Final
from uuid import UUID

from hypothesis import strategies as st
from kit.differential.question import At, Question, always, some
from kit.releases import RELEASE
from quorate_protocol.kafka.generated import alter_partition_request as alter_partition
from quorate_protocol.kafka.generated import broker_registration_request as broker_registration
from quorate_protocol.kafka.generated import controller_registration_request as controller_registration
from quorate_protocol.kafka.generated.allocate_producer_ids_request import AllocateProducerIdsRequest
from quorate_protocol.kafka.generated.unregister_broker_request import UnregisterBrokerRequest
from quorate_protocol.kafka.generated.unregister_controller_request import UnregisterControllerRequest
from quorate_protocol.kafka.releases import RELEASES

BROKERS: Final = (1, 2, 3)
PASSING_BROKERS: Final = (4, 5)
"""Brokers that come and go, and are always fenced."""
PASSING_CONTROLLERS: Final = (3097, 3098)
"""Controllers that are registered, and do not exist."""
_UNKNOWN_TOPIC: Final = UUID(int=9 << 64)


def features_of_release() -> dict[str, tuple[int, int]]:
    """The ranges of levels that a node of the release of this run registers with."""
    release = RELEASES[RELEASE]
    levels = {name: (0, level) for name, level in release.feature_levels.items()}
    return {**levels, "metadata.version": (7, release.metadata_version)}


def registration_of(
    cluster_id: str, broker_id: int, incarnation: int, log_dirs: tuple[UUID, ...]
) -> broker_registration.BrokerRegistrationRequest:
    """The registration of a broker of the release of this run."""
    listener = broker_registration.Listener(
        name="PLAINTEXT", host="localhost", port=9092 + broker_id, security_protocol=0
    )
    return broker_registration.BrokerRegistrationRequest(
        broker_id=broker_id,
        cluster_id=cluster_id,
        incarnation_id=UUID(int=(broker_id << 64) + incarnation),
        listeners=(listener,),
        features=tuple(
            broker_registration.Feature(name=name, min_supported_version=low, max_supported_version=high)
            for name, (low, high) in features_of_release().items()
        ),
        rack=None,
        log_dirs=log_dirs,
    )


@st.composite
def _register_broker(draw: st.DrawFn) -> Question:
    broker_id = draw(st.sampled_from(PASSING_BROKERS))
    log_dirs = (UUID(int=(broker_id << 65) + draw(st.integers(0, 1))),)
    incarnation = draw(st.integers(0, 1))

    def make(at: At) -> Any:
        return registration_of(at.cluster_id, broker_id, incarnation, log_dirs)

    return Question("BrokerRegistration", make)


@st.composite
def _unregister_broker(draw: st.DrawFn) -> Question:
    broker_id = draw(st.sampled_from((*PASSING_BROKERS, 77, -1)))
    return Question("UnregisterBroker", always(UnregisterBrokerRequest(broker_id=broker_id)))


@st.composite
def _register_controller(draw: st.DrawFn) -> Question:
    controller_id = draw(st.sampled_from(PASSING_CONTROLLERS))
    listener = controller_registration.Listener(
        name="CONTROLLER", host="localhost", port=draw(st.integers(1, 3)), security_protocol=0
    )
    request = controller_registration.ControllerRegistrationRequest(
        controller_id=controller_id,
        incarnation_id=UUID(int=controller_id),
        zk_migration_ready=False,
        listeners=(listener,),
        features=tuple(
            controller_registration.Feature(name=name, min_supported_version=low, max_supported_version=high)
            for name, (low, high) in features_of_release().items()
        ),
    )
    return Question("ControllerRegistration", always(request))


@st.composite
def _unregister_controller(draw: st.DrawFn) -> Question:
    request = UnregisterControllerRequest(controller_id=draw(st.sampled_from((*PASSING_CONTROLLERS, 77, -1))))
    return Question("UnregisterController", always(request))


@st.composite
def _producer_ids(draw: st.DrawFn) -> Question:
    broker_id, is_stale = draw(st.sampled_from((*BROKERS, 9))), draw(st.sampled_from([False, False, True]))

    def make(at: At) -> Any:
        epoch = at.epochs.get(broker_id, 0) + is_stale
        return AllocateProducerIdsRequest(broker_id=broker_id, broker_epoch=epoch)

    return Question("AllocateProducerIds", make)


@st.composite
def _alter_partition(draw: st.DrawFn) -> Question:
    topic = draw(st.sampled_from(("given-a", "given-b", "given.c", "absent")))
    index = draw(st.sampled_from([0, 0, 0, 1, 2]))
    isr = draw(some(st.sampled_from(BROKERS)).map(lambda ids: tuple(dict.fromkeys(ids))))
    keeps_leader = draw(st.sampled_from([True, True, True, False]))
    sender = draw(st.sampled_from([None, None, None, None, *BROKERS]))
    late = [draw(st.sampled_from([0] * 8 + [-1, 1])) for _ in range(4)]
    recovery = draw(st.sampled_from([0, 0, 0, 0, 1]))

    def make(at: At) -> Any:
        partition = at.partition(topic, index)
        leader = partition.leader if partition is not None and partition.leader >= 0 else BROKERS[0]
        broker_id = leader if sender is None else sender
        members = tuple(dict.fromkeys((leader, *isr))) if keeps_leader else isr
        data = alter_partition.PartitionData(
            partition_index=index,
            leader_epoch=(partition.leader_epoch if partition is not None else 0) + late[0],
            new_isr_with_epochs=tuple(
                alter_partition.BrokerState(broker_id=member, broker_epoch=at.epochs.get(member, 0) + late[1])
                for member in members
            ),
            leader_recovery_state=recovery,
            partition_epoch=(partition.partition_epoch if partition is not None else 0) + late[2],
        )
        return alter_partition.AlterPartitionRequest(
            broker_id=broker_id,
            broker_epoch=at.epochs.get(broker_id, 0) + late[3],
            topics=(
                alter_partition.TopicData(
                    topic_id=at.topic_ids.get(topic, _UNKNOWN_TOPIC), partitions=(data,)
                ),
            ),
        )

    return Question("AlterPartition", make)


REQUESTS: Final = (
    *(_alter_partition(), _alter_partition(), _producer_ids()),
    *(_register_broker(), _unregister_broker(), _register_controller(), _unregister_controller()),
)
"""What nodes ask for, one of each kind and two changes of ISRs."""
