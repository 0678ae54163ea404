"""A KafkaRebalance as `kubectl quorate rebalance` makes it, reads it and shows it. Pure."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from quorate_operator.models.rebalances import ANNOTATION_APPROVE, ANNOTATION_REFRESH, KafkaRebalanceStatus
from quorate_operator.models.v1alpha1 import API_VERSION
from quorate_operator.planning.steps import format_bytes

from quorate.console import aligned_text

Rebalance = Mapping[str, Any]
"""A KafkaRebalance as JSON."""
BUSY = ("Rebalancing", "Stopping")


def of_cluster(rebalances: Iterable[Rebalance], cluster: str) -> Rebalance | None:
    """Return the oldest KafkaRebalance of the cluster, or None."""
    own = [rebalance for rebalance in rebalances if rebalance.get("spec", {}).get("cluster") == cluster]
    return min(
        own,
        key=lambda rebalance: (
            rebalance["metadata"].get("creationTimestamp", ""),
            rebalance["metadata"]["name"],
        ),
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
    """Return the resource, or a patch for the existing one. Either makes the operator compute a new proposal."""
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
    """Return the patch that approves a proposal."""
    return {"metadata": {"annotations": {ANNOTATION_APPROVE: proposal_id}}}


def status_of(rebalance: Rebalance) -> KafkaRebalanceStatus:
    """Return the status of a rebalance; empty before the operator has written it."""
    return KafkaRebalanceStatus.model_validate(rebalance.get("status") or {})


def stalled(rebalance: Rebalance) -> str | None:
    """Return why the rebalance needs a user to continue. None: it does not, or the status is of an older spec."""
    status = status_of(rebalance)
    if status.observed_generation != rebalance["metadata"].get("generation"):
        return None
    found = next((condition for condition in status.conditions if condition.type == "Stalled"), None)
    return f"{found.reason}: {found.message}" if found is not None and found.status == "True" else None


def proposal_text(rebalance: Rebalance) -> str:
    """What the proposal moves, and what each broker has before and after it."""
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
            str(broker.broker_id),
            str(broker.replicas),
            f"-> {broker.replicas_after}",
            str(broker.leaders),
            f"-> {broker.leaders_after}",
            format_bytes(broker.size_bytes),
            f"-> {format_bytes(broker.size_bytes_after)}",
        )
        for broker in status.brokers
    ]
    return head + aligned_text(rows)


def to_approve(rebalance: Rebalance, proposal_id: str) -> str:
    """The command that approves a proposal."""
    command = f"kubectl annotate --overwrite {_named(rebalance)} {ANNOTATION_APPROVE}={proposal_id}"
    return f"To approve it: `{command}`\n"


def to_watch(rebalance: Rebalance) -> str:
    """The command that shows the progress."""
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
    """A rebalance as JSON, for programs."""
    metadata = rebalance["metadata"]
    return {
        "name": metadata["name"],
        "namespace": metadata["namespace"],
        "spec": dict(rebalance["spec"]),
        "status": dict(rebalance.get("status") or {}),
    }
