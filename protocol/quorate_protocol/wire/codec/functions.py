"""Functions that are generated from an entity class.

The function of a class has statements for each of its fields, in wire order, and looks nothing up. Long or rare cases
and all refusals are in functions that it calls. A function is generated at its first call, that of a struct
too, since most messages have few of their structs. Its source is kept in ``linecache``: tracebacks show its lines,
profiles name the class, and ``print(inspect.getsource(readers[ForgottenTopic]))`` prints it. The reader of a struct
with a string and an array of numbers, in a flexible version::

    def read_ForgottenTopic_v12(data, offset):
        entity = Draft()
        length = data[offset]
        end = offset + length
        if 0 < length < 128 and end <= len(data):
            entity.topic = data[offset + 1 : end].decode()
            offset = end
        else:
            entity.topic, offset = read_compact(data, offset, topic_field)
        count = data[offset] - 1
        if 0 <= count < 127 and data.__class__ is bytes and count * 4 < len(data) - offset:
            offset += 1
        else:
            count, offset = read_count(data, offset, partitions_field, 4, True)
        if count:
            end = offset + count * 4
            entity.partitions = unpack_from(f'>{count}i', data, offset)
            offset = end
        else:
            entity.partitions = ()
        if data[offset] == 0:
            offset += 1
        else:
            offset = skip_tags(data, offset)
        entity.__class__ = Entity
        return entity, offset

Names that are no locals are bound to values by :meth:`Function.bind`.
"""

import linecache
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Final, Generic, TypeVar

from quorate_protocol.wire.schema import EntityClass

_INDENT: Final = "    "
_LITERALS: Final = (type(None), bool, int, str)


CodecFunction = TypeVar("CodecFunction", bound=Callable[[Any, Any], Any])


class CodecFunctions(dict[EntityClass, CodecFunction]):
    """The function of each entity class, made at its first use.

    Threads may use it at once: each change is one assignment, and at worst a function is made twice.
    """

    def __init__(
        self, make: Callable[[EntityClass, Mapping[EntityClass, CodecFunction]], CodecFunction]
    ) -> None:
        """``make`` gets the class and, for its structs, these functions."""
        super().__init__()
        self._make = make

    def __missing__(self, entity_type: EntityClass) -> CodecFunction:
        return self.setdefault(entity_type, self._make(entity_type, self))


class Function(Generic[CodecFunction]):
    """The source of one function, line by line, and the values of its global names."""

    def __init__(
        self,
        verb: str,
        entity_type: EntityClass,
        parameters: str,
        called: Mapping[str, object],
        functions: Mapping[EntityClass, CodecFunction],
    ) -> None:
        """``called`` are values that any function may use, by their global names; ``functions`` those of structs."""
        self._verb = verb
        self._functions = functions
        self.name = f"{verb}_{entity_type.__name__}_v{entity_type.__version__}"
        self._entity_type = entity_type
        self._is_flexible: bool = entity_type.__flexible__
        self._depth = 0
        self._lines: list[str] = []
        self._values: dict[str, object] = dict(called)
        self._names: dict[EntityClass, str] = {}
        """Structs -> the global names of their functions."""
        self.line(f"def {self.name}({parameters}):")
        self._depth = 1

    def line(self, text: str) -> None:
        """Append a statement to the current block."""
        self._lines.append(_INDENT * self._depth + text)

    @contextmanager
    def block(self, head: str) -> Iterator[None]:
        """Append a compound statement; what is appended inside the ``with`` is its body."""
        self.line(head)
        self._depth += 1
        yield
        self._depth -= 1

    def bind(self, name: str, value: object) -> str:
        """Give a global name a value, and return the name: with a number behind it if another value has it."""
        free, number = name, 1
        while free in self._values and self._values[free] is not value:
            number += 1
            free = f"{name}_{number}"
        self._values[free] = value
        return free

    def bind_struct(self, struct: EntityClass) -> str:
        """Return the global name of a struct's function, which is there from its first call on."""
        if struct in self._names:
            return self._names[struct]
        values, functions = self._values, self._functions
        known = functions.get(struct)

        def make_and_call(first: Any, second: Any) -> Any:
            values[name] = function = functions[struct]
            return function(first, second)

        name = self._names[struct] = self.bind(f"{self._verb}_{struct.__name__}", known or make_and_call)
        return name

    def constant(self, name: str, value: object) -> str:
        """Return an expression for a value that does not change: a literal, or a global name."""
        return repr(value) if type(value) in _LITERALS else self.bind(name, value)

    def compile(self) -> Callable[..., Any]:
        """Compile the function."""
        text = "\n".join(self._lines) + "\n"
        filename = f"<{self._entity_type.__module__}.{self.name}>"
        exec(compile(text, filename, "exec"), self._values)  # noqa: S102 - the text has names of fields alone
        # No time of modification: linecache keeps the lines.
        linecache.cache[filename] = (len(text), None, text.splitlines(keepends=True), filename)
        function: Callable[..., Any] = self._values[self.name]  # type: ignore[assignment]
        function.__module__ = self._entity_type.__module__
        return function


def draft_of(entity_type: EntityClass) -> type[Any]:
    """Return a class with the slots of a frozen entity class whose instances may be assigned to.

    A reader fills a draft and then makes it an entity by assigning its ``__class__``, which Python allows between
    classes with the same slots. To set the slots of a frozen instance of 16 fields takes nearly three times as long.
    """
    return type(entity_type.__name__, (), {"__slots__": entity_type.__slots__})
