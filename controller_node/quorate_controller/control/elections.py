"""Choosing partition leaders on request (ElectLeaders), and periodically."""

from collections.abc import Callable, Generator, Iterable, Iterator, Mapping
from datetime import timedelta
from itertools import islice
from typing import TYPE_CHECKING, Final

from quorate_protocol.errors import ErrorCode
from quorate_protocol.kafka.enums import ElectionType
from quorate_protocol.kafka.generated.elect_leaders_request import ElectLeadersRequest
from quorate_protocol.kafka.generated.elect_leaders_response import (
    ElectLeadersResponse,
    PartitionResult,
    ReplicaElectionResult,
)

from quorate_controller.control.api import (
    ControlError,
    ControlResult,
    RequestContext,
    may_exceed_batch,
)
from quorate_controller.control.partition_change import Election, PartitionChanges, Wanted
from quorate_controller.control.steps import ITEM, Parts, Steps, begun

if TYPE_CHECKING:
    from quorate_protocol.image import MetadataImage
    from quorate_protocol.image.index import PartitionSet
    from quorate_protocol.image.topics import PartitionKey, TopicImage
    from quorate_protocol.records.generated import PartitionChangeRecord

    from quorate_controller.control.config_changes import ConfigManager

ELECTIONS_PER_PASS_MAX: Final = 1_000
"""Kafka's MAX_ELECTIONS_PER_IMBALANCE: a pass that finds more continues in the next step."""

EXAMINED_PER_STEP_MAX: Final = 10_000
"""Partitions that one step of a pass examines, whether they can be elected or not."""

_ELECTION_TYPES: Final[Mapping[int, Election]] = {
    ElectionType.PREFERRED: Election.PREFERRED,
    ElectionType.UNCLEAN: Election.UNCLEAN,
}


class Elections:
    """Keeps partitions led, by the preferred replica if possible.

    The image's index has the partitions without a leader, and those led by another replica than the preferred
    one. The position of a periodic pass is soft state.
    """

    def __init__(self, image: "MetadataImage", configs: "ConfigManager") -> None:
        self._image = image
        self._configs = configs
        self._passes: dict[Election, Iterator[PartitionKey]] = {}
        """The rest of each pass that has begun."""

    def drop_passes(self) -> None:
        """Drop unfinished passes: this controller is not active any more."""
        self._passes.clear()

    def elect_leaders(self, request: ElectLeadersRequest, _context: RequestContext) -> ControlResult:
        """ElectLeaders 0-2: preferred or unclean election, of the requested partitions or of all.

        In a request for all, partitions that need no election are left out of the response.

        Raises:
            ControlError: INVALID_REQUEST for an unknown type, POLICY_VIOLATION for more than 10,000
                elections.
        """
        election = _ELECTION_TYPES.get(request.election_type)
        if election is None:
            raise ControlError(ErrorCode.invalid_request, f"Unknown election type {request.election_type}")
        return begun(self._electing(request, election))

    def _electing(self, request: ElectLeadersRequest, election: Election) -> Steps:
        needed = (
            self._image.index.leaderless if election is Election.UNCLEAN else self._image.index.imbalanced
        )
        candidates = len(needed)
        if candidates and request.topic_partitions is not None:  # each as often as it is named
            candidates = sum(len(topic.partitions) for topic in request.topic_partitions)
        if may_exceed_batch(candidates):
            yield from self._electing_each(request, election, Parts.checking())
        parts = Parts(atomic=False)
        results = yield from self._electing_each(request, election, parts)
        return parts.last(
            ElectLeadersResponse(
                throttle_time=timedelta(0), error_code=ErrorCode.none, replica_election_results=results
            )
        )

    def _electing_each(
        self, request: ElectLeadersRequest, election: Election, parts: Parts
    ) -> Generator[ControlResult | None, None, tuple[ReplicaElectionResult, ...]]:
        run = _Run(self._image, self._configs, election)
        results = []
        for name, partition_ids in self._asked_for(request, election):
            of_topic = []
            for partition_id in partition_ids:
                result, records = run.elect(name, partition_id)
                of_topic.append(result)
                if parts.add(records):
                    yield parts.pop()
                    run = _Run(self._image, self._configs, election)
            results.append(ReplicaElectionResult(topic=name, partition_result=tuple(of_topic)))
            if parts.add((), ITEM):
                yield parts.pop()
                run = _Run(self._image, self._configs, election)
        return tuple(results)

    def _asked_for(
        self, request: ElectLeadersRequest, election: Election
    ) -> Iterator[tuple[str, Iterable[int]]]:
        """Yield topics and partition ids. The image may change in between."""
        if request.topic_partitions is not None:
            for asked in request.topic_partitions:
                yield asked.topic, asked.partitions
            return
        index, topics = self._image.index, self._image.topics.by_name
        needed = index.leaderless if election is Election.UNCLEAN else index.imbalanced
        for name in tuple(topics):
            topic = topics.get(name)
            if topic is not None:
                yield name, sorted(needed.of_topic(topic.topic_id))

    def balance_leaders(self) -> tuple[ControlResult, bool]:
        """One step of the preferred leader pass: at most 1,000 elections among at most 10,000 partitions.

        Returns:
            the records, and whether the pass has more to do: then call again as soon as they are replayed.
        """
        brokers = self._image.cluster.brokers

        def can_lead(topic: "TopicImage", partition_id: int) -> bool:
            # An inactive preferred leader is skipped early, which keeps a pass short while a large broker is down.
            partition = topic.partitions[partition_id]
            preferred = brokers.get(partition.preferred_leader)
            return preferred is not None and preferred.is_active and preferred.broker_id in partition.isr

        return self._step(Election.PREFERRED, self._image.index.imbalanced, can_lead)

    def elect_unclean_leaders(self) -> tuple[ControlResult, bool]:
        """One step of the pass over leaderless partitions with unclean.leader.election.enable; as above."""

        enabled: dict[str, bool] = {}

        def is_enabled(topic: "TopicImage", _partition_id: int) -> bool:
            if topic.name not in enabled:
                enabled[topic.name] = self._configs.unclean_leader_election(topic.name)
            return enabled[topic.name]

        return self._step(Election.UNCLEAN, self._image.index.leaderless, is_enabled)

    def _step(
        self,
        election: Election,
        partitions: "PartitionSet",
        is_eligible: Callable[["TopicImage", int], bool],
    ) -> tuple[ControlResult, bool]:
        changes = PartitionChanges(self._image, self._configs)
        wanted = Wanted(election=election)
        keys = self._passes.pop(election, None) or iter(partitions)
        records: list[PartitionChangeRecord] = []
        examined = 0
        for topic_id, partition_id in islice(keys, EXAMINED_PER_STEP_MAX):
            examined += 1
            if (topic_id, partition_id) not in partitions:
                continue  # elected or deleted since
            topic = self._image.topics.by_id[topic_id]
            record = changes.change(topic, partition_id, wanted) if is_eligible(topic, partition_id) else None
            if record is not None:
                records.append(record)
                if len(records) == ELECTIONS_PER_PASS_MAX:
                    break
        has_more = examined == EXAMINED_PER_STEP_MAX or len(records) == ELECTIONS_PER_PASS_MAX
        if has_more:
            self._passes[election] = keys
        return ControlResult(records=tuple(records), atomic=False), has_more


