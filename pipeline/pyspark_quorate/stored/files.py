"""The files of stored rows: their folders, columns and order, and what their footers say."""

from pathlib import Path
from typing import Any, Final
from urllib.parse import unquote

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql.types import LongType, StructType

from pyspark_quorate import rows

COMMIT: Final = "commit"
SCHEMA: Final = StructType(
    [
        *(field for field in rows.SCHEMA.fields if field.name != rows.CLUSTER_ID.name),
        rows.column(COMMIT, LongType(), "the commit of the lake that added it"),
    ]
)
ARROW_SCHEMA: Final = rows.arrow_schema(SCHEMA)
"""The columns of a file; the cluster id is in the folder's name."""
ORDER: Final = (
    ("offset", "ascending"),
    ("kind", "descending"),
    ("epoch", "ascending"),
    ("source", "ascending"),
    ("ordinal", "ascending"),
)
"""The order of rows other than gaps: a snapshot is before the record at its offset, and copies are side by side."""
FOLDED_SCHEMA: Final = pa.schema(
    [pa.field(field.name, pa.int64()) if field.name == "time" else field for field in ARROW_SCHEMA]
)
"""The columns as summaries and the fold read them: with times as microseconds since 1970."""
GROUP_ROWS: Final = 1 << 14
"""The number of rows that a reader of a file has in memory at once, and the writer."""
FOOTER: Final = b"quorate.rows"
"""The key of a JSON object in a file's footer: `summary`, `recordGroups`, the number of row groups with records, and
`unknownRecords`, the number of records that could not be decoded. The groups behind those with records have gaps.
"""
Key = tuple[Any, ...]
"""The place of a row in `ORDER`."""
UNKNOWN_CLUSTER: Final = "unknown"
"""The cluster id of directories without one."""
FOLDER: Final = "cluster_id="
_ESCAPED: Final = frozenset("\"#%'*/:=?\\{[]^\x7f")


def key_of(batch: pa.RecordBatch, at: int) -> Key:
    """Return the place of a row of a batch."""
    return (
        batch.column("offset")[at].as_py(),
        batch.column("kind")[at].as_py() == rows.LOG,
        *(batch.column(name)[at].as_py() for name in ("epoch", "source", "ordinal")),
    )


def in_order(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Return the rows in order. Those of a file and of a stream mostly are."""
    offsets, ordinals = (batch.column(name).to_numpy() for name in ("offset", "ordinal"))
    steps = np.diff(offsets)
    if np.all(steps > 0) or (not steps.any() and np.all(np.diff(ordinals) > 0)):
        return batch
    return batch.take(pc.sort_indices(batch, sort_keys=list(ORDER)))


def with_times_as_numbers(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Return the rows with times in microseconds since 1970."""
    time = batch.column("time").cast(pa.int64())
    return batch.set_column(batch.schema.get_field_index("time"), "time", time)


# Folders of clusters: `cluster_id=<id>`, as Spark names them


def folder_name(cluster_id: str) -> str:
    """The name of a cluster's folder, as Spark writes it (ExternalCatalogUtils.escapePathName)."""
    return FOLDER + "".join(
        f"%{ord(letter):02X}" if letter in _ESCAPED or ord(letter) < ord(" ") else letter
        for letter in cluster_id
    )


def folders(where: Path) -> dict[str, Path]:
    """The clusters' folders below a path, by cluster id."""
    if not where.is_dir():
        return {}
    return {
        unquote(path.name.removeprefix(FOLDER)): path
        for path in sorted(where.iterdir())
        if path.name.startswith(FOLDER)
    }
