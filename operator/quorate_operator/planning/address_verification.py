"""Whether addresses lead to their nodes, by what probes found. Pure.

`why_unverified` judges an address that a node is to advertise, `fault_of` one that it advertises. How an address is
verified is `exposure.verification` of its listener: a probe connects to it (Probe), its name has to resolve (DNS), or
nothing is checked (None).
"""

from quorate_operator.planning.address_slots import Slot
from quorate_operator.planning.cluster import Address, ObservedCluster, Reached
from quorate_operator.planning.steps import WaitFor

ADDRESS_NOT_ASSIGNED = "AddressNotAssigned"
ADDRESS_NOT_VERIFIED = "AddressNotVerified"
ADDRESS_UNREACHABLE = "AddressUnreachable"
ADDRESS_MISROUTED = "AddressMisrouted"
ADDRESS_CODES = frozenset(
    {ADDRESS_NOT_ASSIGNED, ADDRESS_NOT_VERIFIED, ADDRESS_UNREACHABLE, ADDRESS_MISROUTED}
)
"""The codes of waits during which nodes do not serve all their clients."""

STALLED_AFTER_MS = 60_000
"""How long an address may take before a change by the user is needed. Balancers and DNS take a while."""
_WHAT_TO_DO = (
    "if only the operator can't connect to it, set exposure.verification of the listener to DNS or None"
)


def why_unverified(
    slot: Slot, address: Address, observed: ObservedCluster, cluster_id: str | None
) -> str | None:
    """Return what was found in place of the slot's node, for users; None if the address is verified."""
    if slot.verification == "None":
        return None
    probe = observed.probes.get(address)
    if probe is None:
        return "it has not been probed yet"
    if slot.verification == "DNS":
        return None if probe.error is None else f"its name does not resolve now ({probe.error})"
    if slot.is_anonymous and probe.is_anonymous:
        return None
    if probe.is_anonymous:
        return "a node with a trusted certificate answers there, and does not report which one"
    if probe.node_id is None and probe.cluster_id is None:
        return f"nothing answers there now ({probe.error or 'no reason is known'})"
    return _other_node(slot, probe, cluster_id)


def fault_of(slot: Slot, observed: ObservedCluster, cluster_id: str | None, now_ms: int) -> WaitFor | None:
    """Return what is wrong with the address that a ready node advertises, as a wait until it is not; or None.

    A node that leads clients astray is reported at once, an address that does not answer after STALLED_AFTER_MS, and
    only where clients outside of Kubernetes use it: the operator may run where it can't resolve names of pods.
    """
    address = slot.current
    probe = observed.probes.get(address) if address is not None else None
    if address is None or probe is None or slot.verification == "None":
        return None
    subject = f"{address}, which {slot.node.label} advertises ({slot.listener}),"
    if probe.error is not None:
        if not (slot.is_exposed and is_stalled(probe.since_ms, now_ms)):
            return None
        reason = why_unverified(slot, address, observed, cluster_id)
        return WaitFor(
            reason=f"{subject} to be reachable: {reason}; {_WHAT_TO_DO}",
            node_ids=(slot.node.node_id,),
            code=ADDRESS_UNREACHABLE,
            is_stalled=True,
        )
    if probe.is_anonymous or probe.is_resolved:
        return None
    other = _other_node(slot, probe, cluster_id)
    if other is None or (probe.node_id is None and probe.cluster_id == cluster_id):
        return None
    return WaitFor(
        reason=f"{subject} to lead to it: {other}",
        node_ids=(slot.node.node_id,),
        code=ADDRESS_MISROUTED,
        is_stalled=True,
    )


def verification_wait(reason: str, slot: Slot, since_ms: int | None, now_ms: int, *, code: str) -> WaitFor:
    """Return the wait for an address; after STALLED_AFTER_MS it is one for the user."""
    stalled = is_stalled(since_ms, now_ms)
    return WaitFor(
        reason=reason,
        node_ids=(slot.node.node_id,),
        until_ms=None if stalled or since_ms is None else since_ms + STALLED_AFTER_MS,
        code=code,
        is_stalled=stalled,
    )


def is_stalled(since_ms: int | None, now_ms: int) -> bool:
    """Whether a wait that began at `since_ms` takes longer than it does by itself."""
    return since_ms is not None and now_ms - since_ms >= STALLED_AFTER_MS


def advice(slot: Slot) -> str:
    """Return what to do about a new address that can't be verified; an empty text where nothing can be set."""
    return f"; {_WHAT_TO_DO}" if slot.is_exposed else ""


def _other_node(slot: Slot, probe: Reached, cluster_id: str | None) -> str | None:
    if probe.cluster_id != cluster_id:
        return f"a node of another cluster ({probe.cluster_id}) answers there now"
    if probe.node_id is None:
        return "a node of this cluster answers there now, and does not report which one"
    if probe.node_id != slot.node.node_id:
        return f"node {probe.node_id} answers there now"
    return None
