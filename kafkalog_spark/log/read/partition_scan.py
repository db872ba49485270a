"""Read a range of offsets of one partition, across its segments, as pyarrow RecordBatches.

    window (pread) -> sweep (headers) -> CRC -> choose (offsets, timestamps, transactions) -> decode (run_decoder)

SegmentScanner knows neither directories nor what follows its segment: it ends at the last whole batch, and says why.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator
from contextlib import suppress
from dataclasses import dataclass, field, replace

import numpy as np
import pyarrow as pa

from kafkalog_spark.errors import CorruptBatch, DataLoss, KafkalogError, UnsupportedFormat
from kafkalog_spark.format import layout
from kafkalog_spark.format.batch_header import BELIEVED, announced_batch, parse_header
from kafkalog_spark.format.layout import MAX_INT64, MIN_INT64, NO_TIMESTAMP, HeaderColumn
from kafkalog_spark.kernels.batch_selection import first_invalid_batch
from kafkalog_spark.kernels.primitives import CRC32_TABLE, CRC32C_TABLE
from kafkalog_spark.kernels.rows import Limit
from kafkalog_spark.kernels.sweep import SweepStatus, sweep
from kafkalog_spark.log.decode.record_schema import COLUMN_TYPES, EVERY_RECORD, ScanRequest
from kafkalog_spark.log.decode.run_decoder import WINDOW, Chosen, RunDecoder, ScanBuffers
from kafkalog_spark.log.read import batch_search
from kafkalog_spark.log.read.last_stable_offset import AbortedRanges, aborted_transactions
from kafkalog_spark.log.read.partition_log import LISTINGS, PartitionLog
from kafkalog_spark.log.read.segment_file import SegmentFile, check_large, what_is_wrong

_NONE_HIDDEN = np.empty(0, np.uint8)


@dataclass(slots=True)
class ScanState:
    """Where a scan stands: what follows, and whether the file ended inside a batch."""

    position: int
    next_offset: int  # every record below it has been read, or cannot be wanted
    done: bool = False  # the end of the offset range has been reached
    stopped_by: KafkalogError | None = None
    """Why `position` holds no good batch: the caller knows whether that is the log's end, damage, or a change since."""
    lowest_offset: int = 0
    """No batch from `position` on begins below it; unlike next_offset it is not raised to where a range starts."""


