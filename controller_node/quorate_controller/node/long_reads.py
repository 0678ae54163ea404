"""Reads and decisions that take longer than a turn should: each turn does a slice, with events of others in between.

A step of a decision may end with a part of it, which the node writes before the next step (`control/steps.py`).

Each slice goes to the next client: a client with many long requests delays those of others by one slice of its own.
Reads count as one client, because only one of them is under way: its response is in memory until its end.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final

from quorate_protocol.errors import ErrorCode
from quorate_protocol.kafka.generated.alter_partition_request import AlterPartitionRequest
from quorate_protocol.kafka.generated.assign_replicas_to_dirs_request import AssignReplicasToDirsRequest
from quorate_protocol.kafka.generated.create_acls_request import CreateAclsRequest
from quorate_protocol.kafka.generated.delete_acls_request import DeleteAclsRequest
from quorate_protocol.kafka.generated.describe_acls_request import DescribeAclsRequest
from quorate_protocol.kafka.generated.describe_client_quotas_request import DescribeClientQuotasRequest
from quorate_protocol.kafka.generated.describe_configs_request import DescribeConfigsRequest
from quorate_protocol.kafka.generated.describe_delegation_token_request import DescribeDelegationTokenRequest
from quorate_protocol.kafka.generated.describe_topic_partitions_request import DescribeTopicPartitionsRequest
from quorate_protocol.kafka.generated.describe_user_scram_credentials_request import (
    DescribeUserScramCredentialsRequest,
)
from quorate_protocol.kafka.generated.list_partition_reassignments_request import (
    ListPartitionReassignmentsRequest,
)
from quorate_protocol.plain_data import dataclass

from quorate_controller.control.api import ControlError
from quorate_controller.node.fair_queue import FairQueue
from quorate_controller.node.slices import STEPS_PER_SLICE_MAX

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Hashable, Iterator

    from quorate_protocol.kafka.apis import Payload

    from quorate_controller.control.api import ControlResult
    from quorate_controller.node.events import Asker

READ_SLICE_MS: Final = 5
"""The time that a turn spends on all long reads."""

LARGE_OF_NODES: Final = frozenset(
    kind.__name__ for kind in (AlterPartitionRequest, AssignReplicasToDirsRequest)
)
"""Requests of brokers that may take several turns."""

READS: Final = frozenset(
    kind.__name__
    for kind in (
        CreateAclsRequest,
        DeleteAclsRequest,
        DescribeAclsRequest,
        DescribeClientQuotasRequest,
        DescribeConfigsRequest,
        DescribeDelegationTokenRequest,
        DescribeTopicPartitionsRequest,
        DescribeUserScramCredentialsRequest,
        ListPartitionReassignmentsRequest,
    )
)
"""Requests that the driver holds back while one of them is under way (`scheduler.LONG_READS`). Decisions that have
begun do not hold them back: there may always be some.
"""

_NODES: Final = "nodes"
"""The client that the reports of brokers count as: it is always next."""
_READS: Final = "reads"
"""The client that all reads count as."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LongRead:
    """A read whose response is not found yet; after `asker.deadline_ms` (Unix time) nobody waits for it."""

    token: int
    request: str
    """The name of the request's class."""
    steps: Generator[ControlResult | None, None, Payload | ControlResult]
    asker: Asker
    client: Hashable
    """See `Caller.client`."""
    has_written: bool = False
    """A part of it is written. It goes on to its end then, since a half of it would be left behind."""


@dataclass(frozen=True, slots=True)
class Part:
    """A part of a decision that is to be written now; more follows."""

    result: ControlResult


class LongReads:
    """Reads and decisions under way, those of brokers first, then one client after the other."""

    def __init__(self, clock: Callable[[], int]) -> None:
        self._clock = clock
        self._waiting: FairQueue[LongRead] = FairQueue()

    def __bool__(self) -> bool:
        return bool(self._waiting)

    @property
    def has_reads(self) -> bool:
        """Whether one of READS is under way."""
        return _READS in self._waiting

    def begin(self, read: LongRead) -> None:
        """Add a read behind those of the same client."""
        self._waiting.append(_client_of(read), read)

    def run_slice(self, now_ms: int) -> Iterator[tuple[LongRead, Part | Payload | ControlResult | Exception]]:
        """Go on with the reads for a while.

        Yields those that are done, with the response or what went wrong, and at last a part that is to be written.
        """
        if not self._waiting:
            return
        ends_ms = self._clock() + READ_SLICE_MS
        while self._waiting:
            client, read = self._waiting.take(preferred=_NODES)
            outcome = self._read_on(read, now_ms)
            if isinstance(outcome, Part):
                self._waiting.put_back(client, replace(read, has_written=True))
                yield read, outcome
                return
            if outcome is None:
                self._waiting.put_back(client, read)
                return
            yield read, outcome
            if self._clock() >= ends_ms:
                return

    def _read_on(self, read: LongRead, now_ms: int) -> Part | Payload | ControlResult | Exception | None:
        """Do the next steps, until one ends READ_SLICE_MS after the first began, or with a part."""
        if now_ms > read.asker.deadline_ms and not read.has_written:
            return ControlError(ErrorCode.request_timed_out)
        begun_ms = self._clock()
        try:
            for _ in range(STEPS_PER_SLICE_MAX):
                result = next(read.steps)
                if result is not None:
                    return Part(result)
                if self._clock() - begun_ms >= READ_SLICE_MS:
                    break
        except StopIteration as ended:
            outcome: Payload | ControlResult = ended.value
            return outcome
        except Exception as error:
            return error
        return None

    def give_up(self, read: LongRead) -> bool:
        """End a read before its time. Returns False if it has ended since."""
        return self._waiting.remove(_client_of(read), lambda waiting: waiting.token == read.token)

    def take_all(self) -> list[int]:
        """Give up all reads. Returns their tokens."""
        return [read.token for read in self._waiting.take_all()]


def _client_of(read: LongRead) -> Hashable:
    if read.request in LARGE_OF_NODES:
        return _NODES
    return _READS if read.request in READS else read.client
