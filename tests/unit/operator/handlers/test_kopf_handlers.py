"""The kinds that kopf watches, and its handlers."""

import asyncio
import re
from datetime import timedelta
from types import SimpleNamespace
from typing import Any, cast

import kopf
import pytest
from quorate_operator.handlers import kopf_handlers
from quorate_operator.handlers.kopf_handlers import registry_of, settings_of
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
