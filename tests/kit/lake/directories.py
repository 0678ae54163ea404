"""Log directories of controllers, and the rows that the lake's source reads from them, without Spark."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark_quorate.source.options import parse_options
from pyspark_quorate.source.reader import MetadataLogReader

CLUSTER = "4L6g3nShT-eMCtK--X86sw"


def write_directory(directory: Path, files: Mapping[Any, bytes], cluster_id: str = CLUSTER) -> Path:
    """Make a node's directory with segments, by base offset, and other files by name. Returns the partition's."""
    partition = directory / "__cluster_metadata-0"
    partition.mkdir(parents=True, exist_ok=True)
    (directory / "meta.properties").write_text(f"cluster.id={cluster_id}\nnode.id=3000\nversion=1\n")
    for name, content in files.items():
        (partition / (f"{name:020d}.log" if isinstance(name, int) else name)).write_bytes(content)
    return partition


def read_rows(path: Path, **options: str) -> list[pa.RecordBatch]:
    """All rows below a path, as the tasks of a job read them, with options of the source."""
    reader = MetadataLogReader(parse_options({"path": str(path), **options}))
    return [batch for partition in reader.partitions() for batch in reader.read(partition)]
