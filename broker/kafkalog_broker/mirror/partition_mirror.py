"""One mirrored partition: its log, its fetch position, and its last error."""

from __future__ import annotations

import asyncio
import logging
import uuid
from dataclasses import KW_ONLY, dataclass, field
from typing import NamedTuple

from kafkalog_broker.errors import BrokerError, ErrorCode
from kafkalog_broker.mirror.truncation import flush_truncation
from kafkalog_broker.protocol.mirror_fetch_messages import SourceFetchPartition
from kafkalog_broker.protocol.mirror_messages import Key
from kafkalog_broker.runtime.clock import Clock
from kafkalog_broker.runtime.workers import Workers
from kafkalog_broker.storage.log_manager import LogManager
from kafkalog_broker.storage.partition.follower import Follower
from kafkalog_broker.storage.partition.log import Log
from kafkalog_spark.format.layout import HeaderColumn
from kafkalog_spark.log.read.header_windows import Window

_log = logging.getLogger(__name__)

_PIECE_BATCHES = 1000  # largest number of batches appended without yielding to the event loop
_PIECE_BYTES = 1 << 20  # largest number of bytes appended without yielding to the event loop
_RETRY_MS = 1_000  # pause of a partition after a transient error of the source
_FAILURE_RETRY_MS = 30_000  # pause of a partition after a permanent failure


class Received(NamedTuple):
    """Checked batches of one response to a fetch at `fetch_offset`, and the leader's offsets in that response."""

    fetch_offset: int
    window: Window
    high_watermark: int
    log_start_offset: int


