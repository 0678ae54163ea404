"""All tables of the lake."""

from collections.abc import Callable, Iterable
from typing import Final

from pyspark.sql import DataFrame

from pyspark_quorate.tables.contract import Table
from pyspark_quorate.tables.timeline import timeline

ROWS: Final = "rows"
TIMELINE: Final = "timeline"
"""An input that is not stored: what :func:`pyspark_quorate.tables.timeline.timeline` makes of the rows."""

TABLES: Final[tuple[Table, ...]] = ()
"""In an order in which inputs come before what is made of them."""


def make_all(
    rows: DataFrame,
    tables: Iterable[Table] = TABLES,
    share: Callable[[DataFrame], DataFrame] = lambda frame: frame,
) -> dict[str, DataFrame]:
    """Every table by its name, lazily. `share` is given what several tables read: pass DataFrame.persist."""
    wanted = tuple(tables)
    read = {name for table in wanted for name in table.inputs}
    made = {ROWS: rows, TIMELINE: share(timeline(rows))}
    for table in wanted:
        frame = table.make(made)
        made[table.name] = share(frame) if table.name in read else frame
    return {table.name: made[table.name] for table in wanted}
