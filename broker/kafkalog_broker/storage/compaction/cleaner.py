"""Compaction of one log (Kafka: `Cleaner`).

A cleaning first reads the dirty part and stores the latest offset of each key in the offset map. Then it rewrites all
segments below the end of the mapped part: each group of adjacent segments is replaced by one segment, or by several if
one cannot hold all batches. It runs on a cleaner thread. Closed segments do not change meanwhile, and changes of the
log itself go through the `CleaningHost` to the thread that owns it.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from itertools import pairwise
from pathlib import Path

import numpy as np
import numpy.typing as npt

from kafkalog_broker.storage.compaction.batch_filter import BatchDecisions, BatchFilter
from kafkalog_broker.storage.compaction.cleaned_transactions import CleanedTransactions
from kafkalog_broker.storage.compaction.cleaner_kernel import RetentionRule
from kafkalog_broker.storage.compaction.cleaning_host import CleaningHost
from kafkalog_broker.storage.compaction.cleaning_request import CleanerStatistics, CleaningAborted, CleaningRequest
from kafkalog_broker.storage.compaction.last_records import last_batches, last_records
from kafkalog_broker.storage.compaction.legacy_batches import read_messages, read_wrapper
from kafkalog_broker.storage.compaction.offset_map import OffsetMap
from kafkalog_broker.storage.compaction.segment_groups import SourceSize, group_segments
from kafkalog_broker.storage.partition.aborted_transactions import aborted_in
from kafkalog_broker.storage.partition.cleaned_segment import CleanedSegment, RetainedBatches, segment_containing
from kafkalog_broker.storage.partition.log_segment import LogSegment, segments_from
from kafkalog_broker.storage.partition.overflowing_segment import write_pieces
from kafkalog_broker.storage.partition.producer_replay import read_marker
from kafkalog_spark.errors import KafkalogError
from kafkalog_spark.format import layout, names
from kafkalog_spark.format.layout import ControlType, HeaderColumn
from kafkalog_spark.format.regular_file import descriptor
from kafkalog_spark.format.transaction_index import AbortedTransaction
from kafkalog_spark.log.codecs.scratch import Scratch
from kafkalog_spark.log.decode.decompressed_batches import Decompressor
from kafkalog_spark.log.decode.run_decoder import kinds_of, runs
from kafkalog_spark.log.read.header_windows import Window
from kafkalog_spark.log.write.ordered_windows import OffsetOverflow, ordered_windows


class Cleaner:
    """One cleaning of a partition's log."""

    def __init__(
        self, request: CleaningRequest, host: CleaningHost, dedupe_memory: int, load_factor: float, io_memory: int
    ) -> None:
        """Prepare the cleaning.

        Args:
            dedupe_memory: Size of the offset map in bytes.
            load_factor: Share of the offset map that may be filled.
            io_memory: Size of the read buffer in bytes.
        """
        self._request = request
        self._host = host
        self._statistics = CleanerStatistics()
        span = request.first_uncleanable_offset - request.first_dirty_offset
        self._keys = OffsetMap(dedupe_memory, load_factor, max(span, 1))
        self._buffer = Scratch(max(io_memory, layout.BATCH_OVERHEAD))
        self._decompressor = Decompressor()

    def clean(self) -> tuple[int, CleanerStatistics]:
        """Clean the log. No `.cleaned` file is left, even after an error.

        Returns:
            The offset up to which the log is clean now, and statistics.

        Raises:
            CleaningAborted: If the log was closed or changed meanwhile, or a segment had to be split first.
            CorruptBatch, UnsupportedFormat: With file, position and offset; the segment is unchanged.
            OSError: If a file cannot be read or written.
        """
        try:
            return self._clean()
        except OffsetOverflow as overflow:
            self._split(overflow)
            raise CleaningAborted(f"{overflow}; the segment was split and is cleaned in the next round") from overflow

    def _split(self, overflow: OffsetOverflow) -> None:
        """Split a segment with offsets too large for its indexes, which brokers before Kafka 1.1.1 could write."""
        request = self._request
        [segment] = [segment for segment in request.segments if segment.base_offset == overflow.base_offset]
        pieces = write_pieces(request.directory, segment.base_offset, request.config.index_entry_bytes)
        try:
            self._host.check_not_aborted()
            self._host.replace(pieces, [segment])
        except BaseException:
            for piece in pieces:
                piece.discard()
            raise

    def _clean(self) -> tuple[int, CleanerStatistics]:
        request = self._request
        config = self._request.config
        clean = [segment for segment in request.segments if segment.base_offset < request.first_dirty_offset]
        # Messages of format v0 and v1 cannot store a delete horizon; their tombstones expire by the segment's age.
        legacy_horizon_ms = _modified_ns(clean[-1]) // 1_000_000 - config.delete_retention_ms if clean else 0
        self._map_keys()
        end = self._keys.latest_offset + 1
        self._statistics.map_utilization = len(self._keys) / len(self._keys.table)
        sources = [segment for segment in request.segments[:-1] if segment.base_offset < end]
        if not sources:
            return max(end, request.first_dirty_offset), self._statistics
        transactions = CleanedTransactions(self._aborted_transactions(sources[0].base_offset, sources[-1].next_offset))
        batch_filter = BatchFilter(self._keys, request.now_ms, request.now_ms + config.delete_retention_ms)
        sizes = [_source_size(segment) for segment in sources]
        for first_of_group, end_of_group in group_segments(
            sizes, config.segment_bytes, config.segment_index_bytes, request.first_uncleanable_offset
        ):
            self._clean_group(sources[first_of_group:end_of_group], batch_filter, transactions, legacy_horizon_ms)
        self._statistics.unreadable_batches = batch_filter.unreadable_batches
        self._statistics.first_unreadable = batch_filter.first_unreadable
        return end, self._statistics

    def _map_keys(self) -> None:
        """Add the keys of the dirty part to the offset map until the map is full."""
        from_offset, until = self._request.first_dirty_offset, self._request.first_uncleanable_offset
        segments = self._request.segments
        dirty = [
            segment
            for segment, following in pairwise(segments)
            if segment.base_offset < until and following.base_offset > from_offset
        ]
        transactions = CleanedTransactions(self._aborted_transactions(from_offset, until))
        for index, segment in enumerate(dirty):
            next_base = dirty[index + 1].base_offset if index + 1 < len(dirty) else until
            for window in self._read(segment, segment.position_of(from_offset)):
                self._statistics.map_bytes_read += window.size
                try:
                    if not self._map_window(window, transactions, from_offset):
                        return
                except KafkalogError as error:
                    raise error.at(path=segment.log_path, position=window.start) from None
            self._keys.advance(next_base - 1)  # there are no records between the last batch and the next segment

    def _map_window(self, window: Window, transactions: CleanedTransactions, from_offset: int) -> bool:
        """Add a window's keys from `from_offset` on to the offset map; return False if the map is full."""
        table = window.table
        counts = table[:, HeaderColumn.COUNT].copy()  # 0 for batches whose records have no part in the compaction
        for row in _transactional_rows(table):
            header = table[row]
            if header[HeaderColumn.ATTRIBUTES] & layout.ATTRIBUTE_CONTROL:
                _advance_control_batch(window, row, transactions)
                counts[row] = 0
            elif transactions.advance_records(
                int(header[HeaderColumn.PRODUCER_ID]), int(header[HeaderColumn.LAST_OFFSET])
            ):
                counts[row] = 0
        for first_row, end_row in runs(kinds_of(table)):
            compressed = bool(table[first_row, HeaderColumn.ATTRIBUTES] & layout.ATTRIBUTE_CODEC)
            if table[first_row, HeaderColumn.MAGIC] < 2:
                has_room = self._map_messages(window, first_row, end_row, compressed, from_offset)
            else:
                has_room = self._map_records(window, counts, first_row, end_row, compressed, from_offset)
            if not has_room:
                return False
        return True

    def _map_records(
        self,
        window: Window,
        counts: npt.NDArray[np.int64],
        first_row: int,
        end_row: int,
        compressed: bool,
        from_offset: int,
    ) -> bool:
        table = window.table[first_row:end_row]
        counts = counts[first_row:end_row]
        starts, ends = window.records(first_row, end_row)
        units = np.stack((table[:, HeaderColumn.BASE_OFFSET], table[:, HeaderColumn.LAST_OFFSET], counts), axis=1)
        if not compressed:
            return self._keys.add_records(window.payload, starts, ends, units, from_offset)
        for begin, end, _ in self._decompressor.groups(
            window.data, starts, ends, table[:, HeaderColumn.ATTRIBUTES], counts, (counts > 0).tolist()
        ):
            payload = self._decompressor.scratch.read_only()
            if not self._keys.add_records(payload, starts[begin:end], ends[begin:end], units[begin:end], from_offset):
                return False
        return True

    def _map_messages(self, window: Window, first_row: int, end_row: int, compressed: bool, from_offset: int) -> bool:
        if not compressed:
            return self._keys.add_messages(window.payload, read_messages(window, first_row, end_row, from_offset))
        for row in range(first_row, end_row):
            wrapper = read_wrapper(window, row, self._decompressor.scratch, from_offset)
            if not self._keys.add_messages(wrapper.payload, wrapper.messages):
                return False
        return True

    def _clean_group(
        self,
        group: Sequence[LogSegment],
        batch_filter: BatchFilter,
        transactions: CleanedTransactions,
        legacy_horizon_ms: int,
    ) -> None:
        """Write the retained batches of a group of segments to new ones, which then replace the group."""
        request = self._request
        records_to_keep = last_records(self._host.producers())
        cleaned = [CleanedSegment(request.directory, group[0].base_offset, request.config.index_entry_bytes)]
        try:
            self._write_retained(group, cleaned, batch_filter, transactions, records_to_keep, legacy_horizon_ms)
            for aborted in transactions.take_retained():
                segment_containing(aborted.last_offset, cleaned).aborted.append(aborted)
            self._host.check_not_aborted()
            for segment in cleaned:
                segment.finish(_modified_ns(group[-1]))
            self._host.replace(cleaned, group)
        except BaseException:
            for segment in cleaned:
                segment.discard()
            raise

    def _write_retained(
        self,
        group: Sequence[LogSegment],
        cleaned: list[CleanedSegment],
        batch_filter: BatchFilter,
        transactions: CleanedTransactions,
        records_to_keep: npt.NDArray[np.int64],
        legacy_horizon_ms: int,
    ) -> None:
        """Append the retained batches of `group` to `cleaned`, which gets more segments if needed."""
        for segment in group:
            keeps_legacy_tombstones = _modified_ns(segment) // 1_000_000 > legacy_horizon_ms
            for window in self._read(segment, 0):
                self._statistics.bytes_read += window.size
                decisions = self._decide(window, transactions, records_to_keep)
                try:
                    for piece in batch_filter.retain(window, decisions, keeps_legacy_tombstones):
                        self._append(cleaned, piece)
                        self._statistics.bytes_written += len(piece.data)
                        self._host.throttle(len(piece.data))
                except KafkalogError as error:
                    raise error.at(path=segment.log_path, position=window.start) from None

    def _append(self, cleaned: list[CleanedSegment], piece: RetainedBatches) -> None:
        """Append to the last segment, or to a new one if it has no room.

        Batches that are compressed again can be larger than the producer's (KAFKA-20036).
        """
        segment = cleaned[-1]
        if segment.size and not segment.has_room(piece):
            config = self._request.config
            segment = CleanedSegment(self._request.directory, segment.next_offset, config.index_entry_bytes)
            cleaned.append(segment)
        segment.append(piece.data, piece.batches)

    def _decide(
        self, window: Window, transactions: CleanedTransactions, records_to_keep: npt.NDArray[np.int64]
    ) -> BatchDecisions:
        """Decide about the v2 batches of a window. `records_to_keep`: result of `last_records`."""
        table = window.table
        n = len(table)
        decisions = BatchDecisions(
            rule=np.full(n, RetentionRule.BY_KEY, np.int64),
            keeps_header=last_batches(table, records_to_keep),
            sets_horizon=np.zeros(n, bool),
        )
        for row in _transactional_rows(table):
            header = table[row]
            if header[HeaderColumn.ATTRIBUTES] & layout.ATTRIBUTE_CONTROL:
                is_unneeded = _advance_control_batch(window, row, transactions)
                has_horizon = bool(header[HeaderColumn.ATTRIBUTES] & layout.ATTRIBUTE_DELETE_HORIZON)
                is_expired = has_horizon and int(header[HeaderColumn.BASE_TIMESTAMP]) <= self._request.now_ms
                decisions.sets_horizon[row] = is_unneeded
                decisions.rule[row] = RetentionRule.NONE if is_unneeded and is_expired else RetentionRule.ALL
            elif transactions.advance_records(
                int(header[HeaderColumn.PRODUCER_ID]), int(header[HeaderColumn.LAST_OFFSET])
            ):
                decisions.rule[row] = RetentionRule.NONE
        # Keep at least the header of the last batch, so that the segment's next offset does not change.
        is_last = table[:, HeaderColumn.LAST_OFFSET] + 1 == self._request.first_uncleanable_offset
        decisions.keeps_header[is_last] = True
        return decisions

    def _read(self, segment: LogSegment, position: int) -> Iterator[Window]:
        path = Path(segment.log_path)
        with descriptor(path) as fd:
            for window, error in ordered_windows(
                fd, path, segment.base_offset, segment.size, position, buffer=self._buffer
            ):
                if error is not None:
                    raise error
                self._host.check_not_aborted()
                self._host.throttle(window.size)
                yield window

    def _aborted_transactions(self, from_offset: int, until: int) -> list[AbortedTransaction]:
        return aborted_in(segments_from(self._request.segments, from_offset), from_offset, until)


