"""The past of what a diagnosis finds, from the tables of a lake. Pure: what was read in, texts out.

A lake is read by `quorate lake show LAKE TABLE… --cluster-id ID -o json`, in a process of its own: this package
starts without Spark and Arrow. It prints one object,

    {"lake": "/lake", "tables": {"upgrade_blockers": [{"node_id": 99, "valid_from": "2026-01-31T12:00:00.000Z", …}]}}

with the rows of the cluster, each by column name as docs/lake-tables.md has them; times are UTC as above, what is
not known is null. A table that the lake does not have is left out. What goes wrong is told by lines on stderr that
begin with `error: `, with exit code 1.
"""

from typing import Final

TABLES: Final = ("upgrade_blockers", "controller_registrations", "membership", "advertised_addresses")
"""What the past of a blocker is told from."""


def show_arguments(lake: str, cluster_id: str) -> tuple[str, ...]:
    """The arguments of `quorate` that print these tables of one cluster."""
    return ("lake", "show", lake, *TABLES, "--cluster-id", cluster_id, "-o", "json")