class _Run:
    """The elections of one step of a request, which may list hundreds of thousands of partitions."""

    def __init__(self, image: "MetadataImage", configs: "ConfigManager", election: Election) -> None:
        self._topics = image.topics.by_name
        self._changes = PartitionChanges(image, configs)
        self._is_preferred = election is Election.PREFERRED
        self._wanted = Wanted(election=election)
        self._not_needed: dict[int, PartitionResult] = {}
        """By partition id; most partitions need no election, and the same result serves all topics."""

    def elect(
        self, name: str, partition_id: int
    ) -> "tuple[PartitionResult, tuple[PartitionChangeRecord, ...]]":
        """Elect a leader of one partition. Returns its result for the response, and the record if there is one."""
        topic = self._topics.get(name)
        if topic is None:
            return _failed(partition_id, ErrorCode.unknown_topic_or_partition, f"No such topic as {name}")
        partition = topic.partitions.get(partition_id)
        if partition is None:
            message = f"No such partition as {name}-{partition_id}"
            return _failed(partition_id, ErrorCode.unknown_topic_or_partition, message)
        if partition.has_preferred_leader if self._is_preferred else partition.has_leader:
            result = self._not_needed.get(partition_id)
            if result is None:
                result = _refusal(partition_id, ErrorCode.election_not_needed)
                self._not_needed[partition_id] = result
            return result, ()
        record = self._changes.change(topic, partition_id, self._wanted)
        if record is not None:
            return _result(partition_id, ErrorCode.none, None), (record,)
        if self._is_preferred:
            return _refusal(partition_id, ErrorCode.preferred_leader_not_available), ()
        return _refusal(partition_id, ErrorCode.eligible_leaders_not_available), ()


def _failed(partition_id: int, error_code: ErrorCode, message: str) -> tuple[PartitionResult, tuple[()]]:
    return _result(partition_id, error_code, message), ()


def _refusal(partition_id: int, error_code: ErrorCode) -> PartitionResult:
    return _result(partition_id, error_code, error_code.text)


def _result(partition_id: int, error_code: ErrorCode, message: str | None) -> PartitionResult:
    return PartitionResult(partition_id=partition_id, error_code=error_code, error_message=message)
