"""A KafkaRebalance as `kubectl quorate rebalance` makes it, reads it and shows it. Pure."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from quorate_operator.models.rebalances import ANNOTATION_APPROVE, ANNOTATION_REFRESH, KafkaRebalanceStatus
from quorate_operator.models.v1alpha1 import API_VERSION
from quorate_operator.planning.relocation import format_bytes

from quorate.clusters.text import table

Rebalance = Mapping[str, Any]
"""A KafkaRebalance as JSON."""
BUSY = ("Rebalancing", "Stopping")


def of_cluster(rebalances: Iterable[Rebalance], cluster: str) -> Rebalance | None:
    """Returns the resource that keeps the cluster's balance: the oldest one; None if there is none."""
    own = [one for one in rebalances if one.get("spec", {}).get("cluster") == cluster]
    return min(
        own,
        key=lambda one: (one["metadata"].get("creationTimestamp", ""), one["metadata"]["name"]),
        default=None,
    )


def request(
    cluster: str,
    *,
    added: Sequence[int],
    removed: Sequence[int],
    throttle: str | None,
    refresh: str,
) -> dict[str, Any]:
    """Returns the resource, or what to merge into the one that is there: a new proposal is made in any case."""
    mode = "AddBrokers" if added else "RemoveBrokers" if removed else "Full"
    spec: dict[str, Any] = {
        "cluster": cluster,
        "mode": mode,
        "brokers": sorted({*added, *removed}),
        "approval": "Manual",
        "stopped": False,
    }
    if throttle is not None:
        spec["throttleBytesPerSecond"] = throttle
    return {
        "apiVersion": API_VERSION,
        "kind": "KafkaRebalance",
        "metadata": {"name": cluster, "annotations": {ANNOTATION_REFRESH: refresh}},
        "spec": spec,
    }


def approval(proposal_id: str) -> dict[str, Any]:
    """Returns what to merge to approve a proposal."""
    return {"metadata": {"annotations": {ANNOTATION_APPROVE: proposal_id}}}


def status_of(rebalance: Rebalance) -> KafkaRebalanceStatus:
    """Returns its status; empty before there is one."""
    return KafkaRebalanceStatus.model_validate(rebalance.get("status") or {})


def stalled(rebalance: Rebalance) -> str | None:
    """Returns why it can't go on without somebody, None if it can; of its present spec."""
    status = status_of(rebalance)
    if status.observed_generation != rebalance["metadata"].get("generation"):
        return None
    found = next((one for one in status.conditions if one.type == "Stalled"), None)
    return f"{found.reason}: {found.message}" if found is not None and found.status == "True" else None


def proposal_text(rebalance: Rebalance) -> str:
    """What the proposal moves, and what each broker has without and with it."""
    status = status_of(rebalance)
    proposal = status.proposal
    if proposal is None:
        return "There is no proposal.\n"
    if not (proposal.partitions or proposal.leaders):
        return "Nothing is to be moved.\n"
    head = (
        f"Proposal {proposal.id}: {proposal.partitions} partition(s) move, which copies "
        f"{format_bytes(proposal.size_bytes)}; {proposal.leaders} other(s) get another preferred leader\n"
    )
    rows = [("BROKER", "REPLICAS", "", "LEADERS", "", "SIZE", "")]
    rows += [
        (
            str(one.broker_id),
            *(str(one.replicas), f"-> {one.replicas_after}"),
            *(str(one.leaders), f"-> {one.leaders_after}"),
            *(format_bytes(one.size_bytes), f"-> {format_bytes(one.size_bytes_after)}"),
        )
        for one in status.brokers
    ]
    return head + table(rows)


def to_approve(rebalance: Rebalance, proposal_id: str) -> str:
    """How to approve a proposal."""
    command = f"kubectl annotate --overwrite {_named(rebalance)} {ANNOTATION_APPROVE}={proposal_id}"
    return f"To approve it: `{command}`\n"


def to_watch(rebalance: Rebalance) -> str:
    """How to see what is done."""
    return f"Approved; `kubectl get {_named(rebalance)} --watch` shows the progress.\n"


def _named(rebalance: Rebalance) -> str:
    metadata = rebalance["metadata"]
    return f"kafkarebalance {metadata['name']} -n {metadata['namespace']}"


def progress_text(rebalance: Rebalance) -> str:
    """What was done for the proposal."""
    progress = status_of(rebalance).progress
    if progress is None or not progress.slices:
        return "Nothing was moved yet.\n"
    return (
        f"{progress.partitions} partition(s) in {progress.slices} slice(s) were moved, "
        f"{format_bytes(progress.size_bytes)}\n"
    )


def rebalance_json(rebalance: Rebalance) -> dict[str, Any]:
    """A rebalance for programs."""
    metadata = rebalance["metadata"]
    return {
        "name": metadata["name"],
        "namespace": metadata["namespace"],
        "spec": dict(rebalance["spec"]),
        "status": dict(rebalance.get("status") or {}),
    }
