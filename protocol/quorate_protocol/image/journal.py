"""The undo journal: the rows that uncommitted writes replaced.

The active controller replays its records before they are committed, so that the next decision sees them.
The journal keeps each write with the row that it replaced until then:

- a loss of leadership writes those rows back, newest first (:meth:`Journal.undo_from`);
- the high watermark makes entries obsolete (:meth:`Journal.forget_below`), except those of a metadata
  transaction that is still open (KIP-868): AbortTransactionRecord has to undo them, committed or not;
- the undo of an abort is itself written and journaled: the AbortTransactionRecord may be uncommitted and lost;
- a copy of the tables, for a snapshot, gets the same rows back (:meth:`Journal.undo_in`).
"""

from collections import deque
from collections.abc import Iterator
from typing import Any

from quorate_protocol.image.errors import CannotReplay
from quorate_protocol.image.state import AnyTable, ImageState
from quorate_protocol.plain_data import dataclass

_Entry = tuple[int, AnyTable, Any, Any]
"""One write: offset of its record, table, key, and the row (None: no row) that it replaced."""


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
        self._transactions = [
            transaction for transaction in self._transactions if transaction.begin_offset < offset
        ]
        for transaction in self._transactions:
            if transaction.end_offset is not None and transaction.end_offset >= offset:
                transaction.end_offset = None

    def forget_below(self, offset: int) -> None:
        """Drop the entries that only an undo below ``offset`` would need."""
        while self._entries and self._entries[0][0] < offset:
            self._entries.popleft()
        self._transactions = [
            transaction
            for transaction in self._transactions
            if transaction.end_offset is None or transaction.end_offset >= offset
        ]

    def undo_in(self, state: ImageState, offset: int) -> None:
        """Undo the writes of the records from ``offset`` on in a copy of the tables, not in the tables themselves."""
        tables = {table.name: table for table in state.tables()}
        for _, table, key, old in self._newest_until(offset):
            tables[table.name].write(key, old)

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
        for transaction in self._transactions:
            if transaction.begin_offset < offset and (
                transaction.end_offset is None or transaction.end_offset >= offset
            ):
                return transaction
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
