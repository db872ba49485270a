"""What is done to the logs now and then: flushes, retention, checkpoints, removals, expiry (LogManager's schedule).

`tick` runs in the thread that owns the logs. What waits for the disk goes to `run_blocking`.
"""

from __future__ import annotations

import asyncio
import heapq
import logging
import os
import shutil
import uuid
from collections import deque
from collections.abc import Awaitable, Callable, Collection, Iterable
from enum import Enum
from functools import partial
from pathlib import Path
from typing import Any

from kafkalog_broker.config.broker_config import BrokerConfig
from kafkalog_broker.config.log_config import LogConfig
from kafkalog_broker.errors import BrokerError
from kafkalog_broker.runtime.clock import Clock
from kafkalog_broker.storage.log_directory import LogDirectory, OffsetCheckpoint
from kafkalog_broker.storage.log_table import Key, LogEntry, LogTable
from kafkalog_broker.storage.partition.log import Log
from kafkalog_broker.storage.partition.log_flush import EVERY_APPEND
from kafkalog_spark.format import names
from kafkalog_spark.format.atomic_file import fsync_directory
from kafkalog_spark.format.layout import NO_TIMESTAMP
from kafkalog_spark.format.names import DELETE_DIR_SUFFIX
from kafkalog_spark.format.time_index import load_time_index
from kafkalog_spark.log.read.discovery import log_files

# Whether retention has anything to do in a log that nobody has opened: seen from its first segment, not opening it.
#
# Retention goes from the oldest segment on and stops at the first that stays (retention.decide).


def may_be_due(directory: Path, config: LogConfig, log_start_offset: int, now_ms: int) -> bool:
    """False when `retention.decide` would drop nothing. Raises OSError."""
    segments = log_files(directory)
    bases = list(segments)
    if not bases or (len(bases) == 1 and segments[bases[0]].st_size == 0):
        return False
    first = bases[0]
    if len(bases) > 1 and bases[1] <= log_start_offset:
        return True
    if not config.is_deleted:
        return False
    total = sum(facts.st_size for facts in segments.values())
    if 0 <= config.retention_bytes <= total - segments[first].st_size:
        return True
    if config.retention_ms < 0:
        return False
    last = load_time_index(directory / (names.segment_name(first) + names.TIME_INDEX_SUFFIX), first).last
    largest = NO_TIMESTAMP if last is None else last.timestamp
    if largest == NO_TIMESTAMP:
        largest = segments[first].st_mtime_ns // 1_000_000
    return now_ms - largest > config.retention_ms


# How partitions and segments leave the disk: renamed at once, removed after file.delete.delay.ms.
#
# A rename is quick and survives a crash: whatever carries the suffix is removed at the next start.

_MAX_FILE_NAME = 255


def delete_dir_name(topic: str, partition: int, unique: uuid.UUID) -> str:
    """`topic-N.<32 hex digits>-delete`, the topic cut so that the name has at most 255 characters
    (UnifiedLog.logDeleteDirName)."""
    rest = f"-{partition}.{unique.hex}{DELETE_DIR_SUFFIX}"
    return topic[: _MAX_FILE_NAME - len(rest)] + rest


def rename_for_deletion(directory: Path, topic: str, partition: int, *, sync: bool = True) -> Path:
    """Rename a partition directory so that no broker loads it again; on disk on return with `sync`. Raises OSError."""
    renamed = directory.with_name(delete_dir_name(topic, partition, uuid.uuid4()))
    os.rename(directory, renamed)
    if sync:
        fsync_directory(directory.parent)
    return renamed


def remove(path: Path) -> None:
    """Remove a file, or a directory with what is in it; nothing there is fine. Raises OSError."""
    try:
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path)
        else:
            path.unlink()
    except FileNotFoundError:
        pass


