"""The pod of a node: formatted by an init container, run under restricted pod security.

A pod is created for each start. Its annotations have the revision and addresses that its process runs with.
"""

import json
import re
from collections.abc import Mapping, Sequence

from quorate_operator.models.base import quantity_bytes
from quorate_operator.models.object_names import short_name
from quorate_operator.models.pod_templates import Probes, Resources
from quorate_operator.models.security import ScramUsers
from quorate_operator.models.storage import METADATA_VOLUME
from quorate_operator.planning.cluster import Address, DesiredCluster, DesiredNode, Implementation, Role
from quorate_operator.planning.differences import record_of
from quorate_operator.planning.features import initial_metadata_version
from quorate_operator.planning.lifecycle import CONTROLLER_GRACE_MS, grace_ms
from quorate_operator.properties import initial_controllers
from quorate_operator.resources.configs import (
    CONFIG_DIRECTORY,
    PROPERTIES_FILE,
    advertised_text,
    listeners_text,
    log4j2_file,
    quorum_facts,
    secret_files,
    secured_properties,
)
from quorate_operator.resources.containers import (
    HOME,
    LAST_WORDS,
    TMP_MOUNT,
    container,
    helper_resources,
    pod_basics,
    tmp_volume,
)
from quorate_operator.resources.data_volumes import add_further_volumes, pod_volume, volume_mount
from quorate_operator.resources.facts import Context, Object
from quorate_operator.resources.jmx_metrics import (
    AGENT_CONTAINER,
    agent_mount,
    agent_option,
    agent_volumes,
    copy_command,
    has_agent,
)
from quorate_operator.resources.names import (
    ANNOTATION_ADVERTISED,
    ANNOTATION_LISTENERS,
    ANNOTATION_RENDERING,
    ANNOTATION_REVISION,
    CONDITION_IN_SYNC,
    LABEL_PURPOSE,
    cluster_labels,
    labels_of,
    metadata,
    pod_name,
)
from quorate_operator.resources.pod_addresses import HTTP_PORT, http_port, listener_port
from quorate_operator.resources.shared_pods import with_controller
from quorate_operator.resources.shipping import history_of, history_volume, ship_container
from quorate_operator.resources.topology import (
    RACK_CONTAINER,
    await_rack_command,
    first_spread,
    preferred_spread,
    rack_mounts,
    rack_volumes,
    topology_key,
)
from quorate_operator.security import java_options, keys_in_use

TERMINATION_LOG = "/dev/termination-log"
FORMAT_CONTAINER = "format"
NODE_CONTAINER = "node"
TASK_CONTAINER = "task"
PURPOSE_TASK = "task"
KAFKA_START = "/opt/kafka/bin/kafka-server-start.sh"
TMP_SIZE = "256Mi"
_WITH_OPTIONS = 'export KAFKA_OPTS="${KAFKA_OPTS:-} %s"; exec "$0" "$@"'
SECRET_MODE = 0o440
SCRAM_USERS_DIRECTORY = "/etc/quorate-scram-users"
_SCRAM_USERS_VOLUME = "scram-users"

_REQUESTS: Mapping[tuple[Role, Implementation], Mapping[str, str]] = {
    (Role.CONTROLLER, Implementation.PYTHON): {"cpu": "100m", "memory": "256Mi"},
    # Without a memory limit, Kafka's scripts set a heap of 1 GiB.
    (Role.CONTROLLER, Implementation.JAVA): {"cpu": "100m", "memory": "1280Mi"},
    (Role.BROKER, Implementation.JAVA): {"cpu": "250m", "memory": "1536Mi"},
}
"""The requests of a node's container where the template has none."""
_HELPER_RESOURCES: Object = {"requests": {"cpu": "50m", "memory": "64Mi"}, "limits": {"memory": "256Mi"}}
_HEAP_BYTES_MIN = 64 * 2**20