@dataclass(eq=False)
class PartitionMirror:
    """One mirrored partition.

    Attributes:
        key: Topic and partition.
        topic_id: Topic ID in the source.
        log: The partition's log here.
        follower: Appends to the log, and truncates it, as a follower replica.
        leader_epoch: The source's current leader epoch, sent for fencing; -1 if unknown.
        source_high_watermark: High watermark of the source's leader; -1 if unknown.
        owner: The fetcher that fetches the partition. Batches received by others are dropped.
        paused_until_ms: End of the pause, in ms of the monotonic clock.
        pause_reason: Why the partition is not fetched now, or None.
        has_failed: True if the last failure was permanent. It is retried after a long pause.
        next_offset: Fetch position; batches below it may not be in the log yet.
        last_epoch: Leader epoch of the last received batch.
    """

    key: Key
    topic_id: uuid.UUID
    _logs: LogManager
    _workers: Workers
    _clock: Clock
    _: KW_ONLY
    log: Log = field(init=False)
    follower: Follower = field(init=False)
    leader_epoch: int = -1
    source_high_watermark: int = -1
    owner: object = None
    paused_until_ms: int = 0
    pause_reason: str | None = None
    has_failed: bool = False
    next_offset: int = 0
    last_epoch: int = -1

    def __post_init__(self) -> None:
        self.open()

    @property
    def name(self) -> str:
        return "{}-{}".format(*self.key)

    @property
    def lag(self) -> int | None:
        """Number of offsets that the mirror lacks; None if unknown."""
        if self.source_high_watermark < 0:
            return None
        return max(self.source_high_watermark - self.log.log_end_offset, 0)

    def open(self) -> None:
        """Open the log, or open it again if it was offline. Raises BrokerError."""
        log = self._logs.get(*self.key)
        if log is None:
            raise BrokerError(ErrorCode.unknown_topic_or_partition, "its log no longer exists").at(
                topic_partition=self.name
            )
        if log is not getattr(self, "log", None):
            self.log, self.follower = log, Follower(log)
        self.rewind()

    def rewind(self) -> None:
        """Set the fetch position to the log end, so that batches not yet appended are fetched again."""
        self.next_offset = self.log.log_end_offset
        self.last_epoch = self.follower.last_epoch

    def fetch_entry(self, max_bytes: int) -> SourceFetchPartition:
        """Return this partition's entry for the next Fetch request."""
        return SourceFetchPartition(
            self.topic_id, self.key[1], self.next_offset, max_bytes, self.leader_epoch, self.last_epoch
        )

    def advance_past(self, window: Window) -> None:
        """Advance the fetch position after these batches."""
        self.next_offset = int(window.table[-1, HeaderColumn.LAST_OFFSET]) + 1
        self.last_epoch = int(window.table[-1, HeaderColumn.LEADER_EPOCH])

    def pause(self, reason: str, *, is_permanent: bool = False) -> None:
        """Pause fetching this partition.

        Args:
            reason: Why it pauses.
            is_permanent: The failure is permanent: the pause is longer, and the reason is logged once.
        """
        if is_permanent and self.pause_reason != reason:
            _log.error("%s is not mirrored for now: %s", self.name, reason)
        self.pause_reason, self.has_failed = reason, is_permanent
        self.paused_until_ms = self._clock.monotonic_ms() + (_FAILURE_RETRY_MS if is_permanent else _RETRY_MS)

    def is_due(self) -> bool:
        """Return True if the last pause has ended."""
        return self.paused_until_ms <= self._clock.monotonic_ms()

    async def append(self, received: Received) -> None:
        """Append received batches in pieces, and yield to the event loop in between.

        Afterwards the partition has no failure any more. Raises KafkalogError.
        """
        rest, expected_offset = received.window, received.fetch_offset
        while len(rest.table):
            if self.log.log_end_offset != expected_offset:  # the log was truncated meanwhile, so fetch again
                self.rewind()
                return
            sizes = rest.table[:_PIECE_BATCHES, HeaderColumn.SIZE].cumsum()
            count = max(int(sizes.searchsorted(_PIECE_BYTES, side="right")), 1)
            removed = self.follower.append(rest.first(count), self._clock.now_ms())
            self._logs.remove_later(removed, self.log.config)
            self.update_bounds(received.high_watermark, received.log_start_offset)
            expected_offset = self.log.log_end_offset
            rest = Window(rest.table[count:], rest.data, rest.start)
            await asyncio.sleep(0)
        if not len(received.window.table):
            self.update_bounds(received.high_watermark, received.log_start_offset)
        self.pause_reason, self.has_failed = None, False

    def update_bounds(self, high_watermark: int, log_start_offset: int) -> None:
        """Adopt the leader's high watermark and log start offset. Raises BrokerError."""
        self.source_high_watermark = max(high_watermark, self.source_high_watermark)
        self.follower.update_high_watermark(high_watermark)
        before = self.log.log_start_offset
        if log_start_offset > before:
            self.follower.update_log_start_offset(log_start_offset)
            if (start := self.log.log_start_offset) > before:
                _log.info(
                    "%s: the source's log starts at offset %d; deleted offsets %d to %d (%d offsets) here too",
                    self.name, log_start_offset, before, start - 1, start - before,
                )  # fmt: skip

    async def truncate_to(self, offset: int, reason: str) -> None:
        """Truncate the log to `offset`, or to the start of the batch that contains it. Raises BrokerError."""
        producer_state = await self._workers.run_blocking(self.follower.plan_truncation, offset)
        end = self.log.log_end_offset
        new_end = producer_state.end_offset
        if new_end < end:
            _log.warning(
                "%s: %s; truncating offsets %d to %d here, to copy them again from the source",
                self.name, reason, new_end, end - 1,
            )  # fmt: skip
            await self._prepare_truncation(new_end)
        removed = self.follower.truncate(producer_state)
        if new_end < end:
            await self._workers.run_blocking(flush_truncation, self.log)
        self._logs.remove_later(removed, self.log.config)
        self._forget_source_end()

    async def start_over(self, offset: int, reason: str) -> None:
        """Delete all records and start at `offset`. Raises BrokerError."""
        log = self.log
        _log.warning(
            "%s: %s; restarting the mirror at offset %d and deleting its offsets %d to %d",
            self.name, reason, offset, log.log_start_offset, log.log_end_offset - 1,
        )  # fmt: skip
        await self._prepare_truncation(min(offset, log.log_start_offset))
        removed = self.follower.truncate_fully_and_start_at(offset)
        await self._workers.run_blocking(flush_truncation, log)
        self._logs.remove_later(removed, log.config)
        self._forget_source_end()

    def _forget_source_end(self) -> None:
        """Fetch from the new log end. The source's log may have become shorter, so its end is unknown until then."""
        self.source_high_watermark = -1
        self.rewind()

    async def _prepare_truncation(self, offset: int) -> None:
        """Flush the log and lower its checkpoints, so that the truncation itself does not block the event loop."""
        await self._workers.run_blocking(self.log.flush)
        await self._workers.run_blocking(self._logs.lower_checkpoints, *self.key, offset)