class DelayedDeletions:
    """Renamed files and directories that wait for their removal.

    on_error(path, error): called with what could not be removed; it is not tried again before the next start.
    """

    def __init__(self, on_error: Callable[[Path, OSError], None] | None = None) -> None:
        self._waiting: list[tuple[int, int, Path]] = []
        self._counter = 0  # of equal times, first come, first served; paths are never compared
        self._on_error = on_error or _say

    def __len__(self) -> int:
        return len(self._waiting)

    def schedule(self, path: Path, due_ms: int) -> None:
        """Remove `path` at the first `run` at or after `due_ms`, in the clock of the caller."""
        heapq.heappush(self._waiting, (due_ms, self._counter, path))
        self._counter += 1

    def run(self, now_ms: int) -> int:
        """Remove what is due; returns how many. Blocks as long as the file system takes."""
        removed = 0
        while self._waiting and self._waiting[0][0] <= now_ms:
            path = heapq.heappop(self._waiting)[2]
            try:
                remove(path)
                removed += 1
            except OSError as error:
                self._on_error(path, error)
        return removed


def _say(path: Path, error: OSError) -> None:
    _log.warning("%s could not be removed: %s", path, error)


# Flushing a log right after an append, as flush.messages and flush.ms say.


class DueFlushes:
    """run_blocking: where a flush, which waits for the disk, happens. Used in the event loop."""

    def __init__(self, clock: Clock, run_blocking: Callable[..., Awaitable[Any]]) -> None:
        self._clock = clock
        self._run_blocking = run_blocking
        self._flushing: dict[str, asyncio.Task[None]] = {}

    async def if_due(self, log: Log) -> None:
        """With flush.messages=1 the answer waits, otherwise nobody does. Raises BrokerError."""
        if not log.needs_flush(self._clock.now_ms()):
            return
        if log.config.flush_messages == EVERY_APPEND:
            await self._run_blocking(log.flush, log.log_end_offset)
        elif log.name not in self._flushing:
            task = asyncio.create_task(self._flush(log))
            self._flushing[log.name] = task
            task.add_done_callback(lambda done: self._flushed(log.name, done))

    async def _flush(self, log: Log) -> None:
        await self._run_blocking(log.flush)

    def _flushed(self, name: str, task: asyncio.Task[None]) -> None:
        del self._flushing[name]
        if not task.cancelled() and task.exception() is not None:
            _log.error("flushing %s failed: %s", name, task.exception())

    async def ended(self) -> None:
        """Return when nothing is flushed any more."""
        await asyncio.gather(*self._flushing.values(), return_exceptions=True)


# Which logs are flushed in the background, and that no log is flushed twice at once (LogManager.flushDirtyLogs).

RunBlocking = Callable[[Callable[[], object]], object]
"""Runs something that blocks: at once, or in a thread of its own choice."""


class Flusher:
    """run_blocking: where a flush, which waits for the disk, may happen. Use it from one thread."""

    def __init__(self, run_blocking: RunBlocking) -> None:
        self._run_blocking = run_blocking
        self._flushing: set[Log] = set()

    def check(self, logs: Iterable[Log], now_ms: int) -> int:
        """Begin to flush the logs whose flush.messages, flush.ms or rolled segments ask for it; returns how many."""
        due = [log for log in logs if log not in self._flushing and log.needs_flush(now_ms)]
        for log in due:
            self._flushing.add(log)
            self._run_blocking(lambda log=log: self._flush(log))  # type: ignore[misc]
        return len(due)

    def _flush(self, log: Log) -> None:
        try:
            log.flush()
        except BrokerError as error:
            # The log has gone offline and whoever it belongs to was informed (Log.on_failure): this is where it shows.
            if not log.is_closed:  # else it was deleted meanwhile
                _log.error("%s could not be flushed: %s", log, error)
        finally:
            self._flushing.discard(log)


_log = logging.getLogger(__name__)

