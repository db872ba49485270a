"""The transaction index (.txnindex): the aborted transactions whose abort marker is in the segment.

Entry, 34 bytes, big-endian (AbortedTxn): version i16 = 0, producerId i64, firstOffset i64, lastOffset i64 (of the
marker), lastStableOffset i64 (the LSO when the marker was written). Last offsets rise. The file exists only in
segments with aborted transactions that held records.

Unlike the other indexes, this one is not a hint: readers hide the records of an aborted transaction only because of its
entry. Therefore damage is an error, and Kafka rebuilds the index.
"""

from __future__ import annotations

import errno
import os
import struct
from bisect import bisect_left
from collections.abc import Sequence
from typing import NamedTuple

from kafkalog_spark.errors import CorruptIndex
from kafkalog_spark.format.regular_file import OpenFile, open_regular, read_state

ENTRY_SIZE = 34
VERSION = 0
_ENTRY = struct.Struct(">hqqqq")
_HINT = "which transactions were aborted can also be found out by scanning the log"


class AbortedTransaction(NamedTuple):
    """Entry of the index.

    Attributes:
        first_offset: Of the first record of the transaction.
        last_offset: Of the abort marker.
        last_stable_offset: The LSO when the marker was written.
    """

    producer_id: int
    first_offset: int
    last_offset: int
    last_stable_offset: int


class AbortedSearch(NamedTuple):
    """Aborted transactions in a range of offsets, by the index of one segment.

    Attributes:
        transactions: The transactions.
        is_complete: True if the index of no later segment has further ones.
    """

    transactions: list[AbortedTransaction]
    is_complete: bool


def parse_transaction_index(data: bytes | bytearray | memoryview, base_offset: int = 0) -> list[AbortedTransaction]:
    """Parse the entries.

    Raises:
        CorruptIndex: With the byte position of the first invalid entry; entries below `base_offset` are invalid, too
            (Kafka: TransactionIndex.sanityCheck).
    """
    transactions: list[AbortedTransaction] = []
    whole = len(data) // ENTRY_SIZE * ENTRY_SIZE
    for slot, (version, *fields) in enumerate(_ENTRY.iter_unpack(memoryview(data)[:whole])):
        transaction = AbortedTransaction(*fields)
        previous = transactions[-1].last_offset if transactions else base_offset - 1
        wrong = _fault(version, transaction, previous, base_offset)
        if wrong:
            raise CorruptIndex(f"entry {slot}: {wrong}", position=slot * ENTRY_SIZE, hint=_HINT)
        transactions.append(transaction)
    if whole != len(data):
        raise CorruptIndex(f"the last entry has {len(data) - whole} of {ENTRY_SIZE} bytes", position=whole, hint=_HINT)
    return transactions


def _fault(version: int, transaction: AbortedTransaction, previous: int, base_offset: int) -> str | None:
    if version != VERSION:
        return f"version {version}, only {VERSION} is known"
    if transaction.last_offset < base_offset:
        return f"last offset {transaction.last_offset} is below the segment's base offset {base_offset}"
    if transaction.last_offset <= previous:
        return f"last offset {transaction.last_offset} is not above {previous}, the last offset of the entry before"
    if not 0 <= transaction.first_offset <= transaction.last_offset:
        return f"first offset {transaction.first_offset} is not within 0 and the last offset {transaction.last_offset}"
    if transaction.producer_id < 0:
        return f"producer id {transaction.producer_id} is negative"
    return None


def load_transaction_index(path: str | os.PathLike[str], base_offset: int = 0) -> list[AbortedTransaction]:
    """Read and parse an index file, see `parse_transaction_index`; a missing file has no entries."""
    return read_state(path, lambda data: parse_transaction_index(data, base_offset)) or []


def format_transaction(transaction: AbortedTransaction) -> bytes:
    return _ENTRY.pack(VERSION, *transaction)


def collect_aborted(transactions: Sequence[AbortedTransaction], fetch_offset: int, upper_bound: int) -> AbortedSearch:
    """Return the aborted transactions with records in [fetch_offset, upper_bound) from the entries of one segment.

    Repeat with the following segments until `is_complete` is True: an LSO at or above `upper_bound` proves that no
    later marker is relevant. Kafka: TransactionIndex.collectAbortedTxns.
    """
    aborted = []
    first = bisect_left(transactions, fetch_offset, key=lambda transaction: transaction.last_offset)
    for slot in range(first, len(transactions)):
        transaction = transactions[slot]
        if transaction.first_offset < upper_bound:
            aborted.append(transaction)
        if transaction.last_stable_offset >= upper_bound:
            return AbortedSearch(aborted, True)
    return AbortedSearch(aborted, False)


class TransactionIndexWriter(OpenFile):
    """A .txnindex file with one writer. The first entry creates it. Raises CorruptIndex if the file is damaged."""

    def __init__(self, path: str | os.PathLike[str], base_offset: int = 0) -> None:
        self.path = os.fspath(path)
        self.base_offset = base_offset
        self._transactions = load_transaction_index(path, base_offset)
        if os.path.exists(self.path):
            self._open()

    @property
    def entries(self) -> int:
        return len(self._transactions)

    @property
    def transactions(self) -> Sequence[AbortedTransaction]:
        """All entries, as a live view: do not modify it."""
        return self._transactions

    def append(self, transaction: AbortedTransaction) -> None:
        """Append an entry. Raises CorruptIndex if its last offset is not above that of the last entry."""
        previous = self._transactions[-1].last_offset if self._transactions else self.base_offset - 1
        wrong = _fault(VERSION, transaction, previous, self.base_offset)
        if wrong:
            at, offset = self.entries * ENTRY_SIZE, transaction.last_offset
            raise CorruptIndex(f"cannot append {transaction}: {wrong}", path=self.path, position=at, offset=offset)
        if self._fd < 0:
            self._open()
        if os.pwrite(self._fd, format_transaction(transaction), self.entries * ENTRY_SIZE) != ENTRY_SIZE:
            raise OSError(errno.ENOSPC, "only a part of an index entry could be written", self.path)
        self._transactions.append(transaction)

    def _open(self) -> None:
        self._fd = open_regular(self.path, os.O_RDWR | os.O_CREAT)
