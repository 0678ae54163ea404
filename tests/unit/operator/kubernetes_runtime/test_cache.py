"""The cache of what Kubernetes has."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any, cast

import pytest
from quorate_operator.runtime.kubernetes.api import (
    CERTIFICATE,
    OPTIONAL_KINDS,
    OWNED_KINDS,
    POD,
    ApiError,
    Kind,
)
from quorate_operator.runtime.kubernetes.cache import LISTS_MAX, ObjectCache, Watcher

Object = dict[str, Any]


def _pod(name: str, version: int, *, uid: str = "u", cluster: str = "quorum") -> dict[str, Any]:
    metadata = {
        "name": name,
        "namespace": "kafka",
        "uid": uid,
        "resourceVersion": str(version),
        "labels": {"quorate.dev/cluster": cluster},
    }
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata}


def _names(cache: ObjectCache) -> list[str]:
    return sorted(pod["metadata"]["name"] for pod in cache.of_cluster(POD, "kafka", "quorum"))


def test_an_older_event_does_not_hide_an_own_write() -> None:
    cache = ObjectCache()
    cache.put(_pod("a", 9))
    cache.put(_pod("a", 7))
    found = cache.find(POD, "kafka", "a")
    assert found is not None
    assert found["metadata"]["resourceVersion"] == "9"


def test_what_was_deleted_stays_deleted() -> None:
    """A late event brings nothing back, and a namesake is another object."""
    cache = ObjectCache()
    cache.put(_pod("a", 1))
    cache.remove(_pod("a", 2))
    cache.put(_pod("a", 3))
    assert _names(cache) == []
    cache.put(_pod("a", 4, uid="another"))
    cache.remove(_pod("a", 5))
    assert _names(cache) == ["a"]


def test_a_new_list_is_the_whole_truth() -> None:
    cache = ObjectCache()
    woken: list[tuple[str, str]] = []
    cache.on_change(lambda *cluster: woken.append(cluster))
    cache.put(_pod("a", 1))
    cache.put(_pod("b", 2, uid="v"))
    cache.put(_pod("c", 3, uid="w", cluster="other"))
    woken.clear()
    cache.replace_all(POD, "kafka", [_pod("b", 2, uid="v"), _pod("c", 3, uid="w", cluster="other")])
    assert _names(cache) == ["b"]
    assert woken == [("kafka", "quorum")]


class _ApiWithoutCertificates:
    """Knows all kinds but one, until that one is installed; watches end with the test."""

    def __init__(self, status: int) -> None:
        self.status = status
        self.is_installed = False
        self.listed: list[str] = []
        self.has_listed_certificates = asyncio.Event()

    async def list(self, kind: Kind, _namespace: str | None, _selector: str) -> tuple[list[Object], str]:
        if kind == CERTIFICATE and not self.is_installed:
            raise ApiError(self.status, "", "404 page not found")
        self.listed.append(kind.name)
        if kind == CERTIFICATE:
            self.has_listed_certificates.set()
        return [], "1"

    async def watch(self, *_: object) -> AsyncIterator[tuple[str, Object]]:
        await asyncio.Event().wait()
        yield "BOOKMARK", {}


@pytest.mark.parametrize("status", [403, 404])
async def test_a_kind_that_something_else_brings_holds_up_nobody(
    monkeypatch: pytest.MonkeyPatch, status: int
) -> None:
    """An operator works without cert-manager, and finds it once it is there."""
    monkeypatch.setattr("quorate_operator.runtime.kubernetes.cache.OPTIONAL_KIND_RETRY_S", 0.01)
    api = _ApiWithoutCertificates(status)
    watcher = Watcher(cast("Any", api), ObjectCache(), None)
    running = asyncio.create_task(watcher.run())
    try:
        async with asyncio.timeout(5):
            await watcher.fill("kafka")
            assert "Certificate" not in api.listed
            api.is_installed = True
            await api.has_listed_certificates.wait()
    finally:
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)


class _ApiThatRefuses:
    """Answers lists in all namespaces but one; watches end with the test."""

    def __init__(self) -> None:
        self.places: set[str | None] = set()
        self.most = 0
        self._under_way = 0

    async def list(self, _kind: Kind, namespace: str | None, _selector: str) -> tuple[list[Object], str]:
        self.places.add(namespace)
        self._under_way += 1
        self.most = max(self.most, self._under_way)
        await asyncio.sleep(0)
        self._under_way -= 1
        if namespace == "forbidden":
            raise ApiError(403, "Forbidden", "not allowed")
        return [], "1"

    async def watch(self, *_: object) -> AsyncIterator[tuple[str, Object]]:
        await asyncio.Event().wait()
        yield "BOOKMARK", {}


async def test_a_namespace_that_cannot_be_read_holds_up_no_other() -> None:
    """Namespaces are watched from the first cluster on, and each is filled for itself."""
    api, unlisted = _ApiThatRefuses(), list[int]()
    names = [f"kafka-{place}" for place in range(50)]
    watcher = Watcher(cast("Any", api), ObjectCache(), [*names, "forbidden", "empty"], unlisted.append)
    running = asyncio.create_task(watcher.run())
    try:
        async with asyncio.timeout(30):
            with pytest.raises(ApiError, match=r"can't list .*pods.* in forbidden: not allowed"):
                await watcher.fill("forbidden", timeout_s=0.1)
            await asyncio.gather(*(watcher.fill(name) for name in names))
        assert api.places == {*names, "forbidden"}
        assert api.most <= LISTS_MAX
        assert unlisted[-1] == len(OWNED_KINDS) - len(OPTIONAL_KINDS)
    finally:
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
