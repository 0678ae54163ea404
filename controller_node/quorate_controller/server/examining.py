"""Finds out who answers at the address of a controller: a new voter, or one whose responses raise a doubt.

Java controllers answer whoever reaches them, and do not say who they are. But every controller reports its cluster
(DescribeCluster), and describes only its own configuration (DescribeConfigs). It is asked on a separate connection.
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Any, Final

from quorate_protocol.errors import ErrorCode
from quorate_protocol.kafka.enums import EndpointType
from quorate_protocol.kafka.generated.describe_cluster_request import DescribeClusterRequest
from quorate_protocol.kafka.identity import is_node, node_question

from quorate_controller.server.misrouting import UNKNOWN_NODE_ID, Answering, Misrouting, verdict
from quorate_controller.server.peer_lane import Address

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Hashable, Iterable, Sequence

    from quorate_controller.server.peer_lane import PeerLane

log = logging.getLogger(__name__)

TIMEOUT_S: Final = 1.0
PAUSE_S: Final = 1.0
"""The least time between two examinations of one route that found nothing wrong."""
NODE_IDS_MAX: Final = 100
"""The number of node ids that are tried to recognize the node that answers."""


class Examiner:
    """Examines the routes to other controllers: the node and the kind of connection are a route's key.

    What is wrong with a route is logged and reported to `on_misrouted` once, until the route is `served`.
    """

    def __init__(
        self, *, cluster_id: str, open_lane: Callable[[Address], PeerLane], on_misrouted: Callable[[], None]
    ) -> None:
        self._cluster_id = cluster_id
        self._open_lane = open_lane
        self._on_misrouted = on_misrouted
        self._loop = asyncio.get_running_loop()
        self._tasks: dict[Hashable, asyncio.Task[None]] = {}
        self._told: dict[Hashable, Misrouting] = {}
        self._not_before_s: dict[Hashable, float] = {}

    def doubted(self, route: Hashable, address: Address, doubt: Misrouting) -> None:
        """Find out who answers, unless that is being done, was just done, or is known to be somebody else."""
        is_early = self._loop.time() < self._not_before_s.get(route, 0.0)
        if route in self._tasks or route in self._told or is_early:
            return
        self._start(route, self._resolve(route, address, doubt))

    def served(self, route: Hashable, address: Address) -> None:
        """The node that is meant has served a request."""
        if self._told and self._told.pop(route, None) is not None:
            log.info("peer_reached_again", extra={"facts": {"peer": str(address)}})

    def forget(self, route: Hashable) -> None:
        """The route is used no more."""
        self._told.pop(route, None)
        self._not_before_s.pop(route, None)

    def confirm(self, address: Address, then: Callable[[bool], None]) -> None:
        """Ask who answers at a new address; `then` gets whether it may be the node that is meant."""

        async def confirm() -> None:
            what = await self._examine(address, None)
            then(what is None)

        self._start(object(), confirm())

    async def close(self) -> None:
        """End what is being asked, and its connections."""
        tasks = list(self._tasks.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def _start(self, key: Hashable, examination: Coroutine[Any, Any, None]) -> None:
        task = self._tasks[key] = self._loop.create_task(examination)
        task.add_done_callback(lambda _: self._tasks.pop(key, None))

    async def _resolve(self, route: Hashable, address: Address, doubt: Misrouting) -> None:
        what = await self._examine(address, doubt)
        if what is None:
            self._not_before_s[route] = self._loop.time() + PAUSE_S
        else:
            self._told[route] = what

    async def _examine(self, address: Address, doubt: Misrouting | None) -> Misrouting | None:
        """Find out who answers; a node that is not meant is logged and reported."""
        # The connection names no intended node, because another node might refuse one that does, and say less.
        lane = self._open_lane(Address(node_id=UNKNOWN_NODE_ID, host=address.host, port=address.port))
        try:
            answering = await _who_answers(lane, address.node_id)
        finally:
            lane.close()
        what = verdict(doubt, answering, cluster_id=self._cluster_id)
        if what is not None:
            facts = {
                "peer": str(address),
                "meant": what.value,
                "cluster_id": self._cluster_id,
                "found_cluster_id": answering.cluster_id,
                "found_node_id": answering.node_id,
            }
            log.warning("peer_misrouted", extra={"facts": facts})
            self._on_misrouted()
        return what


async def _who_answers(lane: PeerLane, meant: int) -> Answering:
    cluster_id, node_ids = None, [meant]
    try:
        async with asyncio.timeout(TIMEOUT_S):
            described = await lane.ask(_cluster_question(), TIMEOUT_S)
            if described.error_code is ErrorCode.none:
                cluster_id = described.cluster_id
                node_ids += [node.broker_id for node in described.brokers[:NODE_IDS_MAX]]
            configs = await lane.ask(node_question(node_ids), TIMEOUT_S)
    except OSError:  # TimeoutError, too
        return Answering(cluster_id=cluster_id)
    return answering_of(node_ids, cluster_id, configs.results)


def answering_of(node_ids: Sequence[int], cluster_id: str | None, results: Iterable[Any]) -> Answering:
    """Returns who answers, by its cluster and its results of `node_question`; the first id is the one meant."""
    responses = {result.resource_name: is_node(result.error_code) for result in results}
    return Answering(
        cluster_id=cluster_id,
        is_meant=responses.get(str(node_ids[0])),
        node_id=next((node_id for node_id in node_ids if responses.get(str(node_id))), None),
    )


def _cluster_question() -> DescribeClusterRequest:
    return DescribeClusterRequest(
        include_cluster_authorized_operations=False,
        endpoint_type=EndpointType.CONTROLLER,
        include_fenced_brokers=False,
    )
