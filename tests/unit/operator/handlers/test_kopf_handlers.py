"""The kinds that kopf watches, and its handlers."""

import asyncio
import re
from datetime import timedelta
from itertools import islice
from types import SimpleNamespace
from typing import Any, cast

import kopf
import pytest
from quorate_operator.handlers import kopf_handlers
from quorate_operator.handlers.kopf_handlers import LAST_HANDLED, registry_of, settings_of
from quorate_operator.handlers.kopf_login import RequestLimit
from quorate_operator.models.selectors import LabelSelector
from quorate_operator.runtime.kubernetes.api import BROKERS, CONTROLLERS, REBALANCES, TOPICS, USERS

ANNOTATION_NAME = re.compile(r"[A-Za-z0-9]([A-Za-z0-9_.-]{0,61}[A-Za-z0-9])?")
"""The part after the prefix, as Kubernetes checks it."""


def test_kopf_can_keep_the_progress_of_each_handler() -> None:
    """A handler that takes several attempts is not refused by the API server."""
    clusters, entities = SimpleNamespace(), SimpleNamespace(kinds=(TOPICS, REBALANCES))
    registry = registry_of(cast("Any", clusters), cast("Any", entities))
    storage = cast("Any", settings_of(cluster_wide=True).persistence.progress_storage)
    kinds = (registry._changing, registry._spawning, registry._watching)
    ids = {handler.id for kind in kinds for handler in kind.get_all_handlers()}
    assert len(ids) >= len(kinds)
    names = [key.partition("/")[2] for id_ in ids for key in storage.make_keys(id_)]
    assert [name for name in names if not ANNOTATION_NAME.fullmatch(name)] == []


async def test_a_deletion_that_takes_long_is_written_down_less_often(monkeypatch: pytest.MonkeyPatch) -> None:
    """A pool that waits for room costs few writes."""
    cleared = asyncio.Event()
    monkeypatch.setattr(kopf_handlers, "DELETION_WAIT_S", 0)
    clusters = SimpleNamespace(wait_cleared=lambda _body: cleared.wait(), seen=lambda _body: None)
    registry = registry_of(cast("Any", clusters), cast("Any", SimpleNamespace(kinds=())))
    handler = next(
        get_all_handler
        for get_all_handler in registry._changing.get_all_handlers()
        if get_all_handler.id == kopf_handlers.DELETION_ID
    )
    deleted = cast("Any", handler.fn)
    for runtime, pause_s in (
        (timedelta(0), kopf_handlers.DELETION_PAUSE_S),
        (timedelta(hours=1), kopf_handlers.LONG_PAUSE_S),
    ):
        with pytest.raises(kopf.TemporaryError) as raised:
            await deleted(body={}, runtime=runtime)
        assert raised.value.delay == pause_s
    cleared.set()
    monkeypatch.undo()
    await deleted(body={}, runtime=timedelta(hours=1))


def test_kopf_sees_only_what_the_selector_matches() -> None:
    """Kopf does not remove the finalizer of another operator's resources."""
    selectors = cast(
        "Any", settings_of(cluster_wide=True, selector=LabelSelector.parse("!a, b in (c, d)")).watching
    ).label_selectors
    for kind in (CONTROLLERS, BROKERS, TOPICS, USERS, REBALANCES):
        group, version = kind.api_version.split("/")
        resource = kopf.Resource(group, version, kind.plural, kind=kind.name, preferred=True)
        assert selectors.collect(resource) == ["!a,b in (c,d)"]
        assert not settings_of(cluster_wide=True).watching.label_selectors.collect(resource)
    definitions = kopf.Resource("apiextensions.k8s.io", "v1", "customresourcedefinitions", preferred=True)
    assert selectors.collect(definitions) == []


def test_kopf_stores_no_copy_of_a_resource() -> None:
    """A spec may be large and may quote what not everyone may read; nothing here asks what has changed in it."""
    storage = settings_of(cluster_wide=True).persistence.diffbase_storage
    body, patch = kopf.Body({"metadata": {"name": "one"}, "spec": {"replicas": 3}}), kopf.Patch()
    essence = storage.build(body=body)
    assert storage.fetch(body=body) == essence
    storage.store(body=body, patch=patch, essence=essence)
    assert not patch


@pytest.mark.parametrize("annotations", [{}, {LAST_HANDLED: "{}"}])
async def test_the_copy_that_an_earlier_release_stored_is_removed(annotations: dict[str, str]) -> None:
    clusters = SimpleNamespace(seen=lambda _body: None)
    registry = registry_of(cast("Any", clusters), cast("Any", SimpleNamespace(kinds=())))
    changed = cast("Any", next(iter(registry._watching.get_all_handlers())).fn)
    patch = kopf.Patch()
    await changed(
        event={"type": "MODIFIED", "object": {"metadata": {"annotations": annotations}}}, patch=patch
    )
    assert dict(patch) == ({"metadata": {"annotations": {LAST_HANDLED: None}}} if annotations else {})


async def test_a_watch_of_kopf_waits_for_no_other_request() -> None:
    """Thousands of resources that get their finalizer are no storm of connections, and stop no watch."""
    limit, ended = RequestLimit(1), asyncio.Event()
    under_way: list[str] = []

    async def send(request: Any) -> Any:
        under_way.append(request.name)
        await ended.wait()

    def request(name: str, **query: str) -> Any:
        sent = SimpleNamespace(name=name, url=SimpleNamespace(query=query))
        return asyncio.create_task(limit(cast("Any", sent), send))

    tasks = [request("patch"), request("another"), request("watch", watch="true")]
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert sorted(under_way) == ["patch", "watch"]
    ended.set()
    await asyncio.gather(*tasks)
    assert len(under_way) == len(tasks)


def test_resources_that_wait_hold_up_no_others() -> None:
    """A deletion that waits occupies a worker, and kopf continues when a namespace may not be read any more."""
    settings = settings_of(cluster_wide=True)
    assert settings.queueing.worker_limit is None
    pauses = list(islice(cast("Any", settings.networking.error_backoffs), 100))
    assert pauses[-1] == kopf_handlers.BACKOFF_S_MAX
