"""Decodes selected batches in runs: one kernel call decodes consecutive batches of the same BatchKind."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import pairwise

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from kafkalog_spark.errors import CorruptBatch, KafkalogError, UnsupportedFormat
from kafkalog_spark.format import layout
from kafkalog_spark.format.layout import Codec, HeaderColumn
from kafkalog_spark.kernels.batch_selection import BatchKind
from kafkalog_spark.kernels.decode_legacy import decode_legacy
from kafkalog_spark.kernels.decode_v2 import decode_v2
from kafkalog_spark.kernels.rows import BatchColumn, Cursor, LegacyBatchColumn, Status
from kafkalog_spark.kernels.search import Condition, Patterns, horspool_shifts, search_legacy, search_v2
from kafkalog_spark.kernels.unopened_batches import rows_from_headers
from kafkalog_spark.log.codecs.scratch import Scratch
from kafkalog_spark.log.decode.batch_selection import BatchSelection
from kafkalog_spark.log.decode.decompressed_batches import DECOMPRESSED, Decompressor, open_wrapper
from kafkalog_spark.log.decode.row_buffers import RowBuffers
from kafkalog_spark.log.decode.scan_request import RecordPredicate, ScanRequest

_I64 = npt.NDArray[np.int64]


def runs(kinds: _I64) -> Iterator[tuple[int, int]]:
    """Yield (first, end) for each run of consecutive batches of the same kind."""
    if len(kinds):
        yield from pairwise([0, *(np.flatnonzero(np.diff(kinds)) + 1).tolist(), len(kinds)])


def kinds_of(table: _I64) -> _I64:
    """Return int64[n] for a header table: a number for each combination of magic and compressed or not."""
    kinds: _I64 = 2 * table[:, HeaderColumn.MAGIC] + (
        (table[:, HeaderColumn.ATTRIBUTES] & layout.ATTRIBUTE_CODEC) != Codec.NONE
    )
    return kinds


_NO_PAYLOAD = np.empty(0, np.uint8)
_NO_PAYLOAD.flags.writeable = False

_INITIAL_MATCHES = 4096
"""Initial size of the array for the matches of a run. If there are more, the run is searched again with enough room."""


def patterns_of(wanted: RecordPredicate) -> Patterns:
    """Return a predicate in the form that the search kernels take."""
    patterns = {
        Condition.KEY: wanted.key,
        Condition.KEY_PREFIX: wanted.key_prefix,
        Condition.VALUE_SUBSTRING: wanted.value_contains,
        Condition.HEADER: wanted.header_name,
        Condition.HEADER_VALUE: wanted.header_value,
    }
    enabled = np.zeros(len(Condition), np.int64)
    for condition, pattern in patterns.items():
        enabled[condition] = pattern is not None
    arrays = {condition: np.frombuffer(pattern or b"", np.uint8) for condition, pattern in patterns.items()}
    return Patterns(
        enabled,
        key=arrays[Condition.KEY],
        key_prefix=arrays[Condition.KEY_PREFIX],
        value_substring=arrays[Condition.VALUE_SUBSTRING],
        shifts=horspool_shifts(wanted.value_contains or b""),
        header=arrays[Condition.HEADER],
        header_value=arrays[Condition.HEADER_VALUE],
    )


class RunDecoder:
    """Fills `rows` from the batches of a window whose CRCs were checked.

    Every method yields the RecordBatches that become full. For a bad batch it raises CorruptBatch or UnsupportedFormat
    with position and offset. The buffers then hold the rows of the batches before it, and none of its own. If only a
    timestamp is out of range, the buffers also hold the rows of the records before it in its batch.
    """

    def __init__(self, rows: RowBuffers, window: Scratch, decompressed: Scratch, request: ScanRequest) -> None:
        self._rows = rows
        self._patterns = patterns_of(request.wanted) if request.wanted else None
        self._window = window
        self._decompressed = decompressed
        self._decompressor = Decompressor(decompressed, request.max_decompressed)

    def decode(self, selection: BatchSelection, position: int) -> Iterator[pa.RecordBatch]:
        """Decode batches of the window that starts at byte `position` of the file."""
        for first, end in runs(selection.kinds):
            run = selection[first:end]
            match int(run.kinds[0]):
                case BatchKind.FROM_HEADER:
                    yield from self._run_kernel(rows_from_headers, _NO_PAYLOAD, run, position)
                case BatchKind.PLAIN:
                    yield from self._run_kernel(decode_v2, self._window.read_only(), run, position)
                case BatchKind.COMPRESSED:
                    yield from self._decode_compressed(run, position)
                case BatchKind.MESSAGE:
                    messages = replace(run, batches=_legacy_batches(run.table[run.rows]))
                    yield from self._run_kernel(decode_legacy, self._window.read_only(), messages, position)
                case _:
                    for i in range(len(run)):
                        yield from self._decode_wrapper(run[i : i + 1], position)

    def _decode_compressed(self, run: BatchSelection, position: int) -> Iterator[pa.RecordBatch]:
        attributes = run.table[run.rows, HeaderColumn.ATTRIBUTES]
        groups = self._decompressor.groups(
            self._window.view, run.starts, run.ends, attributes, run.batches[:, BatchColumn.COUNT]
        )
        for first, end, error in groups:
            good = end if error is None else end - 1
            yield from self._run_kernel(decode_v2, self._decompressed.read_only(), run[first:good], position)
            if error is not None:
                raise run.blame(error, good, position) from None

    def _decode_wrapper(self, selection: BatchSelection, position: int) -> Iterator[pa.RecordBatch]:
        """Decode a selection of one wrapper."""
        header = selection.table[selection.rows]
        magic, attributes, offset, previous = (
            int(header[0, column])
            for column in (HeaderColumn.MAGIC, HeaderColumn.ATTRIBUTES, HeaderColumn.LAST_OFFSET, HeaderColumn.PREVIOUS)
        )
        batch, scratch = self._window.view[int(selection.starts[0]) : int(selection.ends[0])], self._decompressed
        try:
            wrapper = open_wrapper(batch, magic, attributes, offset, scratch, self._decompressor.limit)
        except KafkalogError as error:
            raise selection.blame(error, 0, position) from None
        payload, base = scratch.read_only(), wrapper.offset_shift
        first = int.from_bytes(payload[:8].tobytes(), "big", signed=True) + base
        if first <= previous or base > layout.MAX_INT64:
            what = f"offsets {first} to {offset} of a compressed message set do not follow {previous}"
            raise selection.blame(CorruptBatch(what), 0, position)
        batches = _legacy_batches(header)
        batches[0, LegacyBatchColumn.OFFSET_SHIFT] = base
        inner = replace(
            selection, starts=np.array([0], np.int64), ends=np.array([wrapper.end], np.int64), batches=batches
        )
        yield from self._run_kernel(decode_legacy, payload, inner, position)
        scratch.shrink(2 * DECOMPRESSED)

    def _run_kernel(
        self, kernel: Callable[..., int], payload: np.ndarray, run: BatchSelection, position: int
    ) -> Iterator[pa.RecordBatch]:
        """Decode the records of a run; if there is a predicate, only those that match it."""
        if self._patterns is None:
            yield from self._call_kernel(kernel, payload, run, position, self._rows.offset_filter)
            return
        search = search_legacy if kernel is decode_legacy else search_v2
        hits = np.zeros(len(run), np.uint8)  # 1 for each batch with a match
        found = np.empty(_INITIAL_MATCHES, np.int64)
        while True:
            matches, stopped, status = search(payload, run.starts, run.ends, run.batches, found, hits, self._patterns)
            if matches <= len(found):
                break
            found = np.empty(matches, np.int64)
        hits[stopped:] = 0
        offsets = found[:matches]
        if len(self._rows.offset_filter):
            offsets = np.intersect1d(offsets, self._rows.offset_filter, assume_unique=True)
        if len(offsets):
            yield from self._call_kernel(kernel, payload, run[hits.view(bool)], position, offsets)
        if stopped < len(run):
            raise run.blame(CorruptBatch(Status(status).text), int(stopped), position)

    def _call_kernel(
        self,
        kernel: Callable[..., int],
        payload: np.ndarray,
        run: BatchSelection,
        position: int,
        offset_filter: np.ndarray,
    ) -> Iterator[pa.RecordBatch]:
        """Call a decode kernel until it is done, emptying or enlarging the row buffers in between."""
        rows = self._rows
        rows.begin_call()
        while True:
            status = kernel(
                payload, run.starts, run.ends, run.batches, rows.cursor, rows.limits, offset_filter,
                rows.timestamp_filter, rows.rows,
            )  # fmt: skip
            if status == Status.DONE:
                return
            if status == Status.FULL:
                yield rows.take()
                rows.ensure_buffers()
            elif status == Status.TIMESTAMP_RANGE:
                raise run.blame(_timestamp_error(rows.cursor), int(rows.cursor[Cursor.BATCH]), position)
            elif text := Status(status).text:
                raise run.blame(CorruptBatch(text), int(rows.cursor[Cursor.BATCH]), position)
            else:
                rows.grow(status)


def _timestamp_error(cursor: _I64) -> UnsupportedFormat:
    """Return the error for a record whose timestamp Spark cannot represent. The rest of its batch is not read."""
    timestamp = int(cursor[Cursor.FAULT_TIMESTAMP])
    return UnsupportedFormat(
        f"the record's timestamp is {timestamp} ms, which does not fit int64 microseconds",
        offset=int(cursor[Cursor.FAULT_OFFSET]),
        hint="it may be in nanoseconds; leave the timestamp column out to read all records",
    )


def _legacy_batches(table: np.ndarray) -> np.ndarray:
    """Return the `batches` of decode_legacy for messages outside a wrapper, from rows of a header table."""
    log_append = (table[:, HeaderColumn.ATTRIBUTES] & layout.ATTRIBUTE_LOG_APPEND_TIME) != 0
    v1 = table[:, HeaderColumn.MAGIC] == 1
    batches = np.zeros((len(table), len(LegacyBatchColumn)), np.int64)
    batches[:, LegacyBatchColumn.MAGIC] = table[:, HeaderColumn.MAGIC]
    batches[:, LegacyBatchColumn.LAST_OFFSET] = table[:, HeaderColumn.LAST_OFFSET]
    batches[:, LegacyBatchColumn.IS_LOG_APPEND] = v1 & log_append
    batches[:, LegacyBatchColumn.LOG_APPEND_TIMESTAMP] = table[:, HeaderColumn.MAX_TIMESTAMP]
    batches[:, LegacyBatchColumn.TIMESTAMP_TYPE] = np.where(v1, log_append, -1)
    return batches