@dataclass(eq=False)
class SegmentScanner:
    """Reads segments of one partition, one after the other, into `rows`. The buffers are its own until it is through.
    Peak memory: a window (or the largest batch), what that decompresses to, and two Arrow batches."""

    _topic: str
    _partition: int
    _request: ScanRequest
    _buffers: ScanBuffers
    _aborted: AbortedRanges | None = None

    def __post_init__(self) -> None:
        buffers = self._buffers
        self.rows = buffers.rows(self._topic, self._partition, self._request)
        self._window, self._table = buffers.window, buffers.table
        self._decoder = RunDecoder(self.rows, buffers.window, buffers.decompressed, self._request)
        self._file: SegmentFile
        self._last_offset = -1

    def scan(self, file: SegmentFile, state: ScanState) -> Iterator[pa.RecordBatch]:
        """Add the rows of `file` from state.position on to the buffers, whose offset range counts; yields each batch
        that gets full. Then `state` tells where the scan stands, and what stopped it. Raises CorruptBatch,
        UnsupportedFormat, with position and offset, for wrong records under a valid CRC."""
        self._file = file
        self._last_offset = file.first_offset - 1 if state.position == file.begin else -1
        until = int(self.rows.limits[Limit.OFFSET_UNTIL])
        while not state.done:
            size = min(WINDOW, file.size - state.position)
            table, swept, filled, status = self._sweep_window(state.position, size)
            try:
                if not len(table) and status == SweepStatus.OUT_OF_BYTES:
                    if state.position >= file.size:
                        return
                    header = announced_batch(file.read, state.position, file.size, BELIEVED)  # larger than the window
                    table, swept, filled, status = self._sweep_window(state.position, header.size)
                if not len(table):
                    raise what_is_wrong(self._window.view, 0, filled, state.position)
            except (CorruptBatch, UnsupportedFormat) as error:
                state.stopped_by = error
                return
            past_end = np.flatnonzero(table[:, HeaderColumn.LAST_OFFSET] >= until - 1)
            count = int(past_end[0]) + 1 if len(past_end) else len(table)
            good, out_of_order = self._check_order(table, count, state.position, swept)
            # of all batches, also of those not wanted: which ones those are is read from headers that the CRC covers
            good, wrong_crc = check_large(table[:good], self._window.view, state.position)
            hidden = self._aborted.hides(table[:good]).view(np.uint8) if self._aborted else _NONE_HIDDEN
            yield from self._decoder.decode(Chosen.of(table[:good], hidden, self.rows, self._request), state.position)
            if good:
                self._last_offset = int(table[good - 1, HeaderColumn.LAST_OFFSET])
                state.lowest_offset = self._last_offset + 1
                state.next_offset = max(state.next_offset, state.lowest_offset)
            # The rows before a bad batch are given: whoever asked for no more than them never meets the error.
            state.stopped_by = wrong_crc or out_of_order
            if state.stopped_by is not None:
                state.position += int(table[good, HeaderColumn.POSITION])
                return
            state.position += swept
            state.done = bool(len(past_end))
            self._window.shrink(WINDOW)

    def _sweep_window(self, position: int, size: int) -> tuple[np.ndarray, int, int, int]:
        """(header table, bytes it covers, bytes read, SweepStatus) of the whole batches in these bytes."""
        filled = self._file.read_into(position, self._window.room(0, size)) if size > 0 else 0
        rows, swept, status = sweep(self._window.read_only(), 0, filled, self._table, CRC32C_TABLE, CRC32_TABLE)
        return self._table[:rows], swept, filled, status

    def _check_order(self, table: np.ndarray, count: int, position: int, swept: int) -> tuple[int, CorruptBatch | None]:
        """(first row that is wrong of the first `count`, the error); (count, None) when none is. Offsets, which lie
        outside the CRC, must rise from batch to batch, and stay between this segment's and the next's. The batch after
        those rows, in the table or at byte `swept` of the window, may show that the last one is wrong."""
        lowest, following = self._file.base_offset, self._file.next_base_offset
        highest = layout.MAX_INT64 if following is None else following - 1
        row = int(first_invalid_batch(table, max(self._last_offset, lowest - 1), lowest, highest))
        upward = None
        if row == len(table) == count:
            upward = self._moved_upward(table, row, position + swept)
        elif 0 < row <= count and table[row, HeaderColumn.BASE_OFFSET] <= table[row, HeaderColumn.PREVIOUS]:
            upward = self._moved_upward(table, row, position + int(table[row, HeaderColumn.POSITION]))
        if upward is not None:
            return row - 1, upward
        if row >= count:
            return count, None
        base, last, previous, records = (
            int(table[row, at])
            for at in (HeaderColumn.BASE_OFFSET, HeaderColumn.LAST_OFFSET, HeaderColumn.PREVIOUS, HeaderColumn.COUNT)
        )
        what = f"offsets {base} to {last} do not follow {previous}"
        if records < 0 and table[row, HeaderColumn.MAGIC] == 2:
            what = f"a record count of {records}"
        elif following is not None:
            what += f", or reach into the next segment at {following}"
        _, wrong_crc = check_large(table[row : row + 1], self._window.view, position)
        if wrong_crc is not None:  # a header that is damaged altogether is not a matter of its offsets
            return row, wrong_crc
        return row, CorruptBatch(what, position=position + int(table[row, HeaderColumn.POSITION]), offset=base)

    def _moved_upward(self, table: np.ndarray, row: int, after: int) -> CorruptBatch | None:
        """The error for the batch before row `row` if the one at byte `after`, this row's place, proves it too high."""
        base, last, previous = (
            int(table[row - 1, at])
            for at in (HeaderColumn.BASE_OFFSET, HeaderColumn.LAST_OFFSET, HeaderColumn.PREVIOUS)
        )
        follower = self._file.header_or_none(after)
        if follower is None or follower.base_offset > last or self._file.proven_header(after) is None:
            return None
        if batch_search.follower_lies(
            previous, base, last, follower.base_offset, batch_search.base_behind(self._file, follower)
        ):
            return None
        at = int(table[row - 1, HeaderColumn.POSITION])
        header = parse_header(self._window.view, at, follower.position - int(table[row - 1, HeaderColumn.SIZE]))
        return batch_search.moved_upward(header, previous, follower)


