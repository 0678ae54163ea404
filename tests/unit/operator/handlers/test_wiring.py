"""What kopf is told to watch and to handle."""

import re
from types import SimpleNamespace
from typing import Any, cast

from quorate_operator.handlers.wiring import registry_of, settings_of
from quorate_operator.runtime.kubernetes.api import REBALANCES, TOPICS

ANNOTATION_NAME = re.compile(r"[A-Za-z0-9]([A-Za-z0-9_.-]{0,61}[A-Za-z0-9])?")
"""The part after the prefix, as Kubernetes checks it."""


def test_kopf_can_keep_the_progress_of_each_handler() -> None:
    """Goal: a handler that takes several attempts is not refused by the API server.

    Method: the names of the annotations that kopf would write, by the rule of Kubernetes for annotations.
    """
    clusters, entities = SimpleNamespace(), SimpleNamespace(kinds=(TOPICS, REBALANCES))
    registry = registry_of(cast("Any", clusters), cast("Any", entities))
    storage = cast("Any", settings_of(cluster_wide=True).persistence.progress_storage)
    kinds = (registry._changing, registry._spawning, registry._watching)
    ids = {handler.id for kind in kinds for handler in kind.get_all_handlers()}
    assert len(ids) >= len(kinds)
    names = [key.partition("/")[2] for one in ids for key in storage.make_keys(one)]
    assert [name for name in names if not ANNOTATION_NAME.fullmatch(name)] == []
