"""Node ids for pools that name none."""

import pytest
from quorate_operator.models.manifests import ManifestError, load_manifests
from quorate_operator.models.nodes import first_node_id

QUORUM = "{apiVersion: quorate.dev/v1alpha1, kind: KafkaController, metadata: {name: quorum}}"
POOL = "{apiVersion: quorate.dev/v1alpha1, kind: KafkaBroker, metadata: {name: %s}, spec: {controllers: quorum%s}}"


def _firsts(*specs: str) -> list[int]:
    """The first ids of the pools of these specs, in their order."""
    pools = [POOL % (f"pool-{place}", spec) for place, spec in enumerate(specs)]
    manifests = load_manifests("\n---\n".join([QUORUM, *pools]), "m.yaml")
    return [pool.spec.first_node_id for pool in manifests.brokers]


@pytest.mark.parametrize(
    ("own", "others", "first"),
    [
        ((), (), 0),
        ((), (3000, 3001), 0),
        ((), (0, 1, 2), 1000),
        ((), (5, 1999, 3000), 2000),
        ((), (0, 1000, 2000, 3000), 4000),
        ((1007, 2000), (0, 1000), 1000),
    ],
)
def test_a_pool_gets_the_first_free_thousand(
    own: tuple[int, ...], others: tuple[int, ...], first: int
) -> None:
    """Pools do not meet, and one that comes back has the ids of its volumes."""
    assert first_node_id(own, others) == first


def test_pools_of_a_file_do_not_collide() -> None:
    """A second pool needs no ids written by hand."""
    assert _firsts("") == [0]
    assert _firsts("", "", "") == [0, 1000, 2000]
    assert _firsts("", ", nodeIds: {first: 0}", "") == [1000, 0, 2000]
    assert _firsts("", ", nodes: [{nodeId: 7, rack: a}]", ", decommission: [4001]") == [1000, 0, 4000]


def test_node_ids_that_are_named_belong_to_one_range() -> None:
    with pytest.raises(
        ManifestError, match="nodes: 15000 is not a node id of this pool, which has 0 to 9999"
    ):
        _firsts(", nodes: [{nodeId: 3}, {nodeId: 15000}]")
