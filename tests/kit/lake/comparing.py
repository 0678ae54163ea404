"""Compares the tables of the fold with those of the declarative plans."""

import json
from collections.abc import Mapping, Sequence
from typing import Any, Final

from kit.lake.folding import Row, collected
from pyspark.sql import DataFrame
from pyspark_quorate.tables.registry import TABLES

UNTOLD: Final = {
    "upgrade_blockers": ("from_exact", "to_exact"),
    "advertised_addresses": ("from_exact", "to_exact"),
}
"""Columns that the plans leave open: several intervals that are merged begin or end at the same offset."""


def assert_same_tables(folded: Mapping[str, Sequence[Row]], made: Mapping[str, DataFrame]) -> None:
    """Every table has the same rows. The first that differs is named with some of them."""
    for table in TABLES:
        names = [name for name in table.schema.names if name not in UNTOLD.get(table.name, ())]
        seen = sorted(_comparable(names, [row[name] for name in names]) for row in folded[table.name])
        wanted = sorted(_comparable(names, row) for row in collected(made[table.name].select(*names)))
        too_much = [row for row in seen if row not in set(wanted)]
        lacking = [row for row in wanted if row not in set(seen)]
        assert seen == wanted, (
            f"{table.name}: {len(seen)} rows for {len(wanted)}; too much {too_much[:3]}; lacking {lacking[:3]}"
        )


def _comparable(names: Sequence[str], row: Sequence[Any]) -> str:
    """A row as text; the JSON of a payload with its keys in order, and 2 as 2.0: a VARIANT writes either."""
    reported = {
        name: json.dumps(json.loads(value, parse_int=float), sort_keys=True) if name == "payload" else value
        for name, value in zip(names, row, strict=True)
    }
    return repr(reported)