@dataclass
class ScanStatistics:
    """Counters of a scan so far."""

    segments: int = 0
    bytes_read: int = 0
    rows: int = 0
    dropped: list[KafkalogError] = field(default_factory=list)
    """Errors of damage that drop_malformed skipped, with file, position and offset."""


def scan_partition(
    log: PartitionLog,
    start: int,
    end: int,
    request: ScanRequest | None = None,
    *,
    statistics: ScanStatistics | None = None,
    position_hint: tuple[int, int] | None = None,
    on_loss: Callable[[KafkalogError], None] | None = None,
    buffers: ScanBuffers | None = None,
) -> Iterator[pa.RecordBatch]:
    """Yield the records of [start, end) in offset order; `end` is at most the log end offset (read_committed: the LSO).

    position_hint: (base offset of a segment, byte position) where the batch of `start` was when the read was planned;
    it is checked before it is used. on_loss: called with records that have gone since then (retention, truncation), and
    reading goes on after them; without it DataLoss is raised. buffers: to use, of scans that are through.
    Raises CorruptBatch, UnsupportedFormat with topic-partition, file, position and offset.
    """
    if start >= end:
        return
    request = request or ScanRequest()
    buffers = buffers or ScanBuffers()
    statistics = statistics if statistics is not None else ScanStatistics()
    scanner = scanner_for(log, start, end, request, statistics, buffers)
    rows = scanner.rows
    offset, tries = start, 0
    while offset < end:
        file = log.open_segment_at(offset)
        if file is None:
            lose(log, offset, end, on_loss)
            break
        with file:
            if offset < file.base_offset:
                lose(log, offset, min(file.base_offset, end), on_loss)
                offset = file.base_offset
                if offset >= end:
                    break
            rows.set_offset_range(offset, end)
            state, changed = ScanState(0, offset), True
            statistics.segments += 1
            try:
                state.position, state.next_offset = _begin(file, offset, request, position_hint)
                # by their timestamps no batch is wanted: what follows is not ours
                state.done = state.next_offset >= end
                if not state.done:
                    file.expect(state.position, end)
                tries, changed = yield from _scan_file(log, scanner, file, state, request, statistics, offset, tries)
            except FileNotFoundError as gone:
                tries = tries + 1 if state.next_offset <= offset else 0
                log.list_again(file, gone, tries)
            finally:
                statistics.bytes_read += file.bytes_read
        position_hint = None
        if state.done:
            break
        if changed:
            offset = max(offset, state.next_offset)
        elif file.next_base_offset is not None:
            tries = 0
            offset = max(file.next_base_offset, state.next_offset)
        else:
            # The listing's last segment ended before `end`: it was rolled, or truncated, since.
            offset = max(offset, state.next_offset)
            if offset >= end:
                break
            log.refresh()
            if log.next_base_offset(log.segment_index(offset)) is None and log.log_end_offset <= offset:
                lose(log, offset, end, on_loss)
                break
            tries += 1
            if tries > LISTINGS:
                raise CorruptBatch(
                    f"the log ends at offset {log.log_end_offset}, and its last segment at {offset}",
                    topic_partition=log.name,
                )
    if rows.rows_filled:
        statistics.rows += rows.rows_filled
        yield rows.take()


def scanner_for(
    log: PartitionLog, start: int, end: int, request: ScanRequest, statistics: ScanStatistics, buffers: ScanBuffers
) -> SegmentScanner:
    """Scanner of [start, end); it knows the transactions that were aborted there."""
    aborted = None
    if request.read_committed:
        aborted = AbortedRanges(aborted_transactions(log, start, end, statistics.dropped).aborted)
    return SegmentScanner(log.topic, log.partition, request, buffers, aborted)


