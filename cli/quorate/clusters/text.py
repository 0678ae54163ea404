"""Clusters as text and as JSON. Pure."""

import textwrap
from collections.abc import Sequence
from typing import Any

from quorate_operator.models.status import KafkaBrokerStatus, PlanStep, RefusalStatus
from quorate_operator.view.texts import WITHOUT_LEADER, quorum_words

from quorate.clusters.findings import ClusterFinding, is_healthy
from quorate.clusters.resources import Cluster, Pool
from quorate.console import aligned_text

WIDTH = 110
_LABEL_WIDTH = 9


def clusters_text(clusters: Sequence[Cluster]) -> str:
    """A line for each cluster."""
    rows = [("NAMESPACE", "NAME", "READY", "LEADER", "VOTERS", "METADATA", "BROKERS", "PLAN")]
    for cluster in clusters:
        status = cluster.status
        ready = sum(pool.status.ready_replicas or 0 for pool in cluster.brokers)
        asked = sum(int(pool.spec.get("replicas", 0)) for pool in cluster.brokers)
        steps = sum(len(pool.status.plan) for pool in cluster.pools)
        caught_up = sum(voter.caught_up for voter in status.voters)
        rows.append(
            (
                cluster.namespace,
                cluster.name,
                "paused" if cluster.is_paused else _condition(cluster.controllers, "Ready"),
                "none" if status.quorum is None else str(status.quorum.leader_id),
                f"{caught_up}/{cluster.controllers.spec.get('replicas', '?')}",
                status.metadata_version or "",
                f"{ready}/{asked}",
                f"{steps} step{'' if steps == 1 else 's'}" if steps else "done",
            )
        )
    return aligned_text(rows)


def cluster_text(cluster: Cluster) -> str:
    """The full status of one cluster."""
    status = cluster.status
    quorum = status.quorum
    led = (
        quorum_words(quorum.leader_id, quorum.epoch, quorum.high_watermark, quorum.kraft_version)
        if quorum
        else WITHOUT_LEADER
    )
    named = f"{cluster.namespace}/{cluster.name} ({status.cluster_id or 'no cluster id yet'})"
    state = "paused" if cluster.is_paused else _readiness(cluster.controllers)
    parts = [f"{named}: {state}; the quorum is {led}\n"]
    if status.voters:
        rows = [("VOTER", "CAUGHT UP", "LAG", "ENDPOINT", "DIRECTORY ID")]
        rows += [
            (
                f"{voter.node_id}{' (leader)' if quorum and voter.node_id == quorum.leader_id else ''}",
                "yes" if voter.caught_up else "no",
                "" if voter.lag is None else str(voter.lag),
                voter.endpoint or "",
                voter.directory_id or "",
            )
            for voter in status.voters
        ]
        parts.append(aligned_text(rows))
    parts += [_brokers_text(pool) for pool in cluster.brokers]
    parts.append(plan_text(cluster))
    return "\n".join(parts)


def plan_text(cluster: Cluster) -> str:
    """The steps of the plan in order, and the refusals."""
    lines: list[str] = []
    for pool in cluster.pools:
        lines += _plan_lines(pool.status.plan)
        lines += _refusal_lines(pool.status.refusals)
    return "".join(f"{line}\n" for line in lines) or "Nothing to do.\n"


def doctor_text(cluster: Cluster, findings: tuple[ClusterFinding, ...]) -> str:
    """The findings, each with the commands to type next."""
    lines = [f"Cluster {cluster.namespace}/{cluster.name}:"]
    for finding in findings:
        label = f"{finding.severity.upper():<{_LABEL_WIDTH}}"
        lines += textwrap.wrap(
            f"{finding.about}: {finding.message}",
            WIDTH,
            initial_indent=label,
            subsequent_indent=" " * _LABEL_WIDTH,
            break_long_words=False,
        )
        lines += [f"{'':{_LABEL_WIDTH}}  $ {command}" for command in finding.commands]
    if not findings:
        lines.append("Nothing is wrong.")
    return "\n".join(lines) + "\n"


def cluster_json(cluster: Cluster) -> dict[str, Any]:
    """A cluster for programs: the status of each resource as the operator wrote it."""
    return {
        "name": cluster.name,
        "namespace": cluster.namespace,
        "paused": cluster.is_paused,
        "ready": all(_condition(pool, "Ready") == "True" for pool in cluster.pools),
        "controllers": _pool_json(cluster.controllers),
        "brokers": [_pool_json(pool) for pool in cluster.brokers],
    }


def plan_json(cluster: Cluster) -> dict[str, Any]:
    """The plan as JSON, for programs."""
    pools = [_pool_json(pool)["status"] for pool in cluster.pools]
    return {
        "name": cluster.name,
        "namespace": cluster.namespace,
        "plan": [step for status in pools for step in status.get("plan", [])],
        "refusals": [refusal for status in pools for refusal in status.get("refusals", [])],
    }


def doctor_json(cluster: Cluster, findings: tuple[ClusterFinding, ...]) -> dict[str, Any]:
    """The findings as JSON, for programs."""
    return {
        "name": cluster.name,
        "namespace": cluster.namespace,
        "healthy": is_healthy(findings),
        "findings": [
            {
                "severity": finding.severity,
                "about": finding.about,
                "message": finding.message,
                "commands": list(finding.commands),
            }
            for finding in findings
        ],
    }


def _pool_json(pool: Pool) -> dict[str, Any]:
    return {
        "kind": pool.kind,
        "name": pool.name,
        "generation": pool.generation,
        "replicas": pool.spec.get("replicas"),
        "decommission": list(pool.decommission),
        "status": dict(pool.resource.get("status", {})),
    }


def _brokers_text(pool: Pool) -> str:
    status = pool.status
    assert isinstance(status, KafkaBrokerStatus)
    head = f"{pool.name}: {_readiness(pool)}, {status.ready_replicas or 0} of {pool.spec.get('replicas')} ready\n"
    clients = pool.conditions.get("ClientsRebootstrap")
    lost = f"{clients.message}\n" if clients is not None and clients.status == "False" else ""
    if not status.brokers:
        return head + lost
    rows = [("BROKER", "STATE", "REPLICAS", "RACK", "ADVERTISED")]
    rows += [
        (
            str(broker.node_id),
            f"{broker.state}, fenced" if broker.fenced else broker.state,
            "" if broker.replicas is None else str(broker.replicas),
            broker.rack or "",
            ", ".join(f"{name} {address}" for name, address in broker.advertised.items()),
        )
        for broker in status.brokers
    ]
    return head + aligned_text(rows) + lost


def _plan_lines(steps: Sequence[PlanStep]) -> list[str]:
    lines = []
    for number, step in enumerate(steps, start=1):
        node = "" if step.node_id is None else f" {step.node_id}"
        what = f"{step.step}{node}: {step.reason}" if not step.waits_for else f"wait for {step.waits_for}"
        lines.append(f"{number:3}. {what}")
    return lines


def _refusal_lines(refusals: Sequence[RefusalStatus]) -> list[str]:
    return [f"  -- {refusal.code}: {refusal.message}" for refusal in refusals]


def _readiness(pool: Pool) -> str:
    return {"True": "ready", "False": "not ready"}.get(_condition(pool, "Ready"), "not observed yet")


def _condition(pool: Pool, kind: str) -> str:
    condition = pool.conditions.get(kind)
    return "Unknown" if condition is None else condition.status
