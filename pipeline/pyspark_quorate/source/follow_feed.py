"""Follows a quorum over the network, with a limit on the time without useful responses."""

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import Final, TypeVar

from quorate_admin.client import AdminClient
from quorate_admin.config import AdminConfig
from quorate_admin.errors import AdminError, ErrorCode, ServerError
from quorate_admin.metadata_log import MetadataFeed, ObservingError
from quorate_admin.types.cluster import QuorumDescription
from quorate_protocol.observer import (
    BEGINNING,
    Committed,
    Event,
    HistoryLostError,
    ObserverConfig,
    Position,
    SnapshotChunk,
)

from pyspark_quorate.source.follow import Mark

_RETRY_EVERY_MS: Final = 100
_FOLLOWING_WITHIN_MS: Final = 5_000
"""Voters that were caught up at most this long ago follow the leader that reports it."""

_Response = TypeVar("_Response")


class FollowError(Exception):
    """The quorum can't be followed; the message names the controllers and the reason."""


class QuorumFeed:
    """The events of a quorum's metadata log, one request at a time. Close it.

    Requests without a useful response are repeated, also to other controllers, for up to `default_api_timeout_ms` of
    the config since the last useful response. Then FollowError is raised.
    """

    def __init__(self, config: AdminConfig, cluster_id: str, position: Position, leader_epoch: int) -> None:
        self._config = config
        self._cluster_id = cluster_id
        self._feed = MetadataFeed(
            config, position=position, observer_config=ObserverConfig(cluster_id=cluster_id)
        )
        self._leader_epoch = max(position.epoch, leader_epoch)
        self._feed.observer.leader_epoch = self._leader_epoch
        self._runner = asyncio.Runner()
        self._unanswered_s = 0.0
        self._reasons: dict[str, str] = {}

    @property
    def position(self) -> Position:
        """The end of the returned events."""
        return self._feed.observer.position

    @property
    def is_caught_up(self) -> bool:
        """Whether the last response was from a leader without committed records after `position`."""
        return self._feed.observer.is_caught_up

    @property
    def leader_epoch(self) -> int:
        """The epoch of the leader that sent the last useful response."""
        return self._leader_epoch

    def close(self) -> None:
        """Close the connection."""
        self._runner.run(self._feed.close())
        self._runner.close()

    def exchange(self, max_wait_ms: int) -> tuple[Event, ...]:
        """The events of one request. Raises HistoryLostError, and FollowError if continuing is useless."""
        begun_s = time.monotonic()
        left_s = self._config.default_api_timeout_ms / 1000 - self._unanswered_s
        try:
            exchange = asyncio.wait_for(self._feed.exchange(max_wait_ms), left_s)
            events = self._runner.run(exchange)
        except (ObservingError, AdminError) as error:
            if isinstance(error.__cause__, HistoryLostError):
                raise error.__cause__ from None
            code = error.error_code if isinstance(error, ServerError) else None
            is_other = code is ErrorCode.inconsistent_cluster_id
            raise FollowError(
                self._other_cluster() if is_other else f"{_named(self._config)}: {error}"
            ) from error
        except TimeoutError:
            if self._is_recreated():
                raise HistoryLostError(self.position, BEGINNING) from None
            raise FollowError(self._no_records()) from None
        if self.is_caught_up or any(isinstance(event, Committed | SnapshotChunk) for event in events):
            self._unanswered_s = 0.0
            self._reasons.clear()
            self._leader_epoch = (
                self._feed.observer.leader_epoch
            )  # not epochs that other controllers only mention
        else:
            self._unanswered_s += time.monotonic() - begun_s
            self._reasons |= self._feed.failures
        return events

    def _is_recreated(self) -> bool:
        try:
            return is_led_below(fetch_quorum(self._config), self._leader_epoch)
        except FollowError:
            return False

    def _no_records(self) -> str:
        reasons = {**self._reasons, **self._feed.failures}
        details = "".join(f"; {address}: {reason}" for address, reason in sorted(reasons.items()))
        return (
            f"{_named(self._config)} returned no records of the metadata log of cluster {self._cluster_id} within "
            f"{self._config.default_api_timeout_ms} ms (default.api.timeout.ms){details}"
        )

    def _other_cluster(self) -> str:
        try:
            found = f"cluster {fetch_cluster_id(self._config)}"
        except FollowError:
            found = "another cluster"
        return (
            f"the checkpoint belongs to cluster {self._cluster_id}, but {_named(self._config)} to {found}: use "
            f"controllers of {self._cluster_id}, or another checkpointLocation"
        )


def fetch_cluster_id(config: AdminConfig) -> str:
    """The cluster id of the controllers. Raises FollowError."""

    async def ask(client: AdminClient) -> str:
        return (await client.describe_cluster()).cluster_id

    # Stock controllers require ALTER on the cluster for DescribeCluster (ControllerApis).
    return _ask(config, ask, needs="ALTER")


def fetch_quorum(config: AdminConfig) -> QuorumDescription:
    """The quorum as described by a leader with a known high watermark. Raises FollowError."""

    async def ask(client: AdminClient) -> QuorumDescription:
        while True:
            quorum = await client.describe_metadata_quorum()
            if quorum.high_watermark >= 0:
                return quorum
            await asyncio.sleep(_RETRY_EVERY_MS / 1000)

    return _ask(config, ask, needs="DESCRIBE")


def fetch_committed_end(config: AdminConfig) -> Mark:
    """The high watermark. Raises FollowError.

    The record before it is of the leader's epoch: a leader reports a high watermark only after a record of its own
    epoch is below it (KafkaRaftClient, LeaderState.maybeUpdateHighWatermark).
    """
    quorum = fetch_quorum(config)
    return Mark(Position(quorum.high_watermark, quorum.leader_epoch), quorum.leader_epoch)


def is_led_below(quorum: QuorumDescription, epoch: int) -> bool:
    """Whether a majority of the voters follows a leader of a lower epoch than `epoch`, which existed before.

    Voters store their epoch on disk, so these lost their disks: the quorum was recreated, and the leader is not
    merely a replaced one that has not noticed it.
    """
    caught_up_ms = {voter.node_id: voter.last_caught_up_ms or 0 for voter in quorum.voters}
    now_ms = caught_up_ms.get(quorum.leader_id, 0)
    following = [time_ms for time_ms in caught_up_ms.values() if now_ms - time_ms <= _FOLLOWING_WITHIN_MS]
    return quorum.leader_epoch < epoch and now_ms > 0 and 2 * len(following) > len(caught_up_ms)


def _ask(
    config: AdminConfig, question: Callable[[AdminClient], Awaitable[_Response]], *, needs: str
) -> _Response:
    async def ask() -> _Response:
        async with AdminClient(config) as client:
            return await question(client)

    limit_ms = config.default_api_timeout_ms
    try:
        return asyncio.run(asyncio.wait_for(ask(), limit_ms / 1000))
    except AdminError as error:
        is_denied = (
            isinstance(error, ServerError) and error.error_code is ErrorCode.cluster_authorization_failed
        )
        hint = f": following needs {needs} on the cluster" if is_denied else ""
        raise FollowError(f"{_named(config)}: {error}{hint}") from error
    except TimeoutError:
        raise FollowError(
            f"{_named(config)} did not answer within {limit_ms} ms (default.api.timeout.ms)"
        ) from None


def _named(config: AdminConfig) -> str:
    return f"controllers {', '.join(map(str, config.bootstrap))}"