def node_pod(
    context: Context,
    desired: DesiredCluster,
    node: DesiredNode,
    advertised: Mapping[str, Address],
    *,
    is_initial: bool,
    is_placed: bool = True,
    beside: Object | None = None,
) -> Object:
    """Return the pod that runs a node with these advertised addresses by listener name.

    `is_initial`: an empty disk is formatted as one of the first voters; otherwise it joins. `is_placed`: it was used
    before, and may bind the pod to a node or zone. `beside` is the pod of a controller that is to run in this one.
    """
    spec = pod_spec(context, node)
    if node.role is Role.BROKER:
        # The gate is not part of the revision: pods that were created without it get it at their next start.
        spec["readinessGates"] = [{"conditionType": CONDITION_IN_SYNC}]
    if not is_placed:
        spec["topologySpreadConstraints"] = first_spread(context, node)
    spec["initContainers"] = [format_container(context, desired, node, is_initial=is_initial)]
    # Volumes are a part of the revision of their own, by their ids.
    add_further_volumes(context, node, spec, spec["containers"][0], spec["initContainers"][0])
    if topology_key(context, node.pool) is not None:
        spec["initContainers"].append(_await_rack_container(context, node))
    if has_agent(context, node):
        spec["initContainers"].append(_agent_container(context, node))
    users = _first_scram_users(context, node, is_initial=is_initial)
    if users is not None:
        secret = {"secretName": users.secret_name, "defaultMode": SECRET_MODE}
        spec["volumes"].append({"name": _SCRAM_USERS_VOLUME, "secret": secret})
        mount = {"name": _SCRAM_USERS_VOLUME, "mountPath": SCRAM_USERS_DIRECTORY, "readOnly": True}
        spec["initContainers"][0]["volumeMounts"].append(mount)
    template = context.pool(node.pool).spec.template
    annotations = dict(template.annotations) | {
        ANNOTATION_REVISION: json.dumps(dict(node.revision), sort_keys=True),
        ANNOTATION_ADVERTISED: advertised_text({**node.advertised, **advertised}),
        ANNOTATION_LISTENERS: listeners_text(context, node),
    }
    if (record := record_of(node.rendering)) is not None:
        annotations[ANNOTATION_RENDERING] = record
    pod: Object = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": metadata(
            context,
            pod_name(node.pool, node.node_id),
            dict(template.labels) | labels_of(context, node),
            owner=context.pool(node.pool),
            annotations=annotations,
        ),
        "spec": spec,
    }
    return pod if beside is None else with_controller(pod, beside)


def dry_run_pod(context: Context, desired: DesiredCluster, node: DesiredNode) -> Object:
    """Return the pod of a node's next start under another name, for a dry run.

    With the name of the running pod, the dry run would be a change of that pod.
    """
    beside = None
    if node.pod_mate is not None:
        both = {
            other.node_id: other for other in desired.nodes if other.node_id in (node.node_id, node.pod_mate)
        }
        controller, node = sorted(both.values(), key=lambda own: own.role is Role.BROKER)
        beside = node_pod(context, desired, controller, {}, is_initial=False)
    pod = node_pod(context, desired, node, {}, is_initial=False, beside=beside)
    pod["metadata"]["name"] = short_name(f"{pod_name(node.pool, node.node_id)}-dry-run")
    return pod


def task_pod(context: Context, node: DesiredNode, name: str, arguments: Sequence[str]) -> Object:
    """Return a pod that runs one `quorate` command on the volume of a stopped node, and ends.

    `name` distinguishes the node's tasks. The termination log has the result.
    """
    spec = _pod_basics(context, node)
    spec |= {"restartPolicy": "Never", "terminationGracePeriodSeconds": CONTROLLER_GRACE_MS // 1000}
    spec["containers"] = [_quorate_container(context, node, TASK_CONTAINER, arguments)]
    # Without the labels by which Services, budgets and spreads select the node.
    labels = {
        key: value
        for key, value in labels_of(context, node).items()
        if key not in cluster_labels(context, node.role) or key == "quorate.dev/cluster"
    }
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": metadata(
            context,
            short_name(f"{pod_name(node.pool, node.node_id)}-{name}"),
            labels | {LABEL_PURPOSE: PURPOSE_TASK},
            owner=context.pool(node.pool),
        ),
        "spec": spec,
    }


