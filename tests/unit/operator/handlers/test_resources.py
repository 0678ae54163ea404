"""What resources of a cluster ask for when they are deleted."""

from typing import Any

import pytest
from quorate_operator.handlers.resources import ClusterResources


@pytest.mark.parametrize(
    ("storage", "is_emptied"),
    [({}, False), ({"onDecommission": "Delete"}, False), ({"onDeletion": "Delete"}, True)],
)
def test_a_deleted_resource_keeps_its_volumes_unless_it_says_so(
    storage: dict[str, str], is_emptied: bool
) -> None:
    """Goal: what is meant for one node does not wipe all. Method: a deleted pool and a deleted quorum by policy."""

    def body(name: str) -> dict[str, Any]:
        metadata = {"name": name, "deletionTimestamp": "2026-01-01T00:00:00Z"}
        return {"metadata": metadata, "spec": {"storage": storage}}

    deleted = ClusterResources(
        quorum=body("quorum"), pools={"brokers": body("brokers")}, leaving_pools=frozenset({"brokers"})
    )
    assert deleted.emptied_pools == (frozenset({"quorum", "brokers"}) if is_emptied else frozenset())
