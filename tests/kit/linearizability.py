"""A checker of linearizability: whether some order of a history's operations explains all responses.

Each operation takes effect at one time between its invocation and its response. Without a response it may take effect
at any time after its invocation, or never. Operations on different keys do not concern each other, so each key is
searched alone: the search of Wing and Gong with Lowe's memory of the configurations that led nowhere.

Times may be of any clock that all clients share. Operations that touch at one moment count as concurrent.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum
from typing import Any, Final, Protocol, TypeVar

CONFIGURATIONS_MAX: Final = 500_000
"""How many configurations the search of one key may look at: some seconds."""
SHOWN_BEFORE: Final = 8

StateT = TypeVar("StateT", bound=Hashable)


class SearchTooLargeError(Exception):
    """The bound of the search was reached: nothing is known about the history."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Operation:
    """The request of one client and its result. `observed` and `refused` are parts of the response."""

    client: str
    key: str
    action: str
    invoked_at: float
    returned_at: float | None
    """None: no response came, or one that leaves open whether it was done (a timeout, a lost leader)."""
    written: Hashable = None
    observed: Hashable = None
    refused: str | None = None
    """The error with which it was refused; None: it was done."""

    @property
    def has_response(self) -> bool:
        """Whether the client knows what became of it."""
        return self.returned_at is not None

    def without_response(self) -> Operation:
        """The same operation without its response."""
        return replace(self, returned_at=None, observed=None, refused=None)

    def __str__(self) -> str:
        asked = f"{self.action} {self.key}" + ("" if self.written is None else f" = {self.written}")
        if self.returned_at is None:
            return f"[{self.invoked_at} .. no response] {self.client}: {asked}"
        response = self.refused or ("done" if self.observed is None else f"-> {self.observed}")
        return f"[{self.invoked_at} .. {self.returned_at}] {self.client}: {asked}: {response}"


class Model(Protocol[StateT]):
    """The sequential behaviour of one key. Operations that READ, or were refused, have no effect on it."""

    @property
    def initial(self) -> StateT:
        """The state before the first operation."""

    def step(self, state: StateT, operation: Operation) -> StateT | None:
        """The state after an operation, None if the operation cannot have this response in that state.

        An operation without a response is always possible; where it can do nothing it leaves the state.
        """


@dataclass(frozen=True, slots=True)
class Violation:
    """A history that no order explains."""

    key: str
    response: Operation
    """The first response that fits no order; all earlier ones do fit."""
    order: tuple[Operation, ...]
    """An order of the earlier operations, which ends in `state`."""
    concurrent: tuple[Operation, ...]
    """The operations that were concurrent with `response`: its place is among these."""
    state: Hashable

    def __str__(self) -> str:
        hidden = len(self.order) - SHOWN_BEFORE
        lines = [
            f"no order explains {self.response}",
            "an order of the earlier operations:",
            *([f"  ({hidden} more)"] if hidden > 0 else []),
            *(f"  {operation}" for operation in self.order[-SHOWN_BEFORE:]),
            f"  which leaves {self.state}",
            "under way at the same time:",
            *(f"  {operation}" for operation in self.concurrent),
        ]
        return "\n".join(lines)


def first_violation(
    operations: Iterable[Operation],
    model: Model[StateT],
    *,
    configurations_max: int = CONFIGURATIONS_MAX,
) -> Violation | None:
    """The violation, of all keys, whose response came first; None if the history is linearizable.

    Raises SearchTooLargeError when a key is not decided within the bound.
    """
    by_key: dict[str, list[Operation]] = defaultdict(list)
    for operation in operations:
        by_key[operation.key].append(operation)
    found = [_violation(key, history, model, configurations_max) for key, history in by_key.items()]
    return min(
        (violation for violation in found if violation is not None),
        key=lambda violation: (violation.response.returned_at, violation.key),
        default=None,
    )


def _violation(
    key: str, history: Sequence[Operation], model: Model[StateT], configurations_max: int
) -> Violation | None:
    if _Search(history, model, configurations_max).order() is not None:
        return None
    ends = sorted({operation.returned_at for operation in history if operation.returned_at is not None})
    # Later responses cannot make an order possible: the shortest prefix without one is found by halving.
    explained, unexplained = -1, len(ends) - 1
    while unexplained - explained > 1:
        middle = (explained + unexplained) // 2
        prefix = _until(history, ends[middle])
        if _Search(prefix, model, configurations_max).order() is None:
            unexplained = middle
        else:
            explained = middle
    return _described(key, _until(history, ends[unexplained]), ends[unexplained], model, configurations_max)


