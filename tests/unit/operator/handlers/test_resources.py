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
    def body(name: str) -> dict[str, Any]:
        metadata = {"name": name, "deletionTimestamp": "2026-01-01T00:00:00Z"}
        return {"metadata": metadata, "spec": {"storage": storage}}

    deleted = ClusterResources(
        quorum=body("quorum"), pools={"brokers": body("brokers")}, leaving_pools=frozenset({"brokers"})
    )
    assert deleted.emptied_pools == (frozenset({"quorum", "brokers"}) if is_emptied else frozenset())


def test_a_pool_is_drained_while_its_quorum_stays() -> None:
    def body(name: str, policy: str, **more: Any) -> dict[str, Any]:
        metadata = {"name": name, "deletionTimestamp": "2026-01-01T00:00:00Z"}
        return {
            "metadata": metadata,
            "spec": {"storage": {"onDeletion": policy}, "nodeIds": {"first": 0}, **more},
        }

    stays = {"metadata": {"name": "stays"}, "spec": {"storage": {"onDeletion": "Delete"}}}
    never_had = body("never-had", "Delete")
    del never_had["spec"]["nodeIds"]
    pools = {"emptied": body("emptied", "Delete"), "kept": body("kept", "Retain"), "never-had": never_had}
    leaving = frozenset(pools)
    quorum: dict[str, Any] = {"metadata": {"name": "quorum"}, "spec": {}}

    found = ClusterResources(quorum=quorum, pools=pools | {"stays": stays}, leaving_pools=leaving)
    assert found.drained_pools == {"emptied"}
    assert found.ended_pools == {"kept", "never-had"}
    assert [body["metadata"]["name"] for _, body in found.used] == ["quorum", "emptied", "stays"]

    edited = pools | {"emptied": body("emptied", "Retain")}
    assert not ClusterResources(quorum=quorum, pools=edited, leaving_pools=leaving).drained_pools
    for gone in (None, body("quorum", "Retain")):
        alone = ClusterResources(quorum=gone, pools=pools, leaving_pools=leaving)
        assert not alone.drained_pools
        assert alone.ended_pools == leaving
