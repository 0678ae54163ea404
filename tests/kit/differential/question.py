"""A request of a test to both controllers, and strategies that all requests are made with."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from hypothesis import strategies as st
from kit.differential.nodes import DIRECT, Caller


@dataclass(frozen=True, slots=True)
class At:
    """What differs between the controllers that are asked: ids of topics by name, and epochs of brokers."""

    topic_ids: Mapping[str, UUID]
    epochs: Mapping[int, int]


Make = Callable[[At], Any]


@dataclass(frozen=True, slots=True)
class Question:
    """A request and its sender; `make` knows the controller that is asked."""

    what: str
    make: Make
    caller: Caller = DIRECT


def always(request: Any) -> Make:
    """The same request to each controller."""
    return lambda _at: request


def lists(one: st.SearchStrategy[Any], most: int = 3) -> st.SearchStrategy[tuple[Any, ...]]:
    """Up to so many, or none."""
    return st.lists(one, max_size=most).map(tuple)


def some(one: st.SearchStrategy[Any], most: int = 3) -> st.SearchStrategy[tuple[Any, ...]]:
    """One, and up to so many."""
    return st.lists(one, min_size=1, max_size=most).map(tuple)