RETENTION_CHECKS_PER_TICK = 100
"""Logs looked at in one tick: 50 us each, so that a tick with thousands of partitions holds nobody up."""


class Task(Enum):
    """The value is the attribute of BrokerConfig that holds the interval in ms."""

    RETENTION = "log_retention_check_interval_ms"
    RECOVERY_POINTS = "log_flush_offset_checkpoint_interval_ms"
    LOG_START_OFFSETS = "log_flush_start_offset_checkpoint_interval_ms"
    HIGH_WATERMARKS = "replica_high_watermark_checkpoint_interval_ms"
    PRODUCER_EXPIRATION = "producer_id_expiration_check_interval_ms"


CHECKPOINTS = frozenset({Task.RECOVERY_POINTS, Task.LOG_START_OFFSETS, Task.HIGH_WATERMARKS})


class Timers:
    """When each task was done last, by Clock.monotonic_ms: Kafka schedules by System.nanoTime."""

    def __init__(self, now_ms: int) -> None:
        self.restart(now_ms)

    def restart(self, now_ms: int) -> None:
        """Everything is due one interval from now."""
        self._last = dict.fromkeys(Task, now_ms)

    def due(self, config: BrokerConfig, now_ms: int) -> set[Task]:
        """What is due now by the intervals in `config`, and counts as done now."""
        due = {task for task, last in self._last.items() if now_ms - last >= getattr(config, task.value)}
        self._last.update(dict.fromkeys(due, now_ms))
        return due


CheckpointContent = tuple[OffsetCheckpoint, list[tuple[LogEntry, int]]]
"""What one file is to say."""


def checkpoint_contents(
    log_dir: LogDirectory, entries: Iterable[LogEntry], tasks: Collection[Task]
) -> list[CheckpointContent]:
    """The files that `tasks` ask for. Of a log that was not opened a file says what it said before."""
    sources: tuple[tuple[Task, OffsetCheckpoint, Callable[[Log], int | None]], ...] = (
        (Task.RECOVERY_POINTS, log_dir.recovery_points, lambda log: log.recovery_point),
        (Task.LOG_START_OFFSETS, log_dir.log_start_offsets, _start_above_first_segment),
        (Task.HIGH_WATERMARKS, log_dir.high_watermarks, lambda log: log.high_watermark),
    )
    mine = [entry for entry in entries if entry.log_dir is log_dir]
    contents: list[CheckpointContent] = []
    for task, checkpoint, of in sources:
        if task in tasks:
            offsets = (
                (entry, checkpoint.known.get(entry.key) if entry.log is None else of(entry.log)) for entry in mine
            )
            contents.append((checkpoint, [(entry, offset) for entry, offset in offsets if offset is not None]))
    return contents


def _start_above_first_segment(log: Log) -> int | None:
    """The log start offset where the segments do not tell it."""
    return log.log_start_offset if log.log_start_offset > log.segments[0].base_offset else None


