"""A client that makes a topic of many partitions, lets it grow and deletes it, again and again."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Any, Final

from kit.simulator.clients import active_node_id
from kit.simulator.coverage import Happening
from quorate_protocol.kafka.generated.create_partitions_request import (
    CreatePartitionsRequest,
    CreatePartitionsTopic,
)
from quorate_protocol.kafka.generated.create_topics_request import CreatableTopic, CreateTopicsRequest
from quorate_protocol.kafka.generated.delete_topics_request import DeleteTopicsRequest, DeleteTopicState

if TYPE_CHECKING:
    from kit.simulator.world import World

PAUSE_MS: Final = (500, 2_000)
TIMEOUT: Final = timedelta(seconds=30)
NAME: Final = "giant"
PARTITIONS_PER_REQUEST: Final = 9_000
"""Less than a controller writes for one request."""
REPLICATION_FACTOR: Final = 3


class Giant:
    """Asks for the next step by what is committed, whatever became of the step before."""

    def __init__(self, world: World, partitions: int) -> None:
        self._world = world
        self._partitions = partitions
        self._stopped = False
        world.schedule(3_000, self._work)

    def stop(self) -> None:
        """Ask for nothing more."""
        self._stopped = True

    def _work(self) -> None:
        if self._stopped:
            return
        self._world.network.ask(active_node_id(self._world), self._next_request(), lambda _: None)
        self._world.schedule(self._world.rng.randint(*PAUSE_MS), self._work)

    def _next_request(self) -> Any:
        partitions = self._world.partitions
        topic_id = next((topic_id for topic_id, name in partitions.names.items() if name == NAME), None)
        count = 0 if topic_id is None else len(partitions.keys_of(topic_id))
        wanted = min(count + PARTITIONS_PER_REQUEST, self._partitions)
        if topic_id is None:
            created = CreatableTopic(
                name=NAME,
                num_partitions=wanted,
                replication_factor=REPLICATION_FACTOR,
                assignments=(),
                configs=(),
            )
            return CreateTopicsRequest(topics=(created,), timeout=TIMEOUT)
        if count < wanted:
            grown = CreatePartitionsTopic(name=NAME, count=wanted, assignments=None)
            return CreatePartitionsRequest(topics=(grown,), timeout=TIMEOUT, validate_only=False)
        self._world.coverage.count(Happening.GIANT_TOPIC)
        deleted = DeleteTopicState(name=NAME, topic_id=None)
        return DeleteTopicsRequest(topics=(deleted,), timeout=TIMEOUT)
