"""The image of a cluster as a tree: /image and /local."""

from collections.abc import Callable

from quorate_protocol.image import ImageState, Provenance

from quorate.tools.metadata_shell.tree.cluster import cluster
from quorate.tools.metadata_shell.tree.nodes import Directory, Leaf, Node, fixed, value
from quorate.tools.metadata_shell.tree.security import acls, delegation_tokens, scram
from quorate.tools.metadata_shell.tree.settings import (
    client_quotas,
    configs,
    features,
    producer_ids,
    provenance,
)
from quorate.tools.metadata_shell.tree.topics import topics

__all__ = ("Directory", "Leaf", "Node", "image_root")


def image_root(image: ImageState, where: Provenance, version: Callable[[], str]) -> Directory:
    """The root directory, with the end of the image in the log (`where`) and the version of this program.

    Nodes read the image when they are accessed: nothing is copied.
    """
    image_children: dict[str, Callable[[], Node]] = {
        "acls": lambda: acls(image),
        "clientQuotas": lambda: client_quotas(image),
        "cluster": lambda: cluster(image),
        "configs": lambda: configs(image),
        "delegationToken": lambda: delegation_tokens(image),
        "features": lambda: features(image),
        "producerIds": lambda: producer_ids(image),
        "provenance": lambda: provenance(where),
        "scram": lambda: scram(image),
        "topics": lambda: topics(image),
    }
    local = {"version": lambda: value(version()), "commitId": lambda: value("unknown")}
    return fixed({"image": lambda: fixed(image_children), "local": lambda: fixed(local)})
