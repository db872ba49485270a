"""Periodic tasks on the logs: flushes, retention, checkpoints, removals, expiration (Kafka: `LogManager`'s scheduler).

`tick` runs on the thread that owns the logs. Work that waits for the disk is handed to `run_blocking`.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Collection
from enum import Enum
from functools import partial
from typing import NamedTuple

from kafkalog_broker.config.broker_config import BrokerConfig
from kafkalog_broker.errors import BrokerError
from kafkalog_broker.storage.file_fault import FileFault, file_fault
from kafkalog_broker.storage.log_directory import LogDirectory
from kafkalog_broker.storage.log_entry import Key, LogEntry, take_offline
from kafkalog_broker.storage.log_table import LogTable
from kafkalog_broker.storage.offset_checkpoint import OffsetCheckpoint
from kafkalog_broker.storage.partition.log import Log
from kafkalog_broker.storage.partition.retention import may_be_due, segment_blocking_retention
from kafkalog_broker.storage.scheduled_removals import ScheduledRemovals

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

    def start_due(self, config: BrokerConfig, now_ms: int) -> set[Task]:
        """Return the tasks that are due by the intervals in `config`, and mark them as run."""
        due = {task for task, last in self._last.items() if now_ms - last >= getattr(config, task.value)}
        self._last.update(dict.fromkeys(due, now_ms))
        return due


class Housekeeping:
    """Runs the due tasks in each `tick`.

    Intervals are measured with the monotonic clock, so a change of the wall clock does not affect them.

    Attributes:
        removals: Renamed files and directories that are to be deleted.
    """

    def __init__(self, table: LogTable, run_blocking: RunBlocking) -> None:
        self._table = table
        self._run_blocking = run_blocking
        self.removals = ScheduledRemovals(table.clock)
        self._flushing: set[Log] = set()
        self._timers = Timers(table.clock.monotonic_ms())
        self._retention_queue: deque[Key] = deque()
        self._waiting_for_flush: list[Key] = []  # logs that retention checks again in the next tick
        self._warned_of: dict[Key, str] = {}  # path of the segment with a future timestamp that was logged last
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
        if self.removals:
            self._run_blocking(partial(self.removals.remove_due, self._table.clock.monotonic_ms()))
        due = self._timers.start_due(self._table.config, self._table.clock.monotonic_ms())
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
            # The failed flush has taken the log offline.
            if not log.is_closed:  # otherwise the log was deleted meanwhile
                _log.error("%s could not be flushed: %s", log.name, error)
        finally:
            self._flushing.discard(log)

    def _check_retention(self, now_ms: int) -> None:
        waiting = self._waiting_for_flush
        self._waiting_for_flush = []
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
                    self.removals.schedule(path, log.config.file_delete_delay_ms)
                self._warn_of_future_segment(key, log, now_ms)
                if not removed and (needed_flush or log.needs_flush(now_ms)):
                    self.flush_soon(log)
                    self._waiting_for_flush.append(key)
            except BrokerError as error:
                _log.error("%s", error)
            except Exception:  # noqa: BLE001 - a bug in one log must not stop retention of the others
                _log.exception("retention of %s-%d failed", *entry.key)

    def _warn_of_future_segment(self, key: Key, log: Log, now_ms: int) -> None:
        """Warn once about a segment that retention.ms keeps because of a timestamp in the future (KAFKA-18929)."""
        segment = segment_blocking_retention(log.segments, log.config, now_ms)
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
        """Collect the offsets to checkpoint. A log that was not opened keeps its checkpointed offsets."""

        def start_above_first_segment(log: Log) -> int | None:  # otherwise the first segment's base offset is enough
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
                known = [(entry, offset) for entry, offset in offsets if offset is not None]
                contents.append(CheckpointContent(checkpoint, known))
        return contents

    def write_last_checkpoints(self, log_dir: LogDirectory) -> bool:
        """Write the checkpoints after the logs were closed; contents collected earlier are no longer written.

        Returns:
            False if a checkpoint could not be written.
        """
        self._is_stopped = True
        contents = self._checkpoint_contents(log_dir, CHECKPOINTS)
        return self._write_checkpoints(log_dir, contents, log_dir.truncations, is_last=True)

    def _write_checkpoints(
        self, log_dir: LogDirectory, contents: list[CheckpointContent], truncations: int, *, is_last: bool = False
    ) -> bool:
        """Write the checkpoints.

        Args:
            truncations: `LogDirectory.truncations` when `contents` was collected.

        Returns:
            False if a checkpoint was not written. After a disk fault the directory is offline; after any other error
            the next interval writes it.
        """
        try:
            with log_dir.writing:
                if (self._is_stopped and not is_last) or log_dir.truncations != truncations:
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
