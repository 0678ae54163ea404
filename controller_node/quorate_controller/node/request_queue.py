"""The classes of requests, and the queue that serves one client after the other."""

from __future__ import annotations

from collections import OrderedDict, deque
from typing import TYPE_CHECKING, Final, Generic, TypeVar

from quorate_protocol.kafka.apis import CONTROLLER_READ_APIS, ApiKey
from quorate_protocol.kafka.extensions.controller_heartbeat_request import ControllerHeartbeatRequest

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Iterator

Item = TypeVar("Item")

OF_NODES: Final = frozenset(
    {
        ApiKey.BROKER_REGISTRATION,
        ApiKey.BROKER_HEARTBEAT,
        ApiKey.ALTER_PARTITION,
        ApiKey.ALLOCATE_PRODUCER_IDS,
        ApiKey.CONTROLLER_REGISTRATION,
        ApiKey.ASSIGN_REPLICAS_TO_DIRS,
        ControllerHeartbeatRequest.__api_key__,
    }
)
"""Requests that only nodes of the cluster send (CLUSTER_ACTION). They come before those of clients."""
LARGE_OF_NODES: Final = frozenset({ApiKey.ALTER_PARTITION, ApiKey.ASSIGN_REPLICAS_TO_DIRS})
"""Requests of brokers that may take several turns."""
LONG_READS: Final = frozenset(
    {
        ApiKey.DESCRIBE_CONFIGS,
        ApiKey.DESCRIBE_ACLS,
        *CONTROLLER_READ_APIS,
        ApiKey.CREATE_ACLS,
        ApiKey.DELETE_ACLS,
        ApiKey.LIST_PARTITION_REASSIGNMENTS,
    }
)
"""Reads that may take several turns, and decisions that begin with one. While one of them is under way, the others
wait in the driver. Other decisions that have begun do not hold them back: there may always be some.
"""


class FairQueue(Generic[Item]):
    """Round robin: a client with many items delays each other client by one of them.

    The items of a client stay in order.
    """

    def __init__(self) -> None:
        self._by_client: OrderedDict[Hashable, deque[Item]] = OrderedDict()
        """Never an empty deque. The first client is the next one."""

    def __bool__(self) -> bool:
        return bool(self._by_client)

    def __len__(self) -> int:
        return sum(map(len, self._by_client.values()))

    def items(self) -> Iterator[Item]:
        """All items, client by client."""
        for items in self._by_client.values():
            yield from items

    def __contains__(self, client: Hashable) -> bool:
        return client in self._by_client

    @property
    def client_count(self) -> int:
        """The number of clients with items."""
        return len(self._by_client)

    def append(self, client: Hashable, item: Item) -> None:
        """Add an item behind those of the same client."""
        self._by_client.setdefault(client, deque()).append(item)

    def pop(self, preferred: Hashable = None) -> tuple[Hashable, Item]:
        """Remove the oldest item of `preferred`, if it has any, else of the next client. Returns client and item."""
        client = preferred if preferred in self._by_client else next(iter(self._by_client))
        items = self._by_client[client]
        item = items.popleft()
        if items:
            self._by_client.move_to_end(client)
        else:
            del self._by_client[client]
        return client, item

    def put_back(self, client: Hashable, item: Item) -> None:
        """Return an item that is not finished: the client's next one, when it is the client's turn again."""
        self._by_client.setdefault(client, deque()).appendleft(item)

    def remove(self, client: Hashable, is_meant: Callable[[Item], bool]) -> bool:
        """Remove the items of a client that are meant. Returns whether there was one."""
        items = self._by_client.get(client, ())
        left = deque(item for item in items if not is_meant(item))
        if len(left) == len(items):
            return False
        if left:
            self._by_client[client] = left
        else:
            del self._by_client[client]
        return True

    def pop_all(self) -> list[Item]:
        """Remove and return all items."""
        items = list(self.items())
        self._by_client.clear()
        return items
