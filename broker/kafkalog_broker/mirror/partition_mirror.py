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
_FAILURE_RETRY_MS = 30_000  # pause of a partition after a failure that does not pass by itself


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
        next_offset: Fetch position; batches below it may not be in the log yet.
        last_epoch: Leader epoch of the last received batch.
        source_end: The leader's high watermark; -1 if unknown.
        owner: The fetcher that fetches the partition. Batches received by others are dropped.
        trouble: Why the partition is not fetched now, or None.
        quiet_until_ms: End of the pause after `wait`, in ms of the monotonic clock.
        has_failed: True if it will not continue by itself.
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
    source_end: int = -1
    owner: object = None
    quiet_until_ms: int = 0
    trouble: str | None = None
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
        return None if self.source_end < 0 else max(self.source_end - self.log.log_end_offset, 0)

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

    def fetch_from(self, max_bytes: int) -> SourceFetchPartition:
        """Return the partition's part of the next fetch."""
        return SourceFetchPartition(
            self.topic_id, self.key[1], self.next_offset, max_bytes, self.leader_epoch, self.last_epoch
        )

    def advance_past(self, window: Window) -> None:
        """Advance the fetch position after these batches."""
        self.next_offset = int(window.table[-1, HeaderColumn.LAST_OFFSET]) + 1
        self.last_epoch = int(window.table[-1, HeaderColumn.LEADER_EPOCH])

    def wait(self, reason: str, *, is_permanent: bool = False) -> None:
        """Do not fetch the partition for a while.

        Args:
            is_permanent: The failure does not pass by itself; it is logged once.
        """
        if is_permanent and self.trouble != reason:
            _log.error("%s is not mirrored for now: %s", self.name, reason)
        self.trouble, self.has_failed = reason, is_permanent
        self.quiet_until_ms = self._clock.monotonic_ms() + (_FAILURE_RETRY_MS if is_permanent else _RETRY_MS)

    def is_due(self) -> bool:
        """Return whether the last `wait` has ended."""
        return self.quiet_until_ms <= self._clock.monotonic_ms()

    async def append(self, received: Received) -> None:
        """Append received batches in pieces, and yield to the event loop in between. Raises KafkalogError."""
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
        self.trouble, self.has_failed = None, False

    def update_bounds(self, high_watermark: int, log_start_offset: int) -> None:
        """Adopt the leader's high watermark and log start offset. Raises BrokerError."""
        self.source_end = max(high_watermark, self.source_end)
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
        producers = await self._workers.run_blocking(self.follower.plan_truncation, offset)
        end = self.log.log_end_offset
        new_end = producers.end_offset
        if new_end < end:
            _log.warning(
                "%s: %s; truncating offsets %d to %d here, to copy them again from the source",
                self.name, reason, new_end, end - 1,
            )  # fmt: skip
            await self._prepare_truncation(new_end)
        removed = self.follower.truncate(producers)
        if new_end < end:
            await self._workers.run_blocking(flush_truncation, self.log)
        self._logs.remove_later(removed, self.log.config)
        self.source_end = -1
        self.rewind()

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
        self.rewind()

    async def _prepare_truncation(self, offset: int) -> None:
        """Flush the log and lower its checkpoints, so that the truncation itself does not block the event loop."""
        await self._workers.run_blocking(self.log.flush)
        await self._workers.run_blocking(self._logs.lower_checkpoints, *self.key, offset)
