"""What the rest of the pipeline relies on."""

from collections.abc import Iterator

from pyspark.sql.types import ArrayType, DataType, StructField, StructType
from pyspark_quorate import rows
from pyspark_quorate.jobs.table_build import stored_schema
from pyspark_quorate.tables.registry import TABLES


def columns(kind: DataType) -> Iterator[StructField]:
    """All fields within a type."""
    if isinstance(kind, ArrayType):
        yield from columns(kind.elementType)
    if isinstance(kind, StructType):
        for field in kind.fields:
            yield field
            yield from columns(field.dataType)


def test_every_column_is_documented_and_stored_so() -> None:
    """Comments are in the schema of a stored table."""
    for schema in (rows.SCHEMA, *(stored_schema(table) for table in TABLES)):
        assert [field.name for field in columns(schema) if not field.metadata["comment"]] == []