def rebuild_quorum_arguments(above_epoch: int = 0) -> tuple[str, ...]:
    """Return the `quorate` command that makes a stopped controller the only voter of its quorum."""
    config = f"{CONFIG_DIRECTORY}/{PROPERTIES_FILE}"
    return ("controller", "rebuild-quorum", "--config", config, "--above-epoch", str(above_epoch))


def format_arguments(
    context: Context, desired: DesiredCluster, node: DesiredNode, *, is_initial: bool
) -> tuple[str, ...]:
    """Return the `quorate` command that formats a node's volume, and does nothing to a formatted one.

    It writes the directory id to the termination log, where the operator reads it.
    """
    formation = context.facts.formation
    cluster_id = formation.cluster_id if formation else desired.cluster_id
    assert cluster_id is not None, "the identity is settled before the first node"
    arguments = ["controller", "format", "--config", f"{CONFIG_DIRECTORY}/{PROPERTIES_FILE}"]
    arguments += ["--cluster-id", cluster_id, "--ignore-formatted", "--directory-id-to", TERMINATION_LOG]
    if node.role is Role.CONTROLLER:
        if desired.dynamic_quorum and is_initial:
            founders = [voter for voter in quorum_facts(context, desired, node).voters if voter.directory_id]
            arguments += ["--initial-controllers", initial_controllers(founders)]
        elif desired.dynamic_quorum:
            arguments.append("--no-initial-controllers")
        users = _first_scram_users(context, node, is_initial=is_initial)
        if users is not None:
            arguments += ["--add-scram-from", f"{users.mechanism}={SCRAM_USERS_DIRECTORY}"]
        arguments += ["--release-version", initial_metadata_version(desired)]
        if node.implementation is Implementation.JAVA:
            arguments.append("--stock-kafka")
    return tuple(arguments)


def _first_scram_users(context: Context, node: DesiredNode, *, is_initial: bool) -> ScramUsers | None:
    """Return the SCRAM users of a new cluster that a node is formatted with."""
    is_founder = is_initial and node.role is Role.CONTROLLER
    return context.manifests.controllers.spec.scram_users if is_founder else None


def format_container(
    context: Context, desired: DesiredCluster, node: DesiredNode, *, is_initial: bool
) -> Object:
    """Return the init container. Quorate also formats brokers' volumes, in the same way as Kafka."""
    arguments = format_arguments(context, desired, node, is_initial=is_initial)
    return _quorate_container(context, node, FORMAT_CONTAINER, arguments)


def pod_spec(context: Context, node: DesiredNode) -> Object:
    """Return the spec of a node's pod without the format container.

    Pods with different specs are different revisions.
    """
    spec = _pod_basics(context, node)
    is_controller = node.role is Role.CONTROLLER
    template = context.pool(node.pool).spec.template
    usual_s = grace_ms(node.role) // 1000
    spec |= {
        "hostname": pod_name(node.pool, node.node_id),
        "subdomain": node.pool,
        "restartPolicy": "Always",
        "terminationGracePeriodSeconds": template.termination_grace_period_seconds or usual_s,
        "topologySpreadConstraints": preferred_spread(context, node),
        "containers": [_node_container(context, node)],
    }
    spec["volumes"] += [dict(volume) for volume in template.volumes]
    history = history_of(context)
    if history is not None and is_controller:
        spec["containers"].append(ship_container(context))
        spec["volumes"].append(history_volume(context, history))
    spec["containers"] += [
        {"terminationMessagePolicy": LAST_WORDS, **sidecar} for sidecar in template.sidecars
    ]
    return spec


def _pod_basics(context: Context, node: DesiredNode) -> Object:
    """Return the common parts of pods on a node's volume."""
    return pod_basics(context, context.pool(node.pool).spec.template, _volumes(context, node))


