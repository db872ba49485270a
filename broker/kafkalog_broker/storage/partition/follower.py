"""What a log takes from another broker's log that it follows: batches as they are, its bounds, its truncations
(UnifiedLog.appendAsFollower).

Everything runs in the thread that owns the log, but for `plan_truncation`.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from pathlib import Path
from typing import Protocol

from kafkalog_broker.errors import BrokerError, ErrorCode
from kafkalog_broker.storage.append.fetched_batches import check_continues
from kafkalog_broker.storage.partition.availability import Availability, Subscribers
from kafkalog_broker.storage.partition.leader_epochs import LeaderEpochs
from kafkalog_broker.storage.partition.local_log import LocalLog
from kafkalog_broker.storage.partition.log_flush import ProducerSnapshots
from kafkalog_broker.storage.partition.log_removal import LogRemoval, Truncation, TruncationPoint
from kafkalog_broker.storage.partition.producer_replay import first_bad_marker, replay
from kafkalog_broker.storage.partition.producer_state import ProducerState
from kafkalog_spark.errors import CorruptLog
from kafkalog_spark.format.layout import H
from kafkalog_spark.log.read.header_windows import Window

_log = logging.getLogger(__name__)


class HighWatermark(Protocol):
    """Who has it."""

    high_watermark: int
    appended_bytes: int


class Follower:
    """Of one log, made by `Log.follow`. name: `topic-0`. roll: begins a new segment, at so many ms."""

    def __init__(
        self,
        name: str,
        holder: HighWatermark,
        local: LocalLog,
        epochs: LeaderEpochs,
        producers: ProducerState,
        snapshots: ProducerSnapshots,
        removal: LogRemoval,
        availability: Availability,
        subscribers: Subscribers,
        roll: Callable[[int], None],
    ) -> None:
        self._name = name
        self._holder = holder
        self._local = local
        self._epochs = epochs
        self._producers = producers
        self._truncation = Truncation(local, epochs, producers, snapshots, removal, availability)
        self._removal = removal
        self._availability = availability
        self._subscribers = subscribers
        self._roll = roll

    @property
    def last_epoch(self) -> int:
        """The leader epoch of the last batch, what a Fetch says it has (KIP-595); -1 when it is not known."""
        return self._epochs.epoch_of(self._local.log_end_offset - 1)

    def epochs_backwards(self) -> list[int]:
        """The leader epochs that are known, the last one first."""
        return [entry.epoch for entry in reversed(self._epochs.entries)]

    def end_of_epoch(self, epoch: int, end_offset: int) -> int:
        """Where this log and a leader's part, whose epoch `epoch`, the largest not above the one asked for, ends at
        `end_offset`: truncate there, and when the log's last epoch is still another one, ask for that (KIP-279).

        epoch: -1 when the leader knows none; then `end_offset` is all that is known, -1 nothing.
        """
        end = self._local.log_end_offset
        if end_offset < 0:
            return end
        if epoch < 0:
            return min(end_offset, end)
        mine, mine_ends = self._epochs.end_offset_for(epoch, end)
        if mine < 0:  # above everything here
            return min(end_offset, end)
        if mine == epoch:
            return min(mine_ends, end_offset, end)
        return min(mine_ends, end)

    # ---- appending

    def append(self, batches: Window, now_ms: int) -> None:
        """Append batches that `fetched_batches` has found, at least one, byte for byte: into the page cache, not
        further. 3 us a batch, so give no more at once than the thread has time for.

        A log that holds nothing may begin with the batch that holds its log end offset, when the leader's log start
        offset lies within that batch; the log start offset stays. Raises UnexpectedAppendOffset for batches that begin
        below the log end offset, CorruptBatch for a marker that cannot be read, and nothing has changed then;
        BrokerError kafka_storage_error.
        """
        self._availability.check()
        local, table = self._local, batches.table
        if (bad := first_bad_marker(batches)) is not None:
            raise bad[1].at(topic_partition=self._name)
        first = int(table[0, H.BASE_OFFSET])
        if first < local.log_end_offset <= int(table[0, H.LAST_OFFSET]) and not any(s.size for s in local.segments):
            _log.info("%s begins at offset %d, with the batch of %d", self._name, first, local.log_end_offset)
            self._truncation.start_over(first, local.log_start_offset)
        check_continues(batches, local.log_end_offset, self._name)
        row = 0
        try:
            while row < len(table):
                if local.is_time_to_roll(batches.header(row), now_ms):
                    self._roll(now_ms)
                rest = Window(table[row:], batches.data, batches.start)
                count = local.how_many_fit(rest, now_ms)
                self._append_run(rest.first(count))
                row += count
        except (OSError, CorruptLog) as error:
            self._availability.fail(error)
        finally:
            local.flushing.appended(now_ms)

    def _append_run(self, run: Window) -> None:
        self._assign_epochs(run)
        segment = self._local.append_all(run)
        self._holder.appended_bytes += int(run.table[:, H.SIZE].sum())
        for aborted in replay(self._producers, run):
            segment.add_aborted(aborted)

    def _assign_epochs(self, run: Window) -> None:
        """Before the bytes are written, as a leader does. What is older than epochs has none, and what comes after it
        cannot be found by them (Kafka clears the file too)."""
        epochs = run.table[:, H.LEADER_EPOCH]
        row = 0
        while row < len(epochs):
            epoch, base = int(epochs[row]), int(run.table[row, H.BASE_OFFSET])
            if epoch < 0:
                self._epochs.clear()
            elif epoch != self._epochs.latest:
                if epoch < self._epochs.latest:
                    _log.warning(
                        "%s: leader epoch %d at offset %d comes after %d", self._name, epoch, base, self._epochs.latest
                    )
                self._epochs.assign(epoch, base)
            others = (epochs[row:] != epoch).nonzero()[0]
            row = row + int(others[0]) if len(others) else len(epochs)

    # ---- bounds

    def update_high_watermark(self, offset: int) -> None:
        """The leader's high watermark is `offset`: this log's is, up to its end. It never falls."""
        bounded = min(offset, self._local.log_end_offset)
        if bounded > self._holder.high_watermark:
            self._holder.high_watermark = bounded
            self._producers.forget_ended(bounded)  # or nobody does while nobody reads
            self._subscribers.wake()

    def update_log_start_offset(self, offset: int) -> None:
        """The leader's log starts at `offset`: this one does, up to its high watermark. Raises BrokerError."""
        self._availability.check()
        self._removal.move_log_start(min(offset, self._holder.high_watermark))

    # ---- truncation

    def plan_truncation(self, offset: int) -> TruncationPoint:
        """As Truncation.plan."""
        return self._truncation.plan(offset)

    def truncate(self, point: TruncationPoint) -> list[Path]:
        """As Truncation.apply; the high watermark falls to the log end offset."""
        return self._bounded(self._truncation.apply(point))

    def truncate_to(self, offset: int) -> list[Path]:
        """Both in one."""
        return self.truncate(self.plan_truncation(offset))

    def truncate_fully_and_start_at(self, offset: int) -> list[Path]:
        """As Truncation.start_over."""
        gone = self._truncation.start_over(offset, offset)
        self._holder.high_watermark = offset
        return self._bounded(gone)

    def _bounded(self, gone: list[Path]) -> list[Path]:
        self._holder.high_watermark = min(self._holder.high_watermark, self._local.log_end_offset)
        self._subscribers.wake()
        return gone


def follows_another(name: str) -> BrokerError:
    """For who wants to write to a log that takes its records from a leader elsewhere."""
    return BrokerError(ErrorCode.not_leader_or_follower, "the log follows another broker's", topic_partition=name)
