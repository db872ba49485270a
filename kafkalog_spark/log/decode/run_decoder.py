"""Decode chosen batches run by run: neighbours of the same kind go through one kernel call together.

v2 as it lies | v2 compressed | messages v0, v1 | wrappers v0, v1 | v2 known by its header alone
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from itertools import pairwise, repeat
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from kafkalog_spark.errors import CorruptBatch, KafkalogError, UnsupportedFormat
from kafkalog_spark.format import layout
from kafkalog_spark.format.batch_header import wrapper_value_at
from kafkalog_spark.format.layout import MAX_DECOMPRESSED, Codec, HeaderColumn
from kafkalog_spark.kernels.batch_selection import BatchKind, SelectionRow, select_batches
from kafkalog_spark.kernels.decode_legacy import decode_legacy, inspect_message_set
from kafkalog_spark.kernels.decode_v2 import decode_v2
from kafkalog_spark.kernels.primitives import CRC32_TABLE
from kafkalog_spark.kernels.record_end import BAD_RECORD_LENGTH, end_of_records
from kafkalog_spark.kernels.rows import Cursor, Status, UnitColumn
from kafkalog_spark.kernels.search import Condition, Patterns, horspool_shifts, search_legacy, search_v2
from kafkalog_spark.kernels.unopened_batches import rows_from_headers
from kafkalog_spark.log.codecs.decompress import decompress
from kafkalog_spark.log.codecs.output import Output
from kafkalog_spark.log.codecs.scratch import Scratch
from kafkalog_spark.log.decode.record_schema import RecordPredicate, ScanRequest
from kafkalog_spark.log.decode.row_buffers import RowBuffers

DECOMPRESSED = 1 << 20
"""Decompressed bytes that are looked at together; the buffer is brought back to twice that after a larger batch."""

_I64 = npt.NDArray[np.int64]


def runs(kinds: _I64) -> Iterator[tuple[int, int]]:
    """(first, end) of neighbours of the same kind."""
    if len(kinds):
        yield from pairwise([0, *(np.flatnonzero(np.diff(kinds)) + 1).tolist(), len(kinds)])


def kinds_of(table: _I64) -> _I64:
    """int64[n] of a header table: a number for each format, plain and compressed."""
    kinds: _I64 = 2 * table[:, HeaderColumn.MAGIC] + (
        (table[:, HeaderColumn.ATTRIBUTES] & layout.ATTRIBUTE_CODEC) != Codec.NONE
    )
    return kinds


class Decompressor:
    """Decompresses v2 batches one after the other into `scratch`, which is used again. limit: bytes of one batch."""

    def __init__(self, scratch: Scratch | None = None, limit: int = MAX_DECOMPRESSED) -> None:
        self.scratch = scratch or Scratch(DECOMPRESSED)
        self.scratch.expect(limit + DECOMPRESSED)
        self.limit = limit

    def groups(
        self, data: memoryview, starts: _I64, ends: _I64, attributes: _I64, counts: _I64, wanted: Iterable[bool] = ()
    ) -> Iterator[tuple[int, int, KafkalogError | None]]:
        """(first, end, error): batches whose records are in the buffer together, until the next ones are asked for.
        starts, ends: where the records of each batch lie in `data`; they are changed to where they lie in the buffer.
        An error is that of the last batch of its group, which has none there; nor has a batch that is not wanted."""
        at = first = 0
        last = len(starts) - 1
        packed = zip(starts.tolist(), ends.tolist(), attributes.tolist(), counts.tolist(), strict=True)
        for i, ((begin, end, flags, count), is_wanted) in enumerate(zip(packed, wanted or repeat(True), strict=False)):
            starts[i] = at
            error: KafkalogError | None = None
            if is_wanted:
                try:
                    output = Output(self.scratch, at, self.limit, partial(self._check_count, count))
                    at = decompress(flags & layout.ATTRIBUTE_CODEC, data[begin:end], output)
                except KafkalogError as found:
                    error = found
            ends[i] = at
            if at >= DECOMPRESSED or i == last or error is not None:
                yield first, i + 1, error
                at, first = 0, i + 1
                self.scratch.shrink(2 * DECOMPRESSED)

    def _check_count(self, count: int, start: int, end: int) -> None:
        """Raise CorruptBatch when the bytes so far hold more than the records that the batch announces."""
        stop = end_of_records(self.scratch.read_only(), start, end, count)
        if stop == BAD_RECORD_LENGTH or 0 <= stop < end:
            raise CorruptBatch(f"its records decompress to more than the {count} that its header announces")


class OpenedWrapper(NamedTuple):
    """Messages in [0, end) of the scratch buffer. add: makes an inner offset absolute. key: its field, with length."""

    end: int
    add: int
    key: bytes


def open_wrapper(
    batch: memoryview, magic: int, attributes: int, offset: int, scratch: Scratch, limit: int = MAX_DECOMPRESSED
) -> OpenedWrapper:
    """Decompress a wrapper (v0, v1) that has the offset `offset`, and check its messages (AbstractLegacyRecordBatch).
    Raises CorruptBatch, UnsupportedFormat."""
    value_at = wrapper_value_at(batch, magic)
    end = decompress(attributes & layout.ATTRIBUTE_CODEC, batch[value_at:], Output(scratch, 0, limit))
    _, last_inner, status, _ = inspect_message_set(scratch.read_only(), 0, end, magic, CRC32_TABLE)
    if status != Status.DONE:
        raise CorruptBatch(Status(status).text)
    # v1: the wrapper has the last offset, the inner ones count from 0; v0: the inner ones are absolute
    add = offset - int(last_inner) if magic == 1 else 0
    return OpenedWrapper(end, add, bytes(batch[layout.LEGACY_KEY_AT[magic] : value_at - 4]))


WINDOW = 2 << 20
"""Bytes read at once: a window's fixed cost is then 2 % of its time, and every step finds its bytes in a cache."""
_TABLE_ROWS = 16 << 10  # of the smallest batches, a window holds about this many