def _scan_file(
    log: PartitionLog,
    scanner: SegmentScanner,
    file: SegmentFile,
    state: ScanState,
    request: ScanRequest,
    statistics: ScanStatistics,
    offset: int,
    tries: int,
) -> Generator[pa.RecordBatch, None, tuple[int, bool]]:
    """Read a segment on from `state`, past damage if that is wanted. Returns (how often in a row nothing was read of a
    segment that had changed, whether this one has changed since it was listed)."""
    while True:
        error = yield from scan_segment(scanner, file, state, statistics)
        if error is None:
            return tries, False
        tries = tries + 1 if state.next_offset <= offset else 0
        if state.stopped_by is not None and tries < LISTINGS and log.has_changed(file):
            return tries, True
        if not request.drop_malformed:
            raise error
        statistics.dropped.append(error)
        if not _pass_over(file, state, error):
            return tries, False


def scan_segment(
    scanner: SegmentScanner, file: SegmentFile, state: ScanState, statistics: ScanStatistics
) -> Generator[pa.RecordBatch, None, KafkalogError | None]:
    """Read a segment on from `state`; returns the error that ended it early, with the place where it happened."""
    try:
        for batch in scanner.scan(file, state):
            statistics.rows += batch.num_rows
            yield batch
    except KafkalogError as error:
        return file.blame(error)
    if state.stopped_by is None or state.done:
        return None
    return file.blame(state.stopped_by.at(offset=state.next_offset))


def _pass_over(file: SegmentFile, state: ScanState, error: KafkalogError) -> bool:
    """Move `state` past the damage to the next good batch of the segment; False when there is none."""
    damaged = state.position if error.position is None else error.position
    lowest, end = max(state.lowest_offset, file.base_offset), file.next_base_offset
    found = batch_search.find_batch_behind(file, damaged, lowest)
    while found is not None and end is not None and found.last_offset >= end:  # of another segment
        found = batch_search.find_batch_behind(file, found.position, lowest)
    state.stopped_by = None
    if found is None:
        if end is None:  # a last batch whose records cannot be read has offsets of the log all the same
            header = file.proven_header(damaged)
            end = state.next_offset if header is None else header.last_offset + 1
        state.next_offset = max(state.next_offset, end)
        return False
    state.position, state.lowest_offset = found.position, found.base_offset
    state.next_offset = max(state.next_offset, found.base_offset)
    return True


def _begin(file: SegmentFile, offset: int, request: ScanRequest, hint: tuple[int, int] | None) -> tuple[int, int]:
    """(position, next offset) to begin reading a segment at: the furthest that hint, offset and time index prove."""
    position = file.locate(offset, hint)
    if request.timestamp_from_ms > NO_TIMESTAMP:
        by_time, next_offset = batch_search.position_for_timestamp(file, request.timestamp_from_ms)
        if by_time > position:
            return by_time, max(offset, next_offset)
    return position, offset


def lose(log: PartitionLog, start: int, end: int, on_loss: Callable[[KafkalogError], None] | None) -> None:
    """Tell `on_loss` that records of [start, end) are gone; without it raise DataLoss."""
    error = DataLoss(
        f"records in [{start}, {end}) are gone: they were deleted (retention, DeleteRecords) or the log was truncated "
        "while it was read",
        topic_partition=log.name,
        path=log.directory,
        offset=start,
    )
    if on_loss is None:
        raise error
    on_loss(error)


def _not_the_answer(gone: KafkalogError) -> None:
    """Records that go while they are searched or counted: the answer is one of those that are there."""


