"""Clusters for the builders: a manifest, completed with facts that a test chooses."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest
from quorate_operator.models.manifests import ManifestError, load_manifests
from quorate_operator.planning.cluster import DesiredCluster, DesiredNode, Formation
from quorate_operator.planning.desired import desired_cluster
from quorate_operator.resources.completion import complete
from quorate_operator.resources.facts import Context, Facts, Images
from quorate_operator.resources.pods import node_pod

FORMATION = Formation(
    cluster_id="4L6g3nShT-eMCtK--X86sw",
    initial_voters={3000: "A" * 22, 3001: "B" * 22, 3002: "C" * 22},
    is_formed=False,
)


@dataclass(frozen=True, slots=True)
class Cluster:
    """A completed cluster and what it was made of."""

    context: Context
    desired: DesiredCluster

    def node(self, node_id: int) -> DesiredNode:
        """The desired node of this id."""
        return next(node for node in self.desired.nodes if node.node_id == node_id)

    def pod(self, node_id: int, *, is_initial: bool = True, is_placed: bool = True) -> dict[str, Any]:
        """The pod of a node that advertises what is desired."""
        node = self.node(node_id)
        return node_pod(
            self.context,
            self.desired,
            node,
            node.advertised,
            is_initial=is_initial,
            is_placed=is_placed,
        )


Make = Callable[..., Cluster]


@pytest.fixture
def make() -> Make:
    """Make a cluster `quorum` with the pool `brokers`, from more lines of their specs and from facts."""

    def make_cluster(controllers: str = "", brokers: str = "", **facts: Any) -> Cluster:
        text = (
            "apiVersion: quorate.dev/v1alpha1\nkind: KafkaController\n"
            f"metadata: {{name: quorum}}\nspec: {{{controllers}}}\n"
            "---\napiVersion: quorate.dev/v1alpha1\nkind: KafkaBroker\n"
            f"metadata: {{name: brokers}}\nspec: {{controllers: quorum, {brokers}}}\n"
        )
        return completed(text, **facts)

    return make_cluster


def completed(text: str, **facts: Any) -> Cluster:
    """The cluster of manifests, completed with facts."""
    manifests = load_manifests(text, "m.yaml")
    known = Facts(
        **{"namespace": "kafka", "images": Images(quorate="quorate:9"), "formation": FORMATION, **facts}
    )
    desired = complete(desired_cluster(manifests), manifests, known)
    return Cluster(Context(manifests=manifests, facts=known), desired)


def manifest_fault(text: str) -> str:
    """The message about manifests that must be refused."""
    with pytest.raises(ManifestError) as refused:
        load_manifests(text, "m.yaml")
    return str(refused.value)


def changed_parts(before: DesiredNode, after: DesiredNode) -> set[str]:
    """The parts of the revision that differ."""
    names = before.revision.keys() | after.revision.keys()
    return {name for name in names if before.revision.get(name) != after.revision.get(name)}
