"""Completes a desired cluster with what only Kubernetes knows: addresses, and the revisions of pods."""

from collections.abc import Mapping
from dataclasses import replace

from quorate_operator.models.manifests import Manifests
from quorate_operator.planning.cluster import DesiredCluster, DesiredNode, Role
from quorate_operator.planning.desired import in_pods
from quorate_operator.planning.logins import LOGINS
from quorate_operator.planning.pods import CONTROLLER
from quorate_operator.planning.rollout import AUTHORITIES
from quorate_operator.planning.volumes import volumes_revision
from quorate_operator.renderings import (
    rendered_pod,
    rendered_properties,
    rendered_resources,
    rendered_secrets,
)
from quorate_operator.resources.configs import config_revision, copies_revision
from quorate_operator.resources.data_volumes import volumes_in_use
from quorate_operator.resources.facts import Context, Facts, Object, digest
from quorate_operator.resources.issued_certificates import carried_by
from quorate_operator.resources.pod_addresses import advertised, controlled, interim, unassigned
from quorate_operator.resources.pods import pod_spec
from quorate_operator.resources.secrets import are_usable, secret_names
from quorate_operator.resources.shipping import SHIP_CONTAINER
from quorate_operator.security import secret_revision


def complete(desired: DesiredCluster, manifests: Manifests, facts: Facts) -> DesiredCluster:
    """Return the cluster with addresses and revisions. Raises TemplateError for an invalid host."""
    context = Context(manifests=manifests, facts=facts)
    desired = in_pods(desired, manifests)
    addressed = replace(
        desired,
        nodes=tuple(_with_addresses(context, node) for node in desired.nodes),
        drained=tuple(_with_addresses(context, node) for node in desired.drained),
    )
    return replace(
        addressed, nodes=tuple(_with_revision(context, addressed, node) for node in addressed.nodes)
    )


def _with_addresses(context: Context, node: DesiredNode) -> DesiredNode:
    reported, aside = advertised(context, node), interim(context, node)
    return replace(
        node,
        advertised=reported,
        interim=aside,
        controlled=controlled(context, reported) | controlled(context, aside),
        unassigned=unassigned(context, node),
    )


def _with_revision(context: Context, desired: DesiredCluster, node: DesiredNode) -> DesiredNode:
    """Return the node with what a running pod can't change, as hashes and as it is rendered."""
    template = context.pool(node.pool).spec.template
    rest, container = _compared_spec(context, node)
    config = config_revision(context, desired, node)
    revision = {
        "config": digest(config),
        "image": str(container["image"]),
        "resources": digest(container["resources"]),
        "pod": digest([rest, template.labels, template.annotations]),
        **copies_revision(desired, node),
        **volumes_revision(volumes_in_use(context, node)),
    }
    if node.role is Role.BROKER and node.pod_mate is not None:
        revision[CONTROLLER] = str(node.pod_mate)
    secrets = _secret_revision(context, node)
    if secrets is None:
        # A running node does not need the Secret; a restarted node would wait for it.
        running = context.facts.revisions.get(node.node_id, {})
        kept = ("config", "pod", "secrets", *sorted(LOGINS), AUTHORITIES)
        revision |= {part: running[part] for part in kept if part in running}
    else:
        revision |= {part: digest(text) if part not in LOGINS else text for part, text in secrets.items()}
        if (carried := carried_by(context, node)) is not None:
            revision[AUTHORITIES] = carried
    rendering = {
        "config": rendered_properties(config),
        "resources": rendered_resources(container["resources"]),
        "pod": rendered_pod(rest, template.labels, template.annotations),
        "secrets": rendered_secrets((secrets or {}).get("secrets", "{}")),
    }
    return replace(node, revision={**node.revision, **revision}, rendering=rendering)


def _secret_revision(context: Context, node: DesiredNode) -> Mapping[str, str] | None:
    """Return the parts of the revision that depend on values of Secrets; None while one is missing."""
    if not are_usable(context, secret_names(context, node)):
        return None
    controllers = context.manifests.controllers_listener(node.controllers_listener)
    return secret_revision(node, controllers, context.facts.secrets)


def _compared_spec(context: Context, node: DesiredNode) -> tuple[Object, Object]:
    """Return the spec of a node's pod that a revision is made of, and the node's container in it."""
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
    return rest, container
