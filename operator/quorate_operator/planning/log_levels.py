"""Levels of loggers that a manifest names, set while nodes run (KIP-412, KIP-919). Pure.

A node forgets them when it restarts, and then they are set again. A level that the manifest does not name any more
stays until the node restarts: Kafka does not report whether a level was set or is the default.
"""

from quorate_operator.planning.cluster import DesiredCluster, ObservedCluster
from quorate_operator.planning.differences import differences, shortened
from quorate_operator.planning.steps import Part, Refusal, SetLogLevels


def plan_log_levels(desired: DesiredCluster, observed: ObservedCluster) -> Part:
    """Plan the levels of each node that reported its levels, and refuse names that no node of a pool knows."""
    reported = observed.kafka.log_levels if observed.kafka else {}
    due: list[SetLogLevels] = []
    named: dict[str, set[str]] = {}
    known: dict[str, set[str]] = {}
    for node in desired.nodes:
        if node.node_id not in reported:
            continue
        has = reported[node.node_id]
        named.setdefault(node.pool, set()).update(node.log_levels)
        known.setdefault(node.pool, set()).update(has)
        levels = {
            name: level for name, level in sorted(node.log_levels.items()) if has.get(name, level) != level
        }
        if levels:
            changes = differences({name: has[name] for name in levels}, levels)
            due.append(
                SetLogLevels(node_id=node.node_id, levels=levels, reason=", ".join(shortened(changes)))
            )
    refusals = (_unknown(pool, names - known[pool]) for pool, names in named.items() if names - known[pool])
    return Part(due=tuple(due), refusals=tuple(refusals))


def _unknown(pool: str, names: set[str]) -> Refusal:
    (first, *others) = sorted(names)
    more = f", and {len(others)} more" if others else ""
    return Refusal(
        "UnknownLogger",
        f"spec.logLevels: {first!r}{more}: no node of {pool} has such a logger; `quorate configs --describe "
        "--entity-type broker-loggers --entity-name ID` lists those of a node",
        pool=pool,
    )
