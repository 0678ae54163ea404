"""A cluster from its resources: text, findings, and which pool a node id belongs to."""

from typing import Any

import pytest
from quorate.clusters.findings import findings_of, is_healthy
from quorate.clusters.resources import Cluster, clusters_of
from quorate.clusters.text import cluster_text, clusters_text, doctor_text, plan_json, plan_text

WHEN = "2026-01-01T00:00:00Z"


def _condition(kind: str, status: str, message: str = "") -> dict[str, str]:
    return {
        "type": kind,
        "status": status,
        "reason": "Test",
        "message": message,
        "lastTransitionTime": WHEN,
    }


def _controllers(status: dict[str, Any] | None = None, **spec: Any) -> dict[str, Any]:
    return {
        "kind": "KafkaController",
        "metadata": {"name": "quorum", "namespace": "kafka", "generation": 2},
        "spec": {"replicas": 3, "nodeIds": {"first": 3000}, **spec},
        "status": status or {},
    }


def _brokers(name: str, first: int, status: dict[str, Any] | None = None, **spec: Any) -> dict[str, Any]:
    return {
        "kind": "KafkaBroker",
        "metadata": {"name": name, "namespace": "kafka", "generation": 1},
        "spec": {"controllers": "quorum", "replicas": 3, "nodeIds": {"first": first}, **spec},
        "status": status or {},
    }


HEALTHY: dict[str, Any] = {
    "observedGeneration": 2,
    "conditions": [_condition("Ready", "True"), _condition("QuorumHealthy", "True")],
    "clusterId": "MkU3OEVBNTcwNTJENDM2Qg",
    "metadataVersion": "4.3-IV0",
    "quorum": {"leaderId": 3001, "epoch": 7, "highWatermark": 812, "kraftVersion": 1},
    "voters": [
        {
            "nodeId": 3000 + place,
            "directoryId": f"d{place}",
            "endpoint": f"c{place}:9093",
            "caughtUp": True,
            "lag": 0,
        }
        for place in range(3)
    ],
}


def _cluster(controllers: dict[str, Any], *brokers: dict[str, Any]) -> Cluster:
    (found,) = clusters_of([controllers], brokers)
    return found


def test_a_cluster_is_reported_in_full() -> None:
    brokers = {
        "readyReplicas": 2,
        "conditions": [_condition("Ready", "False", "one is down")],
        "brokers": [{"nodeId": 1, "state": "crashed", "advertised": {"EXTERNAL": "b1.example.com:9094"}}],
        "plan": [{"step": "StartNode", "nodeId": 1, "reason": "it died (exit status 1)"}],
    }
    lines = cluster_text(_cluster(_controllers(HEALTHY), _brokers("pool", 0, brokers))).splitlines()
    assert lines[0] == (
        "kafka/quorum (MkU3OEVBNTcwNTJENDM2Qg): ready; the quorum is led by 3001 in epoch 7, "
        "high watermark 812, kraft.version 1"
    )
    assert "3001 (leader)  yes        0    c1:9093   d1" in lines
    assert "pool: not ready, 2 of 3 ready" in lines
    assert "1       crashed                  EXTERNAL b1.example.com:9094" in lines
    assert lines[-1] == "  1. StartNode 1: it died (exit status 1)"


def test_the_list_has_a_line_for_each_cluster() -> None:
    """A quorum that no operator has seen, and one that is paused, look different."""
    paused = _controllers(HEALTHY, state="Paused")
    new = _controllers()
    new["metadata"] = {"name": "another", "namespace": "kafka", "generation": 1}
    lines = clusters_text(list(clusters_of([paused, new], []))).splitlines()
    assert lines[1].split() == ["kafka", "another", "Unknown", "none", "0/3", "0/0", "done"]
    assert lines[2].split() == ["kafka", "quorum", "paused", "3001", "3/3", "4.3-IV0", "0/0", "done"]


def test_a_healthy_cluster_has_nothing_wrong() -> None:
    cluster = _cluster(_controllers(HEALTHY))
    assert findings_of(cluster) == ()
    assert doctor_text(cluster, ()).splitlines()[1:] == ["Nothing is wrong."]


def test_brokers_without_replicas_are_reported() -> None:
    def broker(node_id: int, replicas: int | None, state: str = "ready") -> dict[str, Any]:
        return {"nodeId": node_id, "state": state, "replicas": replicas, "fenced": False}

    ready = [_condition("Ready", "True")]
    first = {"conditions": ready, "brokers": [broker(0, 12), broker(1, 0), broker(2, 0)]}
    second = {"conditions": ready, "brokers": [broker(10, 0), broker(11, None), broker(12, 0, "starting")]}
    pools = [_brokers("pool", 0, first, decommission=[2]), _brokers("other", 10, second)]
    (found,) = findings_of(_cluster(_controllers(HEALTHY), *pools))
    assert found.severity == "note"
    assert found.message == "Broker(s) 1, 10 hold no replica."
    assert found.commands == ("kubectl quorate rebalance quorum -n kafka --add-brokers=1,10 --preview",)
    first["brokers"][0]["replicas"] = 0
    assert findings_of(_cluster(_controllers(HEALTHY), *pools)) == ()


