"""Operators that die, one after the other: a loop over all steps of a plan."""

import json
from collections.abc import Callable, Iterable
from functools import partial
from typing import Any

import kubernetes.client
from kit.asking import Asking
from kit.operators.operated import QUORUM, Operated, OperatorProcess
from quorate_admin.types.configs import AlterConfigOp, ConfigResource
from quorate_operator.resources.names import ANNOTATION_ADVERTISED, ANNOTATION_VERIFIED, LABEL_CLUSTER
from quorate_protocol.kafka.enums import ConfigResourceType, ConfigSource
from quorate_protocol.uuids import uuid_to_text

MANAGED = LABEL_CLUSTER
DEFAULTS = ConfigResource(ConfigResourceType.BROKER, "")
DONE = "done: "
BEGUN = ": "
"""The part of a log line by which a step is done; the part by which it is begun."""


def kill_after_each_step(
    operated: Operated,
    is_done: Callable[[], bool],
    moments: tuple[str, ...] = (BEGUN, DONE),
    name: str = QUORUM,
) -> int:
    """Operators, one after the other, until one finds nothing to do; how many were killed.

    Each is killed when it logs that a step of `name` begins or is done, by turns as in `moments`.
    """
    kills = 0
    while True:
        operator = operated.start_operator()
        killed = operator.kill_at(partial(_is_step, moments[kills % len(moments)], name))
        operated.wait(lambda killed=killed: killed.is_set() or is_done(), "a step, or nothing left to do")
        operator.kill()
        if not killed.is_set():
            return kills
        kills += 1


def _is_step(moment: str, name: str, event: str) -> bool:
    return moment in event and name in event


def steps_of(operator: OperatorProcess, name: str, node_id: int) -> list[str]:
    """What an operator logged of one kind of step of one node: when it was begun, when it was done."""
    return [event for event in operator.events() if f": {name} " in event and f"-{node_id}: " in event]


def asking(operated: Operated) -> Asking:
    """Ask the controllers at their pods' addresses, whatever they advertise."""
    controllers = [
        f"{operated.agent.address_of(pod)}:{operated.port}"
        for pod in operated.pods()
        if pod.startswith(QUORUM)
    ]
    return Asking(controllers=",".join(controllers), follow_advertised=False, retries=len(controllers) - 1)


def configure_brokers(ask: Asking, **configs: str) -> None:
    """Commit what needs no broker: defaults of all of them; `_` stands for `.`."""
    changes = [AlterConfigOp(name=name.replace("_", "."), value=value) for name, value in configs.items()]
    ask(lambda client: client.incremental_alter_configs({DEFAULTS: changes})).raise_any()


def brokers_configs(ask: Asking) -> dict[str, str | None]:
    """The configs that `configure_brokers` has committed."""
    entries = ask(lambda client: client.describe_configs([DEFAULTS]))[DEFAULTS]
    dynamic = ConfigSource.DYNAMIC_DEFAULT_BROKER_CONFIG
    return {entry.name: entry.value for entry in entries if entry.source is dynamic}


def final_state(operated: Operated, *names: str) -> dict[str, Any]:
    """What a cluster has come to: its voters, registrations and addresses, and what Kubernetes has of it.

    `names` are replaced by their place, so that states can be compared in which a name is another one.
    """
    ask = asking(operated)
    quorum = ask(lambda client: client.describe_metadata_quorum())
    cluster = ask(lambda client: client.describe_cluster())
    status = operated.status()
    state = {
        "voters": {voter.node_id: uuid_to_text(voter.directory_id) for voter in quorum.voters},
        "endpoints": {node_id: str(endpoints) for node_id, endpoints in sorted(quorum.nodes.items())},
        "registrations": {node.node_id: f"{node.host}:{node.port}" for node in cluster.nodes},
        "levels": (status["metadataVersion"], status["quorum"]["kraftVersion"]),
        "formation": {
            **status["formation"],
            "initialVoters": [voter["nodeId"] for voter in status["formation"]["initialVoters"]],
        },
        "refusals": status.get("refusals"),
        "configs": brokers_configs(ask),
        "objects": _objects(operated),
    }
    text = json.dumps(state, sort_keys=True)
    for place, name in enumerate(names):
        text = text.replace(name, f"<name {place}>")
    return dict(json.loads(text))


def _objects(operated: Operated) -> dict[str, object]:
    """By name, what matters of claims, ConfigMaps, Services and budgets."""
    core, namespace = operated.core, operated.namespace
    budgets = kubernetes.client.PolicyV1Api(core.api_client)
    found: list[Any] = [
        *core.list_namespaced_persistent_volume_claim(namespace).items,
        *core.list_namespaced_config_map(namespace, label_selector=MANAGED).items,
    ]
    reported = (
        "quorate.dev/directory-id",
        "quorate.dev/cluster-id",
        ANNOTATION_ADVERTISED,
        ANNOTATION_VERIFIED,
    )
    objects: dict[str, object] = {
        f"{type(item).__name__} {item.metadata.name}": {
            name: value for name, value in (item.metadata.annotations or {}).items() if name in reported
        }
        for item in found
    }
    for service in core.list_namespaced_service(namespace, label_selector=MANAGED).items:
        objects[f"Service {service.metadata.name}"] = service.spec.selector
    for budget in budgets.list_namespaced_pod_disruption_budget(namespace).items:
        objects[f"budget {budget.metadata.name}"] = budget.spec.min_available
    return objects


def pods_so_far(operated: Operated, node_ids: Iterable[int]) -> dict[int, int]:
    """How many pods each controller has had."""
    return {
        node_id: len(list(operated.agent.directory.glob(f"{QUORUM}-{node_id}-*"))) for node_id in node_ids
    }