def _until(history: Sequence[Operation], end: float) -> list[Operation]:
    """What was known at that time."""
    return [
        operation
        if operation.returned_at is not None and operation.returned_at <= end
        else operation.without_response()
        for operation in history
        if operation.invoked_at <= end
    ]


def _described(
    key: str, prefix: Sequence[Operation], end: float, model: Model[StateT], configurations_max: int
) -> Violation:
    """Remove the responses of the last moment, one after the other, until an order explains the others."""
    last = [operation for operation in prefix if operation.returned_at == end]
    known = list(prefix)
    order: Sequence[Operation] | None = None
    response = last[0]
    for response in last:
        known[known.index(response)] = response.without_response()
        order = _Search(known, model, configurations_max).order()
        if order is not None:
            break
    done = order or ()
    state = model.initial
    for operation in done:
        after = model.step(state, operation)
        state = state if after is None else after
    return Violation(
        key=key,
        response=response,
        order=tuple(done),
        concurrent=tuple(
            operation
            for operation in prefix
            if operation is not response
            and (operation.returned_at is None or operation.returned_at >= response.invoked_at)
        ),
        state=state,
    )


@dataclass(slots=True)
class _Place:
    """A configuration on the way of the search, and what is still to be tried from it."""

    finished: int
    pending: int
    """Sets of operations that are done, as bits."""
    state: Hashable
    operation: Operation | None
    """The operation by which this place was reached."""
    choices: list[tuple[Operation, int, int, Hashable]] = field(default_factory=list)


class _Search:
    """Depth first, for an order of one key's operations."""

    def __init__(self, history: Sequence[Operation], model: Model[Any], configurations_max: int) -> None:
        self._model = model
        self._configurations_max = configurations_max
        self._finished = sorted(
            (operation for operation in history if operation.has_response),
            key=lambda operation: (operation.invoked_at, operation.returned_at),
        )
        self._pending = sorted(
            (operation for operation in history if not operation.has_response),
            key=lambda operation: operation.invoked_at,
        )
        self._all = (1 << len(self._finished)) - 1
        self._seen: set[tuple[int, int, Hashable]] = set()

    def order(self) -> list[Operation] | None:
        """An order of all finished operations and some of the pending ones, or None."""
        way = [self._place(0, 0, self._model.initial, None)]
        while way:
            place = way[-1]
            if place.finished == self._all:
                return [step.operation for step in way if step.operation is not None]
            if not place.choices:
                way.pop()
                continue
            operation, responses, pending, state = place.choices.pop()
            if (responses, pending, state) not in self._seen:
                way.append(self._place(responses, pending, state, operation))
        return None

    def _place(self, finished: int, pending: int, state: Hashable, operation: Operation | None) -> _Place:
        self._seen.add((finished, pending, state))
        if len(self._seen) > self._configurations_max:
            raise SearchTooLargeError(
                f"more than {self._configurations_max} configurations of {len(self._finished)} operations with "
                f"a response and {len(self._pending)} without"
            )
        place = _Place(finished, pending, state, operation)
        if finished != self._all:
            finished_choices = self._finished_choices(place)
            at_once = next((choice for choice in finished_choices if _only_looks(choice, state)), None)
            if at_once is not None:
                # A read that fits here needs no other place, because it does not restrict the other operations.
                place.choices = [at_once]
            else:
                # The last one is tried first: the finished operations, by their responses.
                place.choices = self._pending_choices(place) + finished_choices
        return place

    def _first_end(self, finished: int) -> float:
        """The earliest response of what is not done yet: nothing that was invoked later can come before it."""
        end = float("inf")
        for number in range(_lowest_zero(finished), len(self._finished)):
            operation = self._finished[number]
            if operation.invoked_at > end:
                break
            if not finished >> number & 1 and operation.returned_at is not None:
                end = min(end, operation.returned_at)
        return end

    def _finished_choices(self, place: _Place) -> list[tuple[Operation, int, int, Hashable]]:
        end = self._first_end(place.finished)
        found: list[tuple[Operation, int, int, Hashable]] = []
        for number in range(_lowest_zero(place.finished), len(self._finished)):
            operation = self._finished[number]
            if operation.invoked_at > end:
                break
            if place.finished >> number & 1:
                continue
            state = self._model.step(place.state, operation)
            if state is not None:
                found.append((operation, place.finished | 1 << number, place.pending, state))
        return sorted(found, key=lambda choice: -(choice[0].returned_at or 0))

    def _pending_choices(self, place: _Place) -> list[tuple[Operation, int, int, Hashable]]:
        """Those that change something. Of equal ones the first is enough: it may do whatever the others may."""
        end = self._first_end(place.finished)
        found: list[tuple[Operation, int, int, Hashable]] = []
        tried: set[tuple[str, Hashable]] = set()
        for number, operation in enumerate(self._pending):
            if operation.invoked_at > end:
                break
            asked = (operation.action, operation.written)
            if place.pending >> number & 1 or asked in tried:
                continue
            tried.add(asked)
            state = self._model.step(place.state, operation)
            if state is not None and state != place.state:
                found.append((operation, place.finished, place.pending | 1 << number, state))
        return found


