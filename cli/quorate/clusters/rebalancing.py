"""Steps of `kubectl quorate rebalance`: request a proposal, and wait for it, for its end, or for a stop."""

from typing import Any

from quorate.clusters import rebalances
from quorate.clusters.api import ClustersApi
from quorate.clusters.resources import KafkaObject
from quorate.console import CommandError


def label(found: KafkaObject) -> str:
    return f"KafkaRebalance {found['metadata']['namespace']}/{found['metadata']['name']}"


def propose(
    api: ClustersApi, known: KafkaObject | None, body: dict[str, Any], timeout_s: int
) -> dict[str, Any]:
    """Request a new proposal, and wait until the resource has it. Returns the resource.

    Raises:
        CommandError: if the operator makes no proposal within the timeout, or reports an error.
    """
    before = rebalances.status_of(known).proposal if known is not None else None
    put = api.put_rebalance(dict(known) if known is not None else None, body)

    def is_there(found: KafkaObject) -> bool:
        proposal = rebalances.status_of(found).proposal
        is_new = proposal is not None and (before is None or proposal.id != before.id)
        return is_new or rebalances.stalled(found) is not None

    found = api.wait_rebalance(put["metadata"]["name"], is_there, "a proposal", timeout_s)
    fault = rebalances.stalled(found)
    if fault is not None:
        raise CommandError(f"{label(found)}: {fault}")
    return found


def await_end(api: ClustersApi, found: KafkaObject, proposal_id: str, timeout_s: int) -> dict[str, Any]:
    """Wait until a proposal is carried out. Returns the resource.

    Raises:
        CommandError: if it takes longer than the timeout, stalls, or another proposal replaces it.
    """

    def is_over(resource: KafkaObject) -> bool:
        proposal = rebalances.status_of(resource).proposal
        is_same = proposal is not None and proposal.id == proposal_id
        return (
            not is_same
            or (proposal is not None and proposal.is_done)
            or rebalances.stalled(resource) is not None
        )

    over = api.wait_rebalance(found["metadata"]["name"], is_over, "the rebalance", timeout_s)
    proposal, fault = rebalances.status_of(over).proposal, rebalances.stalled(over)
    if fault is not None:
        raise CommandError(f"{label(over)}: {fault}")
    if proposal is None or proposal.id != proposal_id:
        raise CommandError(
            f"{label(over)}: proposal {proposal_id} became void before it was done, since brokers joined or went, "
            "the resource was changed, or moves were cancelled"
        )
    return over


def stop(api: ClustersApi, cluster: str, known: KafkaObject | None, timeout_s: int) -> dict[str, Any]:
    if known is None:
        raise CommandError(f"{cluster} has no KafkaRebalance: nothing is to be stopped")
    put = api.put_rebalance(dict(known), {"metadata": {}, "spec": {"stopped": True}})
    return api.wait_rebalance(
        put["metadata"]["name"],
        lambda resource: rebalances.status_of(resource).phase == "Stopped",
        "the stop",
        timeout_s,
    )