def _volumes(context: Context, node: DesiredNode) -> list[Object]:
    volumes: list[Object] = [
        pod_volume(node, METADATA_VOLUME),
        {"name": "config", "configMap": {"name": pod_name(node.pool, node.node_id)}},
        tmp_volume(TMP_SIZE),
        *rack_volumes(context, node),
        *agent_volumes(context, node),
    ]
    for name, keys in _secrets(context, node).items():
        items = [{"key": key, "path": key} for key in sorted(keys)]
        secret = {"secretName": name, "defaultMode": SECRET_MODE, "items": items}
        volumes.append({"name": _secret_volume(name), "secret": secret})
    return volumes


def _secrets(context: Context, node: DesiredNode) -> Mapping[str, frozenset[str]]:
    """Return the keys that the node reads, by Secret: it gets no others."""
    return dict(sorted(keys_in_use(node, secured_properties(context, node)).items()))


def _secret_volume(name: str) -> str:
    return short_name(f"secret-{name}")


def _mounts(context: Context, node: DesiredNode) -> list[Object]:
    mounts: list[Object] = [
        volume_mount(METADATA_VOLUME),
        {"name": "config", "mountPath": CONFIG_DIRECTORY, "readOnly": True},
        TMP_MOUNT,
        *rack_mounts(context, node),
    ]
    files = secret_files(context)
    mounts += [
        {"name": _secret_volume(name), "mountPath": files.directory(name), "readOnly": True}
        for name in _secrets(context, node)
    ]
    return mounts


def _container(context: Context, node: DesiredNode, name: str, image: str) -> Object:
    return container(context, context.pool(node.pool).spec.template, name, image)


def _quorate_container(context: Context, node: DesiredNode, name: str, arguments: Sequence[str]) -> Object:
    """Return a container that runs one command on the node's volume with Quorate's image."""
    return _container(context, node, name, context.facts.images.quorate) | {
        "command": ["quorate", *arguments],
        "env": [HOME],
        "resources": _helper_resources(context, node),
        "volumeMounts": _mounts(context, node),
    }


def _helper_resources(context: Context, node: DesiredNode) -> Object:
    return helper_resources(context.pool(node.pool).spec.template, _HELPER_RESOURCES)


def _await_rack_container(context: Context, node: DesiredNode) -> Object:
    return _container(context, node, RACK_CONTAINER, context.facts.images.quorate) | {
        "command": await_rack_command(),
        "resources": _helper_resources(context, node),
        "volumeMounts": [TMP_MOUNT, *rack_mounts(context, node)],
    }


def _agent_container(context: Context, node: DesiredNode) -> Object:
    return _container(context, node, AGENT_CONTAINER, context.facts.images.quorate) | {
        "command": copy_command(),
        "resources": _helper_resources(context, node),
        "volumeMounts": [agent_mount()],
    }


def _node_container(context: Context, node: DesiredNode) -> Object:
    made = _container(context, node, NODE_CONTAINER, context.image_of(node))
    template = context.pool(node.pool).spec.template
    resources = template.resources
    requests = _default_requests(node, resources) | dict(resources.requests)
    config = f"{CONFIG_DIRECTORY}/{PROPERTIES_FILE}"
    made["ports"] = [
        {"name": f"listener-{place}", "containerPort": listener_port(node, listener)}
        for place, listener in enumerate(node.listeners)
    ]
    made["resources"] = {
        key: dict(amounts)
        for key, amounts in (("requests", requests), ("limits", resources.limits))
        if amounts
    }
    made["volumeMounts"] = [*_mounts(context, node), *(dict(mount) for mount in template.volume_mounts)]
    if node.implementation is Implementation.PYTHON:
        made["command"] = ["quorate", "controller", "run", "--config", config, "--log-format", "json"]
        made["env"] = _with_given([HOME], template.env)
        made["ports"].append({"name": "http", "containerPort": http_port(node)})
        return made | _timed(_python_probes(), template.probes)
    options = java_options(secured_properties(context, node))
    if has_agent(context, node):
        options = (agent_option(CONFIG_DIRECTORY, context.pool(node.pool).spec.metrics), *options)
        made["ports"].append({"name": "http", "containerPort": HTTP_PORT})
        made["volumeMounts"].append({**agent_mount(), "readOnly": True})
    made["command"] = _start_command(config, options)
    log4j2 = f"{CONFIG_DIRECTORY}/{log4j2_file(context, node)}"
    made["env"] = _with_given(_kafka_environment(log4j2, resources.limits.get("memory")), template.env)
    return made | _timed(_kafka_probes(listener_port(node, node.listeners[0])), template.probes)


