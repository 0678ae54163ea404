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
from typing import Final

from quorate_protocol.wire.schema import (
    FIXED_FORMATS,
    MILLISECOND,
    UUID_ZERO_BYTES,
    EntityClass,
    FieldSchema,
    runs_of,
    schema_of,
    struct_of,
)

from . import write_values
from .functions import Function
from .switching import FunctionOf
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


def generated_writer(entity_type: EntityClass, writer_of: FunctionOf[Writer]) -> Writer:
    """Generate the writer of an entity class. ``writer_of`` returns those of its structs."""
    return _WriterSource(entity_type, writer_of).build()


class _WriterSource(Function):
    """The writer of an entity class. The methods append what writes a value, an expression, to a ``buffer``."""

    def __init__(self, entity_type: EntityClass, writer_of: FunctionOf[Writer]) -> None:
        super().__init__("write", entity_type, "buffer, entity", _CALLED)
        self._writer_of = writer_of

    def build(self) -> Writer:
        """Append all and compile it."""
        schema = schema_of(self._entity_type)
        for run in runs_of([field for field in schema if field.tag is None]):
            if run[0].is_fixed:
                self._fixed(run, "buffer", [f"entity.{field.name}" for field in run])
            else:
                self._field(run[0], "buffer")
        if self._is_flexible:
            tagged = [field for field in schema if field.tag is not None]
            self._tags(sorted(tagged, key=lambda field: field.tag or 0))
        elif not schema:
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
        write = self.bind(f"write_{struct_type.__name__}", self._writer_of(struct_type))
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
            write_struct = self._writer_of(field.struct)
            write = self.bind(
                f"write_{field.name}", write_values.elements_writer(field, write_struct, self._is_flexible)
            )
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
