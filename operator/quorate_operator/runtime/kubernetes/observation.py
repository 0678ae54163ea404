"""Observes nodes in pods, claims and ConfigMaps. Pure: objects of the API in, the planner's vocabulary out."""

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any

from quorate_protocol.properties import parse_properties

from quorate_operator.models.base import quantity_bytes
from quorate_operator.models.started_listeners import (
    StartedListener,
    StartedListeners,
    StartedNode,
    started_of,
)
from quorate_operator.models.storage import METADATA_VOLUME
from quorate_operator.planning.cluster import (
    Address,
    NodeState,
    ObservedNode,
    ObservedVolume,
    Role,
    Verification,
)
from quorate_operator.planning.differences import rendering_of
from quorate_operator.planning.losses import LostVolumes
from quorate_operator.resources.configs import PROPERTIES_FILE
from quorate_operator.resources.data_volumes import data_directory
from quorate_operator.resources.names import (
    ANNOTATION_ADVERTISED,
    ANNOTATION_LISTENERS,
    ANNOTATION_RENDERING,
    ANNOTATION_REVISION,
    ANNOTATION_VERIFIED,
    LABEL_COMPONENT,
    LABEL_NODE_ID,
    LABEL_POOL,
    LABEL_PURPOSE,
    LABEL_VOLUME,
    parse_address,
)
from quorate_operator.resources.pods import FORMAT_CONTAINER, NODE_CONTAINER
from quorate_operator.resources.shared_pods import LABEL_POD_MATE, halves_of
from quorate_operator.runtime.kubernetes.api import Object
from quorate_operator.runtime.last_error import last_error

ANNOTATION_DIRECTORY_ID = "quorate.dev/directory-id"
"""On claims: the directory id that the volume was formatted with."""
ANNOTATION_CLUSTER_ID = "quorate.dev/cluster-id"
"""On claims: the cluster of the volume, so that a new KafkaController of the same name continues with it."""
ANNOTATION_FORMAT = "quorate.dev/format"
"""On claims that were created for a node: `initial` or `join`, how an empty volume is formatted."""
ANNOTATION_RELEASED = "quorate.dev/released"
"""On claims of volumes that were removed from the manifest: `true` once the next start of the node is without it."""
ANNOTATION_REPLACEMENT = "quorate.dev/replacement"
"""On claims: `DesiredNode.replacement` as it was when the claim was created."""
FORMAT_INITIAL = "initial"
FORMAT_JOIN = "join"

VOLUME = "volume"
"""A part of `revision` that comes from the claim: `kept`, or `deleted` while a pod still holds it."""

_RESIZES = ("ControllerResizeError", "NodeResizeError", "FileSystemResizePending", "Resizing")
"""Conditions of a claim whose volume grows, what matters most first."""

_REASONS: Mapping[str, str] = {"OOMKilled": "OOMKilled: it needed more memory than its limit"}
"""What kubelet's reasons for the end of a container mean, where the name alone may not say it."""

_STABLE_AFTER_MS = 10 * 60_000
"""How long a container runs until kubelet counts its pauses between restarts from zero again."""

_DIRECTORY_ID = re.compile(r"[A-Za-z0-9_-]{22}")
_STUCK = frozenset(
    {
        "CreateContainerConfigError",
        "CreateContainerError",
        "ErrImageNeverPull",
        "ErrImagePull",
        "ImageInspectError",
        "ImagePullBackOff",
        "InvalidImageName",
        "RunContainerError",
    }
)


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeObjects:
    """The objects of one node that exist."""

    node_id: int
    role: Role
    pool: str
    pod: Object | None = None
    """Its pod; if it shares that, the half that is about this node, see `resources.shared_pods`."""
    pod_mate: int | None = None
    """The other node in its pod."""
    claims: Mapping[int, Object] = field(default_factory=dict)
    """By volume id."""
    config: Object | None = None

    @property
    def claim(self) -> Object | None:
        """The claim of the volume that every node has; None without one."""
        return self.claims.get(METADATA_VOLUME)


