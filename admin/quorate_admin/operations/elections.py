"""Elections of partition leaders (KIP-183, KIP-460)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from quorate_admin.operations.keyed import KeyedOperations, Outcome, error_of
from quorate_admin.results import Results

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence
    from datetime import timedelta

    from quorate_admin.types.elections import ElectionType
    from quorate_admin.types.partitions import TopicPartition

__all__ = ("ElectionOperations",)


class ElectionOperations(KeyedOperations):
    """Leaders of partitions; asked of the active controller, directly or through a broker."""

    async def elect_leaders(
        self,
        election_type: ElectionType,
        partitions: Iterable[TopicPartition] | None = None,
        *,
        timeout_ms: int | None = None,
    ) -> Results[TopicPartition, None]:
        """Elect leaders (ElectLeaders); no partitions: of all that need it.

        A partition that leads well already is an error ELECTION_NOT_NEEDED where it was named, and left out
        where all were meant.

        :raises AdminError: there was no answer at all, or the whole was refused.
        """
        from kio.schema.elect_leaders.v2.request import ElectLeadersRequest, TopicPartitions

        from quorate_admin.types.partitions import partitions_by_topic

        def request_for(asked: Sequence[TopicPartition] | None, timeout: timedelta) -> ElectLeadersRequest:
            topics = None
            if asked is not None:
                topics = tuple(
                    TopicPartitions(topic=topic, partitions=tuple(numbers))
                    for topic, numbers in partitions_by_topic(asked).items()
                )
            return ElectLeadersRequest(election_type=election_type, topic_partitions=topics, timeout=timeout)

        if partitions is not None:
            return await self._ask_each(partitions, request_for, _outcomes, timeout_ms=timeout_ms)
        request = request_for(None, self._server_timeout(timeout_ms))
        outcomes = list(_outcomes(await self._ask(request, timeout_ms=timeout_ms)))
        errors = {one.key: error_of(one.error_code, one.message) for one in outcomes}
        return Results(
            {key: None for key, error in errors.items() if error is None},
            {key: error for key, error in errors.items() if error is not None},
        )


def _outcomes(response: Any, _: object = None) -> Iterator[Outcome[TopicPartition, None]]:
    from quorate_admin.types.partitions import TopicPartition

    for topic in response.replica_election_results:
        for one in topic.partition_result:
            key = TopicPartition(topic.topic, one.partition_id)
            yield Outcome(key, None, one.error_code, one.error_message)
