"""The functions of each class: those of the extension ``quorate_native`` where it is installed, else those in Python.

The extension is built from `native/`. Its functions are several times as fast. They leave unusual and malformed input
to the Python function of the same class, which returns or raises. So values, errors and their texts do not depend on
the extension.
"""

import os
import uuid
from collections.abc import Mapping
from importlib import import_module
from typing import Any, Final

from quorate_protocol.errors import error_code_of
from quorate_protocol.kafka.field_types import MILLISECOND
from quorate_protocol.wire.schema import EntityClass, FieldSchema, schema_of, size_bytes_min

from .functions import CodecFunctions
from .generated_readers import generated_reader
from .generated_writers import generated_writer
from .read_values import Reader, duration, instant, known_uuid
from .write_values import SharedArray, Writer, timestamp

__all__ = ("CODEC", "CODEC_REASON", "SWITCH", "NativeCodecs", "extension", "load", "readers", "writers")

SWITCH: Final = "QUORATE_NATIVE"
"""The environment variable that turns the extension off."""
_INTERFACE: Final = 2
"""The version of the extension's interface, also in `native/src/lib.rs`."""


def load(environment: Mapping[str, str]) -> tuple[Any, str]:
    """Return the extension, or None, and why it is used or not."""
    if environment.get(SWITCH) == "off":
        return None, f"{SWITCH} is off"
    try:
        extension = import_module("quorate_native")
    except ImportError as error:
        return None, str(error)
    if extension.INTERFACE != _INTERFACE:
        return None, (
            f"quorate_native {extension.VERSION} has interface {extension.INTERFACE}, {_INTERFACE} is needed"
        )
    return extension, f"quorate_native {extension.VERSION} is installed"


class NativeCodecs:
    """The codecs of the extension, each made at the first use of its class."""

    def __init__(self, extension: Any, readers: Mapping[Any, Reader], writers: Mapping[Any, Writer]) -> None:
        """``readers`` and ``writers`` are the functions in Python, for input that a native one leaves to them."""
        self._codec = extension.Codec
        self.converters = extension.Converters(
            known_uuid, uuid.UUID, error_code_of, MILLISECOND, duration, instant, timestamp, SharedArray
        )
        self._readers = readers
        self._writers = writers
        self._made: dict[EntityClass, Any] = {}
        self.readers: Final[Mapping[EntityClass, Reader]] = CodecFunctions(lambda each, _: self.of(each).read)
        self.writers: Final[Mapping[EntityClass, Writer]] = CodecFunctions(
            lambda each, _: self.of(each).write
        )

    def of(self, entity_type: EntityClass) -> Any:
        """Return the codec of a class. Threads may ask at once: all of them get the same."""
        codec = self._made.get(entity_type)
        if codec is None:
            codec = self._made.setdefault(entity_type, self._make(entity_type))
        return codec

    def _make(self, entity_type: EntityClass) -> Any:
        assert not hasattr(entity_type, "__post_init__")
        is_flexible: bool = entity_type.__flexible__
        fields = [
            self._described(entity_type, field, is_flexible=is_flexible) for field in schema_of(entity_type)
        ]
        return self._codec(
            entity_type, is_flexible, fields, self.of, self.converters, self._readers, self._writers
        )

    def _described(
        self, entity_type: EntityClass, field: FieldSchema, *, is_flexible: bool
    ) -> tuple[object, ...]:
        """Describe a field as the extension's ``Description`` has it."""
        return (
            getattr(entity_type, field.name),
            field.kafka_type,
            field.struct,
            field.is_array,
            field.is_nullable,
            is_flexible and not field.is_legacy_string,
            size_bytes_min(field, is_flexible=is_flexible) if field.is_array else 0,
            field.tag,
            field.default,
        )


extension, CODEC_REASON = load(os.environ)
"""The module ``quorate_native``, or None; and why."""
CODEC: Final = "python" if extension is None else "native"
"""Which functions run."""

_python_readers: Final = CodecFunctions(generated_reader)
_python_writers: Final = CodecFunctions(generated_writer)
_codecs: Final = extension and NativeCodecs(extension, _python_readers, _python_writers)

readers: Final[Mapping[EntityClass, Reader]] = _codecs.readers if _codecs else _python_readers
"""The reader of each entity class."""
writers: Final[Mapping[EntityClass, Writer]] = _codecs.writers if _codecs else _python_writers
"""The writer of each entity class."""
