"""Writers that are generated: see :mod:`.functions`. Adjacent fields of fixed width are packed together.

The writer of a struct with a string and an array of numbers, in a flexible version::

    def write_ForgottenTopic_v12(buffer, entity):
        value = entity.topic
        if value is None:
            write_null(buffer, topic_field, True, True)
        else:
            encoded = value.encode()
            size = len(encoded)
            if size < 127:
                buffer.append(size + 1)
                buffer += encoded
            else:
                write_content(buffer, encoded, topic_field, True)
        values = entity.partitions
        if values is None:
            write_null(buffer, partitions_field, False, True)
        else:
            count = len(values)
            if count < 127:
                buffer.append(count + 1)
            else:
                write_count(buffer, count, partitions_field, True)
            buffer += pack(f'>{count}i', *values)
        buffer.append(0)
"""

import struct
from collections.abc import Mapping, Sequence
from typing import Final

from quorate_protocol.kafka.field_types import MILLISECOND
from quorate_protocol.wire.schema import (
    FIXED_FORMATS,
    UUID_ZERO_BYTES,
    EntityClass,
    FieldSchema,
    runs_of,
    schema_of,
    struct_of,
)

from . import write_values
from .functions import Function
from .write_values import Writer

_CALLED: Final[dict[str, object]] = {
    "write_null": write_values.write_null,
    "write_content": write_values.write_content,
    "write_count": write_values.write_count,
    "write_tags": write_values.write_tags,
    "pack": struct.pack,
    "SharedArray": write_values.SharedArray,
    "uuid_zero": UUID_ZERO_BYTES,
    "millisecond": MILLISECOND,
    "timestamp": write_values.timestamp,
}

_CONVERTED: Final = {
    "uuid": "uuid_zero if {0} is None else {0}.bytes",
    "timedelta_i32": "{0} // millisecond",
    "timedelta_i64": "{0} // millisecond",
    "datetime_i64": "timestamp({0})",
}
"""Types of fixed width -> the expression for what ``struct`` packs, if that is not the value."""


Writers = Mapping[EntityClass, Writer]


def generated_writer(entity_type: EntityClass, writers: Writers) -> Writer:
    """Generate the writer of an entity class. ``writers`` are those of its structs."""
    return _WriterSource("write", entity_type, "buffer, entity", _CALLED, writers).build(
        schema_of(entity_type)
    )


def writers_around(entity_type: EntityClass, array: str, writers: Writers) -> tuple[Writer, Writer]:
    """Generate what writes the fields before an array, and what writes those after it, tagged ones included."""
    schema = schema_of(entity_type)
    index = [field.name for field in schema].index(array)
    before, after = (
        _WriterSource(f"write_{place}_{array}_of", entity_type, "buffer, entity", _CALLED, writers)
        for place in ("before", "after")
    )
    untagged = [field for field in schema[:index] if field.tag is None]
    rest = [field for field in schema if field.tag is not None or field in schema[index + 1 :]]
    return before.build(untagged, has_tags=False), after.build(rest)