def test_clients_that_a_change_of_hosts_would_lose_are_a_warning() -> None:
    lost = _condition("ClientsRebootstrap", "False", "kafka-python 3.0.12 on CLIENTS does not start again")
    pool = _brokers("pool", 0, {"conditions": [_condition("Ready", "True"), lost], "brokers": []})
    (found,) = findings_of(_cluster(_controllers(HEALTHY), pool))
    assert found.severity == "warning"
    assert "kafka-python 3.0.12" in found.message
    assert "kafka-python 3.0.12 on CLIENTS" in cluster_text(_cluster(_controllers(HEALTHY), pool))
    pool = _brokers("pool", 0, {"conditions": [{**lost, "status": "Unknown"}, _condition("Ready", "True")]})
    assert findings_of(_cluster(_controllers(HEALTHY), pool)) == ()


@pytest.mark.parametrize(
    ("status", "severity", "words"),
    [
        ({}, "warning", "No operator manages it"),
        (
            {**HEALTHY, "conditions": [_condition("QuorumHealthy", "False", "2 of 3 voters are gone")]},
            "danger",
            "2 of 3 voters are gone",
        ),
        (
            {
                **HEALTHY,
                "registrations": [
                    {"nodeId": 3009, "ghost": True, "blocks": "metadata.version 30: it supports 7 to 27"}
                ],
            },
            "blocked",
            "Controller 3009 is a ghost: it is registered and gone, which blocks metadata.version 30",
        ),
        (
            {**HEALTHY, "refusals": [{"code": "UnsafeDowngrade", "message": "4.3 to 4.1 loses metadata"}]},
            "blocked",
            "UnsafeDowngrade: 4.3 to 4.1 loses metadata",
        ),
        (
            {**HEALTHY, "voters": [{"nodeId": 3000, "caughtUp": False, "lag": 12}]},
            "warning",
            "Voter 3000 is not caught up, 12 records behind the leader",
        ),
    ],
)
def test_what_is_wrong_comes_first(status: dict[str, Any], severity: str, words: str) -> None:
    """Each thing that can be wrong is found and makes the cluster unhealthy."""
    found = findings_of(_cluster(_controllers(status)))
    assert found[0].severity == severity
    assert words in found[0].message
    assert not is_healthy(found)


def test_failed_nodes_are_a_warning_and_a_roll_is_a_note() -> None:
    """Stalled is left out where a refusal says the same."""

    def found(reason: str, *stalled: str, refusal: str | None = None) -> list[tuple[str, str]]:
        conditions = [
            {**_condition("Ready", "False", "3001: no image"), "reason": reason},
            _condition("Reconciling", "True", "r"),
            *({**_condition("Stalled", "True", "a refusal"), "reason": code} for code in stalled),
        ]
        refusals = [] if refusal is None else [{"code": refusal, "message": "a refusal"}]
        status = {**HEALTHY, "conditions": conditions, "refusals": refusals}
        return [(str(each.severity), each.message) for each in findings_of(_cluster(_controllers(status)))]

    assert found("NodesNotReady") == [("note", "It is not ready: 3001: no image")]
    assert found("NodeProblem") == [("warning", "It is not ready: 3001: no image")]
    assert found("NodesNotReady", "RolloutBlocked") == [("warning", "Stalled is True: a refusal")]
    assert found("NodesNotReady", "StaticQuorum", refusal="StaticQuorum") == [
        ("blocked", "StaticQuorum: a refusal")
    ]


def test_a_wait_alone_is_no_fault() -> None:
    plan = [
        {"step": "WaitFor", "reason": "w", "waitsFor": "controllers to catch up: 3002"},
        {"step": "WaitFor", "reason": "w", "waitsFor": "brokers"},
    ]
    cluster = _cluster(_controllers({**HEALTHY, "plan": plan}, state="Paused"))
    found = findings_of(cluster)
    assert [finding.severity for finding in found] == ["note", "note"]
    assert is_healthy(found)
    assert plan_text(cluster).splitlines()[0] == "  1. wait for controllers to catch up: 3002"
    assert plan_json(cluster)["plan"] == plan


def test_a_node_id_finds_its_pool() -> None:
    cluster = _cluster(
        _controllers(decommission=[3001]), _brokers("small", 0), _brokers("large", 100, replicas=9)
    )
    assert cluster.controllers.node_ids() == (3000, 3002, 3003)
    for node_id, name in ((3001, "quorum"), (3003, "quorum"), (2, "small"), (108, "large"), (120, "large")):
        pool = cluster.pool_with(node_id)
        assert pool is not None
        assert pool.name == name
    assert cluster.pool_with(2_000_000) is None
