"""The undo journal: the rows that uncommitted writes replaced, and the difference between two offsets.

The active controller replays its records before they are committed, so that the next decision sees them.
The journal keeps each write with the row that it replaced until then:

- a loss of leadership writes those rows back, newest first (:meth:`Journal.undo_from`);
- the high watermark makes entries obsolete (:meth:`Journal.forget_below`), except those of a metadata
  transaction that is still open (KIP-868): AbortTransactionRecord has to undo them, committed or not;
- the undo of an abort is itself written and journaled: the AbortTransactionRecord may be uncommitted and lost;
- the first and the last row of each key are the difference between two offsets: a :class:`MetadataDelta`.
"""

from collections import deque
from collections.abc import Iterator, Mapping
from typing import Any, Generic, Literal, NamedTuple, TypeVar

from quorate_protocol.image.errors import CannotReplay
from quorate_protocol.image.state import AnyTable, ImageState, TableOf
from quorate_protocol.plain_data import dataclass

K = TypeVar("K")
V = TypeVar("V")


_Entry = tuple[int, AnyTable, Any, Any]
"""One write: offset of its record, table, key, and the row (None: no row) that it replaced."""


class Change(NamedTuple, Generic[V]):
    """One row before and after a change; None stands for no row."""

    before: V | None
    after: V | None


@dataclass(frozen=True, slots=True, kw_only=True)
class MetadataDelta:
    """The net changes by the records from ``start_offset`` to below ``end_offset``."""

    start_offset: int
    end_offset: int
    changes: Mapping[str, Mapping[Any, Change[Any]]]
    """Table name -> key -> change; unchanged rows are left out."""

    def of(self, table: TableOf[K, V]) -> Mapping[K, Change[V]]:
        """Return the changes of one table, for instance ``delta.of(image.cluster.brokers)``."""
        return self.changes.get(table.name, {})

    def apply(self, state: ImageState) -> None:
        """Turn the state at ``start_offset`` into that at ``end_offset``."""
        self._overwrite(state, "after")

    def revert(self, state: ImageState) -> None:
        """Turn the state at ``end_offset`` into that at ``start_offset``."""
        self._overwrite(state, "before")

    def _overwrite(self, state: ImageState, side: Literal["before", "after"]) -> None:
        # Partitions are nested in topics, and a name may have moved from one topic to another: removals
        # come first, inner rows before outer ones; then additions, outer rows before inner ones.
        rows = [
            (table, key, getattr(change, side))
            for table in state.tables()
            for key, change in self.of(table).items()
        ]
        for table, key, row in reversed(rows):
            if row is None:
                table.write(key, None)
        for table, key, row in rows:
            if row is not None:
                table.write(key, row)


@dataclass(slots=True)
class Transaction:
    """A metadata transaction that is open, or whose end is not yet committed."""

    name: str | None
    begin_offset: int
    end_offset: int | None = None
    """Offset of its EndTransactionRecord or AbortTransactionRecord; None while it is open."""


class Journal:
    """Writes in offset order, and the metadata transactions that they belong to."""

    __slots__ = ("_entries", "_transactions")

    def __init__(self) -> None:
        self._entries: deque[_Entry] = deque()
        self._transactions: list[Transaction] = []

    def __len__(self) -> int:
        return len(self._entries)

    def write(self, offset: int, table: AnyTable, key: Any, value: Any) -> None:
        """Write a row for the record at ``offset``, which never decreases."""
        self._entries.append((offset, table, key, table.write(key, value)))

    def undo_from(self, offset: int) -> None:
        """Undo all writes of the records from ``offset`` on."""
        while self._entries and self._entries[-1][0] >= offset:
            _, table, key, old = self._entries.pop()
            table.write(key, old)
        self._transactions = [one for one in self._transactions if one.begin_offset < offset]
        for one in self._transactions:
            if one.end_offset is not None and one.end_offset >= offset:
                one.end_offset = None

    def forget_below(self, offset: int) -> None:
        """Drop the entries that only an undo below ``offset`` would need."""
        while self._entries and self._entries[0][0] < offset:
            self._entries.popleft()
        self._transactions = [
            one for one in self._transactions if one.end_offset is None or one.end_offset >= offset
        ]

    def delta(self, start_offset: int, end_offset: int) -> MetadataDelta:
        """Return the difference between two offsets, neither of which may be below a forgotten one."""
        firsts: dict[tuple[str, Any], tuple[AnyTable, Any]] = {}
        afters: dict[tuple[str, Any], Any] = {}
        for offset, table, key, old in self._newest_until(start_offset):
            if offset >= end_offset:
                afters[table.name, key] = old
            else:
                firsts[table.name, key] = (table, old)
        changes: dict[str, dict[Any, Change[Any]]] = {}
        for (name, key), (table, before) in firsts.items():
            after = afters[name, key] if (name, key) in afters else table.get(key)
            if before != after:
                changes.setdefault(name, {})[key] = Change(before, after)
        return MetadataDelta(start_offset=start_offset, end_offset=end_offset, changes=changes)

    def _newest_until(self, offset: int) -> Iterator[_Entry]:
        for entry in reversed(self._entries):
            if entry[0] < offset:
                return
            yield entry

    @property
    def open_transaction(self) -> Transaction | None:
        """The open metadata transaction, to which the next record will belong."""
        last = self._transactions[-1] if self._transactions else None
        return last if last and last.end_offset is None else None

    def transaction_open_at(self, offset: int) -> Transaction | None:
        """Return the metadata transaction that is open after the records below ``offset``."""
        for one in self._transactions:
            if one.begin_offset < offset and (one.end_offset is None or one.end_offset >= offset):
                return one
        return None

    def begin_transaction(self, offset: int, name: str | None) -> None:
        if self.open_transaction:
            raise CannotReplay(f"the transaction at {self.open_transaction.begin_offset} was never closed")
        self._transactions.append(Transaction(name, offset))

    def end_transaction(self, offset: int) -> None:
        self._require_open_transaction().end_offset = offset

    def abort_transaction(self, offset: int) -> None:
        transaction = self._require_open_transaction()
        for _, table, key, old in list(self._newest_until(transaction.begin_offset)):
            self.write(offset, table, key, old)
        transaction.end_offset = offset

    def _require_open_transaction(self) -> Transaction:
        if not self.open_transaction:
            raise CannotReplay("there is no open transaction")
        return self.open_transaction
