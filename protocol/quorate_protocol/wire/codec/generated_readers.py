"""Readers that are generated: see :mod:`.functions`. Adjacent fields of fixed width are unpacked together."""

import struct
from collections.abc import Mapping
from typing import Final

from quorate_protocol.errors import error_code_of
from quorate_protocol.kafka.field_types import MILLISECOND
from quorate_protocol.wire.schema import (
    FIXED_FORMATS,
    UUID_ZERO_BYTES,
    EntityClass,
    FieldSchema,
    runs_of,
    schema_of,
    size_bytes_min,
    struct_of,
)

from . import read_values
from .functions import Function, draft_of
from .read_values import Reader

_CALLED: Final[dict[str, object]] = {
    "read_compact": read_values.read_compact,
    "read_sized": read_values.read_sized,
    "read_count": read_values.read_count,
    "read_tag_count": read_values.read_tag_count,
    "read_tag": read_values.read_tag,
    "skip_tags": read_values.skip_tags,
    "refused_tag": read_values.refused_tag,
    "refused_presence": read_values.refused_presence,
    "unpack_from": struct.unpack_from,
    "known_uuid": read_values.known_uuid,
    "uuid_zero": UUID_ZERO_BYTES,
    "error_code_of": error_code_of,
    "millisecond": MILLISECOND,
    "duration": read_values.duration,
    "instant": read_values.instant,
}

_CONVERTED: Final = {
    "uuid": "None if {0} == uuid_zero else known_uuid({0})",
    "error_code": "error_code_of({0})",
    "timedelta_i32": "{0} * millisecond",
    "timedelta_i64": "duration({0})",
    "datetime_i64": "instant({0})",
}
"""Types of fixed width -> the expression for a value from what ``struct`` unpacks, if that is not the value."""


def _converted(field: FieldSchema) -> str | None:
    if field.kafka_type == "datetime_i64" and field.is_nullable:
        return "None if {0} == -1 else instant({0})"
    return _CONVERTED.get(field.kafka_type or "")


