"""A cache of all objects that Quorate created, with one watch for each kind: observing needs no request.

The cache has at least what this process wrote: responses to its writes are stored at once, and an event that is older
than the cached object is dropped. After a watch broke, all is listed again, so that no deleted object stays.
"""

import asyncio
import logging
from collections import OrderedDict
from collections.abc import Callable, Iterable

from quorate_operator.resources.names import LABEL_CLUSTER
from quorate_operator.runtime.kubernetes.api import (
    OPTIONAL_KINDS,
    OWNED_KINDS,
    ApiError,
    Kind,
    KubernetesApi,
    Object,
)

SELECTOR = f"app.kubernetes.io/managed-by=quorate,{LABEL_CLUSTER}"
PAUSE_S_MIN = 0.5
PAUSE_S_MAX = 30.0
OPTIONAL_KIND_RETRY_S = 30.0
"""The time between two attempts to list an optional kind that does not exist."""
GONE_MAX = 4096
"""How many deleted objects are remembered, by uid, so that a late event does not bring them back."""

log = logging.getLogger(__name__)

_Key = tuple[str, str, str]


class ObjectCache:
    """The objects that Quorate created, by kind, namespace and name."""

    def __init__(self) -> None:
        self._wake: Callable[[str, str], None] = lambda *_: None
        self._objects: dict[_Key, Object] = {}
        self._by_cluster: dict[tuple[str, str], dict[_Key, Object]] = {}
        self._gone: OrderedDict[str, None] = OrderedDict()

    def on_change(self, wake: Callable[[str, str], None]) -> None:
        """Call `wake` with namespace and cluster whenever an object of a cluster changes."""
        self._wake = wake

    def of_cluster(self, kind: Kind, namespace: str, cluster: str) -> list[Object]:
        owned = self._by_cluster.get((namespace, cluster), {})
        return [item for (name, _, _), item in owned.items() if name == kind.name]

    def find(self, kind: Kind, namespace: str, name: str) -> Object | None:
        return self._objects.get((kind.name, namespace, name))

    def put(self, item: Object) -> None:
        """Store an object as it was seen or written, unless a newer state is stored."""
        metadata = item["metadata"]
        if metadata["uid"] in self._gone:
            return
        key = _key_of(item)
        known = self._objects.get(key)
        if known is not None and _version_of(known) >= _version_of(item):
            return
        if known is not None:
            self._drop(key, known)
        metadata.pop("managedFields", None)  # half of an object's size, and never read here
        self._objects[key] = item
        cluster = _cluster_of(item)
        self._by_cluster.setdefault(cluster, {})[key] = item
        self._wake(*cluster)

    def remove(self, item: Object) -> None:
        uid = item["metadata"]["uid"]
        self._gone[uid] = None
        while len(self._gone) > GONE_MAX:
            self._gone.popitem(last=False)
        key = _key_of(item)
        known = self._objects.get(key)
        if known is not None and known["metadata"]["uid"] == uid:
            self._drop(key, known)
            self._wake(*_cluster_of(known))

    def replace_all(self, kind: Kind, namespace: str | None, items: Iterable[Object]) -> None:
        """Replace all objects of a kind: those that are missing in `items` were deleted."""
        there = {_key_of(item): item for item in items}
        for key, known in list(self._objects.items()):
            if key[0] == kind.name and namespace in (None, key[1]) and key not in there:
                self.remove(known)
        for item in there.values():
            self.put(item)

    def _drop(self, key: _Key, known: Object) -> None:
        del self._objects[key]
        cluster = _cluster_of(known)
        owned = self._by_cluster[cluster]
        del owned[key]
        if not owned:
            del self._by_cluster[cluster]


class Watcher:
    """Keeps a cache up to date, for some namespaces or, with None, everywhere."""

    def __init__(self, api: KubernetesApi, cache: ObjectCache, namespaces: Iterable[str] | None) -> None:
        self._api = api
        self._cache = cache
        places: Iterable[str | None] = [None] if namespaces is None else sorted(set(namespaces))
        self._watches = [(kind, place) for place in places for kind in OWNED_KINDS.values()]
        self._listed = [asyncio.Event() for _ in self._watches]

    async def wait_filled(self) -> None:
        """Wait until every kind was listed once."""
        await asyncio.gather(*(event.wait() for event in self._listed))

    async def run(self) -> None:
        async with asyncio.TaskGroup() as group:
            for (kind, place), listed in zip(self._watches, self._listed, strict=True):
                group.create_task(self._watch(kind, place, listed), name=f"watch {kind.plural}")

    async def _watch(self, kind: Kind, namespace: str | None, listed: asyncio.Event) -> None:
        pause_s = PAUSE_S_MIN
        while True:
            try:
                items, version = await self._api.list(kind, namespace, SELECTOR)
                self._cache.replace_all(kind, namespace, items)
                listed.set()
                while True:
                    async for happened, item in self._api.watch(kind, namespace, SELECTOR, version):
                        pause_s = PAUSE_S_MIN
                        version = item["metadata"]["resourceVersion"]
                        if happened == "DELETED":
                            self._cache.remove(item)
                        elif happened != "BOOKMARK":
                            self._cache.put(item)
            except ApiError as error:
                if kind.name in OPTIONAL_KINDS and error.is_of_unknown_kind:
                    self._cache.replace_all(kind, namespace, ())
                    listed.set()
                    await asyncio.sleep(OPTIONAL_KIND_RETRY_S)
                    continue
                if error.status != 410:
                    log.warning("a new watch of %s begins: %s", kind.plural, error)
                await asyncio.sleep(pause_s)
                pause_s = min(pause_s * 2, PAUSE_S_MAX)


def _key_of(item: Object) -> _Key:
    return item["kind"], item["metadata"]["namespace"], item["metadata"]["name"]


def _cluster_of(item: Object) -> tuple[str, str]:
    return item["metadata"]["namespace"], item["metadata"].get("labels", {}).get(LABEL_CLUSTER, "")


def _version_of(item: Object) -> int:
    # Versions of one kind can be compared as numbers (KEP-5504, API reference of resourceVersion).
    return int(item["metadata"]["resourceVersion"])
