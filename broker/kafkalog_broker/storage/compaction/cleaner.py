"""Compaction of one log (Kafka: `Cleaner`).

A cleaning first reads the dirty part and stores the latest offset of each key in the offset map. Then it rewrites all
segments below the end of the mapped part: each group of adjacent segments becomes one segment (or several, if one has
no room), which replaces the group. It runs on a cleaner thread. Closed segments do not change meanwhile, and changes of
the log itself go through the `CleaningHost` to the thread that owns it.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from itertools import pairwise
from pathlib import Path

import numpy as np
import numpy.typing as npt

from kafkalog_broker.storage.compaction.batch_filter import BatchFilter, Verdict, find_messages_in, open_wrapper_at
from kafkalog_broker.storage.compaction.cleaned_transactions import CleanedTransactions
from kafkalog_broker.storage.compaction.cleaner_kernel import RetentionRule
from kafkalog_broker.storage.compaction.cleaning_host import CleaningHost
from kafkalog_broker.storage.compaction.cleaning_request import CleanerStatistics, CleaningAborted, CleaningRequest
from kafkalog_broker.storage.compaction.last_records import last_batches, last_records
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
        batches = BatchFilter(self._keys, request.now_ms, request.now_ms + config.delete_retention_ms)
        sizes = [_source_size(segment) for segment in sources]
        for first, end_of_group in group_segments(
            sizes, config.segment_bytes, config.segment_index_bytes, request.first_uncleanable_offset
        ):
            self._clean_group(sources[first:end_of_group], batches, transactions, legacy_horizon_ms)
        self._statistics.unreadable_batches = batches.unreadable_batches
        self._statistics.first_unreadable = batches.first_unreadable
        return end, self._statistics

    def _map_keys(self) -> None:
        """Add the keys of the dirty part to the offset map until the map is full."""
        first, until = self._request.first_dirty_offset, self._request.first_uncleanable_offset
        segments = self._request.segments
        dirty = [
            segment
            for segment, following in pairwise(segments)
            if segment.base_offset < until and following.base_offset > first
        ]
        transactions = CleanedTransactions(self._aborted_transactions(first, until))
        for index, segment in enumerate(dirty):
            next_base = dirty[index + 1].base_offset if index + 1 < len(dirty) else until
            for window in self._read(segment, segment.position_of(first)):
                self._statistics.map_bytes_read += window.size
                try:
                    if not self._map_window(window, transactions, first):
                        return
                except KafkalogError as error:
                    raise error.at(path=segment.log_path, position=window.start) from None
            self._keys.advance(next_base - 1)  # there are no records between the last batch and the next segment

    def _map_window(self, window: Window, transactions: CleanedTransactions, first: int) -> bool:
        """Add a window's keys to the offset map; return False if the map is full."""
        table = window.table
        counts = table[:, HeaderColumn.COUNT].copy()
        for row in _transactional_rows(table):
            header = table[row]
            if header[HeaderColumn.ATTRIBUTES] & layout.ATTRIBUTE_CONTROL:
                _may_drop_control_batch(window, row, transactions)
                counts[row] = 0
            elif transactions.may_drop_records(
                int(header[HeaderColumn.PRODUCER_ID]), int(header[HeaderColumn.LAST_OFFSET])
            ):
                counts[row] = 0
        units = np.stack((table[:, HeaderColumn.BASE_OFFSET], table[:, HeaderColumn.LAST_OFFSET], counts), axis=1)
        for begun, ended in runs(kinds_of(table)):
            compressed = bool(table[begun, HeaderColumn.ATTRIBUTES] & layout.ATTRIBUTE_CODEC)
            if table[begun, HeaderColumn.MAGIC] < 2:
                has_room = self._map_messages(window, begun, ended, compressed, first)
            elif compressed:
                has_room = self._map_compressed(window, units, begun, ended, first)
            else:
                starts, ends = window.records(begun, ended)
                has_room = self._keys.add_records(window.payload, starts, ends, units[begun:ended], first)
            if not has_room:
                return False
        return True

    def _map_compressed(self, window: Window, units: npt.NDArray[np.int64], begun: int, ended: int, first: int) -> bool:
        starts, ends = window.records(begun, ended)
        attributes = window.table[begun:ended, HeaderColumn.ATTRIBUTES]
        counts = units[begun:ended, 2]
        for row, end, _ in self._decompressor.groups(
            window.data, starts, ends, attributes, counts, (counts > 0).tolist()
        ):
            payload = self._decompressor.scratch.read_only()
            part = slice(row, end)
            if not self._keys.add_records(payload, starts[part], ends[part], units[begun:ended][part], first):
                return False
        return True

    def _map_messages(self, window: Window, begun: int, ended: int, compressed: bool, first: int) -> bool:
        magic = int(window.table[begun, HeaderColumn.MAGIC])
        starts = window.starts
        if not compressed:
            end = int(starts[ended - 1] + window.table[ended - 1, HeaderColumn.SIZE])
            messages = find_messages_in(window.payload, int(starts[begun]), end, magic, 0, first)
            return self._keys.add_messages(window.payload, messages)
        for row in range(begun, ended):
            wrapper = open_wrapper_at(window, row, self._decompressor.scratch)
            payload = self._decompressor.scratch.read_only()
            if not self._keys.add_messages(
                payload, find_messages_in(payload, 0, wrapper.end, magic, wrapper.offset_shift, first)
            ):
                return False
        return True

    def _clean_group(
        self,
        group: Sequence[LogSegment],
        batches: BatchFilter,
        transactions: CleanedTransactions,
        legacy_horizon_ms: int,
    ) -> None:
        request = self._request
        last = last_records(self._host.producers())
        cleaned = [CleanedSegment(request.directory, group[0].base_offset, request.config.index_entry_bytes)]
        try:
            for segment in group:
                keeps_tombstones = _modified_ns(segment) // 1_000_000 > legacy_horizon_ms
                for window in self._read(segment, 0):
                    self._statistics.bytes_read += window.size
                    verdict = self._judge_batches(window, transactions, last)
                    try:
                        for piece in batches.retain(window, verdict, keeps_tombstones):
                            self._append(cleaned, piece)
                            self._statistics.bytes_written += len(piece.data)
                            self._host.throttle(len(piece.data))
                    except KafkalogError as error:
                        raise error.at(path=segment.log_path, position=window.start) from None
            for aborted in transactions.take_retained():
                segment_containing(aborted.last_offset, cleaned).aborted.append(aborted)
            self._host.check_not_aborted()
            for written in cleaned:
                written.finish(_modified_ns(group[-1]))
            self._host.replace(cleaned, group)
        except BaseException:
            for written in cleaned:
                written.discard()
            raise

    def _append(self, cleaned: list[CleanedSegment], piece: RetainedBatches) -> None:
        """Append to the last segment, or to a new one if it has no room.

        Batches that are compressed again can be larger than the producer's (KAFKA-20036).
        """
        last = cleaned[-1]
        if last.size and not last.has_room(piece):
            last = CleanedSegment(self._request.directory, last.next_offset, self._request.config.index_entry_bytes)
            cleaned.append(last)
        last.append(piece.data, piece.batches)

    def _judge_batches(self, window: Window, transactions: CleanedTransactions, last: npt.NDArray[np.int64]) -> Verdict:
        """Decide about the batches of a window. last: Result of `last_records`."""
        table = window.table
        n = len(table)
        keeps_header = last_batches(table, last)
        verdict = Verdict(
            np.full(n, RetentionRule.BY_KEY, np.int64), keeps_header, np.zeros(n, bool), np.zeros(n, bool)
        )
        for row in _transactional_rows(table):
            header = table[row]
            discard = False
            if header[HeaderColumn.ATTRIBUTES] & layout.ATTRIBUTE_CONTROL:
                may_drop = _may_drop_control_batch(window, row, transactions)
                has_horizon = bool(header[HeaderColumn.ATTRIBUTES] & layout.ATTRIBUTE_DELETE_HORIZON)
                discard = may_drop and has_horizon and int(header[HeaderColumn.BASE_TIMESTAMP]) <= self._request.now_ms
                verdict.set_horizon[row] = may_drop
                verdict.rule[row] = RetentionRule.ALL
            else:
                discard = transactions.may_drop_records(
                    int(header[HeaderColumn.PRODUCER_ID]), int(header[HeaderColumn.LAST_OFFSET])
                )
            if discard:
                verdict.rule[row] = RetentionRule.NONE
        # Keep at least the header of the last batch, so that the segment's next offset does not change.
        verdict.keep_empty[table[:, HeaderColumn.LAST_OFFSET] + 1 == self._request.first_uncleanable_offset] = True
        verdict.drop[(verdict.rule == RetentionRule.NONE) & ~verdict.keep_empty] = True
        return verdict

    def _read(self, segment: LogSegment, position: int) -> Iterator[Window]:
        path = Path(segment.log_path)
        with descriptor(path) as fd:
            for window, wrong in ordered_windows(
                fd, path, segment.base_offset, segment.size, position, buffer=self._buffer
            ):
                if wrong is not None:
                    raise wrong
                self._host.check_not_aborted()
                self._host.throttle(window.size)
                yield window

    def _aborted_transactions(self, first: int, until: int) -> list[AbortedTransaction]:
        return aborted_in(segments_from(self._request.segments, first), first, until)


def _transactional_rows(table: npt.NDArray[np.int64]) -> list[int]:
    mask = layout.ATTRIBUTE_TRANSACTIONAL | layout.ATTRIBUTE_CONTROL
    rows: list[int] = np.flatnonzero(
        (table[:, HeaderColumn.MAGIC] == 2) & ((table[:, HeaderColumn.ATTRIBUTES] & mask) != 0)
    ).tolist()
    return rows


def _may_drop_control_batch(window: Window, row: int, transactions: CleanedTransactions) -> bool:
    """Record a control batch, and return whether it may be dropped: only markers may, not leader changes."""
    header = window.table[row]
    control_type: ControlType | None = None
    if header[HeaderColumn.COUNT] > 0:
        marker = read_marker(window.batch(row))
        if marker is None:
            return False
        control_type = marker.control_type
    return transactions.may_drop_marker(
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
