"""The spread of a role's pods over machines, zones and racks, unless the template has constraints."""

from quorate_operator.planning.cluster import DesiredNode, Role
from quorate_operator.resources.facts import Context, Object
from quorate_operator.resources.names import cluster_labels
from quorate_operator.resources.racks import topology_key

HOSTNAME = "kubernetes.io/hostname"
ZONE = "topology.kubernetes.io/zone"


def preferred_spread(context: Context, node: DesiredNode) -> list[Object]:
    """Returns the template's constraints, or the default ones of a node whose volume may keep it where it is.

    Constraints without a selector are about the pods of the node's role. By default no constraint is required: a
    volume may bind a pod to a machine or zone that has more than its share.
    """
    selector = _selector(context, node.role)
    given = context.pool(node.pool).spec.template.topology_spread_constraints
    if given is not None:
        return [selector | dict(constraint) for constraint in given]
    return [_constraint(key, selector) for key in (HOSTNAME, topology_key(context, node.pool) or ZONE)]


def first_spread(context: Context, node: DesiredNode) -> list[Object]:
    """Returns the constraints of a node with a new volume, which is created where the pod is scheduled.

    By default, the spread over racks is required where the pool names them, and the spread over machines otherwise.
    Each machine has the label with its name, while a required label that no machine has would make pods
    unschedulable.
    """
    if context.pool(node.pool).spec.template.topology_spread_constraints is not None:
        return preferred_spread(context, node)
    selector = _selector(context, node.role)
    required = topology_key(context, node.pool) or HOSTNAME
    preferred = [one for one in preferred_spread(context, node) if one["topologyKey"] != required]
    # Machines that accept no such pods are not counted: those of the control plane, cordoned ones.
    strict = {"whenUnsatisfiable": "DoNotSchedule", "nodeTaintsPolicy": "Honor"}
    return [_constraint(required, selector) | strict, *preferred]


def _selector(context: Context, role: Role) -> Object:
    return {"labelSelector": {"matchLabels": cluster_labels(context, role)}}


def _constraint(key: str, selector: Object) -> Object:
    return {"maxSkew": 1, "topologyKey": key, "whenUnsatisfiable": "ScheduleAnyway", **selector}
