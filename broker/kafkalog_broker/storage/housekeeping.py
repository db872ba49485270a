"""Periodic work on the logs: flushes, retention, checkpoints, removals, expiration (`LogManager`'s scheduled tasks).

`tick` runs on the thread that owns the logs. Everything that waits for the disk is handed to `run_blocking`.
"""

from __future__ import annotations

import heapq
import logging
from collections import deque
from collections.abc import Callable, Collection
from enum import Enum
from functools import partial
from pathlib import Path
from typing import NamedTuple

from kafkalog_broker.config.broker_config import BrokerConfig
from kafkalog_broker.errors import BrokerError
from kafkalog_broker.storage.file_fault import FileFault, file_fault
from kafkalog_broker.storage.log_directory import LogDirectory
from kafkalog_broker.storage.log_table import Key, LogEntry, LogTable, take_offline
from kafkalog_broker.storage.offset_checkpoint import OffsetCheckpoint
from kafkalog_broker.storage.partition.log import Log
from kafkalog_broker.storage.partition.retention import may_be_due, segment_from_future
from kafkalog_broker.storage.partition_removal import remove
from kafkalog_spark.format.fsync import fsync_directory
from kafkalog_spark.format.names import DELETED_SUFFIX

_log = logging.getLogger(__name__)


RunBlocking = Callable[[Callable[[], object]], object]
"""Runs a function that blocks, immediately or on another thread."""

RETENTION_CHECKS_PER_TICK = 100
"""Logs checked per tick. The limit keeps thousands of partitions from blocking the event loop."""


class Task(Enum):
    """Periodic tasks. The value is the attribute of BrokerConfig that holds the interval in ms."""

    RETENTION = "log_retention_check_interval_ms"
    RECOVERY_POINTS = "log_flush_offset_checkpoint_interval_ms"
    LOG_START_OFFSETS = "log_flush_start_offset_checkpoint_interval_ms"
    HIGH_WATERMARKS = "replica_high_watermark_checkpoint_interval_ms"
    PRODUCER_EXPIRATION = "producer_id_expiration_check_interval_ms"


CHECKPOINTS = frozenset({Task.RECOVERY_POINTS, Task.LOG_START_OFFSETS, Task.HIGH_WATERMARKS})


class CheckpointContent(NamedTuple):
    """A checkpoint file and the offsets to write to it."""

    checkpoint: OffsetCheckpoint
    offsets: list[tuple[LogEntry, int]]


class Timers:
    """Time of each task's last run, in ms of the monotonic clock. First runs are due one interval after the start."""

    def __init__(self, now_ms: int) -> None:
        self._last = dict.fromkeys(Task, now_ms)

    def due(self, config: BrokerConfig, now_ms: int) -> set[Task]:
        """Return the tasks that are due by the intervals in `config`, and mark them as run."""
        due = {task for task, last in self._last.items() if now_ms - last >= getattr(config, task.value)}
        self._last.update(dict.fromkeys(due, now_ms))
        return due


_SYNC_RETRY_MS = 60_000  # delay after which a failed directory fsync is tried again