def by_node(
    pods: Iterable[Object], claims: Iterable[Object], configs: Iterable[Object]
) -> dict[int, NodeObjects]:
    """Return the nodes of which any object exists. Objects without Quorate's labels are ignored."""
    found: dict[int, dict[str, Any]] = {}
    for part, objects in (("config", configs), ("claim", claims), ("pod", pods)):
        for item in (half for whole in objects for half in (halves_of(whole) if part == "pod" else (whole,))):
            labels = item["metadata"].get("labels", {})
            if LABEL_PURPOSE in labels or not labels.get(LABEL_NODE_ID, "").isdecimal():
                continue
            try:
                role = Role(labels.get(LABEL_COMPONENT, ""))
            except ValueError:
                continue
            node = found.setdefault(int(labels[LABEL_NODE_ID]), {"claims": {}})
            node |= {"role": role, "pool": labels.get(LABEL_POOL, "")}
            if (mate := labels.get(LABEL_POD_MATE, "")).isdecimal():
                node["pod_mate"] = int(mate)
            if part == "claim":
                volume_id = labels.get(LABEL_VOLUME, str(METADATA_VOLUME))
                if volume_id.isdecimal():
                    node["claims"][int(volume_id)] = item
            else:
                node[part] = item
    return {node_id: NodeObjects(node_id=node_id, **parts) for node_id, parts in found.items()}


def observed_node(
    objects: NodeObjects, lost_volumes: LostVolumes | None = None, *, unreachable_host: bool = False
) -> ObservedNode:
    """Return the node as its objects show it. `gateway.readiness` judges whether a running one is in service."""
    pod, claim = objects.pod, objects.claim
    # The format container's message wins: a volume that lost its content was formatted again.
    directory_id = formatted_directory_id(pod) or annotation(claim, ANNOTATION_DIRECTORY_ID)
    is_prepared = claim is not None and (
        directory_id is not None
        or (objects.config is not None and annotation(claim, ANNOTATION_FORMAT) is not None)
    )
    state = NodeState.STOPPED if is_prepared else NodeState.ABSENT
    facts: dict[str, Any] = {"configured": configured_of(objects.config)}
    listeners = listeners_of(objects)
    if pod is not None:
        state, of_pod = _state_of(pod)
        is_leaving = claim is None or claim["metadata"].get("deletionTimestamp") is not None
        facts = of_pod | {
            "revision": {**revision_of(pod), VOLUME: "deleted" if is_leaving else "kept"},
            "rendering": rendering_of(_json(annotation(pod, ANNOTATION_RENDERING))),
            "configured": configured_of(pod),
        }
        if lost_volumes is not None and lost_volumes.is_known and of_pod.get("problem"):
            facts["problem"] = f"{of_pod['problem']}; {lost_volumes.reason}"
    return ObservedNode(
        node_id=objects.node_id,
        role=objects.role,
        pool=objects.pool,
        pod_mate=objects.pod_mate,
        state=state,
        directory_id=directory_id,
        has_volume=bool(objects.claims),
        replacement=annotation(claim, ANNOTATION_REPLACEMENT),
        volumes={volume_id: volume_of(volume_id, claim) for volume_id, claim in objects.claims.items()},
        unreachable_host=unreachable_host,
        lost_volumes=lost_volumes,
        listeners=listeners,
        # ForgetNode removes the configuration and leaves the claim.
        is_forgotten=pod is None and objects.config is None,
        **facts,
    )


def volumes_in_use(objects: NodeObjects) -> frozenset[int]:
    """Return the ids of the volumes that the node's next start uses, of those that it has."""
    return frozenset(volume_id for volume_id, claim in objects.claims.items() if _is_in_use(claim))


