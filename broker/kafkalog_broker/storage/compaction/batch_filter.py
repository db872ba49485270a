"""Filtering of a window of batches by the rules of compaction: unchanged batches are copied, others are rewritten.

One kernel call handles all uncompressed v2 batches of a window. Compressed batches are decompressed in groups of about
a megabyte, and compressed again if they changed. Messages of format v0 and v1 keep their format.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from kafkalog_broker.storage.append.legacy_wrapper import build_wrapper
from kafkalog_broker.storage.append.message_layouts import MessageColumn
from kafkalog_broker.storage.compaction.cleaner_kernel import (
    CleanOutcome,
    CleanResult,
    CleanState,
    CleanStatus,
    CleanUnit,
    RetentionRule,
    clean_batches,
)
from kafkalog_broker.storage.compaction.legacy_cleaner_kernel import choose_messages, copy_messages
from kafkalog_broker.storage.compaction.message_reading import find_messages_in, open_wrapper_at
from kafkalog_broker.storage.compaction.offset_map import OffsetMap
from kafkalog_broker.storage.partition.cleaned_segment import RetainedBatches
from kafkalog_spark.format import layout
from kafkalog_spark.format.layout import Codec, HeaderColumn
from kafkalog_spark.kernels.primitives import CRC32C_TABLE
from kafkalog_spark.log.codecs.compress import compress
from kafkalog_spark.log.decode.decompressed_batches import Decompressor
from kafkalog_spark.log.decode.run_decoder import kinds_of, runs
from kafkalog_spark.log.read.header_windows import Window
from kafkalog_spark.log.write.encoded_batch import seal

_OUT_SIZE = 1 << 20  # initial size of the output buffer in bytes
_ATTRIBUTES_FIELD = 5  # index of the attributes in layout.BATCH_HEADER


class Verdict(NamedTuple):
    """Decisions about the batches of a window: arrays with an entry per batch.

    Attributes:
        rule: RetentionRule of the batch's records.
        keeps_header: The header is retained even if no record is.
        sets_horizon: See `CleanUnit.SET_HORIZON`.
        is_dropped: The batch is removed without an examination of its records.
    """

    rule: npt.NDArray[np.int64]
    keeps_header: npt.NDArray[np.bool_]
    sets_horizon: npt.NDArray[np.bool_]
    is_dropped: npt.NDArray[np.bool_]


class BatchFilter:
    """Filters the batches of one cleaning. Messages of format v0 and v1 keep their format, and wrappers their codec.

    A malformed v2 batch does not prevent the compaction of the others: it is retained unchanged, and counted. A
    malformed message of format v0 or v1 raises CorruptBatch, which ends the cleaning of the log. Kafka ends it in both
    cases, and marks the partition as uncleanable.

    Attributes:
        unreadable_batches: Number of v2 batches retained unchanged because their records are malformed.
        first_unreadable: Base offset of the first such batch, or None.
    """

    def __init__(self, keys: OffsetMap, now_ms: int, horizon_ms: int) -> None:
        """Create a filter.

        Args:
            keys: Latest offset of each key.
            horizon_ms: Delete horizon for tombstones that are retained for the first time; the largest int64 means that
                they are never deleted.
        """
        self._keys = keys
        self._state = np.zeros(len(CleanState), np.int64)
        self._state[CleanState.LATEST] = keys.latest_offset
        self._state[CleanState.NOW] = now_ms
        self._state[CleanState.HORIZON] = min(horizon_ms, layout.MAX_INT64)
        self._out = np.empty(_OUT_SIZE, np.uint8)
        self._record_flags = np.empty(1 << 10, np.uint8)
        self._decompressor = Decompressor()
        self.unreadable_batches = 0
        self.first_unreadable: int | None = None

    def retain(self, window: Window, verdict: Verdict, keeps_legacy_tombstones: bool) -> Iterator[RetainedBatches]:
        """Yield the retained batches of a window, in order. Raises CorruptBatch, UnsupportedFormat."""
        for first, last in runs(kinds_of(window.table)):
            compressed = bool(window.table[first, HeaderColumn.ATTRIBUTES] & layout.ATTRIBUTE_CODEC)
            if window.table[first, HeaderColumn.MAGIC] < 2 and not compressed:
                yield from self._filter_messages(window, first, last, keeps_legacy_tombstones)
            elif window.table[first, HeaderColumn.MAGIC] < 2:
                for row in range(first, last):
                    yield from self._filter_wrapper(window, row, keeps_legacy_tombstones)
            elif compressed:
                yield from self._filter_compressed(window, verdict, first, last)
            else:
                yield from self._filter_plain(window, verdict, first, last)

    def _filter_messages(
        self, window: Window, first: int, last: int, keeps_tombstones: bool
    ) -> Iterator[RetainedBatches]:
        """Filter messages that are not in a wrapper; each is a batch of its own."""
        table = window.table[first:last]
        start = int(window.starts[first])
        magic = int(table[0, HeaderColumn.MAGIC])
        payload = window.payload
        end = start + int(table[:, HeaderColumn.SIZE].sum())
        messages = find_messages_in(payload, start, end, magic)
        is_retained = self._select_retained(payload, messages, keeps_tombstones)
        if is_retained.any():
            out = np.empty(end - start, np.uint8)
            filled = int(copy_messages(payload, messages[is_retained], magic, 0, out))
            yield RetainedBatches(
                out.data[:filled],
                table[is_retained][:, [HeaderColumn.SIZE, HeaderColumn.LAST_OFFSET, HeaderColumn.MAX_TIMESTAMP]],
            )

    def _filter_wrapper(self, window: Window, row: int, keeps_tombstones: bool) -> Iterator[RetainedBatches]:
        header = window.table[row]
        wrapper = open_wrapper_at(window, row, self._decompressor.scratch)
        payload = self._decompressor.scratch.read_only()
        magic = int(header[HeaderColumn.MAGIC])
        messages = find_messages_in(payload, 0, wrapper.end, magic, wrapper.offset_shift)
        is_retained = self._select_retained(payload, messages, keeps_tombstones)
        if is_retained.all():
            batches = header[[HeaderColumn.SIZE, HeaderColumn.LAST_OFFSET, HeaderColumn.MAX_TIMESTAMP]].reshape(1, 3)
            yield RetainedBatches(window.batch(row), batches)
        elif is_retained.any():
            retained = messages[is_retained]
            out = np.empty(wrapper.end, np.uint8)
            base_offset = int(retained[0, MessageColumn.OFFSET]) if magic == 1 else 0
            filled = int(copy_messages(payload, retained, magic, base_offset, out))
            last_offset = int(retained[-1, MessageColumn.OFFSET])
            largest = int(retained[:, MessageColumn.TIMESTAMP].max())
            if header[HeaderColumn.ATTRIBUTES] & layout.ATTRIBUTE_LOG_APPEND_TIME or magic == 0:
                largest = int(header[HeaderColumn.MAX_TIMESTAMP])
            attributes = int(header[HeaderColumn.ATTRIBUTES])
            value = compress(Codec(attributes & layout.ATTRIBUTE_CODEC), out.data[:filled])
            data = build_wrapper(magic, attributes, value, last_offset, largest, wrapper.key)
            yield RetainedBatches(data, np.array([[len(data), last_offset, largest]], np.int64))

    def _select_retained(
        self, payload: npt.NDArray[np.uint8], messages: npt.NDArray[np.int64], keeps_tombstones: bool
    ) -> npt.NDArray[np.bool_]:
        is_retained = np.empty(len(messages), np.bool_)
        latest = self._keys.latest_offset
        flags = is_retained.view(np.uint8)
        choose_messages(payload, messages, self._keys.table, self._keys.hash_seed, latest, int(keeps_tombstones), flags)
        return is_retained

    def _filter_plain(self, window: Window, verdict: Verdict, first: int, last: int) -> Iterator[RetainedBatches]:
        is_read = ~verdict.is_dropped[first:last]
        starts, ends = window.records(first, last)
        units = _clean_units(window, verdict, np.flatnonzero(is_read) + first, starts[is_read], ends[is_read])
        for _, results in self._run_kernel(window, window.payload, units, copy_whole=True):
            retained = results[results[:, CleanResult.OUTCOME] != CleanOutcome.DROPPED]
            batches = retained[:, [CleanResult.OUT_SIZE, CleanResult.LAST_OFFSET, CleanResult.MAX_TIMESTAMP]]
            yield RetainedBatches(self._out.data[: int(self._state[CleanState.OUT_AT])], batches)

    def _filter_compressed(self, window: Window, verdict: Verdict, first: int, last: int) -> Iterator[RetainedBatches]:
        needs_records = ~verdict.is_dropped & (verdict.rule != RetentionRule.NONE)
        starts, ends = window.records(first, last)
        table = window.table[first:last]
        # If a batch cannot be decompressed, the payload has no records for it. The kernel then returns UNREADABLE.
        for begin, end, _ in self._decompressor.groups(
            window.data,
            starts,
            ends,
            table[:, HeaderColumn.ATTRIBUTES],
            table[:, HeaderColumn.COUNT],
            needs_records[first:last].tolist(),
        ):
            is_read = ~verdict.is_dropped[first + begin : first + end]
            rows = np.flatnonzero(is_read) + first + begin
            payload = self._decompressor.scratch.read_only()
            units = _clean_units(window, verdict, rows, starts[begin:end][is_read], ends[begin:end][is_read])
            for first_unit, results in self._run_kernel(window, payload, units, copy_whole=False):
                yield self._compress_changed(window, rows[first_unit : first_unit + len(results)], results)

    def _compress_changed(
        self, window: Window, rows: npt.NDArray[np.int64], results: npt.NDArray[np.int64]
    ) -> RetainedBatches:
        """Return the retained batches of a kernel call; changed ones are compressed again."""
        pieces: list[bytes | memoryview] = []
        batches: list[tuple[int, int, int]] = []
        for row, (outcome, at, size, last_offset, max_timestamp) in zip(rows.tolist(), results.tolist(), strict=True):
            if outcome == CleanOutcome.DROPPED:
                continue
            data: bytes | memoryview = self._out.data[at : at + size]
            if outcome in (CleanOutcome.WHOLE, CleanOutcome.UNREADABLE):
                data = window.batch(row)
            elif outcome == CleanOutcome.REWRITTEN:
                data = _compress_again(data, int(window.table[row, HeaderColumn.ATTRIBUTES]) & layout.ATTRIBUTE_CODEC)
            pieces.append(data)
            batches.append((len(data), last_offset, max_timestamp))
        return RetainedBatches(b"".join(pieces), np.array(batches, np.int64).reshape(-1, 3))

    def _run_kernel(
        self, window: Window, payload: npt.NDArray[np.uint8], units: npt.NDArray[np.int64], *, copy_whole: bool
    ) -> Iterator[tuple[int, npt.NDArray[np.int64]]]:
        """Run the kernel until all units are done.

        Yields:
            Index of the first unit, and the results of the units whose batches are in the output buffer. The buffer is
            reused afterwards.
        """
        if not len(units):
            return
        # The header's record count may be wrong, so the flags are limited by the bytes; the kernel reports the error.
        sizes = units[:, CleanUnit.END] - units[:, CleanUnit.START]
        max_records = np.minimum(units[:, CleanUnit.COUNT], sizes // layout.MIN_RECORD_SIZE)
        if max_records.max(initial=0) > self._record_flags.size:
            self._record_flags = np.empty(int(max_records.max()), np.uint8)
        state = self._state
        state[CleanState.COPY_WHOLE] = copy_whole
        state[CleanState.NEXT_UNIT] = 0
        results = np.empty((len(units), len(CleanResult)), np.int64)
        while True:
            first_unit = int(state[CleanState.NEXT_UNIT])
            state[CleanState.OUT_AT] = 0
            status = clean_batches(
                window.payload, payload, units, self._keys.table, self._keys.hash_seed, self._record_flags, state,
                self._out, results, CRC32C_TABLE,
            )  # fmt: skip
            done = int(state[CleanState.NEXT_UNIT])
            if done > first_unit:
                rows = np.flatnonzero(results[first_unit:done, CleanResult.OUTCOME] == CleanOutcome.UNREADABLE)
                if len(rows):
                    if self.first_unreadable is None:
                        self.first_unreadable = int(units[first_unit + rows[0], CleanUnit.BASE_OFFSET])
                    self.unreadable_batches += len(rows)
                yield first_unit, results[first_unit:done]
            if status == CleanStatus.DONE:
                break
            if state[CleanState.NEEDED] > self._out.size:
                self._out = np.empty(int(state[CleanState.NEEDED]), np.uint8)
        if self._out.size > _OUT_SIZE:
            self._out = np.empty(_OUT_SIZE, np.uint8)


def _compress_again(batch: bytes | memoryview, codec: int) -> bytes:
    """Compress a rewritten batch, with the codec's default level as Kafka's cleaner does."""
    fields = list(layout.BATCH_HEADER.unpack_from(batch))
    fields[_ATTRIBUTES_FIELD] |= codec
    compressed = bytearray(layout.BATCH_OVERHEAD) + compress(Codec(codec), batch[layout.RECORDS_AT :])
    seal(compressed, 0, len(compressed), tuple(fields))
    return bytes(compressed)


def _clean_units(
    window: Window,
    verdict: Verdict,
    rows: npt.NDArray[np.int64],
    starts: npt.NDArray[np.int64],
    ends: npt.NDArray[np.int64],
) -> npt.NDArray[np.int64]:
    table = window.table[rows]
    units = np.empty((len(table), len(CleanUnit)), np.int64)
    units[:, CleanUnit.BASE_OFFSET] = table[:, HeaderColumn.BASE_OFFSET]
    units[:, CleanUnit.LAST_OFFSET] = table[:, HeaderColumn.LAST_OFFSET]
    units[:, CleanUnit.COUNT] = table[:, HeaderColumn.COUNT]
    units[:, CleanUnit.BASE_TIMESTAMP] = table[:, HeaderColumn.BASE_TIMESTAMP]
    units[:, CleanUnit.MAX_TIMESTAMP] = table[:, HeaderColumn.MAX_TIMESTAMP]
    units[:, CleanUnit.ATTRIBUTES] = table[:, HeaderColumn.ATTRIBUTES]
    units[:, CleanUnit.SIZE] = table[:, HeaderColumn.SIZE]
    units[:, CleanUnit.HEADER_AT] = window.starts[rows]
    units[:, CleanUnit.RULE] = verdict.rule[rows]
    units[:, CleanUnit.KEEP_EMPTY] = verdict.keeps_header[rows]
    units[:, CleanUnit.SET_HORIZON] = verdict.sets_horizon[rows]
    units[:, CleanUnit.START], units[:, CleanUnit.END] = starts, ends
    return units