class Housekeeping:
    """Runs the due tasks in each `tick`.

    Intervals use the monotonic clock, so setting the wall clock does not affect them.
    """

    def __init__(self, table: LogTable, run_blocking: RunBlocking) -> None:
        self._table = table
        self._run_blocking = run_blocking
        self._removals: list[tuple[int, Path]] = []  # heap of due times and renamed files or directories
        self._flushing: set[Log] = set()
        self._timers = Timers(table.clock.monotonic_ms())
        self._retention_queue: deque[Key] = deque()
        self._waiting_for_flush: list[Key] = []  # logs that retention checks again in the next tick
        self._warned_of: dict[Key, str] = {}  # path of the .log whose future timestamp was reported
        self._is_stopped = False

    def start(self) -> None:
        """Start the intervals of all tasks now."""
        self._timers = Timers(self._table.clock.monotonic_ms())

    def tick(self, now_ms: int) -> None:
        """Run all due tasks. Call it about once a second."""
        logs = [log for log in self._table.logs() if log.failure is None]
        for log in logs:
            if log.needs_flush(now_ms):
                self.flush_soon(log)
            elif not log.epochs.is_flushed:
                self._in_background(log, log.flush_epochs)
        if self._removals:
            self._run_blocking(partial(self.remove_due, self._table.clock.monotonic_ms()))
        due = self._timers.due(self._table.config, self._table.clock.monotonic_ms())
        if Task.RETENTION in due and not self._retention_queue:
            self._retention_queue.extend(self._table.entries)
        self._check_retention(now_ms)
        if Task.PRODUCER_EXPIRATION in due:
            for log in logs:
                log.producer_state.expire(now_ms, self._table.config.producer_id_expiration_ms)
        if Task.RECOVERY_POINTS in due:
            # Close the writers of logs without appends for a whole checkpoint interval; each has three descriptors.
            for entry in self._table.entries.values():
                if entry.log is not None and entry.log.failure is None:
                    if entry.seen_end == entry.log.log_end_offset:
                        try:
                            entry.log.release_files()
                        except BrokerError as error:  # concerns only this log; the others are still checkpointed
                            _log.warning("the files of %s cannot be closed: %s", entry.log, error)
                    entry.seen_end = entry.log.log_end_offset
        if due & CHECKPOINTS:
            for log_dir in self._table.dirs.online:
                contents = self._checkpoint_contents(log_dir, due)
                self._run_blocking(partial(self._write_checkpoints, log_dir, contents, log_dir.truncations))

    @property
    def retention_waits_for_flush(self) -> bool:
        """True while a log is flushed so that the next tick can delete its old segments."""
        return bool(self._waiting_for_flush)

    def flush_soon(self, log: Log) -> None:
        """Flush a log in the background, unless such a flush is already running."""
        self._in_background(log, log.flush)

    def _in_background(self, log: Log, flush: Callable[[], None]) -> None:
        if log not in self._flushing:
            self._flushing.add(log)
            self._run_blocking(partial(self._flush, log, flush))

    def _flush(self, log: Log, flush: Callable[[], None]) -> None:
        try:
            flush()
        except BrokerError as error:
            # The log has gone offline, and `Log.on_failure` was called. Only the message is left to be written.
            if not log.is_closed:  # otherwise it was deleted meanwhile
                _log.error("%s could not be flushed: %s", log.name, error)
        finally:
            self._flushing.discard(log)

    def schedule_removal(self, path: Path, delay_ms: int) -> None:
        """Delete a renamed file or directory after `delay_ms`."""
        heapq.heappush(self._removals, (self._table.clock.monotonic_ms() + delay_ms, path))

    def remove_due(self, now_ms: int) -> None:
        """Remove files and directories that are due. Blocks. A failure is logged, and repeated only at the next start.

        Renames must be on disk before the first file of a directory is removed; otherwise the removal is postponed.
        Loading concludes from a `.deleted` file that older segments, whose rename a power failure undid, were to be
        deleted too.
        """
        due = []
        while self._removals and self._removals[0][0] <= now_ms:
            due.append(heapq.heappop(self._removals)[1])
        unsynced = set()
        for directory in {path.parent for path in due if path.name.endswith(DELETED_SUFFIX)}:
            try:
                fsync_directory(directory)
            except FileNotFoundError:
                pass  # the partition's directory was removed
            except OSError as error:
                _log.warning("%s could not be synced; its deleted files are removed later: %s", directory, error)
                unsynced.add(directory)
        for path in due:
            if path.parent in unsynced:
                heapq.heappush(self._removals, (now_ms + _SYNC_RETRY_MS, path))
            else:
                remove(path)

    def _check_retention(self, now_ms: int) -> None:
        waiting, self._waiting_for_flush = self._waiting_for_flush, []
        count = min(RETENTION_CHECKS_PER_TICK, len(self._retention_queue))
        for key in [*waiting, *(self._retention_queue.popleft() for _ in range(count))]:
            entry = self._table.entries.get(key)
            if entry is None or not entry.is_online:
                continue
            try:
                if entry.log is None and not self._may_be_due(entry, now_ms):
                    continue
                log = entry.log or self._table.open(entry)
                # A flush may end during the check; the next tick can then delete the segments that needed it.
                needed_flush = log in self._flushing or log.needs_flush(now_ms)
                removed = log.delete_old_segments(now_ms)
                for path in removed:
                    self.schedule_removal(path, log.config.file_delete_delay_ms)
                self._report_future(key, log, now_ms)
                if not removed and (needed_flush or log.needs_flush(now_ms)):
                    self.flush_soon(log)
                    self._waiting_for_flush.append(key)
            except BrokerError as error:
                _log.error("%s", error)
            except Exception:  # noqa: BLE001 - a bug in one log must not stop retention of the others
                _log.exception("retention of %s-%d failed", *entry.key)

    def _report_future(self, key: Key, log: Log, now_ms: int) -> None:
        """Warn once about a segment that retention.ms keeps because of a timestamp in the future (KAFKA-18929)."""
        segment = segment_from_future(log.segments, log.config, now_ms)
        if segment is None:
            self._warned_of.pop(key, None)
        elif self._warned_of.get(key) != segment.log_path:
            self._warned_of[key] = segment.log_path
            _log.warning(
                "%s has a record whose timestamp %d is in the future: retention.ms keeps this and all later segments "
                "of %s until then. Remove them with DeleteRecords or retention.bytes; message.timestamp.after.max.ms "
                "refuses such records.",
                segment.log_path, segment.largest_timestamp, log.name,
            )  # fmt: skip

    def _may_be_due(self, entry: LogEntry, now_ms: int) -> bool:
        topic = self._table.topics.get(entry.topic)
        if topic is not None:
            try:
                return may_be_due(entry.path, self._table.config_of(topic), entry.log_start_offset, now_ms)
            except OSError as error:
                if file_fault(error) is FileFault.NONE:
                    _log.warning("retention of %s-%d will be checked again: %r", *entry.key, error)
                else:
                    take_offline(entry, error, f"{entry.path} cannot be listed: {error}")
        return False

    def _checkpoint_contents(self, log_dir: LogDirectory, tasks: Collection[Task]) -> list[CheckpointContent]:
        """Collect the offsets to checkpoint. Known offsets of logs that were not opened are kept."""

        def start_above_first_segment(log: Log) -> int | None:  # otherwise the first segment's name is enough
            is_implied = log.log_start_offset == log.segments[0].base_offset and not log.config.remote_storage_enable
            return None if is_implied else log.log_start_offset

        sources: tuple[tuple[Task, OffsetCheckpoint, Callable[[Log], int | None]], ...] = (
            (Task.RECOVERY_POINTS, log_dir.recovery_points, lambda log: log.synced_offset),
            (Task.LOG_START_OFFSETS, log_dir.log_start_offsets, start_above_first_segment),
            (Task.HIGH_WATERMARKS, log_dir.high_watermarks, lambda log: log.high_watermark),
        )
        entries = [entry for entry in self._table.entries.values() if entry.log_dir is log_dir]
        contents: list[CheckpointContent] = []
        for task, checkpoint, offset_of in sources:
            if task in tasks:
                offsets = ((e, checkpoint.known.get(e.key) if e.log is None else offset_of(e.log)) for e in entries)
                found = [(entry, offset) for entry, offset in offsets if offset is not None]
                contents.append(CheckpointContent(checkpoint, found))
        return contents

    def write_last_checkpoints(self, log_dir: LogDirectory) -> bool:
        """Write the checkpoints after the logs were closed; contents collected earlier are no longer written.

        Returns:
            False if a checkpoint could not be written.
        """
        self._is_stopped = True
        contents = self._checkpoint_contents(log_dir, CHECKPOINTS)
        return self._write_checkpoints(log_dir, contents, log_dir.truncations, last=True)

    def _write_checkpoints(
        self, log_dir: LogDirectory, contents: list[CheckpointContent], truncations: int, *, last: bool = False
    ) -> bool:
        """Write the checkpoints.

        Args:
            truncations: The directory's count when `contents` was collected.

        Returns:
            False if a checkpoint was not written. After a disk fault the directory is offline; after any other error
            the next interval writes it.
        """
        try:
            with log_dir.writing:
                if (self._is_stopped and not last) or log_dir.truncations != truncations:
                    return False  # a log was closed or truncated after the offsets were collected
                for checkpoint, offsets in contents:
                    # A partition that was deleted, and perhaps created again, must not get the old one's offsets.
                    current = {
                        entry.key: offset for entry, offset in offsets if self._table.entries.get(entry.key) is entry
                    }
                    checkpoint.write(current)
        except OSError as error:
            if file_fault(error) is FileFault.NONE:
                _log.warning("%s: the checkpoints were not written: %r", log_dir.path, error)
            else:
                self._table.call_soon(partial(log_dir.fail, error))
            return False
        return True