def _transactional_rows(table: npt.NDArray[np.int64]) -> list[int]:
    mask = layout.ATTRIBUTE_TRANSACTIONAL | layout.ATTRIBUTE_CONTROL
    rows: list[int] = np.flatnonzero(
        (table[:, HeaderColumn.MAGIC] == 2) & ((table[:, HeaderColumn.ATTRIBUTES] & mask) != 0)
    ).tolist()
    return rows


def _advance_control_batch(window: Window, row: int, transactions: CleanedTransactions) -> bool:
    """Advance `transactions` to a control batch.

    Return True if it is a marker that is no longer needed. Other control batches, such as leader changes, stay.
    """
    header = window.table[row]
    control_type: ControlType | None = None
    if header[HeaderColumn.COUNT] > 0:
        marker = read_marker(window.batch(row))
        if marker is None:
            return False
        control_type = marker.control_type
    return transactions.advance_marker(
        int(header[HeaderColumn.PRODUCER_ID]), int(header[HeaderColumn.LAST_OFFSET]), control_type
    )


def _source_size(segment: LogSegment) -> SourceSize:
    sizes = []
    for suffix in (names.OFFSET_INDEX_SUFFIX, names.TIME_INDEX_SUFFIX):
        try:
            sizes.append(os.stat(segment.path(suffix)).st_size)
        except FileNotFoundError:
            sizes.append(0)
    return SourceSize(segment.base_offset, segment.size, *sizes)


def _modified_ns(segment: LogSegment) -> int:
    return os.stat(segment.log_path).st_mtime_ns
