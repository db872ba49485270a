"""Walks over the uncompressed records of one v2 batch, which check the records and collect facts about them.

The checks are those of Kafka's `DefaultRecord.readFrom`. Small batches are walked in plain Python, so a broker that has
received only such batches never loads Numba. Compiled walks release the interpreter lock. Thread-safe.
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
"""Largest number of records for which the plain walk is as fast as the compiled one (benchmarks/broker.py)."""
PLAIN_WHILE_LOADING = 1000
"""Largest number of records that are walked in plain Python while the compiled walk is being loaded, which takes some
seconds if it must be compiled."""
PLAIN_HEADERS = 1000
"""Largest number of record headers in a plain walk. A single record of a megabyte has room for 500,000."""

_new_tuple = tuple.__new__  # creates RecordFacts without its constructor, which is slower

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
        count: Number of records in the batch header.
        base_timestamp: Base timestamp of the batch, in ms.
        in_event_loop: True if the call must not wait for the compiled walk to be loaded.

    Raises:
        CorruptBatch: If the payload is not exactly `count` well-formed records.
        TakesTooLong: With `in_event_loop`, if the compiled walk is needed and not loaded.
    """
    if count > len(payload):  # a record has at least 7 bytes, so a huge count is refused without a walk
        raise fault(RecordFault.TOO_FEW, 0, count)
    if count <= PLAIN_RECORDS:  # as `_walk`, without the cost of the two closures
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

    return _walk(count, lambda: _plain_facts(payload, count, base_timestamp), compiled, in_event_loop)


def record_columns(payload: memoryview, count: int, base_timestamp: int) -> npt.NDArray[np.int64]:
    """Return the well-formed records before the first malformed one, as int64[n, len(RecordColumn)]."""

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

    return _walk(count, plain, compiled)


def find_timestamp(
    payload: memoryview, count: int, base_timestamp: int, wanted: int, lowest_delta: int
) -> FoundTimestamp | None:
    """Return the first record with a timestamp of at least `wanted` ms and an offset delta of at least `lowest_delta`.

    Raises:
        CorruptBatch: If a malformed record precedes the first such record.
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
    """Return a copy of records that `walk_records` has accepted, with offset deltas 0, 1, 2 ..."""
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


def _walk(count: int, plain: Callable[[], T], compiled: Callable[[Any], T], in_event_loop: bool = False) -> T:
    """Return the result of `plain` if there are few records with few headers, otherwise that of `compiled`."""
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
    """Return the module with the compiled walks, or None to use the plain one.

    The first batch of more than PLAIN_RECORDS records starts its loading.
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
