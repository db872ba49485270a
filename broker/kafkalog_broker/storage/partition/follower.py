"""Follower side of a log: appends of fetched batches, the leader's high watermark and log start offset, truncation.

Corresponds to `appendAsFollower`, `truncateTo` and `truncateFullyAndStartAt` of Kafka's `UnifiedLog`. Runs on the
thread that owns the log, except `plan_truncation`.

Truncation is crash-safe: after every step the files are a valid prefix of the old log. Segments are removed from the
last one on, then the .log is cut, then its indexes. Loading removes producer snapshots and leader epochs above the
log's end. A higher checkpointed recovery point must be lowered first (`LogManager.lower_checkpoints`), or records
written afterwards would count as flushed.
"""

from __future__ import annotations

import logging
from pathlib import Path

from kafkalog_broker.storage.partition.log import Log
from kafkalog_broker.storage.partition.producer_replay import first_bad_marker, newest_snapshot, replay, replay_segments
from kafkalog_broker.storage.partition.producer_state import ProducerState
from kafkalog_spark.errors import UnexpectedAppendOffset, UnsupportedFormat
from kafkalog_spark.format.layout import HeaderColumn
from kafkalog_spark.log.read.header_windows import Window

_log = logging.getLogger(__name__)


class Follower:
    """Makes a log follow another broker's log. `Log.append` is refused until `Log.lead`."""

    def __init__(self, log: Log) -> None:
        log.is_follower = True
        self._log = log
        self._local = log.local

    @property
    def last_epoch(self) -> int:
        """Leader epoch of the last batch, for a Fetch's LastFetchedEpoch (KIP-595); -1 if unknown."""
        return self._log.epochs.epoch_for_offset(self._local.log_end_offset - 1)

    def truncation_offset(self, epoch: int, end_offset: int) -> int:
        """Return the offset to truncate to (Kafka: `getOffsetTruncationState`, KIP-279).

        The arguments come from a leader's OffsetForLeaderEpoch response. If the log's last epoch still differs from the
        leader's after the truncation, the caller sends another request, for that epoch.

        Args:
            epoch: The leader's largest epoch not above the requested one; -1 if it knows none.
            end_offset: End of that epoch in the leader's log; -1 if unknown.
        """
        end = self._local.log_end_offset
        if end_offset < 0:
            return end
        if epoch < 0:
            return min(end_offset, end)
        own_epoch, own_end = self._log.epochs.end_offset_for(epoch, end)
        if own_epoch < 0:  # `epoch` is above all epochs of this log
            return min(end_offset, end)
        if own_epoch == epoch:
            return min(own_end, end_offset, end)
        return min(own_end, end)

    def append(self, batches: Window, now_ms: int) -> list[Path]:
        """Append fetched batches unchanged to the page cache.

        If the log is empty and its end offset is inside the first batch, the log is started over at that batch's base
        offset; its log start offset stays. The call blocks, so the caller limits the number of batches.

        Args:
            batches: At least one batch, from `parse_fetched_batches`.

        Returns:
            Files of the log that was started over, renamed `.deleted`, which the caller may remove.

        Raises:
            UnexpectedAppendOffset: If a batch begins below the log end offset.
            CorruptBatch: If a transaction marker cannot be read; nothing has changed then.
            BrokerError: kafka_storage_error.
        """
        self._log.check_online()
        local = self._local
        table = batches.table
        if (bad := first_bad_marker(batches)) is not None:
            raise bad[1].at(topic_partition=self._log.name)
        first, last = int(table[0, HeaderColumn.BASE_OFFSET]), int(table[0, HeaderColumn.LAST_OFFSET])
        removed_files: list[Path] = []
        if first < local.log_end_offset <= last and not any(segment.size for segment in local.segments):
            _log.info(
                "%s: starting at offset %d, the base offset of the batch that contains the log end offset %d",
                self._log.name, first, local.log_end_offset,
            )  # fmt: skip
            removed_files = self._start_over(first, local.log_start_offset)
        if first < local.log_end_offset:  # a gap is allowed, because compaction leaves gaps
            raise UnexpectedAppendOffset(
                f"received a batch with offsets {first} to {last}, expected offset {local.log_end_offset} or above",
                topic_partition=self._log.name,
                offset=first,
                hint="fetch from the log end offset; if the logs have diverged, truncate first",
            )
        row = 0
        try:
            with self._log.offline_on_error():
                while row < len(table):
                    if local.is_time_to_roll(batches.header(row), now_ms):
                        local.roll(now_ms)
                    rest = Window(table[row:], batches.data, batches.start)
                    run = rest.first(local.count_fitting_batches(rest, now_ms))
                    self._assign_epochs(run)
                    segment = local.append_all(run)
                    self._log.appended_bytes += int(run.table[:, HeaderColumn.SIZE].sum())
                    for aborted in replay(self._log.producer_state, run):
                        segment.add_aborted(aborted)
                    row += len(run.table)
        finally:
            local.record_append_time(now_ms)
        return removed_files

    def _assign_epochs(self, run: Window) -> None:
        """Record new leader epochs before the batches are written, as a leader does.

        Batches of format v0 and v1 have no epoch. As in Kafka they clear the epochs, because an epoch before them would
        have no known end.
        """
        own_epochs = self._log.epochs
        epochs = run.table[:, HeaderColumn.LEADER_EPOCH]
        row = 0
        while row < len(epochs):
            epoch = int(epochs[row])
            base = int(run.table[row, HeaderColumn.BASE_OFFSET])
            if epoch < 0:
                own_epochs.clear()
            elif epoch != own_epochs.latest:
                if epoch < own_epochs.latest:
                    _log.warning(
                        "%s: leader epoch %d at offset %d follows the higher epoch %d",
                        self._log.name,
                        epoch,
                        base,
                        own_epochs.latest,
                    )
                own_epochs.assign(epoch, base)
            following = (epochs[row:] != epoch).nonzero()[0]
            row = row + int(following[0]) if len(following) else len(epochs)

    def update_high_watermark(self, offset: int) -> None:
        """Raise the high watermark to the leader's, at most to the log end offset. It never falls."""
        bounded = min(offset, self._local.log_end_offset)
        if bounded > self._log.high_watermark:
            self._log.high_watermark = bounded
            self._log.producer_state.forget_ended(bounded)  # otherwise only reads forget them
            self._log.wake()

    def update_log_start_offset(self, offset: int) -> None:
        """Raise the log start offset to the leader's, at most to the high watermark. Raises BrokerError."""
        self._log.check_online()
        self._log.move_log_start(min(offset, self._log.high_watermark))

    def plan_truncation(self, offset: int) -> ProducerState:
        """Return the producer state after a truncation to `offset`, or to the start of the batch that contains it.

        Reads snapshots and up to one segment. May run on any thread while nothing is appended.

        Raises:
            BrokerError: kafka_storage_error.
        """
        log, local = self._log, self._local
        log.check_online()
        try:
            with log.offline_on_error(nothing_changed=True):
                segments = local.segments
                if offset <= segments[0].base_offset:
                    return ProducerState(max(offset, 0))
                kept = [segment for segment in segments if segment.base_offset <= offset]
                bounds = kept[-1].locate(offset)
                end = offset if bounds is None else min(offset, bounds.base_offset)
                sizes: list[tuple[int, int | None]] = [(segment.base_offset, segment.size) for segment in kept]
                if bounds is not None:
                    sizes[-1] = (kept[-1].base_offset, bounds.position)
                # Snapshots below the log's first segment are ignored, as when the log is loaded.
                offsets = [known for known in local.snapshot_offsets() if segments[0].base_offset <= known <= end]
                producers = newest_snapshot(local.directory, offsets)[0] or ProducerState()
                if producers.end_offset < end:
                    replay_segments(producers, local.directory, sizes, producers.end_offset)
                producers.end_offset = end
                return producers
        except UnsupportedFormat as error:
            log.go_offline_and_raise(OSError(str(error)))

    def truncate(self, producers: ProducerState) -> list[Path]:
        """Truncate the log to the end offset of a planned producer state; the high watermark falls with it.

        Waits for a running flush.

        Args:
            producers: Result of `plan_truncation`.

        Returns:
            Files of removed segments, renamed `.deleted`, which the caller may remove.

        Raises:
            BrokerError: kafka_storage_error.
        """
        log = self._log
        local = self._local
        end = producers.end_offset
        log.check_online()
        removed_files: list[Path] = []
        if end >= local.log_end_offset:
            # As in Kafka: the leader may not know an epoch that began at the log end and has no records.
            with log.offline_on_error():
                self._truncate_epochs(local.log_end_offset)
        elif end < local.segments[0].base_offset:
            removed_files = self._start_over(end, end)
        else:
            with local.flush_lock:
                with log.offline_on_error():
                    removed_files = local.truncate_to(end)
                    self._truncate_epochs(end)
                log.producer_state.replace_with(producers)
                local.log_start_offset = min(local.log_start_offset, end)
        return self._bound_high_watermark(removed_files)

    def _truncate_epochs(self, end: int) -> None:
        """Remove epochs at or above `end`, and sync the file to disk.

        An entry that stayed in the file would contradict the epoch of the next append.
        """
        self._log.epochs.truncate_from_end(end)
        self._log.epochs.flush()

    def truncate_to(self, offset: int) -> list[Path]:
        """Plan a truncation and carry it out, see `truncate`. Blocks."""
        return self.truncate(self.plan_truncation(offset))

    def truncate_fully_and_start_at(self, offset: int) -> list[Path]:
        """Delete all records and start the log at `offset`. As `truncate`."""
        removed_files = self._start_over(offset, offset)
        self._log.high_watermark = offset
        return self._bound_high_watermark(removed_files)

    def _bound_high_watermark(self, removed_files: list[Path]) -> list[Path]:
        self._log.high_watermark = min(self._log.high_watermark, self._local.log_end_offset)
        self._log.wake()
        return removed_files

    def _start_over(self, offset: int, log_start_offset: int) -> list[Path]:
        """Delete all records and start the log at `offset`, with this log start offset."""
        log, local = self._log, self._local
        log.check_online()
        with local.flush_lock:
            with log.offline_on_error():
                removed_files = local.start_over(offset)
                log.epochs.clear()
            log.producer_state.clear(offset)
            local.log_start_offset = log_start_offset
        return removed_files