def _is_in_use(claim: Object) -> bool:
    is_going = claim["metadata"].get("deletionTimestamp") is not None
    return not is_going and annotation(claim, ANNOTATION_RELEASED) is None


def volume_of(volume_id: int, claim: Object) -> ObservedVolume:
    """Return a volume, without sizes that are written in a way that Quorate does not read."""
    status = claim.get("status", {})
    volume = ObservedVolume(directory=data_directory(volume_id), is_in_use=_is_in_use(claim))
    try:
        requested = quantity_bytes(str(claim["spec"]["resources"]["requests"]["storage"]))
        given = status.get("capacity", {}).get("storage")
        capacity = None if given is None else quantity_bytes(str(given))
    except (KeyError, ValueError):
        return volume
    conditions = {
        condition["type"]: condition
        for condition in status.get("conditions") or ()
        if condition["status"] == "True"
    }
    progress = next((conditions[kind] for kind in _RESIZES if kind in conditions), None)
    return replace(
        volume,
        requested_bytes=requested,
        capacity_bytes=capacity,
        progress=progress and ": ".join(part for part in (progress["type"], progress.get("message")) if part),
    )


def growth_refusal(refusal: str | None, claim: Object) -> str | None:
    """Return what the API server says of a larger claim, without the claim's name and with the StorageClass's."""
    if refusal is None:
        return None
    reason = refusal.removeprefix(f'persistentvolumeclaims "{claim["metadata"]["name"]}" is forbidden: ')
    class_name = claim["spec"].get("storageClassName")
    if "must support resize" not in reason or not class_name:
        return reason
    return f"the StorageClass {class_name} has no allowVolumeExpansion: {reason}"


def revision_of(pod: Object) -> Mapping[str, str]:
    """Return the `DesiredNode.revision` with which the pod was created, without the part of its claim."""
    return _json(annotation(pod, ANNOTATION_REVISION))


def configured_of(item: Object | None) -> dict[str, Address]:
    """Return the advertised addresses with which a pod or ConfigMap was created, by listener name."""
    written = _json(annotation(item, ANNOTATION_ADVERTISED))
    return {name: parse_address(text) for name, text in written.items()}


def listeners_of(objects: NodeObjects) -> StartedListeners | None:
    """Return the listeners that a node was started with; None if they are unknown.

    Pods of earlier releases have no record: what they read is in their ConfigMap.
    """
    started = started_of(annotation(objects.pod or objects.config, ANNOTATION_LISTENERS))
    if started is not None or objects.config is None:
        return started
    text = objects.config.get("data", {}).get(PROPERTIES_FILE, "")
    try:
        return _configured_listeners(parse_properties(text))
    except (KeyError, ValueError):
        return None


def started_nodes(nodes: Iterable[NodeObjects]) -> Iterator[StartedNode]:
    """Yield the nodes whose listeners are known."""
    for objects in nodes:
        listeners = listeners_of(objects)
        if listeners is not None:
            runs = objects.pod is not None and _state_of(objects.pod)[0].runs
            yield StartedNode(pool=objects.pool, listeners=listeners, is_running=runs)


def _configured_listeners(properties: Mapping[str, str]) -> StartedListeners | None:
    """Return what is known of a node's listeners by its properties. Raises KeyError and ValueError."""
    controllers = properties["controller.listener.names"].split(",")[0]
    protocols = dict(entry.split(":") for entry in properties["listener.security.protocol.map"].split(","))
    first = properties.get("inter.broker.listener.name", controllers)
    bound = (entry.partition("://") for entry in properties["listeners"].split(","))
    own = [
        StartedListener(name=name, protocol=protocols[name], port=int(address.rpartition(":")[2]))
        for name, _, address in bound
    ]
    own.sort(key=lambda listener: listener.name != first)
    return StartedListeners(own=tuple(own), controllers=controllers) if own else None


