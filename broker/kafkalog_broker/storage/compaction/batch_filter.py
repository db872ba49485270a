"""Filtering of a window of batches by the rules of compaction: unchanged batches are copied, others are rewritten.

One kernel call handles all uncompressed v2 batches of a window. Compressed v2 batches are decompressed in groups of
about a megabyte, and compressed again if they changed. Batches of format v0 and v1 are filtered by `LegacyFilter`.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from kafkalog_broker.storage.compaction.cleaner_kernel import (
    CleanOutcome,
    CleanResult,
    CleanState,
    CleanStatus,
    CleanUnit,
    RetentionRule,
    clean_batches,
)
from kafkalog_broker.storage.compaction.legacy_filter import LegacyFilter
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

_OUT_SIZE = 1 << 20  # initial size of the kernel's output buffer in bytes
_RECORD_FLAGS = 1 << 10  # initial number of flags, one for each record of the largest batch
_ATTRIBUTES_FIELD = 5  # index of the attributes in layout.BATCH_HEADER


class BatchDecisions(NamedTuple):
    """Decisions about the v2 batches of a window, made from their headers: arrays with an entry per batch.

    Attributes:
        rule: RetentionRule of the batch's records.
        keeps_header: The header is retained even if no record is.
        sets_horizon: See `CleanUnit.SET_HORIZON`.
    """

    rule: npt.NDArray[np.int64]
    keeps_header: npt.NDArray[np.bool_]
    sets_horizon: npt.NDArray[np.bool_]

    def is_examined(self, first: int, end: int) -> npt.NDArray[np.bool_]:
        """Return whether the kernel has to examine each batch in rows [first, end). The others are dropped."""
        is_examined: npt.NDArray[np.bool_] = (self.rule[first:end] != RetentionRule.NONE) | self.keeps_header[first:end]
        return is_examined


class BatchFilter:
    """Filters the batches of one cleaning.

    If a v2 batch is malformed, it is retained unchanged and counted, and the cleaning continues. If a batch of format
    v0 or v1 is malformed, CorruptBatch ends the cleaning of the log. Kafka ends the cleaning in both cases, and marks
    the partition as uncleanable.

    Attributes:
        unreadable_batches: Number of v2 batches retained unchanged because their records are malformed.
        first_unreadable: Base offset of the first such batch, or None.
    """

    def __init__(self, offset_map: OffsetMap, now_ms: int, horizon_ms: int) -> None:
        """Create a filter.

        Args:
            offset_map: Latest offset of each key.
            now_ms: Time of the cleaning.
            horizon_ms: Delete horizon for tombstones that are retained for the first time; the largest int64 means that
                they are never deleted.
        """
        self._offset_map = offset_map
        self._state = np.zeros(len(CleanState), np.int64)
        self._state[CleanState.LATEST] = offset_map.latest_offset
        self._state[CleanState.NOW] = now_ms
        self._state[CleanState.HORIZON] = min(horizon_ms, layout.MAX_INT64)
        self._out = np.empty(_OUT_SIZE, np.uint8)
        self._record_flags = np.empty(_RECORD_FLAGS, np.uint8)
        self._decompressor = Decompressor()
        self._legacy_filter = LegacyFilter(offset_map, self._decompressor.scratch)
        self.unreadable_batches = 0
        self.first_unreadable: int | None = None

    def retain(
        self, window: Window, decisions: BatchDecisions, keeps_legacy_tombstones: bool
    ) -> Iterator[RetainedBatches]:
        """Yield the retained batches of a window, in order.

        Args:
            window: Window of a segment.
            decisions: Decisions about the v2 batches of the window.
            keeps_legacy_tombstones: Retain tombstones of format v0 and v1, which cannot have a delete horizon.

        Raises:
            CorruptBatch, UnsupportedFormat: If a batch of format v0 or v1 is malformed.
        """
        for first, end in runs(kinds_of(window.table)):
            header = window.table[first]  # all batches of a run have its magic, and are compressed if it is
            if header[HeaderColumn.MAGIC] < 2:
                yield from self._legacy_filter.retain(window, first, end, keeps_legacy_tombstones)
            elif header[HeaderColumn.ATTRIBUTES] & layout.ATTRIBUTE_CODEC:
                yield from self._retain_compressed(window, decisions, first, end)
            else:
                yield from self._retain_uncompressed(window, decisions, first, end)

    def _retain_uncompressed(
        self, window: Window, decisions: BatchDecisions, first: int, end: int
    ) -> Iterator[RetainedBatches]:
        is_examined = decisions.is_examined(first, end)
        starts, ends = window.records(first, end)
        rows = first + np.flatnonzero(is_examined)
        units = _units_of(window, decisions, rows, starts[is_examined], ends[is_examined])
        # The kernel copies unchanged batches too, so that its output has all retained batches without a gap.
        for _, results in self._run_kernel(window, window.payload, units, copy_unchanged=True):
            retained = results[results[:, CleanResult.OUTCOME] != CleanOutcome.DROPPED]
            batches = retained[:, [CleanResult.OUT_SIZE, CleanResult.LAST_OFFSET, CleanResult.MAX_TIMESTAMP]]
            yield RetainedBatches(self._out.data[: int(self._state[CleanState.OUT_AT])], batches)

    def _retain_compressed(
        self, window: Window, decisions: BatchDecisions, first: int, end: int
    ) -> Iterator[RetainedBatches]:
        is_examined = decisions.is_examined(first, end)
        needs_records = decisions.rule[first:end] != RetentionRule.NONE
        starts, ends = window.records(first, end)
        table = window.table[first:end]
        # The error of a batch that cannot be decompressed is ignored here: the group then has no records of the batch,
        # so the kernel finds fewer than the header announces. It returns UNREADABLE, and the batch is retained.
        for group_first, group_end, _ in self._decompressor.groups(
            window.data,
            starts,
            ends,
            table[:, HeaderColumn.ATTRIBUTES],
            table[:, HeaderColumn.COUNT],
            needs_records.tolist(),
        ):
            in_group = group_first + np.flatnonzero(is_examined[group_first:group_end])
            rows = first + in_group
            payload = self._decompressor.scratch.read_only()
            units = _units_of(window, decisions, rows, starts[in_group], ends[in_group])
            # The kernel does not copy unchanged batches, because their compressed bytes are in the window.
            for first_unit, results in self._run_kernel(window, payload, units, copy_unchanged=False):
                yield self._compress_changed(window, rows[first_unit : first_unit + len(results)], results)

    def _compress_changed(
        self, window: Window, rows: npt.NDArray[np.int64], results: npt.NDArray[np.int64]
    ) -> RetainedBatches:
        """Return the retained batches of a kernel call. Changed ones are compressed again.

        Args:
            window: The window.
            rows: Row of each batch in the window.
            results: Result of each batch (see CleanResult).
        """
        pieces: list[bytes | memoryview] = []
        batches: list[tuple[int, int, int]] = []
        for row, (outcome, at, size, last_offset, max_timestamp) in zip(rows.tolist(), results.tolist(), strict=True):
            data: bytes | memoryview
            match outcome:
                case CleanOutcome.DROPPED:
                    continue
                case CleanOutcome.UNCHANGED | CleanOutcome.UNREADABLE:
                    data = window.batch(row)
                case CleanOutcome.REWRITTEN:
                    codec = int(window.table[row, HeaderColumn.ATTRIBUTES]) & layout.ATTRIBUTE_CODEC
                    data = _compress_again(self._out.data[at : at + size], codec)
                case _:  # EMPTIED: there are no records to compress
                    data = self._out.data[at : at + size]
            pieces.append(data)
            batches.append((len(data), last_offset, max_timestamp))
        return RetainedBatches(b"".join(pieces), np.array(batches, np.int64).reshape(-1, 3))

    def _run_kernel(
        self, window: Window, payload: npt.NDArray[np.uint8], units: npt.NDArray[np.int64], *, copy_unchanged: bool
    ) -> Iterator[tuple[int, npt.NDArray[np.int64]]]:
        """Run the kernel until all batches are done.

        Args:
            window: The window with the batches.
            payload: Their uncompressed records.
            units: The batches (see CleanUnit).
            copy_unchanged: Write unchanged batches to the output buffer, too.

        Yields:
            After each call of the kernel, the index of the first batch that it has done, and the results of all that it
            has done (see CleanResult). Its output is in the output buffer, which the next call overwrites.
        """
        if not len(units):
            return
        self._ensure_record_flags(units)
        state = self._state
        state[CleanState.COPY_UNCHANGED] = copy_unchanged
        state[CleanState.NEXT_UNIT] = 0
        results = np.empty((len(units), len(CleanResult)), np.int64)
        while True:
            first = int(state[CleanState.NEXT_UNIT])
            state[CleanState.OUT_AT] = 0
            status = clean_batches(
                window.payload, payload, units, self._offset_map.table, self._offset_map.hash_seed, self._record_flags,
                state, self._out, results, CRC32C_TABLE,
            )  # fmt: skip
            end = int(state[CleanState.NEXT_UNIT])
            if end > first:
                self._count_unreadable(units[first:end], results[first:end])
                yield first, results[first:end]
            if status == CleanStatus.DONE:
                break
            # The next batch has no room behind the others. The next call begins with an empty buffer, which is enlarged
            # if it is smaller than that batch.
            if state[CleanState.NEEDED] > self._out.size:
                self._out = np.empty(int(state[CleanState.NEEDED]), np.uint8)
        if self._out.size > _OUT_SIZE:
            self._out = np.empty(_OUT_SIZE, np.uint8)

    def _ensure_record_flags(self, units: npt.NDArray[np.int64]) -> None:
        """Enlarge the flags to the number of records of the largest batch.

        A batch has no more records than fit into its bytes, whatever its header announces. The kernel reports a batch
        whose header announces more records than there are flags as UNREADABLE.
        """
        sizes = units[:, CleanUnit.END] - units[:, CleanUnit.START]
        max_records = np.minimum(units[:, CleanUnit.COUNT], sizes // layout.MIN_RECORD_SIZE).max()
        if max_records > self._record_flags.size:
            self._record_flags = np.empty(int(max_records), np.uint8)

    def _count_unreadable(self, units: npt.NDArray[np.int64], results: npt.NDArray[np.int64]) -> None:
        rows = np.flatnonzero(results[:, CleanResult.OUTCOME] == CleanOutcome.UNREADABLE)
        if len(rows):
            if self.first_unreadable is None:
                self.first_unreadable = int(units[rows[0], CleanUnit.BASE_OFFSET])
            self.unreadable_batches += len(rows)


def _compress_again(batch: bytes | memoryview, codec: int) -> bytes:
    """Compress a rewritten batch, with the codec's default level as Kafka's cleaner does."""
    fields = list(layout.BATCH_HEADER.unpack_from(batch))
    fields[_ATTRIBUTES_FIELD] |= codec
    compressed = bytearray(layout.BATCH_OVERHEAD) + compress(Codec(codec), batch[layout.RECORDS_AT :])
    seal(compressed, 0, len(compressed), tuple(fields))
    return bytes(compressed)


def _units_of(
    window: Window,
    decisions: BatchDecisions,
    rows: npt.NDArray[np.int64],
    starts: npt.NDArray[np.int64],
    ends: npt.NDArray[np.int64],
) -> npt.NDArray[np.int64]:
    """Return batches as the kernel takes them, int64[n, len(CleanUnit)].

    Args:
        window: The window with the batches.
        decisions: Decisions about all batches of the window.
        rows: Rows of the batches in the window.
        starts: Position of each batch's uncompressed records in the kernel's `payload`.
        ends: Position at which they end.
    """
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
    units[:, CleanUnit.RULE] = decisions.rule[rows]
    units[:, CleanUnit.KEEP_EMPTY] = decisions.keeps_header[rows]
    units[:, CleanUnit.SET_HORIZON] = decisions.sets_horizon[rows]
    units[:, CleanUnit.START], units[:, CleanUnit.END] = starts, ends
    return units