class ScanBuffers:
    """Buffers, 10 to 20 MB, of one scan after the other. Who keeps a batch keeps the memory of its rows' buffers."""

    def __init__(self) -> None:
        self.window = Scratch(WINDOW)
        self.decompressed = Scratch(DECOMPRESSED)
        self.table = np.empty((_TABLE_ROWS, len(HeaderColumn)), np.int64)
        self._rows: tuple[object, RowBuffers] | None = None

    @property
    def nbytes(self) -> int:
        """Bytes of all buffers, those of rows that wait to be filled again included."""
        rows = 0 if self._rows is None else self._rows[1].nbytes
        return int(self.window.data.nbytes + self.decompressed.data.nbytes + self.table.nbytes) + rows

    def rows(self, topic: str, partition: int, request: ScanRequest) -> RowBuffers:
        """Those of the scan before, emptied, when it asked for the same rows; new ones otherwise."""
        asked = (
            request.columns, request.timestamp_from_ms, request.timestamp_until_ms, request.offset_in,
            request.timestamp_in_ms,
        )  # fmt: skip
        if self._rows is not None and self._rows[0] == asked:
            self._rows[1].begin_partition(topic, partition)
        else:
            self._rows = asked, RowBuffers(topic, partition, request)
        return self._rows[1]


_NO_PAYLOAD = np.empty(0, np.uint8)
_NO_PAYLOAD.flags.writeable = False


_FEW = 4096
"""Matches of some batches for which there is room to begin with; where there are more, they are searched again."""


@dataclass(frozen=True, slots=True)
class Chosen:
    """Batches to decode, in the order of the log. A row of each array is a batch."""

    table: np.ndarray  # the header table (layout.HeaderColumn) that they were chosen from
    rows: np.ndarray  # int64[n], their rows in it
    kinds: np.ndarray  # int64[n], BatchKind
    starts: np.ndarray  # int64[n], byte of the payload where records begin
    ends: np.ndarray  # int64[n]
    units: np.ndarray  # int64[n, 6], see decode_v2

    @classmethod
    def of(cls, table: np.ndarray, hidden: np.ndarray, rows: RowBuffers, request: ScanRequest) -> Chosen:
        """Batches of a header table that hold wanted rows, by `select_batches`; hidden: uint8[n], or empty."""
        n = len(table)
        numbers = np.empty((len(SelectionRow), n), np.int64)
        units = np.empty((n, 6), np.int64)
        by_header = rows.header_columns_only and not request.wanted  # headers may stand for records
        kept = select_batches(
            table, hidden, rows.limits, int(request.control_records), int(by_header), int(rows.uses_timestamps),
            request.max_decompressed // layout.MIN_RECORD_SIZE, numbers, units,
        )  # fmt: skip
        chosen, kinds, starts, ends = numbers[:, :kept]
        return cls(table, chosen, kinds, starts, ends, units[:kept])

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, which: slice | np.ndarray) -> Chosen:
        """Some of them: a slice shares the arrays, a bool[n] copies."""
        arrays = self.rows, self.kinds, self.starts, self.ends, self.units
        return Chosen(self.table, *(array[which] for array in arrays))

    def blame(self, error: KafkalogError, i: int, position: int) -> KafkalogError:
        """Tell the error that batch `i` of them, in a window from byte `position` of the file, is the bad one."""
        row = self.table[self.rows[i]]
        return error.at(position=position + int(row[HeaderColumn.POSITION]), offset=int(row[HeaderColumn.BASE_OFFSET]))


