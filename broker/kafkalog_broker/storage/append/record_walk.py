"""Checks and facts of the records in one v2 batch (DefaultRecord.readFrom), for any thread. Small batches are walked in
plain Python: a broker that has seen no others does not hold Numba in memory. Compiled walks let go of the
interpreter."""

from __future__ import annotations

import contextlib
import ctypes
import gc
import os
import threading
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import numpy as np
import numpy.typing as npt

from kafkalog_broker.storage.append.record_layouts import RecordColumn, WalkFact
from kafkalog_broker.storage.append.validation_budget import TakesTooLong
from kafkalog_spark.errors import CorruptBatch
from kafkalog_spark.format.layout import NO_TIMESTAMP
from kafkalog_spark.format.records import ManyHeaders, RecordFault, fault, read_records
from kafkalog_spark.format.records import renumbered as plain_renumbered

PLAIN_RECORDS = 4
"""Records up to which the plain walk (2 us a record) is as quick as the call of the compiled one (4 us)."""
PLAIN_WHILE_LOADING = 1000
"""Records of a batch that does not wait for the compiled walk: 0.3 s if compiled before, else some seconds."""
PLAIN_HEADERS = 1000
"""Headers of all records in a plain walk, 0.5 us each; one record of a megabyte has room for 500,000."""

_new = tuple.__new__  # RecordFacts(...) makes the same in three times the time

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


_kernel: Any = None
_kernel_lock = threading.Lock()
_loading: threading.Thread | None = None


def load_kernel() -> Any:
    global _kernel
    if _kernel is None:
        with _kernel_lock:
            if _kernel is None:
                load_llvm()
                from kafkalog_broker.storage.append import record_walk_kernel

                _kernel = record_walk_kernel
                # Numba stays, and is tens of thousands of objects: a full collection would have all wait for them.
                gc.freeze()
    return _kernel


def load_llvm() -> None:
    """Map llvmlite's library (100 MB): its import finds it there then. Python's own way to load a library holds the
    interpreter for the 20 to 40 ms that it takes, a foreign function does not."""
    try:
        found = find_spec("llvmlite")
        dlopen = ctypes.CDLL(None).dlopen
    except (AttributeError, ImportError, OSError, TypeError):
        return
    dlopen.restype, dlopen.argtypes = ctypes.c_void_p, (ctypes.c_char_p, ctypes.c_int)
    for place in (found and found.submodule_search_locations) or ():
        for library in Path(place, "binding").glob("libllvmlite.*"):
            dlopen(os.fsencode(library), os.RTLD_NOW)


def _kernel_for(count: int, in_event_loop: bool = False) -> Any:
    """The compiled walk, or None where the plain one is to do. The first batch that is not tiny has it loaded."""
    if count <= PLAIN_RECORDS:
        return None
    if _kernel is None and count > PLAIN_WHILE_LOADING and not in_event_loop:
        return load_kernel()
    if _kernel is None:
        _load_soon()
        if count > PLAIN_WHILE_LOADING:
            raise TakesTooLong
    return _kernel


def _load_soon() -> None:
    global _loading
    if _loading is None:
        _loading = threading.Thread(target=load_kernel, name="load-record-walk")
        _loading.start()


def _walked(count: int, plain: Callable[[], T], compiled: Callable[[Any], T], in_event_loop: bool = False) -> T:
    """Result of one of the two walks: `plain` for few records, as long as they have not too many headers."""
    kernel = _kernel_for(count, in_event_loop)
    if kernel is None:
        try:
            return plain()
        except ManyHeaders:
            if in_event_loop and _kernel is None:
                _load_soon()
                raise TakesTooLong from None
            kernel = load_kernel()
    return compiled(kernel)


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
    if count > len(payload):  # a record takes 7 bytes: no walk is needed to see a count that lies, or that is huge
        raise fault(RecordFault.TOO_FEW, 0, count)
    if count <= PLAIN_RECORDS:  # as `_walked`; for one record the two functions count
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
    """int64[n, len(RecordColumn)] of the well-formed records before the first malformed one."""

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
) -> tuple[int, int] | None:
    """(timestamp, offset delta) of the first record with a timestamp of at least `wanted` ms and an offset delta of at
    least `lowest_delta`; None when there is none. Raises CorruptBatch."""
    columns = record_columns(payload, count, base_timestamp)
    timestamps, deltas = columns[:, RecordColumn.TIMESTAMP], columns[:, RecordColumn.OFFSET_DELTA]
    rows = np.flatnonzero((timestamps >= wanted) & (deltas >= lowest_delta))
    if len(rows):
        return int(timestamps[rows[0]]), int(deltas[rows[0]])
    if len(columns) < count:
        raise CorruptBatch("a record is malformed")
    return None


def renumbered(payload: memoryview, count: int, base_timestamp: int) -> memoryview | bytes:
    """The records, which walk_records has passed, with offset deltas 0, 1, 2 ..."""
    kernel = _kernel_for(count)
    if kernel is None:
        return plain_renumbered(payload, count, base_timestamp)
    source = as_array(payload)
    out = np.empty(int(kernel.renumbered(source, 0, len(payload), count, np.empty(0, np.uint8))), np.uint8)
    kernel.renumbered(source, 0, len(payload), count, out)
    return out.data


def as_array(payload: memoryview) -> npt.NDArray[np.uint8]:
    return np.frombuffer(payload.toreadonly() if len(payload) else b"", np.uint8)


def _plain_facts(payload: memoryview, count: int, base_timestamp: int) -> RecordFacts:
    max_timestamp, low, high, in_sequence, null_keys = -1, 2**63 - 1, -(2**63), 1, 0
    for place, _, _, _, _, timestamp, delta, _, key_size, _, _ in read_records(
        payload, count, base_timestamp, PLAIN_HEADERS
    ):
        if timestamp > max_timestamp:
            max_timestamp = timestamp
        if timestamp != NO_TIMESTAMP:
            if timestamp < low:
                low = timestamp
            if timestamp > high:
                high = timestamp
        if delta != place:
            in_sequence = 0
        if key_size < 0:
            null_keys += 1
    return _new(RecordFacts, (count, max_timestamp, low, high, in_sequence, null_keys))
