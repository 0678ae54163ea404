"""The view of the clients of a pool: whether a change of all hosts would lose some. Pure."""

from dataclasses import dataclass

from quorate_admin.diagnosis import ClientFacts, Rebootstraps

from quorate_operator.planning.addresses import hosts_change
from quorate_operator.planning.cluster import DesiredCluster, ObservedCluster


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientsView:
    """Kinds of connected clients in words, `kafka-python 3.0.12 on CLIENTS`: software, release and listener.

    Clients that send no name are in neither list: brokers that fetch from each other are among them.
    """

    lost: tuple[str, ...] = ()
    """Those that do not start again at their bootstrap servers when all hosts change."""
    unknown: tuple[str, ...] = ()
    """Those of which that is unknown."""
    unread: int = 0
    """The number of brokers whose metrics were not read."""
    reason_unread: str = ""
    hosts_change: bool = False
    """Whether brokers of the pool are about to advertise other hosts."""


def clients_views(desired: DesiredCluster, observed: ObservedCluster) -> dict[str, ClientsView]:
    """Return the view of the clients of each pool of which they were read."""
    return {
        pool: ClientsView(
            lost=_kinds(facts, Rebootstraps.NO),
            unknown=_kinds(facts, Rebootstraps.UNKNOWN),
            unread=len(facts.problems),
            reason_unread=next(iter(facts.problems.values()), ""),
            hosts_change=hosts_change(desired, observed.nodes, pool),
        )
        for pool, facts in observed.clients.items()
    }


def _kinds(facts: ClientFacts, judgement: Rebootstraps) -> tuple[str, ...]:
    return tuple(
        str(client) for client in facts.clients if not client.is_unnamed and client.judge()[0] is judgement
    )
