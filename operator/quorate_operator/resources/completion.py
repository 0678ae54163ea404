"""Completes a desired cluster with what only Kubernetes knows: addresses, and the revisions of pods."""

from collections.abc import Mapping
from dataclasses import replace

from quorate_operator.models.manifests import Manifests
from quorate_operator.planning.cluster import DesiredCluster, DesiredNode
from quorate_operator.planning.logins import LOGIN
from quorate_operator.resources.configs import config_revision, copies_revision
from quorate_operator.resources.facts import Context, Facts, digest
from quorate_operator.resources.pod_addresses import advertised, controlled, interim
from quorate_operator.resources.pods import pod_spec
from quorate_operator.resources.secrets import are_usable, secret_names
from quorate_operator.resources.shipping import SHIP_CONTAINER
from quorate_operator.security import secret_revision


def complete(desired: DesiredCluster, manifests: Manifests, facts: Facts) -> DesiredCluster:
    """Returns the cluster with addresses and revisions. Raises TemplateError for an invalid host."""
    context = Context(manifests=manifests, facts=facts)
    addressed = replace(
        desired,
        nodes=tuple(_with_addresses(context, node) for node in desired.nodes),
        drained=tuple(_with_addresses(context, node) for node in desired.drained),
    )
    nodes = tuple(
        replace(node, revision={**node.revision, **_revision(context, addressed, node)})
        for node in addressed.nodes
    )
    return replace(addressed, nodes=nodes)


def _with_addresses(context: Context, node: DesiredNode) -> DesiredNode:
    told, aside = advertised(context, node), interim(context, node)
    return replace(
        node,
        advertised=told,
        interim=aside,
        controlled=controlled(context, told) | controlled(context, aside),
    )


def _revision(context: Context, desired: DesiredCluster, node: DesiredNode) -> Mapping[str, str]:
    """Returns a node's revision: what a running pod can't change, by names for people."""
    template = context.pool(node.pool).spec.template
    spec = pod_spec(context, node)
    container, *sidecars = spec["containers"]
    rest = {key: value for key, value in spec.items() if key != "containers"}
    if sidecars:  # a new release of Quorate does not restart Java nodes: their next start brings it
        rest["sidecars"] = [
            {
                key: value
                for key, value in sidecar.items()
                if key != "image" or sidecar["name"] != SHIP_CONTAINER
            }
            for sidecar in sidecars
        ]
    rest["container"] = {key: value for key, value in container.items() if key not in ("image", "resources")}
    revision = {
        "config": digest(config_revision(context, desired, node)),
        "image": str(container["image"]),
        "resources": digest(container["resources"]),
        "pod": digest([rest, template.labels, template.annotations]),
        **copies_revision(desired, node),
    }
    if are_usable(context, secret_names(context, node)):
        controllers = context.manifests.controllers.spec.listeners[0]
        found = secret_revision(node, controllers, context.facts.secrets)
        return revision | {part: digest(text) if part != LOGIN else text for part, text in found.items()}
    # A running node goes on without the Secret; one that is restarted would wait for it.
    running = context.facts.revisions.get(node.node_id, {})
    return revision | {part: running[part] for part in ("config", "pod", "secrets", LOGIN) if part in running}
