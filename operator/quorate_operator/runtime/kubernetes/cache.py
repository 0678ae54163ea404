"""A cache of all objects that Quorate created, with one watch for each kind: observing needs no request.

Where an operator serves named namespaces, those without a cluster are not watched: a namespace costs ten watches.

The cache has at least what this process wrote: responses to its writes are stored at once, and an event that is older
than the cached object is dropped. After a watch broke, all is listed again, so that no deleted object stays.
"""

import asyncio
import logging
import random
from collections import OrderedDict
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

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
JITTER = 0.25
"""The fraction by which pauses vary: watches that broke together do not begin together."""
OPTIONAL_KIND_RETRY_S = 30.0
"""The time between two attempts to list an optional kind that does not exist."""
LISTS_MAX = 16
"""How many lists are requested at the same time, so that other requests find a connection."""
FILL_TIMEOUT_S = 30.0
"""The time in which the objects of a namespace are to be listed, before that is reported."""
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
        if known is not None and object_version(known) >= object_version(item):
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


@dataclass(slots=True)
class _Watch:
    """The watch of one kind in one namespace, or everywhere."""

    kind: Kind
    namespace: str | None
    listed: asyncio.Event = field(default_factory=asyncio.Event)
    problem: str = ""
    """Why the last attempt to list failed."""


class Watcher:
    """Keeps a cache up to date. `namespaces` are those where it may watch; None: everywhere.

    `on_unlisted` is called with the number of kinds that can't be listed, counted in each namespace.
    """

    def __init__(
        self,
        api: KubernetesApi,
        cache: ObjectCache,
        namespaces: Iterable[str] | None,
        on_unlisted: Callable[[int], object] = lambda _: None,
    ) -> None:
        self._api = api
        self._cache = cache
        self._is_everywhere = namespaces is None
        self._on_unlisted = on_unlisted
        self._watches: dict[str | None, list[_Watch]] = {}
        self._begun: asyncio.Queue[list[_Watch]] = asyncio.Queue()
        self._lists = asyncio.Semaphore(LISTS_MAX)
        if namespaces is None:
            self._begin(None)

    async def fill(self, namespace: str, timeout_s: float = FILL_TIMEOUT_S) -> None:
        """Begin to watch a namespace, and wait until every kind was listed once.

        Raises:
            ApiError: kinds could not be listed in this time. They are tried again all the same.
        """
        watches = self._begin(None if self._is_everywhere else namespace)
        try:
            async with asyncio.timeout(timeout_s):
                await asyncio.gather(*(watch.listed.wait() for watch in watches))
        except TimeoutError:
            missing = [watch for watch in watches if not watch.listed.is_set()]
            names = ", ".join(watch.kind.plural for watch in missing)
            reason = next((watch.problem for watch in missing if watch.problem), "no response yet")
            where = f"in {namespace}" if not self._is_everywhere else "in all namespaces"
            raise ApiError(0, "NotListed", f"can't list {names} {where}: {reason}") from None

    async def run(self) -> None:
        async with asyncio.TaskGroup() as group:
            while True:
                for watch in await self._begun.get():
                    where = watch.namespace or "all namespaces"
                    group.create_task(self._watch(watch), name=f"watch {watch.kind.plural} in {where}")

    def _begin(self, namespace: str | None) -> list[_Watch]:
        """Return the watches of a namespace, which `run` starts."""
        if namespace not in self._watches:
            self._watches[namespace] = [_Watch(kind, namespace) for kind in OWNED_KINDS.values()]
            self._begun.put_nowait(self._watches[namespace])
        return self._watches[namespace]

    async def _watch(self, watch: _Watch) -> None:
        kind, namespace = watch.kind, watch.namespace
        pause_s = PAUSE_S_MIN
        while True:
            try:
                async with self._lists:
                    items, version = await self._api.list(kind, namespace, SELECTOR)
                self._cache.replace_all(kind, namespace, items)
                self._set_problem(watch, "")
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
                    self._set_problem(watch, "")
                    await asyncio.sleep(OPTIONAL_KIND_RETRY_S * random.uniform(1 - JITTER, 1 + JITTER))
                    continue
                if error.status != 410:
                    self._set_problem(watch, str(error) or f"HTTP status {error.status}")
                    log.warning(
                        "a new watch of %s in %s begins: %s",
                        kind.plural,
                        namespace or "all namespaces",
                        error,
                    )
                await asyncio.sleep(pause_s * random.uniform(1 - JITTER, 1 + JITTER))
                pause_s = min(pause_s * 2, PAUSE_S_MAX)

    def _set_problem(self, watch: _Watch, problem: str) -> None:
        """Store why a kind can't be listed; empty: it was listed."""
        watch.problem = problem
        if not problem:
            watch.listed.set()
        self._on_unlisted(sum(bool(other.problem) for begun in self._watches.values() for other in begun))


def object_version(item: Object) -> int:
    """Return the version of an object; that of a newer state of an object of the same kind is greater."""
    # Versions of one kind can be compared as numbers (KEP-5504, API reference of resourceVersion).
    return int(item["metadata"]["resourceVersion"])


def _key_of(item: Object) -> _Key:
    return item["kind"], item["metadata"]["namespace"], item["metadata"]["name"]


def _cluster_of(item: Object) -> tuple[str, str]:
    return item["metadata"]["namespace"], item["metadata"].get("labels", {}).get(LABEL_CLUSTER, "")