class Housekeeping:
    """`deletions`: renamed files and directories that wait for their removal, by the monotonic clock, as all intervals
    here: whoever sets the time stops nothing, and hurries nothing."""

    def __init__(self, table: LogTable, run_blocking: RunBlocking) -> None:
        self._table = table
        self._run_blocking = run_blocking
        self.deletions = DelayedDeletions()
        self._flusher = Flusher(run_blocking)
        self._timers = Timers(table.clock.monotonic_ms())
        self._retention_queue: deque[Key] = deque()
        self._is_stopped = False

    def start(self) -> None:
        """Everything is due one interval from now."""
        self._timers.restart(self._table.clock.monotonic_ms())

    def tick(self, now_ms: int) -> None:
        """Do what is due: flushes, retention, checkpoints, removals, expiry. Call it about once a second."""
        logs = [log for log in self._table.logs() if log.failure is None]
        self._flusher.check(logs, now_ms)
        if len(self.deletions):
            self._run_blocking(partial(self._remove_due, self._table.clock.monotonic_ms()))
        due = self._timers.due(self._table.config, self._table.clock.monotonic_ms())
        if Task.RETENTION in due and not self._retention_queue:
            self._retention_queue.extend(self._table.entries)
        self._check_retention(now_ms)
        if Task.PRODUCER_EXPIRATION in due:
            for log in logs:
                log.producer_state.expire(now_ms, self._table.config.producer_id_expiration_ms)
        if Task.RECOVERY_POINTS in due:
            self._release_idle_files()
        if due & CHECKPOINTS:
            self._checkpoint(due)

    def schedule_removal(self, path: Path, delay_ms: int) -> None:
        """Remove a renamed file or directory once `delay_ms` have passed."""
        self.deletions.schedule(path, self._table.clock.monotonic_ms() + delay_ms)

    def _remove_due(self, monotonic_ms: int) -> None:
        self.deletions.run(monotonic_ms)

    def _check_retention(self, now_ms: int) -> None:
        for _ in range(min(RETENTION_CHECKS_PER_TICK, len(self._retention_queue))):
            entry = self._table.entries.get(self._retention_queue.popleft())
            if entry is None or not entry.is_online:
                continue
            try:
                if entry.log is None and not self._may_be_due(entry, now_ms):
                    continue
                log = entry.log or self._table.open(entry)
                for path in log.delete_old_segments(now_ms):
                    self.schedule_removal(path, log.config.file_delete_delay_ms)
            except BrokerError as error:
                _log.error("%s", error)
            except Exception:  # noqa: BLE001 - the other logs are to be looked at all the same
                _log.exception("retention of %s-%d failed", *entry.key)

    def _may_be_due(self, entry: LogEntry, now_ms: int) -> bool:
        topic = self._table.topics.get(entry.topic)
        if topic is None:
            return False
        start = entry.log_start_offset
        try:
            return may_be_due(entry.path, self._table.config_of(topic), start, now_ms)
        except OSError as error:
            entry.log_dir.fail(error)
            return False

    def _release_idle_files(self) -> None:
        """A log that nobody wrote to for a whole checkpoint interval gives its three descriptors back."""
        for entry in self._table.entries.values():
            if entry.log is not None and entry.log.failure is None:
                if entry.seen_end == entry.log.log_end_offset:
                    entry.log.release_files()
                entry.seen_end = entry.log.log_end_offset

    def _checkpoint(self, tasks: set[Task]) -> None:
        for log_dir in self._table.dirs.all:
            if log_dir.is_online:
                contents = checkpoint_contents(log_dir, self._table.entries.values(), tasks)
                self._run_blocking(partial(self._write_checkpoints, log_dir, contents, log_dir.truncations))

    def write_last_checkpoints(self, log_dir: LogDirectory) -> bool:
        """When the logs are closed; nothing that was collected before is written any more. False as below."""
        self._is_stopped = True
        contents = checkpoint_contents(log_dir, self._table.entries.values(), CHECKPOINTS)
        return self._write_checkpoints(log_dir, contents, log_dir.truncations, last=True)

    def _write_checkpoints(
        self, log_dir: LogDirectory, contents: list[CheckpointContent], truncations: int, *, last: bool = False
    ) -> bool:
        """False when the disk refuses, which takes the directory offline. truncations: the directory's when `contents`
        was collected."""
        try:
            with log_dir.writing:
                if (self._is_stopped and not last) or log_dir.truncations != truncations:
                    return False  # what was collected before a log was closed or truncated is old by now
                for checkpoint, offsets in contents:
                    # A partition that was deleted meanwhile, and perhaps remade, must not get the old one's offsets.
                    current = {
                        entry.key: offset for entry, offset in offsets if self._table.entries.get(entry.key) is entry
                    }
                    checkpoint.write(current)
        except OSError as error:
            self._table.call_soon(partial(log_dir.fail, error))
            return False
        return True
