"""`dataclass` as in the standard library, with methods that are compiled when they are first called.

A controller imports some 450 classes of data and calls few of their methods. The standard library compiles six for
each class at import, which was half of the processor time of a controller's start. Here a class costs its fields. The
`__init__` of a frozen class sets slots directly, in half the time that the standard library's takes.

`fields`, `replace`, `asdict`, pickle and `inspect.signature` work as with a class of the standard library. A class
may inherit from one that was made here. One without slots is made by the standard library.
"""

from __future__ import annotations

import dataclasses
from dataclasses import MISSING, FrozenInstanceError
from functools import partial
from reprlib import recursive_repr
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable
    from dataclasses import dataclass

__all__ = ("dataclass",)

if not TYPE_CHECKING:  # type checkers treat it as the one of the standard library

    def dataclass(cls=None, /, *, frozen=False, slots=False, kw_only=False, eq=True, order=False):
        """See the module, and `dataclasses.dataclass` for the parameters."""

        def make(cls):
            if not slots:
                return dataclasses.dataclass(frozen=frozen, kw_only=kw_only, eq=eq, order=order)(cls)
            return _make(cls, frozen=frozen, kw_only=kw_only, eq=eq, order=order)

        return make if cls is None else make(cls)


Source = tuple[str, str, dict[str, object]]
"""Parameters and body of a method, and the values that these name."""


def _make(cls: type, *, frozen: bool, kw_only: bool, eq: bool, order: bool) -> type:
    own = vars(cls)
    # An own __eq__ alone puts None here.
    has_hash, has_eq, has_repr = own.get("__hash__") is not None, "__eq__" in own, "__repr__" in own
    if cls.__doc__ is None:
        cls.__doc__ = cls.__name__  # or the standard library makes a text from the signature, by `inspect`
    made: type = dataclasses.dataclass(init=False, repr=False, eq=False, slots=True, kw_only=kw_only)(cls)
    methods: dict[str, object] = {
        "__init__": _later(made, "__init__", _frozen_init if frozen else _init),
        "__signature__": _SIGNATURE,
    }
    if not has_repr:
        methods["__repr__"] = _repr
    if eq and not has_eq:
        methods["__eq__"] = _later(made, "__eq__", partial(_compare, "=="))
    if eq and not has_hash:
        methods["__hash__"] = _later(made, "__hash__", _hash) if frozen else None
    if frozen:
        methods |= _FROZEN
    if order:
        methods |= {name: _later(made, name, partial(_compare, sign)) for name, sign in _SIGNS.items()}
    for name, method in methods.items():
        setattr(made, name, method)
    return made


def _later(cls: type, name: str, source: Callable[[type], Source]) -> Callable[..., Any]:
    """Return a method that puts the compiled one in its own place and calls it."""

    def compile_and_call(self: object, *arguments: object, **named: object) -> object:
        parameters, body, values = source(cls)
        text = f"def {name}(self{parameters}):\n {body}"
        exec(text, values)  # noqa: S102 - as `dataclasses` does it; the text has names of fields alone
        method: Any = values[name]
        method.__qualname__ = f"{cls.__qualname__}.{name}"
        setattr(cls, name, method)
        return method(self, *arguments, **named)

    return compile_and_call


def _init(cls: type) -> Source:
    return _init_source(cls, lambda name, value: f"self.{name} = {value}", {})


def _frozen_init(cls: type) -> Source:
    setters = {f"_set_{field.name}": getattr(cls, field.name).__set__ for field in _fields(cls)}
    return _init_source(cls, lambda name, value: f"_set_{name}(self, {value})", setters)


def _init_source(cls: type, assign: Callable[[str, str], str], values: dict[str, object]) -> Source:
    positional: list[str] = []
    named: list[str] = []
    body: list[str] = []
    for field in _fields(cls):
        name, default, has_factory = (
            field.name,
            f"_default_{field.name}",
            field.default_factory is not MISSING,
        )
        if has_factory:
            values[default] = field.default_factory
            values["_absent"] = MISSING
        elif field.default is not MISSING:
            values[default] = field.default
        if field.init:
            is_optional = default in values
            parameter = f"{name}={'_absent' if has_factory else default}" if is_optional else name
            (named if field.kw_only else positional).append(parameter)
            body.append(
                assign(name, f"{default}() if {name} is _absent else {name}" if has_factory else name)
            )
        elif default in values:
            body.append(assign(name, f"{default}()" if has_factory else default))
    if hasattr(cls, "__post_init__"):
        body.append("self.__post_init__()")
    parameters = [*positional, *(["*", *named] if named else [])]
    return "".join(f", {parameter}" for parameter in parameters), "\n ".join(body or ["pass"]), values


def _compare(sign: str, cls: type) -> Source:
    body = (
        "if other.__class__ is self.__class__:\n"
        f"  return {_tuple(cls, 'self')} {sign} {_tuple(cls, 'other')}\n"
        " return NotImplemented"
    )
    return ", other", body, {}


def _hash(cls: type) -> Source:
    names = [field.name for field in _fields(cls) if field.compare if field.hash in (None, True)]
    return "", f"return hash(({''.join(f'self.{name},' for name in names)}))", {}


def _tuple(cls: type, instance: str) -> str:
    return f"({''.join(f'{instance}.{field.name},' for field in _fields(cls) if field.compare)})"


def _fields(cls: Any) -> tuple[dataclasses.Field[Any], ...]:
    return dataclasses.fields(cls)


@recursive_repr()
def _repr(self: Any) -> str:
    values = (f"{field.name}={getattr(self, field.name)!r}" for field in _fields(self) if field.repr)
    return f"{type(self).__qualname__}({', '.join(values)})"


def _refuse_to_set(self: object, name: str, value: object) -> None:  # noqa: ARG001 - Python's interface
    raise FrozenInstanceError(f"cannot assign to field {name!r}")


def _refuse_to_delete(self: object, name: str) -> None:  # noqa: ARG001 - Python's interface
    raise FrozenInstanceError(f"cannot delete field {name!r}")


def _get_state(self: Any) -> list[object]:
    return [getattr(self, field.name) for field in _fields(self)]


def _set_state(self: Any, state: list[object]) -> None:
    for field, value in zip(_fields(self), state, strict=True):
        object.__setattr__(self, field.name, value)


class _Signature:
    """The parameters of a class for `inspect.signature` and `help`, which import `inspect`."""

    def __get__(self, instance: object, owner: type) -> object:
        from inspect import Parameter, Signature  # noqa: PLC0415 - takes milliseconds, and few processes ask

        return Signature(
            sorted(
                (
                    Parameter(
                        field.name,
                        Parameter.KEYWORD_ONLY if field.kw_only else Parameter.POSITIONAL_OR_KEYWORD,
                        default=Parameter.empty if (default := _default(field)) is MISSING else default,
                        annotation=field.type,
                    )
                    for field in _fields(owner)
                    if field.init
                ),
                key=lambda parameter: parameter.kind,
            ),
            return_annotation=None,
        )


def _default(field: dataclasses.Field[Any]) -> object:
    return field.default_factory if field.default is MISSING else field.default


_SIGNATURE = _Signature()
_SIGNS = {"__lt__": "<", "__le__": "<=", "__gt__": ">", "__ge__": ">="}
_FROZEN: dict[str, object] = {
    "__setattr__": _refuse_to_set,
    "__delattr__": _refuse_to_delete,
    # As the standard library has them: pickle must not assign.
    "__getstate__": _get_state,
    "__setstate__": _set_state,
}