class _ReaderSource(Function[Reader]):
    """The reader of an entity class. The methods append what reads a field and puts it to a ``target``."""

    def build(self) -> Reader:
        """Append all and compile it."""
        assert not hasattr(self._entity_type, "__post_init__")
        schema = schema_of(self._entity_type)
        self.line(f"entity = {self.bind('Draft', draft_of(self._entity_type))}()")
        for run in runs_of([field for field in schema if field.tag is None]):
            if run[0].is_fixed:
                self._fixed(run)
            else:
                self._value(run[0], f"entity.{run[0].name}")
        if self._is_flexible:
            self._tags([field for field in schema if field.tag is not None])
        self.line(f"entity.__class__ = {self.bind('Entity', self._entity_type)}")
        self.line("return entity, offset")
        return self.compile()

    def _value(self, field: FieldSchema, target: str) -> None:
        if field.is_array:
            self._array(field, target)
        elif field.struct is not None:
            self._struct(field, target)
        elif field.is_fixed:
            self._fixed([field])
        else:
            self._string(field, target)

    def _fixed(self, fields: list[FieldSchema]) -> None:
        """Read adjacent fields of fixed width at once."""
        unpacker = struct_of(fields)
        unpack = self.bind("unpack", unpacker.unpack_from)
        targets = [
            f"entity.{field.name}" if _converted(field) is None else f"raw_{field.name}" for field in fields
        ]
        self.line(f"({', '.join(targets)},) = {unpack}(data, offset)")
        for field in fields:
            converted = _converted(field)
            if converted is not None:
                self.line(f"entity.{field.name} = {converted.format(f'raw_{field.name}')}")
        self.line(f"offset += {unpacker.size}")

    def _string(self, field: FieldSchema, target: str) -> None:
        described = self.bind(f"{field.name}_field", field)
        if not self._is_flexible or field.is_legacy_string:
            self.line(f"{target}, offset = read_sized(data, offset, {described})")
            return
        self.line("length = data[offset]")
        self.line("end = offset + length")
        with self.block("if 0 < length < 128 and end <= len(data):"):
            decoded = ".decode()" if field.kafka_type == "string" else ""
            self.line(f"{target} = data[offset + 1 : end]{decoded}")
            self.line("offset = end")
        with self.block("else:"):
            self.line(f"{target}, offset = read_compact(data, offset, {described})")

    def _struct(self, field: FieldSchema, target: str) -> None:
        assert field.struct is not None
        read = self.bind_struct(field.struct)
        if not field.is_nullable_struct:
            self.line(f"{target}, offset = {read}(data, offset)")
            return
        # After a presence byte (KIP-893).
        self.line("marker = data[offset]")
        with self.block("if marker == 0xFF:"):
            self.line(f"{target} = None")
            self.line("offset += 1")
        with self.block("elif marker == 1:"):
            self.line(f"{target}, offset = {read}(data, offset + 1)")
        with self.block("else:"):
            self.line(f"raise refused_presence({field.name!r}, marker)")

    def _array(self, field: FieldSchema, target: str) -> None:
        width = size_bytes_min(field, is_flexible=self._is_flexible)
        described = self.bind(f"{field.name}_field", field)
        read_count = f"count, offset = read_count(data, offset, {described}, {width}, {self._is_flexible})"
        if self._is_flexible:
            self.line("count = data[offset] - 1")
            # The elements of other bytes are counted.
            usual = f"0 <= count < 127 and data.__class__ is bytes and count * {width} < len(data) - offset"
            with self.block(f"if {usual}:"):
                self.line("offset += 1")
            with self.block("else:"):
                self.line(read_count)
        else:
            self.line(read_count)
        with self.block("if count:"):
            if field.kafka_type in FIXED_FORMATS:
                self._fixed_elements(field, target, width)
            else:
                self._elements(field, target)
        with self.block("else:"):
            self.line(f"{target} = None if count is None else ()" if field.is_nullable else f"{target} = ()")

    def _fixed_elements(self, field: FieldSchema, target: str, width: int) -> None:
        assert field.kafka_type is not None
        converted = _converted(field)
        self.line(f"end = offset + count * {width}")
        if field.kafka_type == "uuid":
            self.line("raw = [data[at : at + 16] for at in range(offset, end, 16)]")
        else:
            form = FIXED_FORMATS[field.kafka_type]
            raw = target if converted is None else "raw"
            self.line(f"{raw} = unpack_from(f'>{{count}}{form}', data, offset)")
        if converted is not None:
            self.line(f"{target} = tuple([{converted.format('each')} for each in raw])")
        self.line("offset = end")

    def _elements(self, field: FieldSchema, target: str) -> None:
        self.line("elements = []")
        with self.block("for _ in range(count):"):
            if field.struct is not None:
                self._struct(field, "element")
            else:
                self._string(field, "element")
            self.line("elements.append(element)")
        self.line(f"{target} = tuple(elements)")

    def _tags(self, tagged: list[FieldSchema]) -> None:
        for field in tagged:
            self.line(f"entity.{field.name} = {self.constant(f'default_{field.name}', field.default)}")
        with self.block("if data[offset] == 0:"):
            self.line("offset += 1")
        with self.block("else:"):
            if not tagged:
                self.line("offset = skip_tags(data, offset)")
                return
            self.line("tags, offset = read_tag_count(data, offset)")
            self.line("tag = -1")
            with self.block("for _ in range(tags):"):
                self.line("tag, offset, end_of_tag = read_tag(data, offset, tag)")
                self.line("start_of_tag = offset")
                for index, field in enumerate(tagged):
                    with self.block(f"{'elif' if index else 'if'} tag == {field.tag}:"):
                        self._value(field, f"entity.{field.name}")
                with self.block("else:"):
                    self.line("offset = end_of_tag")
                with self.block("if offset != end_of_tag:"):
                    self.line("raise refused_tag(tag, offset - start_of_tag, end_of_tag - start_of_tag)")


def generated_reader(entity_type: EntityClass, readers: Mapping[EntityClass, Reader]) -> Reader:
    """Generate the reader of an entity class. ``readers`` are those of its structs."""
    return _ReaderSource("read", entity_type, "data, offset", _CALLED, readers).build()