def verifications_of(objects: NodeObjects) -> tuple[Verification, ...]:
    """Return the stored verifications of a node's names. Entries that Quorate did not write are ignored."""
    written = _json(annotation(objects.config, ANNOTATION_VERIFIED))
    verified = []
    for text, at_ms in written.items():
        try:
            address = parse_address(text)
        except ValueError:
            continue
        if isinstance(at_ms, int):
            verified.append(Verification(address=address, node_id=objects.node_id, at_ms=at_ms))
    return tuple(verified)


def verified_text(verified: Iterable[Verification]) -> str | None:
    """Return the annotation that `verifications_of` reads; None without verifications."""
    times = {str(verification.address): verification.at_ms for verification in verified}
    return json.dumps(times, sort_keys=True) if times else None


def formatted_directory_id(pod: Object | None) -> str | None:
    """Return the directory id in the termination message of the format container, or None."""
    for status in _statuses(pod, "initContainerStatuses"):
        ended = status.get("state", {}).get("terminated") or {}
        if status["name"] == FORMAT_CONTAINER and ended.get("exitCode") == 0:
            words = (ended.get("message") or "").split()
            return words[-1] if words and _DIRECTORY_ID.fullmatch(words[-1]) else None
    return None


def is_suspicious(pod: Object) -> bool:
    """Whether the state of a pod depends on its Kubernetes node: it is not ready, or still being deleted."""
    if not pod["spec"].get("nodeName"):
        return False
    if pod["metadata"].get("deletionTimestamp") is not None:
        return True
    conditions = pod.get("status", {}).get("conditions", ())
    is_running = any("running" in status.get("state", {}) for status in _statuses(pod, "containerStatuses"))
    return is_running and any(
        condition["type"] == "Ready" and condition["status"] != "True" for condition in conditions
    )


def is_node_gone(node: Object | None) -> bool:
    """Whether a Kubernetes node no longer answers the control plane, or was removed."""
    if node is None:
        return True
    ready = [
        condition["status"]
        for condition in node.get("status", {}).get("conditions", ())
        if condition["type"] == "Ready"
    ]
    return ready == ["Unknown"]


def annotation(item: Object | None, name: str) -> str | None:
    """Return an annotation; None if the annotation or the object is missing."""
    if item is None:
        return None
    value = item["metadata"].get("annotations", {}).get(name)
    return value if isinstance(value, str) else None


def _state_of(pod: Object) -> tuple[NodeState, dict[str, Any]]:
    status = pod.get("status", {})
    phase = status.get("phase")
    if phase in ("Failed", "Succeeded"):
        reason = (
            ": ".join(status[part] for part in ("reason", "message") if status.get(part)) or f"pod {phase}"
        )
        ends_ms = [time_ms(text) for text in _ends(pod)]
        at_ms = max((ended_ms for ended_ms in ends_ms if ended_ms is not None), default=None)
        at_ms = at_ms or time_ms(pod["metadata"]["creationTimestamp"]) or 0
        return NodeState.CRASHED, {"exited_at_ms": at_ms, "exit_reason": reason, "exits_in_a_row": 1}
    main = next(
        (status for status in _statuses(pod, "containerStatuses") if status["name"] == NODE_CONTAINER), None
    )
    running = (main or {}).get("state", {}).get("running")
    facts: dict[str, Any] = {
        "problem": _problem(pod),
        "exits_in_a_row": 0 if main is None else _exits_in_a_row(main),
    }
    if main is None or running is None:
        # kubelet starts a container that ended again, after pauses of its own: the pod is there, and starting.
        since_ms = time_ms(pod["metadata"].get("creationTimestamp"))
        return NodeState.STARTING, {**facts, "waiting_since_ms": since_ms}
    state = NodeState.READY if main.get("ready") else NodeState.STARTING
    started_ms = time_ms(running.get("startedAt"))
    # In whole seconds: what the former process fetched in that second must not count for this one.
    return state, {
        **facts,
        "started_at_ms": None if started_ms is None else started_ms + 999,
        "has_opened": main.get("started"),  # its startup probe has passed
        "opened_at_ms": _ready_since_ms(pod) if main.get("ready") else None,
    }