def offset_for_timestamp(log: PartitionLog, timestamp_ms: int) -> int | None:
    """The first offset whose record, in a control batch too, has a timestamp >= `timestamp_ms`; None when there is none
    (ListOffsets, FileRecords.searchForTimestamp). Segments and batches are passed over by their largest timestamps.
    Raises CorruptBatch, UnsupportedFormat for damage unless the log was opened with pass_over_damage."""
    request = ScanRequest(
        columns=("offset",),
        timestamp_from_ms=timestamp_ms,
        first_batch_rows=1,
        control_records=True,
        drop_malformed=log.pass_over_damage,
    )
    offset, end, tries = log.log_start_offset, log.log_end_offset, 0
    log.prefetch_segments(offset, end)
    while offset < end:
        if log.segments:
            index = log.segment_index(offset)
            largest, following = log.largest_timestamp(index), log.next_base_offset(index)
            if largest is not None and largest < timestamp_ms and following is not None:
                offset = max(offset, following)
                continue
        file = log.open_segment_at(offset)
        if file is None:
            return None
        skip, until = False, end if file.next_base_offset is None else min(file.next_base_offset, end)
        try:
            with file:
                if file.next_base_offset is not None:
                    # damage is left to the scan, which may find the log changed
                    with suppress(CorruptBatch, UnsupportedFormat):
                        skip = batch_search.largest_timestamp(file) < timestamp_ms
        except FileNotFoundError as gone:
            tries += 1
            log.list_again(file, gone, tries)
            continue
        if not skip:
            start = max(offset, file.base_offset)
            for batch in scan_partition(log, start, until, request, on_loss=_not_the_answer):
                return int(batch.column(0)[0].as_py())
        offset = until
    return None


# Where the last records of a partition begin. Steps of bytes are read backward from its end, each four times as large
# as the one before, until there are as many records as asked for. They are counted as a scan gives them: holes, control
# batches, aborted transactions and damage count for nothing.

FIRST_STEP = 64 << 10
"""Bytes. One read, which takes no longer than opening the segment: some 600 records of 100 B."""
_GROWTH = 4
_LARGEST_STEP = 32 << 20  # bytes. What is kept of a step are the offsets of its records, 8 bytes each.


def tail_start(log: PartitionLog, start: int, end: int, count: int, request: ScanRequest) -> int:
    """The offset from which [start, end) holds the last `count` records of it; `start` where there are fewer.

    request: what `scan_partition` will be asked for; its conditions on timestamps, offsets and contents are no part of
    the question, so they narrow what the tail holds. Damage is passed over here: whether it lies in the tail, which is
    read next, decides whether it is an error. What has gone since the log was listed is not there. Raises
    NotALogDirectory, and with read_committed what `aborted_transactions` raises.
    """
    buffers = ScanBuffers()
    # Damage inside a batch shows in the columns that are decoded: the same ones decide what is counted.
    shown = [name for name in request.columns if name in COLUMN_TYPES and name != "offset"]
    asked = replace(
        request,
        columns=("offset", *(shown if request.drop_malformed else ())),
        timestamp_from_ms=MIN_INT64,
        timestamp_until_ms=MAX_INT64,
        offset_in=(),
        timestamp_in_ms=(),
        wanted=EVERY_RECORD,
        drop_malformed=True,
    )
    until, missing, step = end, count, FIRST_STEP
    while until > start and missing > 0:
        begin = max(_offset_before(log, until, step), start)
        offsets = _last_offsets(log, begin, until, missing, asked, buffers)
        if len(offsets) == missing:
            return int(offsets[0])
        missing -= len(offsets)
        until, step = begin, min(step * _GROWTH, _LARGEST_STEP)
    return start


def _last_offsets(
    log: PartitionLog, start: int, end: int, count: int, request: ScanRequest, buffers: ScanBuffers
) -> np.ndarray:
    """int64[at most count], the last offsets of records in [start, end)."""
    found: list[np.ndarray] = []
    held = 0
    for batch in scan_partition(
        log, start, end, request, statistics=ScanStatistics(), on_loss=_not_the_answer, buffers=buffers
    ):
        # a copy: the buffers of the batch are filled again
        found.append(np.array(batch.column(0).to_numpy(zero_copy_only=True)))
        held += len(found[-1])
        while held - len(found[0]) >= count:
            held -= len(found.pop(0))
    return np.concatenate(found)[-count:] if found else np.empty(0, np.int64)


def _offset_before(log: PartitionLog, until: int, size: int) -> int:
    """An offset below `until`, in one segment, about `size` bytes before it by the offset index, which may be wrong."""
    file = log.open_segment_at(until - 1)
    if file is None:
        return until - 1
    with file:
        index = file.offset_index
        _, after = index.entries_after(until - 1)
        end = int(after[0]) if len(after) else file.size
        begin = index.floor_position(max(end - size, 0)).offset
        return begin if file.base_offset < begin < until else min(file.base_offset, until - 1)
