"""How kio's modules are imported: without hypothesis, and with classes of data that cost little.

kio's classes are those of `dataclasses`, whose methods are compiled at import, and a process that speaks Kafka's
protocol imports some 200 of them. Their modules are given `plain_data.dataclass` instead. Modules that were imported
before `install` keep the standard library's classes, which behave alike.
"""

from __future__ import annotations

import builtins
import dataclasses
import sys
from importlib.machinery import PathFinder, SourceFileLoader
from types import SimpleNamespace
from typing import TYPE_CHECKING, Final

from quorate_protocol.plain_data import dataclass

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from importlib.machinery import ModuleSpec
    from types import ModuleType

_MESSAGES: Final = "kio.schema."
_DATACLASSES: Final = SimpleNamespace(dataclass=dataclass, field=dataclasses.field)
"""What kio's messages use of `dataclasses`."""


def install() -> None:
    """Import kio's modules that way from now on."""
    sys.meta_path.insert(0, _MessageFinder())
    _import_without_hypothesis()


def _import_without_hypothesis() -> None:
    """Import kio without hypothesis: where that is installed, kio registers strategies for it, for 0.2 s."""
    if "hypothesis" in sys.modules:
        return
    sys.modules["hypothesis"] = None  # type: ignore[assignment]
    try:
        import kio.static.primitive  # noqa: F401, PLC0415
    finally:
        del sys.modules["hypothesis"]


def _import(
    name: str,
    globals: Mapping[str, object] | None = None,  # noqa: A002 - Python's interface
    locals: Mapping[str, object] | None = None,  # noqa: A002
    fromlist: Sequence[str] | None = (),
    level: int = 0,
) -> object:
    """`__import__` for a module of kio."""
    if name == "dataclasses":
        return _DATACLASSES
    return builtins.__import__(name, globals, locals, fromlist, level)


_BUILTINS: Final = vars(builtins) | {"__import__": _import}


class _MessageLoader(SourceFileLoader):
    def exec_module(self, module: ModuleType) -> None:
        vars(module)["__builtins__"] = _BUILTINS
        super().exec_module(module)


class _MessageFinder:
    """A finder of modules; without the base class in importlib.abc, whose import takes some ms."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Python's own spec of a module with messages, with another loader."""
        if not fullname.startswith(_MESSAGES):
            return None
        spec = PathFinder.find_spec(fullname, path, target)
        if spec is not None and type(spec.loader) is SourceFileLoader:
            spec.loader = _MessageLoader(fullname, spec.loader.path)
        return spec
