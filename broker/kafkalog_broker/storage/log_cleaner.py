"""The cleaner threads: each cleans the dirtiest log, then the next, and sleeps when none is due (LogCleaner).

They read and write files that nobody else changes; the kernels leave the interpreter to the other threads meanwhile.
Numba and the map of keys are there only while there is something to clean.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from kafkalog_broker.config.broker_config import BrokerConfig
from kafkalog_broker.errors import BrokerError
from kafkalog_broker.storage.cleaner_manager import CleanerManager, LogToClean, OwnerThread
from kafkalog_broker.storage.compaction.cleaning_request import CleanerStatistics, CleaningAborted, CleaningRequest
from kafkalog_broker.storage.compaction.throttler import Throttler
from kafkalog_broker.storage.log_table import LogTable, is_the_directorys
from kafkalog_broker.storage.partition.cleaned_segment import CleanedSegment
from kafkalog_broker.storage.partition.file_handles import is_passing
from kafkalog_broker.storage.partition.log_segment import LogSegment
from kafkalog_broker.storage.partition.producer import LastRecord
from kafkalog_spark.log.format.durable import fsync_directory

_log = logging.getLogger(__name__)

_MEGABYTE = 1 << 20


@dataclass(slots=True)
class CleanerTotals:
    """What was done since the start. With several threads a sum may miss one now and then: they are for people."""

    runs: int = 0
    bytes_read: int = 0
    bytes_written: int = 0
    seconds: float = 0.0

    def add(self, found: CleanerStatistics, seconds: float) -> None:
        self.runs += 1
        self.bytes_read += found.bytes_read
        self.bytes_written += found.bytes_written
        self.seconds += seconds


class LogCleaner:
    """schedule_removal: given files, renamed `.deleted`, and after how many ms they may be removed; called in the
    thread that owns the logs. `manager`: its state. `totals`: what it has done."""

    def __init__(self, table: LogTable, schedule_removal: Callable[[Path, int], None]) -> None:
        self._table = table
        self._schedule_removal = schedule_removal
        self._owner = OwnerThread(table.call_soon)
        self._stopping = self._owner.is_stopping
        self._config = table.config
        self._throttler = Throttler(
            table.config.log_cleaner_io_max_bytes_per_second, wait=lambda seconds: self._stopping.wait(seconds)
        )
        self._threads: list[threading.Thread] = []
        self._is_started = False
        self._changed = threading.Condition()
        self.manager = CleanerManager(table, self._owner)
        self.totals = CleanerTotals()

    # ---- threads

    def start(self) -> None:
        """Begin to clean, unless log.cleaner.enable says otherwise. The logs must be loaded."""
        if self._config.log_cleaner_enable:
            self._is_started = True
            self._begin_threads()

    def stop(self) -> None:
        """Return when no thread is cleaning: what was begun is given up, but for a swap that is going on. Blocks for a
        moment. Twice is harmless."""
        self._is_started = False
        self._stopping.set()
        with self._changed:
            self._changed.notify_all()
        while self._threads:
            self._threads.pop().join()

    def reconfigure(self, config: BrokerConfig) -> None:
        """log.cleaner.* may have changed: takes effect with the next log that a thread cleans, other numbers of threads
        at once. Does not wait for threads that are to end."""
        self._throttler.set_rate(config.log_cleaner_io_max_bytes_per_second)
        with self._changed:
            self._config = config
            self._changed.notify_all()
        if self._is_started:
            self._begin_threads()

    def _begin_threads(self) -> None:
        """As many as configured; one whose number is not among them ends when its log is clean."""
        self._threads = [thread for thread in self._threads if thread.is_alive()]
        running = {thread.name for thread in self._threads}
        for number in range(self._config.log_cleaner_threads):
            name = f"kafka-log-cleaner-thread-{number}"
            if name not in running:
                thread = threading.Thread(target=self._run, args=(number,), name=name, daemon=True)
                self._threads.append(thread)
                thread.start()

    def _run(self, number: int) -> None:
        while not self._stopping.is_set() and number < self._config.log_cleaner_threads:
            try:
                if not self.clean_filthiest():
                    self._rest()
            except CleaningAborted:
                self._rest()  # everything stops, or whoever owned the logs has gone
            except Exception:  # noqa: BLE001 - the thread must not end: it is the only one
                _log.exception("a cleaner thread failed and tries again")
                self._rest()

    def _rest(self) -> None:
        """Sleep until there may be something to do, or the configuration changes."""
        with self._changed:
            seen = self._config
            # log.cleaner.backoff.ms may be 2^63 - 1, which is longer than a thread can wait: 292 years.
            seconds = min(seen.log_cleaner_backoff_ms / 1000, threading.TIMEOUT_MAX)
            self._changed.wait_for(lambda: self._stopping.is_set() or self._config is not seen, seconds)

    # ---- one log

    def clean_filthiest(self) -> bool:
        """Clean the log that needs it most; False when none is due. Raises CleaningAborted when everything stops."""
        chosen = self.manager.grab_filthiest(self._table.clock.now_ms())
        if chosen is None:
            return False
        end: int | None = None
        try:
            end = self._clean(chosen)
        except CleaningAborted as reason:
            _log.info("cleaning of %s is given up: %s", chosen.log.name, reason)
        except OSError as error:
            self._failed(chosen, error)
        except Exception as error:  # noqa: BLE001 - whatever it is, the other logs are to be cleaned
            self.manager.give_up(chosen.entry, error)
        finally:
            self.manager.done(chosen, end)
        return end is not None

    def _clean(self, chosen: LogToClean) -> int:
        from kafkalog_broker.storage.compaction.cleaner import Cleaner

        config, part, log = self._config, chosen.part, chosen.log
        try:
            log.flush(part.first_uncleanable_offset)  # closed segments: nothing is written to them any more
        except BrokerError as error:
            raise CleaningAborted(str(error)) from error
        threads = max(config.log_cleaner_threads, 1)
        cleaner = Cleaner(
            config.log_cleaner_dedupe_buffer_size // threads,
            config.log_cleaner_io_buffer_load_factor,
            config.log_cleaner_io_buffer_size // threads // 2,  # the other half is what is written
        )
        began = time.monotonic()
        end, statistics = cleaner.clean(
            CleaningRequest(
                name=log.name,
                directory=log.directory,
                segments=chosen.segments,
                config=chosen.config,
                first_dirty_offset=part.first_dirty_offset,
                first_uncleanable_offset=part.first_uncleanable_offset,
                now_ms=self._table.clock.now_ms(),
            ),
            _Host(chosen, self._table, self._owner, self._throttler, self._schedule_removal),
        )
        seconds = time.monotonic() - began
        self.totals.add(statistics, seconds)
        _say(chosen, end, statistics, seconds)
        return end

    def _failed(self, chosen: LogToClean, error: OSError) -> None:
        """The file system refused something."""
        if chosen.log.is_closed or chosen.log.failure is not None:
            return  # the partition was deleted, or went offline, meanwhile
        if is_the_directorys(error):
            _log.error("cleaning of %s failed: %s", chosen.log.name, error)
            self._table.call_soon(partial(chosen.entry.log_dir.fail, error))
        elif is_passing(error):
            _log.warning("cleaning of %s is put off: %s", chosen.log.name, error)
        elif chosen.log.segments[0] is chosen.segments[0]:  # else retention took it from under the cleaner
            self.manager.give_up(chosen.entry, error)


class _Host:
    """See CleaningHost."""

    def __init__(
        self,
        chosen: LogToClean,
        table: LogTable,
        owner: OwnerThread,
        throttler: Throttler,
        schedule_removal: Callable[[Path, int], None],
    ) -> None:
        self._chosen = chosen
        self._log = chosen.log
        self._table = table
        self._owner = owner
        self._throttler = throttler
        self._schedule_removal = schedule_removal

    def check(self) -> None:
        if self._owner.is_stopping.is_set():
            raise CleaningAborted("the broker stops")
        if self._log.is_closed or self._log.failure is not None:
            raise CleaningAborted("the log was closed, or is offline")
        if not self._log.config.is_compacted:
            raise CleaningAborted("cleanup.policy contains compact no more")

    def throttle(self, size: int) -> None:
        self._throttler.observed(size)

    def last_records(self) -> Mapping[int, LastRecord]:
        return self._owner.ask(self._log.producer_state.last_records)

    def replace(self, cleaned: Sequence[CleanedSegment], old: Sequence[LogSegment]) -> None:
        def swap() -> None:
            self.check()
            now_ms = self._table.clock.now_ms()
            for path in self._log.replace_segments(cleaned, old, now_ms):
                self._schedule_removal(path, self._log.config.file_delete_delay_ms)

        try:
            self._owner.ask(swap)
        except (LookupError, BrokerError) as error:
            raise CleaningAborted(str(error)) from error
        fsync_directory(self._log.directory)


def _say(chosen: LogToClean, end: int, found: CleanerStatistics, seconds: float) -> None:
    read, written = found.bytes_read, found.bytes_written
    _log.info(
        "cleaned %s, dirty from offset %d to %d: %.1f MB became %.1f MB in %.2f s (%.1f MB/s); %d %% of the map of "
        "keys was in use",
        chosen.log.name,
        chosen.part.first_dirty_offset,
        end,
        read / _MEGABYTE,
        written / _MEGABYTE,
        seconds,
        (read + found.map_bytes_read) / _MEGABYTE / max(seconds, 1e-6),
        round(100 * found.map_utilization),
    )
    if found.unreadable_batches:
        _log.warning(
            "cleaned %s, and left %d batches as they are whose records are malformed although their CRC is valid, the "
            "first at offset %d; kafkalog-check --records lists them",
            chosen.log.name,
            found.unreadable_batches,
            found.first_unreadable,
        )