def patterns_of(wanted: RecordPredicate) -> Patterns:
    given = {
        Condition.KEY: wanted.key,
        Condition.KEY_PREFIX: wanted.key_prefix,
        Condition.VALUE_SUBSTRING: wanted.value_contains,
        Condition.HEADER: wanted.header_name,
        Condition.HEADER_VALUE: wanted.header_value,
    }
    is_given = np.zeros(len(Condition), np.int64)
    for condition, pattern in given.items():
        is_given[condition] = pattern is not None
    key, prefix, part, header, value = (np.frombuffer(pattern or b"", np.uint8) for pattern in given.values())
    return Patterns(is_given, key, prefix, part, horspool_shifts(wanted.value_contains or b""), header, value)


class RunDecoder:
    """Fills `rows` from batches in `window`, which starts at byte `position` of the file; CRCs were checked. Every
    method yields the RecordBatches that get full meanwhile. A bad batch raises CorruptBatch, UnsupportedFormat, with
    position and offset; the rows of those before it are in the buffers, and none of its own. If only a timestamp of
    the batch is out of range, the rows before that record are in the buffers too."""

    def __init__(self, rows: RowBuffers, window: Scratch, decompressed: Scratch, request: ScanRequest) -> None:
        self._rows = rows
        self._patterns = patterns_of(request.wanted) if request.wanted else None
        self._window = window
        self._decompressed = decompressed
        self._decompressor = Decompressor(decompressed, request.max_decompressed)

    def decode(self, chosen: Chosen, position: int) -> Iterator[pa.RecordBatch]:
        for first, end in runs(chosen.kinds):
            run = chosen[first:end]
            match int(run.kinds[0]):
                case BatchKind.FROM_HEADER:
                    yield from self._run_kernel(rows_from_headers, _NO_PAYLOAD, run, position)
                case BatchKind.PLAIN:
                    yield from self._run_kernel(decode_v2, self._window.read_only(), run, position)
                case BatchKind.COMPRESSED:
                    yield from self._compressed_v2(run, position)
                case BatchKind.MESSAGE:
                    messages = replace(run, units=_legacy_units(run.table[run.rows]))
                    yield from self._run_kernel(decode_legacy, self._window.read_only(), messages, position)
                case _:
                    for i in range(len(run)):
                        yield from self._wrapper(run[i : i + 1], position)

    def _compressed_v2(self, run: Chosen, position: int) -> Iterator[pa.RecordBatch]:
        attributes = run.table[run.rows, HeaderColumn.ATTRIBUTES]
        groups = self._decompressor.groups(
            self._window.view, run.starts, run.ends, attributes, run.units[:, UnitColumn.COUNT]
        )
        for first, end, error in groups:
            good = end if error is None else end - 1
            yield from self._run_kernel(decode_v2, self._decompressed.read_only(), run[first:good], position)
            if error is not None:
                raise run.blame(error, good, position) from None

    def _wrapper(self, one: Chosen, position: int) -> Iterator[pa.RecordBatch]:
        header = one.table[one.rows]
        magic, attributes, offset, previous = (
            int(header[0, column])
            for column in (HeaderColumn.MAGIC, HeaderColumn.ATTRIBUTES, HeaderColumn.LAST_OFFSET, HeaderColumn.PREVIOUS)
        )
        batch, scratch = self._window.view[int(one.starts[0]) : int(one.ends[0])], self._decompressed
        try:
            wrapper = open_wrapper(batch, magic, attributes, offset, scratch, self._decompressor.limit)
        except KafkalogError as error:
            raise one.blame(error, 0, position) from None
        payload, base = scratch.read_only(), wrapper.add
        first = int.from_bytes(payload[:8].tobytes(), "big", signed=True) + base
        if first <= previous or base > layout.MAX_INT64:
            what = f"offsets {first} to {offset} of a compressed message set do not follow {previous}"
            raise one.blame(CorruptBatch(what), 0, position)
        units = _legacy_units(header)
        units[0, 1] = base
        inner = replace(one, starts=np.array([0], np.int64), ends=np.array([wrapper.end], np.int64), units=units)
        yield from self._run_kernel(decode_legacy, payload, inner, position)
        scratch.shrink(2 * DECOMPRESSED)

    def _run_kernel(
        self, kernel: Callable[..., int], payload: np.ndarray, run: Chosen, position: int
    ) -> Iterator[pa.RecordBatch]:
        """Decode a run's records, or those of them that the search finds."""
        if self._patterns is None:
            yield from self._call_kernel(kernel, payload, run, position, self._rows.offsets_in)
            return
        search = search_legacy if kernel is decode_legacy else search_v2
        hits = np.zeros(len(run), np.uint8)  # batches with a match
        found = np.empty(_FEW, np.int64)
        while True:
            matches, stopped, status = search(payload, run.starts, run.ends, run.units, found, hits, self._patterns)
            if matches <= len(found):
                break
            found = np.empty(matches, np.int64)
        hits[stopped:] = 0
        offsets = found[:matches]
        if len(self._rows.offsets_in):
            offsets = np.intersect1d(offsets, self._rows.offsets_in, assume_unique=True)
        if len(offsets):
            yield from self._call_kernel(kernel, payload, run[hits.view(bool)], position, offsets)
        if stopped < len(run):
            raise run.blame(CorruptBatch(Status(status).text), int(stopped), position)

    def _call_kernel(
        self, kernel: Callable[..., int], payload: np.ndarray, run: Chosen, position: int, offsets_in: np.ndarray
    ) -> Iterator[pa.RecordBatch]:
        """Call a decode kernel until it is through, emptying or enlarging the row buffers in between."""
        rows = self._rows
        rows.begin()
        while True:
            status = kernel(
                payload, run.starts, run.ends, run.units, rows.cursor, rows.limits, offsets_in,
                rows.timestamps_in, rows.rows,
            )  # fmt: skip
            if status == Status.DONE:
                return
            if status == Status.FULL:
                yield rows.take()
                rows.ready()
            elif status == Status.TIMESTAMP_RANGE:
                raise run.blame(_timestamp_error(rows.cursor), int(rows.cursor[Cursor.UNIT]), position)
            elif text := Status(status).text:
                raise run.blame(CorruptBatch(text), int(rows.cursor[Cursor.UNIT]), position)
            else:
                rows.grow(status)


def _timestamp_error(cursor: _I64) -> UnsupportedFormat:
    """The error for a record whose timestamp Spark cannot hold. The rest of its batch is not read."""
    timestamp = int(cursor[Cursor.FAULT_TIMESTAMP])
    return UnsupportedFormat(
        f"the record's timestamp is {timestamp} ms, which does not fit int64 microseconds",
        offset=int(cursor[Cursor.FAULT_OFFSET]),
        hint="it may be in nanoseconds; leave the timestamp column out to read all records",
    )


def _legacy_units(run: np.ndarray) -> np.ndarray:
    """The `units` of decode_legacy from header table rows; for messages that stand alone."""
    log_append = (run[:, HeaderColumn.ATTRIBUTES] & layout.ATTRIBUTE_LOG_APPEND_TIME) != 0
    v1 = run[:, HeaderColumn.MAGIC] == 1
    units = np.zeros((len(run), 6), np.int64)
    units[:, 0] = run[:, HeaderColumn.MAGIC]
    units[:, 2] = run[:, HeaderColumn.LAST_OFFSET]
    units[:, 3] = v1 & log_append
    units[:, 4] = run[:, HeaderColumn.MAX_TIMESTAMP]
    units[:, 5] = np.where(v1, log_append, -1)
    return units