class _WriterSource(Function[Writer]):
    """The writer of an entity class. The methods append what writes a value, an expression, to a ``buffer``."""

    def build(self, schema: Sequence[FieldSchema], *, has_tags: bool = True) -> Writer:
        """Append these fields and compile it."""
        for run in runs_of([field for field in schema if field.tag is None]):
            if run[0].is_fixed:
                self._fixed(run, "buffer", [f"entity.{field.name}" for field in run])
            else:
                self._field(run[0], "buffer")
        if self._is_flexible and has_tags:
            tagged = [field for field in schema if field.tag is not None]
            self._tags(sorted(tagged, key=lambda field: field.tag or 0))
        if not schema:
            self.line("pass")  # some requests of old versions are empty
        return self.compile()

    def _field(self, field: FieldSchema, buffer: str) -> None:
        if field.is_array:
            self.line(f"values = entity.{field.name}")
            self._array(field, buffer)
        else:
            self.line(f"value = entity.{field.name}")
            self._value(field, buffer)

    def _value(self, field: FieldSchema, buffer: str) -> None:
        """Write the local ``value``: that of a field, or an element of an array."""
        if field.struct is not None:
            self._struct(field, field.struct, buffer)
        elif field.kafka_type in FIXED_FORMATS:
            self._fixed([field], buffer, ["value"])
        else:
            self._string(field, buffer)

    def _fixed(self, fields: list[FieldSchema], buffer: str, values: list[str]) -> None:
        """Write adjacent fields of fixed width at once."""
        packer = struct_of(fields)
        pack = self.bind("pack_fixed", packer.pack)
        packed = [
            _CONVERTED.get(field.kafka_type or "", "{0}").format(value)
            for field, value in zip(fields, values, strict=True)
        ]
        self.line(f"{buffer} += {pack}({', '.join(packed)})")

    def _struct(self, field: FieldSchema, struct_type: EntityClass, buffer: str) -> None:
        write = self.bind_struct(struct_type)
        if not field.is_nullable_struct:
            self.line(f"{write}({buffer}, value)")
            return
        # After a presence byte (KIP-893).
        with self.block("if value is None:"):
            self.line(f"{buffer}.append(0xFF)")
        with self.block("else:"):
            self.line(f"{buffer}.append(1)")
            self.line(f"{write}({buffer}, value)")

    def _string(self, field: FieldSchema, buffer: str) -> None:
        described = self.bind(f"{field.name}_field", field)
        is_compact = self._is_flexible and not field.is_legacy_string
        with self.block("if value is None:"):
            self.line(f"write_null({buffer}, {described}, True, {is_compact})")
        with self.block("else:"):
            self.line(f"encoded = value{'.encode()' if field.kafka_type == 'string' else ''}")
            write_content = f"write_content({buffer}, encoded, {described}, {is_compact})"
            if not is_compact:
                self.line(write_content)
                return
            self.line("size = len(encoded)")
            with self.block("if size < 127:"):
                self.line(f"{buffer}.append(size + 1)")
                self.line(f"{buffer} += encoded")
            with self.block("else:"):
                self.line(write_content)

    def _array(self, field: FieldSchema, buffer: str) -> None:
        """Write the local ``values``."""
        described = self.bind(f"{field.name}_field", field)
        with self.block("if values is None:"):
            self.line(f"write_null({buffer}, {described}, False, {self._is_flexible})")
        if field.struct is not None and not field.is_nullable_struct:
            elements = write_values.elements_writer(field, self._functions, self._is_flexible)
            write = self.bind(f"write_{field.name}", elements)
            with self.block("elif type(values) is SharedArray:"):
                self.line(f"{buffer} += values.encoded_by({write})")
        with self.block("else:"):
            self.line("count = len(values)")
            write_count = f"write_count({buffer}, count, {described}, {self._is_flexible})"
            if self._is_flexible:
                with self.block("if count < 127:"):
                    self.line(f"{buffer}.append(count + 1)")
                with self.block("else:"):
                    self.line(write_count)
            else:
                self.line(write_count)
            self._elements(field, buffer)

    def _elements(self, field: FieldSchema, buffer: str) -> None:
        if field.kafka_type == "uuid":
            self.line(f"{buffer} += b''.join([{_CONVERTED['uuid'].format('value')} for value in values])")
        elif field.kafka_type in FIXED_FORMATS and field.kafka_type not in _CONVERTED:
            self.line(f"{buffer} += pack(f'>{{count}}{FIXED_FORMATS[field.kafka_type]}', *values)")
        else:
            with self.block("for value in values:"):
                self._value(field, buffer)

    def _tags(self, tagged: list[FieldSchema]) -> None:
        """Write the fields that differ from their default (KIP-482)."""
        if not tagged:
            self.line("buffer.append(0)")
            return
        self.line("present = []")
        for field in tagged:
            default = self.constant(f"default_{field.name}", field.default)
            with self.block(f"if entity.{field.name} != {default}:"):
                self.line("content = bytearray()")
                self._field(field, "content")
                self.line(f"present.append(({field.tag}, content))")
        with self.block("if present:"):
            self.line("write_tags(buffer, present)")
        with self.block("else:"):
            self.line("buffer.append(0)")
