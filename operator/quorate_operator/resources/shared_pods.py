"""The pod of a broker with a controller in it: two pods, each as it is alone, in one.

The controller's containers, volumes and ports have names of their own, and what the pods of nodes have in annotations
is there twice. So everything that reads pods reads either half as a pod of one node, see `halves_of`.

The controller is a sidecar of Kubernetes (KEP-753): it starts before the broker, is restarted alone, and ends after
the broker, whose controlled shutdown needs a quorum.
"""

from collections.abc import Mapping
from typing import Final

from quorate_operator.models.object_names import short_name
from quorate_operator.planning.cluster import Role
from quorate_operator.resources.facts import Object
from quorate_operator.resources.names import (
    ANNOTATION_ADVERTISED,
    ANNOTATION_LISTENERS,
    ANNOTATION_RENDERING,
    ANNOTATION_REVISION,
    LABEL_CLUSTER,
    LABEL_COMPONENT,
    LABEL_CONTROLLER_ID,
    LABEL_NODE_ID,
    LABEL_POOL,
    LABEL_RUNS_CONTROLLER,
)

LABEL_POD_MATE: Final = "quorate.dev/pod-mate"
"""On halves of pods, and on no object of the API server: the node id of the other half."""
_PREFIX: Final = "controller-"
_OF_CONTROLLER: Final = "-of-controller"
_TWICE: Final = (ANNOTATION_ADVERTISED, ANNOTATION_LISTENERS, ANNOTATION_RENDERING, ANNOTATION_REVISION)
CONTROLLER_CONTAINER: Final = "controller"
_CONTAINERS: Final[Mapping[str, str]] = {
    "node": CONTROLLER_CONTAINER,
    "format": f"{_PREFIX}format",
    "ship": f"{_PREFIX}ship",
}
"""The containers of a controller's own pod, by the names that they have there."""
_ALONE: Final[Mapping[str, str]] = {name: alone for alone, name in _CONTAINERS.items()}


def with_controller(broker: Object, controller: Object) -> Object:
    """Return the pod of both nodes, from the pods that they would have alone."""
    spec, beside = dict(broker["spec"]), controller["spec"]
    node, *others = (_renamed(container) for container in beside["containers"])
    formatting = [_renamed(container) for container in beside["initContainers"]]
    spec["initContainers"] = [*formatting, node | {"restartPolicy": "Always"}, *spec["initContainers"]]
    spec["containers"] = [*spec["containers"], *others]
    spec["volumes"] = [
        *spec["volumes"],
        *({**volume, "name": _volume_name(volume["name"])} for volume in beside["volumes"]),
    ]
    spec["terminationGracePeriodSeconds"] = max(
        spec["terminationGracePeriodSeconds"], beside["terminationGracePeriodSeconds"]
    )
    described, own = broker["metadata"], controller["metadata"]
    node_id = own["labels"][LABEL_NODE_ID]
    labels = {**described["labels"], LABEL_CONTROLLER_ID: node_id, LABEL_RUNS_CONTROLLER: "true"}
    doubled = {
        f"{name}{_OF_CONTROLLER}": own["annotations"][name] for name in _TWICE if name in own["annotations"]
    }
    annotations = {**described["annotations"], **doubled}
    return {**broker, "metadata": {**described, "labels": labels, "annotations": annotations}, "spec": spec}


def halves_of(pod: Object) -> tuple[Object, ...]:
    """Return a pod as the pods of its nodes: as it is, or that of the broker and that of the controller."""
    labels = pod["metadata"].get("labels", {})
    controller_id = labels.get(LABEL_CONTROLLER_ID)
    if controller_id is None:
        return (pod,)
    given = pod["metadata"].get("annotations", {})
    annotations = {key: value for key, value in given.items() if key not in _TWICE}
    annotations |= {
        name: given[f"{name}{_OF_CONTROLLER}"] for name in _TWICE if f"{name}{_OF_CONTROLLER}" in given
    }
    of_controller = {
        **labels,
        LABEL_COMPONENT: Role.CONTROLLER.value,
        LABEL_NODE_ID: controller_id,
        LABEL_POOL: labels.get(LABEL_CLUSTER, ""),
        LABEL_POD_MATE: labels.get(LABEL_NODE_ID, ""),
    }
    described = pod["metadata"]
    return (
        {
            **pod,
            "metadata": {**described, "labels": {**labels, LABEL_POD_MATE: controller_id}},
            "status": _status(pod, is_controller=False),
        },
        {
            **pod,
            "metadata": {**described, "labels": of_controller, "annotations": annotations},
            "status": _status(pod, is_controller=True),
        },
    )


def _status(pod: Object, *, is_controller: bool) -> Object:
    """Return the status of a pod with the containers of one of its nodes."""
    status = pod.get("status", {})
    found: dict[str, list[Object]] = {"initContainerStatuses": [], "containerStatuses": []}
    for part in found:
        for item in status.get(part) or ():
            alone = _ALONE.get(item["name"])
            if (alone is not None) is not is_controller:
                continue
            named = item if alone is None else {**item, "name": alone}
            where = "containerStatuses" if item["name"] == CONTROLLER_CONTAINER else part
            found[where].append(named)
    return {**status, **found}


def _renamed(container: Object) -> Object:
    """Return a container of a controller's pod as it is in the pod of a broker."""
    renamed = {**container, "name": _CONTAINERS.get(container["name"], f"{_PREFIX}{container['name']}")}
    renamed["volumeMounts"] = [
        {**mount, "name": _volume_name(mount["name"])} for mount in container.get("volumeMounts", ())
    ]
    if "ports" in container:
        renamed["ports"] = [{**port, "name": _port_name(port["name"])} for port in container["ports"]]
    for probe in ("startupProbe", "livenessProbe", "readinessProbe"):
        if probe in container and "httpGet" in container[probe]:
            get = container[probe]["httpGet"]
            renamed[probe] = {**container[probe], "httpGet": {**get, "port": _port_name(get["port"])}}
    return renamed


def _volume_name(name: str) -> str:
    return short_name(f"{_PREFIX}{name}")


def _port_name(name: str) -> str:
    return f"{_PREFIX}{name.removeprefix('listener-')}"
