"""Partitions that leave a broker: out of the table in the thread that owns the logs, off the disk in another one."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from kafkalog_broker.errors import BrokerError
from kafkalog_broker.storage.deletion import rename_for_deletion
from kafkalog_broker.storage.log_directory import LogDirectory
from kafkalog_broker.storage.log_table import LogEntry, LogTable, storage_error
from kafkalog_spark.log.format.durable import fsync_directory


@dataclass(slots=True)
class Departure:
    """`entries`: no longer in the table, their logs let go of. schedule_removal: given a renamed directory and after
    how many ms it may go. on_done: called when none of their directories can come back, from `finish`."""

    table: LogTable
    entries: Sequence[tuple[LogEntry, int]]
    schedule_removal: Callable[[Path, int], None]
    on_done: Callable[[], None] = field(default=lambda: None)
    failed: dict[str, BrokerError] = field(default_factory=dict)
    """By topic, after `finish`: why directories of it could not be renamed."""

    def finish(self) -> int:
        """Rename the directories, with one fsync for each log directory; how many there were. Those of an offline log
        directory are left to the start at which it is back. Blocks; any thread. Raises BrokerError kafka_storage_error.
        """
        renamed: list[tuple[LogDirectory, Path, int]] = []
        for entry, delay_ms in self.entries:
            if not entry.log_dir.is_online:
                continue
            try:
                away = rename_for_deletion(entry.path, entry.topic, entry.partition, sync=False)
                renamed.append((entry.log_dir, away, delay_ms))
            except OSError as error:
                entry.log_dir.fail(error)
                self._fail(entry, f"{entry.path} cannot be renamed: {error}")
        for log_dir in {id(log_dir): log_dir for log_dir, _, _ in renamed}.values():
            try:
                fsync_directory(log_dir.path)
            except OSError as error:
                log_dir.fail(error)
                for entry, _ in self.entries:
                    if entry.log_dir is log_dir:
                        self._fail(entry, f"{log_dir.path} cannot be synced: {error}")
        for _, path, delay_ms in renamed:
            self.schedule_removal(path, delay_ms)
        for failure in self.failed.values():
            raise failure
        self.on_done()
        return len(renamed)

    def _fail(self, entry: LogEntry, what: str) -> None:
        self.failed.setdefault(entry.topic, storage_error(*entry.key, what))


def together(departures: Sequence[Departure], on_done: Callable[[], None]) -> Departure:
    """Departures that finish as one, with one fsync for each log directory; there is at least one."""
    first = departures[0]
    entries = [entry for departure in departures for entry in departure.entries]
    return Departure(first.table, entries, first.schedule_removal, on_done)