def _start_command(config: str, options: Sequence[str]) -> list[str]:
    """Return the command that starts stock Kafka with options of Java, after those that the template may have.

    An environment variable of the container would also add them to Kafka's tools that are run there by hand. With the
    agent for metrics they would fail, because the agent's port is in use.
    """
    command = [KAFKA_START, config]
    return ["/bin/sh", "-c", _WITH_OPTIONS % " ".join(options), *command] if options else command


def _with_given(variables: Sequence[Object], given: Sequence[Object]) -> list[Object]:
    """Return environment variables, those of the template last: a variable may refer to those before it."""
    names = {item.get("name") for item in given}
    return [
        *(variable for variable in variables if variable["name"] not in names),
        *(dict(item) for item in given),
    ]


def _default_requests(node: DesiredNode, resources: Resources) -> dict[str, str]:
    """Return default requests for resources without a limit: a pod without requests is the first to be killed."""
    own = _REQUESTS[node.role, node.implementation]
    return {name: amount for name, amount in own.items() if name not in resources.limits}


def _python_probes() -> Object:
    """Return probes. Ready means caught up in a quorum that has a leader; disruption budgets rely on it."""
    return {
        "startupProbe": _probe({"httpGet": {"path": "/healthz", "port": "http"}}, period_s=1, failures=300),
        "livenessProbe": _probe({"httpGet": {"path": "/healthz", "port": "http"}}, period_s=10, failures=6),
        "readinessProbe": _probe({"httpGet": {"path": "/readyz", "port": "http"}}, period_s=2, failures=3),
    }


def _kafka_probes(port: int) -> Object:
    """Stock Kafka opens its listeners when it has caught up with the metadata, just before it is unfenced.

    The readiness gate of its pod says whether its replicas are in sync.
    """
    check = {"tcpSocket": {"port": port}}
    return {
        # Recovery of large logs after a crash takes hours, and must not be interrupted: a day.
        "startupProbe": _probe(check, period_s=2, failures=43_200),
        "livenessProbe": _probe(check, period_s=10, failures=6),
        "readinessProbe": _probe(check, period_s=5, failures=3),
    }


def _probe(check: Object, *, period_s: int, failures: int) -> Object:
    return {**check, "periodSeconds": period_s, "failureThreshold": failures, "timeoutSeconds": 5}


def _timed(probes: Object, given: Probes) -> Object:
    """Return the probes with the times of the template."""
    times = {
        "startupProbe": given.startup,
        "livenessProbe": given.liveness,
        "readinessProbe": given.readiness,
    }
    return {
        name: probe | times[name].model_dump(by_alias=True, exclude_none=True)
        for name, probe in probes.items()
    }


def _kafka_environment(log4j2: str, memory_limit: str | None) -> list[Object]:
    environment = {
        # Kafka's scripts would write logs beside the program, where the pod may not write.
        "LOG_DIR": "/tmp/logs",  # noqa: S108 - the pod's own
        "KAFKA_LOG4J_OPTS": f"-Dlog4j2.configurationFile={log4j2}",
        "EXTRA_ARGS": "-name kafkaServer",  # without the garbage collector's own log
    }
    if memory_limit is not None and (heap := _heap_bytes(memory_limit)):
        environment["KAFKA_HEAP_OPTS"] = f"-Xms{heap >> 20}m -Xmx{heap >> 20}m"
    return [{"name": name, "value": value} for name, value in environment.items()]


def _heap_bytes(memory_limit: str) -> int | None:
    """Return the heap in bytes: half of the memory, as the page cache needs the rest. None for thousandths."""
    if re.search(r"m$", memory_limit):
        return None  # thousandths of bytes, which must be a mistake
    return max(_HEAP_BYTES_MIN, quantity_bytes(memory_limit) // 2)