def _ready_since_ms(pod: Object) -> int | None:
    """Return since when the probes of all containers pass."""
    for condition in pod.get("status", {}).get("conditions", ()):
        if condition["type"] == "ContainersReady" and condition["status"] == "True":
            return time_ms(condition.get("lastTransitionTime"))
    return None


def _problem(pod: Object) -> str | None:
    for condition in pod.get("status", {}).get("conditions", ()):
        if condition["type"] == "PodScheduled" and condition["status"] == "False":
            reason = condition.get("reason", "Unschedulable")
            return f"{reason}: {condition.get('message', 'no node to run it on')}"
    for status in (*_statuses(pod, "initContainerStatuses"), *_statuses(pod, "containerStatuses")):
        state = status.get("state", {})
        waiting = state.get("waiting") or {}
        reason = waiting.get("reason")
        if reason in _STUCK:
            return f"{reason}: {waiting.get('message', '')}"
        ended = _last_end(status)
        # A container that runs again has not recovered before it is ready.
        has_recovered = "running" in state and status.get("ready", False)
        if ended.get("exitCode", 0) != 0 and not has_recovered:
            return _ending(status["name"], ended, _times_ended(status))
    return None


def _last_end(status: Object) -> Object:
    """Return how a container ended the last time; an empty object if it never did."""
    ended = status.get("state", {}).get("terminated") or status.get("lastState", {}).get("terminated")
    return ended or {}


def _times_ended(status: Object) -> int:
    """Return how often a container has ended. kubelet counts an end when it starts the container again."""
    restarts: int = status.get("restartCount", 0)
    is_counted = "running" in status.get("state", {}) or not _last_end(status)
    return restarts if is_counted else restarts + 1


def _exits_in_a_row(status: Object) -> int:
    """Return how often a container ended, after short runs alone; 0 of one that is ready."""
    times = 0 if status.get("ready") else _times_ended(status)
    ended = _last_end(status)
    started_ms, ended_ms = time_ms(ended.get("startedAt")), time_ms(ended.get("finishedAt"))
    if started_ms is None or ended_ms is None or ended_ms - started_ms < _STABLE_AFTER_MS:
        return times
    return min(times, 1)


def _ending(container: str, ended: Object, times: int) -> str:
    """Return how a container ended, with kubelet's name for that and the last error that it wrote."""
    names = {FORMAT_CONTAINER: "formatting", NODE_CONTAINER: "the process"}
    what = names.get(container, f"the container {container}")
    reason = ended.get("reason", "Error")
    named = "" if reason == "Error" else f" ({_REASONS.get(reason, reason)})"
    # kubelet's own name is the reason then, and what was written last is not.
    error = last_error(ended.get("message") or "", marked_only=bool(named))
    so_far = "" if times <= 1 else f", {times} times so far"
    return f"{what} ended with status {ended['exitCode']}{named}{so_far}" + (f": {error}" if error else "")


def _ends(pod: Object) -> list[str | None]:
    states = [
        status.get("state", {}).get("terminated") or {} for status in _statuses(pod, "containerStatuses")
    ]
    return [state.get("finishedAt") for state in states]


def _statuses(pod: Object | None, part: str) -> list[Object]:
    return list((pod or {}).get("status", {}).get(part) or ())


def _json(text: str | None) -> Mapping[str, Any]:
    """Return a JSON object; an empty one for any other text, which Quorate did not write."""
    if not text:
        return {}
    try:
        content = json.loads(text)
    except (ValueError, RecursionError):
        return {}
    return content if isinstance(content, dict) else {}


def time_ms(text: str | None) -> int | None:
    return int(datetime.fromisoformat(text).timestamp() * 1000) if text else None
