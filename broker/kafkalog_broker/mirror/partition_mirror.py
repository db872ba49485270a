"""Mirrored partition: its log, fetch position, and present error."""

from __future__ import annotations

import asyncio
import logging
import uuid
from dataclasses import KW_ONLY, dataclass, field
from typing import NamedTuple

from kafkalog_broker.errors import BrokerError, ErrorCode
from kafkalog_broker.mirror.truncation import flush_truncation
from kafkalog_broker.protocol.mirror_messages import FetchFrom, Key
from kafkalog_broker.runtime.clock import Clock
from kafkalog_broker.runtime.workers import Workers
from kafkalog_broker.storage.log_manager import LogManager
from kafkalog_broker.storage.partition.follower import Follower
from kafkalog_broker.storage.partition.log import Log
from kafkalog_spark.format.layout import HeaderColumn
from kafkalog_spark.log.read.segment_file import Window

_log = logging.getLogger(__name__)

_PIECE_BATCHES = 1000
_PIECE_BYTES = 1 << 20  # batches and bytes appended in a turn of the event loop: 3 ms and 1 ms
_AFTER_ERROR_MS = 1_000
_AFTER_FAILURE_MS = 30_000
"""For how long a partition is left alone: what the source says of it passes; what is wrong with it does not soon."""


class Received(NamedTuple):
    """Batches that came, checked, for a request from `fetch_offset` on. Offsets: the leader's."""

    fetch_offset: int
    window: Window
    high_watermark: int
    log_start_offset: int


@dataclass(eq=False)
class PartitionMirror:
    """next_offset: everything below has come, if not all of it is in the log yet. last_epoch: of what came last.
    source_end: the leader's high watermark, -1 while unknown. owner: who fetches it; what others still have is dropped.
    trouble: why it stands still, in words. has_failed: it will not go on by itself."""

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
        """Offsets that the source has and the mirror has not; None while that is unknown."""
        return None if self.source_end < 0 else max(self.source_end - self.log.log_end_offset, 0)

    def open(self) -> None:
        """Take the log in hand, anew when it was offline. Raises BrokerError."""
        log = self._logs.get(*self.key)
        if log is None:
            raise BrokerError(ErrorCode.unknown_topic_or_partition, "there is no log of it any more").at(
                topic_partition=self.name
            )
        if log is not getattr(self, "log", None):
            self.log, self.follower = log, Follower(log)
        self.rewind()

    def rewind(self) -> None:
        """Go back to the log's end: what came and was not appended is fetched again."""
        self.next_offset = self.log.log_end_offset
        self.last_epoch = self.follower.last_epoch

    def fetch_from(self, max_bytes: int) -> FetchFrom:
        return FetchFrom(self.topic_id, self.key[1], self.next_offset, max_bytes, self.leader_epoch, self.last_epoch)

    def received(self, window: Window) -> None:
        self.next_offset = int(window.table[-1, HeaderColumn.LAST_OFFSET]) + 1
        self.last_epoch = int(window.table[-1, HeaderColumn.LEADER_EPOCH])

    def wait(self, why: str, *, failed: bool = False) -> None:
        """Leave it alone for a while. failed: something has to be done about it, so it is said at once, and once."""
        if failed and self.trouble != why:
            _log.error("%s stands still: %s", self.name, why)
        self.trouble, self.has_failed = why, failed
        self.quiet_until_ms = self._clock.monotonic_ms() + (_AFTER_FAILURE_MS if failed else _AFTER_ERROR_MS)

    def is_due(self) -> bool:
        return self.quiet_until_ms <= self._clock.monotonic_ms()

    async def append(self, received: Received) -> None:
        """In pieces, others have their turn in between. Raises KafkalogError."""
        rest, at = received.window, received.fetch_offset
        while len(rest.table):
            if self.log.log_end_offset != at:  # truncated in between: it is asked for again
                self.rewind()
                return
            sizes = rest.table[:_PIECE_BATCHES, HeaderColumn.SIZE].cumsum()
            count = max(int(sizes.searchsorted(_PIECE_BYTES, side="right")), 1)
            removed = self.follower.append(rest.first(count), self._clock.now_ms())
            self._logs.remove_later(removed, self.log.config)
            self.bounds(received.high_watermark, received.log_start_offset)
            at = self.log.log_end_offset
            rest = Window(rest.table[count:], rest.data, rest.start)
            await asyncio.sleep(0)
        if not len(received.window.table):
            self.bounds(received.high_watermark, received.log_start_offset)
        self.trouble, self.has_failed = None, False

    def bounds(self, high_watermark: int, log_start_offset: int) -> None:
        """The leader's start and end of its log. Raises BrokerError."""
        self.source_end = max(high_watermark, self.source_end)
        self.follower.update_high_watermark(high_watermark)
        before = self.log.log_start_offset
        if log_start_offset > before:
            self.follower.update_log_start_offset(log_start_offset)
            if (start := self.log.log_start_offset) > before:
                _log.info(
                    "%s: the source's log starts at offset %d: offsets %d to %d, %d of them, are deleted here too",
                    self.name, log_start_offset, before, start - 1, start - before,
                )  # fmt: skip

    async def truncate_to(self, offset: int, why: str) -> None:
        producers = await self._workers.run_blocking(self.follower.plan_truncation, offset)
        end, cut_at = self.log.log_end_offset, producers.end_offset
        if cut_at < end:
            _log.warning(
                "%s: %s; offsets %d to %d are cut off here, and copied again as the source has them now",
                self.name, why, cut_at, end - 1,
            )  # fmt: skip
            await self._prepare(cut_at)
        removed = self.follower.truncate(producers)
        if cut_at < end:
            await self._workers.run_blocking(flush_truncation, self.log)
        self._logs.remove_later(removed, self.log.config)
        self.source_end = -1
        self.rewind()

    async def start_over(self, offset: int, why: str) -> None:
        """Begin at `offset`, without what is there. Raises BrokerError."""
        log = self.log
        _log.warning(
            "%s: %s; the mirror begins anew at offset %d, without its offsets %d to %d",
            self.name, why, offset, log.log_start_offset, log.log_end_offset - 1,
        )  # fmt: skip
        await self._prepare(min(offset, log.log_start_offset))
        removed = self.follower.truncate_fully_and_start_at(offset)
        await self._workers.run_blocking(flush_truncation, log)
        self._logs.remove_later(removed, log.config)
        self.rewind()

    async def _prepare(self, offset: int) -> None:
        """So that the truncation waits for no disk: a flush under way would have to end first."""
        await self._workers.run_blocking(self.log.flush)
        await self._workers.run_blocking(self._logs.lower_checkpoints, *self.key, offset)
