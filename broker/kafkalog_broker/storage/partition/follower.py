"""The side of a log that follows another broker's: appends byte for byte, the leader's bounds, truncation (UnifiedLog's
appendAsFollower, truncateTo, truncateFullyAndStartAt). In the thread that owns the log, but for `plan_truncation`.

A truncation leaves a log at every step, a beginning of the old one: segments go from the last one on, then the .log is
cut, its indexes, then producer snapshots and leader epochs, which loading compares with the log's end. A checkpointed
recovery point above has to be lowered before (LogManager.lower_checkpoints): what is written next is not on disk yet.
"""

from __future__ import annotations

import logging
from pathlib import Path

from kafkalog_broker.storage.partition.log import Log
from kafkalog_broker.storage.partition.producer_replay import first_bad_marker, newest_snapshot, replay, replay_segments
from kafkalog_broker.storage.partition.producer_state import ProducerState
from kafkalog_spark.errors import UnexpectedAppendOffset, UnsupportedFormat
from kafkalog_spark.format.layout import HeaderColumn
from kafkalog_spark.log.read.segment_file import Window

_log = logging.getLogger(__name__)


class Follower:
    """Follows a leader's log, and its high watermark, from now on; `Log.append` is refused until `Log.lead`."""

    def __init__(self, log: Log) -> None:
        log.follows = True
        self._log = log
        self._local = log.local

    @property
    def last_epoch(self) -> int:
        """Of the last batch, a Fetch's LastFetchedEpoch (KIP-595); -1 when it is not known."""
        return self._log.epochs.epoch_of(self._local.log_end_offset - 1)

    def end_of_epoch(self, epoch: int, end_offset: int) -> int:
        """Where this log and a leader's part, whose epoch `epoch`, the largest not above the one asked for, ends at
        `end_offset`: truncate there, and when the log's last epoch is still another one, ask for that (KIP-279). epoch:
        -1 when the leader knows none; then `end_offset` is all that is known, -1 nothing."""
        end = self._local.log_end_offset
        if end_offset < 0:
            return end
        if epoch < 0:
            return min(end_offset, end)
        mine, mine_ends = self._log.epochs.end_offset_for(epoch, end)
        if mine < 0:  # above everything here
            return min(end_offset, end)
        if mine == epoch:
            return min(mine_ends, end_offset, end)
        return min(mine_ends, end)

    # ---- appending

    def append(self, batches: Window, now_ms: int) -> list[Path]:
        """Append batches that `fetched_batches` has found, at least one, byte for byte, to the page cache: 3 us a
        batch, so give no more at once than the thread has time for. A log that holds nothing may begin with the batch
        that holds its log end offset; the log start offset stays. Returns the files of the log that held nothing,
        renamed `.deleted`, that may be removed now. Raises UnexpectedAppendOffset for batches from below
        the log end offset, CorruptBatch for a marker that cannot be read (nothing has changed then), BrokerError
        kafka_storage_error."""
        self._log.check()
        local, table = self._local, batches.table
        if (bad := first_bad_marker(batches)) is not None:
            raise bad[1].at(topic_partition=self._log.name)
        first, last = int(table[0, HeaderColumn.BASE_OFFSET]), int(table[0, HeaderColumn.LAST_OFFSET])
        gone: list[Path] = []
        if first < local.log_end_offset <= last and not any(segment.size for segment in local.segments):
            _log.info("%s begins at offset %d, with the batch of %d", self._log.name, first, local.log_end_offset)
            gone = self._start_over(first, local.log_start_offset)
        if first < local.log_end_offset:  # gaps are fine: compaction leaves them
            raise UnexpectedAppendOffset(
                f"a batch of offsets {first} to {last} came, the log goes on at {local.log_end_offset}",
                topic_partition=self._log.name,
                offset=first,
                hint="fetch from the log end offset; when the leader's log is another one, truncate first",
            )
        row = 0
        try:
            with self._log.failing():
                while row < len(table):
                    if local.is_time_to_roll(batches.header(row), now_ms):
                        local.roll(now_ms)
                    rest = Window(table[row:], batches.data, batches.start)
                    run = rest.first(local.how_many_fit(rest, now_ms))
                    self._assign_epochs(run)
                    segment = local.append_all(run)
                    self._log.appended_bytes += int(run.table[:, HeaderColumn.SIZE].sum())
                    for aborted in replay(self._log.producer_state, run):
                        segment.add_aborted(aborted)
                    row += len(run.table)
        finally:
            local.appended(now_ms)
        return gone

    def _assign_epochs(self, run: Window) -> None:
        """Before the bytes are written, as a leader does. What is older than epochs has none, and what comes after it
        cannot be found by them (Kafka clears the file too)."""
        known, epochs = self._log.epochs, run.table[:, HeaderColumn.LEADER_EPOCH]
        row = 0
        while row < len(epochs):
            epoch, base = int(epochs[row]), int(run.table[row, HeaderColumn.BASE_OFFSET])
            if epoch < 0:
                known.clear()
            elif epoch != known.latest:
                if epoch < known.latest:
                    _log.warning(
                        "%s: leader epoch %d at offset %d comes after %d", self._log.name, epoch, base, known.latest
                    )
                known.assign(epoch, base)
            others = (epochs[row:] != epoch).nonzero()[0]
            row = row + int(others[0]) if len(others) else len(epochs)

    # ---- bounds

    def update_high_watermark(self, offset: int) -> None:
        """The leader's high watermark is `offset`: this log's is, up to its end. It never falls."""
        bounded = min(offset, self._local.log_end_offset)
        if bounded > self._log.high_watermark:
            self._log.high_watermark = bounded
            self._log.producer_state.forget_ended(bounded)  # or nobody does while nobody reads
            self._log.wake()

    def update_log_start_offset(self, offset: int) -> None:
        """The leader's log starts at `offset`: this one does, up to its high watermark. Raises BrokerError."""
        self._log.check()
        self._log.move_log_start(min(offset, self._log.high_watermark))

    # ---- truncation

    def plan_truncation(self, offset: int) -> ProducerState:
        """The producers at the log's end when nothing at or above `offset` is to stay: there, or where the batch begins
        that holds it. Reads snapshots and up to a segment; any thread, while nobody appends. Raises BrokerError."""
        log, local = self._log, self._local
        log.check()
        try:
            with log.failing(nothing_happened=True):
                segments = local.segments
                if offset <= segments[0].base_offset:
                    return ProducerState(max(offset, 0))
                kept = [segment for segment in segments if segment.base_offset <= offset]
                bounds = kept[-1].locate(offset)
                end = offset if bounds is None else min(offset, bounds.base_offset)
                sizes: list[tuple[int, int | None]] = [(segment.base_offset, segment.size) for segment in kept]
                if bounds is not None:
                    sizes[-1] = (kept[-1].base_offset, bounds.position)
                # those below the log's beginning do not count, as when it is loaded
                offsets = [known for known in local.snapshot_offsets() if segments[0].base_offset <= known <= end]
                producers = newest_snapshot(local.directory, offsets)[0] or ProducerState()
                if producers.end_offset < end:
                    replay_segments(producers, local.directory, sizes, producers.end_offset)
                producers.end_offset = end
                return producers
        except UnsupportedFormat as error:
            log.fail(OSError(str(error)))

    def truncate(self, producers: ProducerState) -> list[Path]:
        """Cut the log where `plan_truncation` found these; the high watermark falls with it. Returns the files, renamed
        `.deleted`, that may be removed now. Waits for a flush under way. Raises BrokerError."""
        log, local, end = self._log, self._local, producers.end_offset
        log.check()
        gone: list[Path] = []
        if end >= local.log_end_offset:
            # As Kafka: an epoch that began at the end and has written nothing may be another one at the leader.
            with log.failing():
                self._truncate_epochs(local.log_end_offset)
        elif end < local.segments[0].base_offset:
            gone = self._start_over(end, end)
        else:
            with local.flush_lock:
                with log.failing():
                    gone = local.truncate_to(end)
                    self._truncate_epochs(end)
                log.producer_state.become(producers)
                local.log_start_offset = min(local.log_start_offset, end)
        return self._bound_high_watermark(gone)

    def _truncate_epochs(self, end: int) -> None:
        """On disk on return: an entry that stayed in the file would contradict the epoch of what is appended next."""
        self._log.epochs.truncate_from_end(end)
        self._log.epochs.flush()

    def truncate_to(self, offset: int) -> list[Path]:
        return self.truncate(self.plan_truncation(offset))

    def truncate_fully_and_start_at(self, offset: int) -> list[Path]:
        gone = self._start_over(offset, offset)
        self._log.high_watermark = offset
        return self._bound_high_watermark(gone)

    def _bound_high_watermark(self, gone: list[Path]) -> list[Path]:
        self._log.high_watermark = min(self._log.high_watermark, self._local.log_end_offset)
        self._log.wake()
        return gone

    def _start_over(self, offset: int, log_start_offset: int) -> list[Path]:
        """Drop all records and begin at `offset`; records below `log_start_offset` will not be read."""
        log, local = self._log, self._local
        log.check()
        with local.flush_lock:
            with log.failing():
                gone = local.start_over(offset)
                log.epochs.clear()
            log.producer_state.clear(offset)
            local.log_start_offset = log_start_offset
        return gone
