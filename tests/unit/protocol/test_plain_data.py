"""Classes of data whose methods are compiled at the first call, beside those of the standard library."""

from __future__ import annotations

import copy
import dataclasses
import inspect
import pickle
import subprocess
import sys
from dataclasses import FrozenInstanceError, asdict, field, fields, replace
from typing import TYPE_CHECKING, Any

import pytest
from quorate_protocol.plain_data import dataclass

if TYPE_CHECKING:
    from collections.abc import Callable

Decorator = Any
EITHER = pytest.mark.parametrize("decorator", [dataclass, dataclasses.dataclass], ids=["ours", "stdlib"])


def point(decorator: Decorator) -> Any:
    """A frozen class with each kind of field."""

    @decorator(frozen=True, slots=True)
    class Point:
        x: int
        y: int = 2
        names: list[str] = field(default_factory=list)
        ignored: int = field(default=0, compare=False, repr=False)
        unhashed: int = field(default=0, hash=False)
        fixed: int = field(default=7, init=False)
        z: int = field(default=3, kw_only=True)

    return Point


@EITHER
def test_frozen_classes_behave_as_those_of_the_standard_library(decorator: Decorator) -> None:
    made = point(decorator)
    instance = made(1, 5, ["a"], z=4)
    assert (instance.x, instance.y, instance.names, instance.ignored, instance.fixed, instance.z) == (
        1,
        5,
        ["a"],
        0,
        7,
        4,
    )
    assert made(x=1).names == []
    assert made(x=1).names is not made(x=1).names
    assert instance == made(1, 5, ["a"], 9, z=4)
    assert instance != made(1, 5, ["a"], z=5)
    assert instance != (1, 5)
    assert repr(instance).endswith("Point(x=1, y=5, names=['a'], unhashed=0, fixed=7, z=4)")
    assert replace(instance, x=2) == made(2, 5, ["a"], z=4)
    assert asdict(instance)["names"] == ["a"]
    assert [each.name for each in fields(instance)] == [
        "x",
        "y",
        "names",
        "ignored",
        "unhashed",
        "fixed",
        "z",
    ]
    assert made.__match_args__ == ("x", "y", "names", "ignored", "unhashed")
    assert copy.copy(instance) == instance
    assert not hasattr(instance, "__dict__")
    with pytest.raises(FrozenInstanceError, match="cannot assign to field 'x'"):
        instance.x = 3
    with pytest.raises(FrozenInstanceError, match="cannot delete field 'x'"):
        del instance.x
    for wrong in (made, lambda: made(1, 2, [], 4, 5, 6), lambda: made(1, w=2), lambda: made(1, fixed=2)):
        with pytest.raises(TypeError):
            wrong()


@EITHER
def test_signature_lists_the_fields(decorator: Decorator) -> None:
    signature = inspect.signature(point(decorator))
    assert [(name, parameter.kind.name) for name, parameter in signature.parameters.items()] == [
        *((name, "POSITIONAL_OR_KEYWORD") for name in ("x", "y", "names", "ignored", "unhashed")),
        ("z", "KEYWORD_ONLY"),
    ]
    assert signature.parameters["x"].default is inspect.Parameter.empty
    assert signature.parameters["y"].default == 2
    assert signature.parameters["z"].annotation == "int"
    assert signature.return_annotation is None


@EITHER
def test_hash_follows_the_fields_that_are_compared(decorator: Decorator) -> None:
    @decorator(frozen=True, slots=True, kw_only=True)
    class Key:
        node_id: int
        name: str | None = None
        note: str = field(default="", compare=False)

    assert {Key(node_id=1), Key(node_id=1, note="other"), Key(node_id=2)} == {Key(node_id=1), Key(node_id=2)}
    assert hash(Key(node_id=1, name="a")) == hash((1, "a"))


@EITHER
def test_classes_that_change_have_no_hash(decorator: Decorator) -> None:
    @decorator(slots=True)
    class Counter:
        count: int = 0

        def __post_init__(self) -> None:
            self.count += 1

    @decorator(slots=True, eq=False)
    class Single:
        count: int = 0

    counter = Counter(1)
    assert counter.count == 2
    counter.count = 5
    assert counter == Counter(4)
    with pytest.raises(TypeError, match="unhashable"):
        hash(counter)
    assert Single() != Single()
    assert len({Single(), Single()}) == 2


@EITHER
def test_own_methods_stay_and_order_is_that_of_the_fields(decorator: Decorator) -> None:
    @decorator(frozen=True, slots=True)
    class Own:
        """Its text."""

        x: int

        def __repr__(self) -> str:
            return "own"

        def __eq__(self, other: object) -> bool:
            return True

        def __hash__(self) -> int:
            return 5

    @decorator(frozen=True, slots=True, order=True)
    class Position:
        epoch: int
        offset: int

    assert (repr(Own(1)), hash(Own(1)), Own.__doc__) == ("own", 5, "Its text.")
    assert Own(1) == Own(2)
    assert Position(1, 9) < Position(2, 0) <= Position(2, 0) < Position(2, 1)
    assert Position(2, 1) > Position(2, 0) >= Position(2, 0)
    with pytest.raises(TypeError):
        assert Position(1, 1) < (1, 2)


@EITHER
def test_fields_are_inherited(decorator: Decorator) -> None:
    @decorator(slots=True, kw_only=True)
    class Base:
        epoch: int
        name: str = "base"

    @decorator(slots=True, kw_only=True)
    class First(Base):
        deadline_ms: int

    @decorator(slots=True, kw_only=True)
    class Second(Base):
        name: str = "second"

    base, first = Base(epoch=1), First(epoch=1, deadline_ms=2)
    assert (base.epoch, first.name, first.deadline_ms) == (1, "base", 2)
    assert Second(epoch=3).name == "second"
    assert base != first
    assert repr(first).endswith("First(epoch=1, name='base', deadline_ms=2)")


@dataclass(frozen=True, slots=True)
class Pickled:
    """A class of this module, so that pickle finds it."""

    name: str
    values: tuple[int, ...] = ()


def test_values_are_pickled_before_and_after_a_method_is_compiled() -> None:
    pickled = Pickled("a", (1, 2))
    assert pickle.loads(pickle.dumps(pickled)) == pickled


def compiled_texts(code: str) -> int:
    """How many texts a new interpreter compiles while it runs `code`."""
    counted = (
        "import sys\ncount = 0\ndef hear(event, arguments):\n global count\n"
        " count += event == 'compile' and arguments[1] == '<string>'\n"
        f"sys.addaudithook(hear)\n{code}\nprint(count)"
    )
    ran = subprocess.run([sys.executable, "-c", counted], capture_output=True, text=True, check=True)
    return int(ran.stdout)


def test_methods_are_compiled_when_they_are_called(monkeypatch: pytest.MonkeyPatch) -> None:
    count = 0

    def counting(run: Callable[..., object]) -> Callable[..., object]:
        def execute(*arguments: Any) -> object:
            nonlocal count
            count += 1
            return run(*arguments)

        return execute

    monkeypatch.setattr("builtins.exec", counting(exec))
    made = point(dataclass)
    assert count == 0
    made(1)
    assert count == 1
    assert made(2) == made(2)
    assert count == 2


def test_the_import_of_a_controller_compiles_few_methods() -> None:
    assert compiled_texts("import quorate_controller.process") < 100
