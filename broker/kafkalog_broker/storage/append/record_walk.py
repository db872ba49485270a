"""Walks over the uncompressed records of one v2 batch: checks (DefaultRecord.readFrom), facts, columns. Thread-safe.

Small batches are walked in plain Python, so a broker that has received only such batches never loads Numba. Compiled
walks release the interpreter lock.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any, NamedTuple, TypeVar

import numpy as np
import numpy.typing as npt

from kafkalog_broker.storage.append.kernel_loading import load_kernel, loaded_kernel, start_loading_kernel
from kafkalog_broker.storage.append.record_layouts import RecordColumn, WalkFact
from kafkalog_broker.storage.append.validation_budget import TakesTooLong
from kafkalog_spark.errors import CorruptBatch
from kafkalog_spark.format.layout import MAX_INT64, MIN_INT64, NO_TIMESTAMP
from kafkalog_spark.format.records import ManyHeaders, RecordFault, fault, read_records
from kafkalog_spark.format.records import renumbered as plain_renumbered

PLAIN_RECORDS = 4
"""Records up to which the plain walk (2 us a record) is as fast as a call of the compiled one (4 us)."""
PLAIN_WHILE_LOADING = 1000
"""Records of a batch that is walked in plain Python while the compiled walk is loaded: 0.3 s, some seconds if it has to
be compiled."""
PLAIN_HEADERS = 1000
"""Headers of all records in a plain walk, 0.5 us each; one record of a megabyte has room for 500,000."""

_new_tuple = tuple.__new__  # RecordFacts without the cost of its constructor

T = TypeVar("T")


class RecordFacts(NamedTuple):
    """Facts about the records of a batch, in the order of WalkFact.

    Attributes:
        records: Number of records.
        max_timestamp: Largest timestamp in ms, at least -1.
        smallest_timestamp: Smallest timestamp of the records that have one, in ms; above `largest_timestamp` if none
            has one.
        largest_timestamp: Largest timestamp of the records that have one, in ms.
        in_sequence: 1 if offset deltas are 0, 1, 2 ...
        null_keys: Number of records without a key.
    """

    records: int
    max_timestamp: int
    smallest_timestamp: int
    largest_timestamp: int
    in_sequence: int
    null_keys: int


class FoundTimestamp(NamedTuple):
    """Timestamp of a record in ms, and its offset delta."""

    timestamp: int
    offset_delta: int


def walk_records(payload: memoryview, count: int, base_timestamp: int, *, in_event_loop: bool = False) -> RecordFacts:
    """Check the uncompressed records of a batch, and return facts about them.

    Args:
        payload: The records.
        count: Number of records that the batch announces.
        base_timestamp: Base timestamp of the batch, in ms.
        in_event_loop: True if the call must not wait for the compiled walk to be loaded.

    Raises:
        CorruptBatch: The payload is not `count` well-formed records.
        TakesTooLong: In the event loop, if the compiled walk is needed and not loaded.
    """
    if count > len(payload):  # a record takes 7 bytes, so no walk is needed to refuse a huge count
        raise fault(RecordFault.TOO_FEW, 0, count)
    if count <= PLAIN_RECORDS:  # as `_walked`, without the cost of its two functions for one record
        try:
            return _plain_facts(payload, count, base_timestamp)
        except ManyHeaders:
            pass

    def compiled(kernel: Any) -> RecordFacts:
        facts = np.empty(len(WalkFact), np.int64)
        status = kernel.walk(as_array(payload), 0, len(payload), count, base_timestamp, facts)
        found = RecordFacts(*facts.tolist())
        if status:
            raise fault(RecordFault(status), found.records, count)
        return found

    return _walked(count, lambda: _plain_facts(payload, count, base_timestamp), compiled, in_event_loop)


def record_columns(payload: memoryview, count: int, base_timestamp: int) -> npt.NDArray[np.int64]:
    """Return int64[n, len(RecordColumn)] of the well-formed records before the first malformed one."""

    def plain() -> npt.NDArray[np.int64]:
        rows: list[tuple[int, int, int]] = []
        with contextlib.suppress(CorruptBatch):
            for record in read_records(payload, count, base_timestamp, PLAIN_HEADERS):
                rows.append((record.timestamp, record.offset_delta, record.key_size))
        return np.array(rows, np.int64).reshape(-1, len(RecordColumn))

    def compiled(kernel: Any) -> npt.NDArray[np.int64]:
        columns = np.empty((min(count, len(payload)), len(RecordColumn)), np.int64)
        rows = kernel.record_columns(as_array(payload), 0, len(payload), base_timestamp, columns)
        return columns[:rows]

    return _walked(count, plain, compiled)


def find_timestamp(
    payload: memoryview, count: int, base_timestamp: int, wanted: int, lowest_delta: int
) -> FoundTimestamp | None:
    """Return the first record with a timestamp of at least `wanted` ms and an offset delta of at least `lowest_delta`.

    Raises:
        CorruptBatch: There is none before a malformed record.
    """
    columns = record_columns(payload, count, base_timestamp)
    timestamps, deltas = columns[:, RecordColumn.TIMESTAMP], columns[:, RecordColumn.OFFSET_DELTA]
    rows = np.flatnonzero((timestamps >= wanted) & (deltas >= lowest_delta))
    if len(rows):
        return FoundTimestamp(int(timestamps[rows[0]]), int(deltas[rows[0]]))
    if len(columns) < count:
        raise CorruptBatch("a record is malformed")
    return None


def renumbered(payload: memoryview, count: int, base_timestamp: int) -> memoryview | bytes:
    """Return records that `walk_records` has accepted with offset deltas 0, 1, 2 ..."""
    kernel = _kernel_for(count)
    if kernel is None:
        return plain_renumbered(payload, count, base_timestamp)
    source = as_array(payload)
    out = np.empty(int(kernel.renumbered(source, 0, len(payload), count, np.empty(0, np.uint8))), np.uint8)
    kernel.renumbered(source, 0, len(payload), count, out)
    return out.data


def as_array(payload: memoryview) -> npt.NDArray[np.uint8]:
    """Return a read-only view for kernels; they do not accept writable memory."""
    return np.frombuffer(payload.toreadonly() if len(payload) else b"", np.uint8)


def _walked(count: int, plain: Callable[[], T], compiled: Callable[[Any], T], in_event_loop: bool = False) -> T:
    """Return the result of `plain` for few records with few headers, else that of `compiled`."""
    kernel = _kernel_for(count, in_event_loop)
    if kernel is None:
        try:
            return plain()
        except ManyHeaders:
            if in_event_loop and loaded_kernel() is None:
                start_loading_kernel()
                raise TakesTooLong from None
            kernel = load_kernel()
    return compiled(kernel)


def _kernel_for(count: int, in_event_loop: bool = False) -> Any:
    """Return the compiled walk, or None if the plain one is to be used.

    The first batch of more than PLAIN_RECORDS records has the compiled walk loaded.
    """
    if count <= PLAIN_RECORDS:
        return None
    kernel = loaded_kernel()
    if kernel is None and count > PLAIN_WHILE_LOADING and not in_event_loop:
        return load_kernel()
    if kernel is None:
        start_loading_kernel()
        if count > PLAIN_WHILE_LOADING:
            raise TakesTooLong
    return kernel


def _plain_facts(payload: memoryview, count: int, base_timestamp: int) -> RecordFacts:
    max_timestamp, smallest, largest, in_sequence, null_keys = -1, MAX_INT64, MIN_INT64, 1, 0
    for index, _, _, _, _, timestamp, delta, _, key_size, _, _ in read_records(
        payload, count, base_timestamp, PLAIN_HEADERS
    ):
        if timestamp > max_timestamp:
            max_timestamp = timestamp
        if timestamp != NO_TIMESTAMP:
            if timestamp < smallest:
                smallest = timestamp
            if timestamp > largest:
                largest = timestamp
        if delta != index:
            in_sequence = 0
        if key_size < 0:
            null_keys += 1
    return _new_tuple(RecordFacts, (count, max_timestamp, smallest, largest, in_sequence, null_keys))