def _only_looks(choice: tuple[Operation, int, int, Hashable], state: Hashable) -> bool:
    """Whether an operation never changes anything, and here also adds nothing to what is known of the state."""
    operation, _, _, after = choice
    return (operation.action == READ or operation.refused is not None) and after == state


def _lowest_zero(bits: int) -> int:
    return (~bits & (bits + 1)).bit_length() - 1


# ------------------------------------------------------------------------------------------------ models

CREATE: Final = "create"
DELETE: Final = "delete"
READ: Final = "read"
SET: Final = "set"

TOPIC_ALREADY_EXISTS: Final = "TOPIC_ALREADY_EXISTS"
UNKNOWN_TOPIC_OR_PARTITION: Final = "UNKNOWN_TOPIC_OR_PARTITION"
UNKNOWN_TOPIC_ID: Final = "UNKNOWN_TOPIC_ID"


class _Unknown(Enum):
    ID = "a topic of unknown id"


@dataclass(frozen=True, slots=True)
class Topic:
    """What may be known of the topic with one name."""

    id: Hashable = None
    """None: there is no such topic."""
    former: frozenset[Hashable] = frozenset()
    """Ids that it can never have again."""

    @property
    def exists(self) -> bool:
        """Whether there is one."""
        return self.id is not None

    def created(self, topic_id: Hashable) -> Topic | None:
        return None if topic_id in self.former else Topic(topic_id, self.former)

    def deleted(self) -> Topic:
        return Topic(None, self.former if self.id is _Unknown.ID else self.former | {self.id})

    def known_as(self, topic_id: Hashable) -> Topic | None:
        """The same one, seen to have that id; None if it cannot have it."""
        if self.id is _Unknown.ID:
            return self.created(topic_id)
        return self if self.id == topic_id else None


class TopicModel:
    """The topic of one name. CREATE: `observed` is the new topic's id, None if it was not reported. DELETE: `written`
    is the id, None for deletion by name. READ: `observed` is the id, None if it was not reported; a read of no topic
    is refused.

    A refusal other than those named here is a refusal whatever the state is, and did nothing.
    """

    initial: Final = Topic()

    def step(self, state: Topic, operation: Operation) -> Topic | None:
        """See `Model`."""
        if operation.action == CREATE:
            return self._create(state, operation)
        if operation.action == DELETE:
            return self._delete(state, operation)
        if not operation.has_response:
            return state
        if operation.refused is None and operation.observed is None:
            return state if state.exists else None
        if operation.refused is None:
            return state.known_as(operation.observed)
        return None if operation.refused == UNKNOWN_TOPIC_OR_PARTITION and state.exists else state

    def _create(self, state: Topic, operation: Operation) -> Topic | None:
        if not operation.has_response:
            return state if state.exists else Topic(_Unknown.ID, state.former)
        if operation.refused == TOPIC_ALREADY_EXISTS:
            return state if state.exists else None
        if operation.refused is not None:
            return state
        if state.exists:
            return None
        return state.created(_Unknown.ID if operation.observed is None else operation.observed)

    def _delete(self, state: Topic, operation: Operation) -> Topic | None:
        wanted = operation.written
        named = state if wanted is None else state.known_as(wanted)
        is_there = named is not None and named.exists
        if not operation.has_response:
            return named.deleted() if named is not None and named.exists else state
        if operation.refused in {UNKNOWN_TOPIC_OR_PARTITION, UNKNOWN_TOPIC_ID}:
            if state.id is _Unknown.ID and wanted is not None:
                return Topic(state.id, state.former | {wanted})
            return None if is_there else state
        if operation.refused is not None:
            return state
        return named.deleted() if named is not None and named.exists else None


class ValueModel:
    """One value, a config's for example. SET: `written` is the new value, None to delete it. READ: `observed`."""

    def __init__(self, initial: Hashable = None) -> None:
        self._initial = initial

    @property
    def initial(self) -> Hashable:
        """Wrapped, for a step says with None that it is impossible."""
        return (self._initial,)

    def step(self, state: Hashable, operation: Operation) -> Hashable | None:
        """See `Model`."""
        if operation.refused is not None:
            return state
        if operation.action == SET:
            return (operation.written,)
        return state if not operation.has_response or state == (operation.observed,) else None
