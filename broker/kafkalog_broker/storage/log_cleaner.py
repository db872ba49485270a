"""Cleaner threads: each cleans the dirtiest log, then the next, and sleeps when none is due (Kafka: `LogCleaner`).

The threads read and write closed segments, which no other thread changes. Everything else runs on the thread that owns
the logs, for a few logs at a time. Numba and the offset map are loaded only when a log must be cleaned.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from kafkalog_broker.config.broker_config import BrokerConfig
from kafkalog_broker.config.log_config import LogConfig
from kafkalog_broker.errors import BrokerError
from kafkalog_broker.storage.compaction.cleanable import Cleanable, LogFacts, SegmentFacts, cleanable
from kafkalog_broker.storage.compaction.cleaning_host import CleaningHost
from kafkalog_broker.storage.compaction.cleaning_request import CleaningAborted, CleaningRequest
from kafkalog_broker.storage.compaction.owner_thread import OwnerThread
from kafkalog_broker.storage.compaction.throttler import Throttler
from kafkalog_broker.storage.file_fault import FileFault, file_fault
from kafkalog_broker.storage.log_entry import Key, LogEntry
from kafkalog_broker.storage.log_table import LogTable
from kafkalog_broker.storage.partition.log import Log
from kafkalog_broker.storage.partition.log_segment import LogSegment
from kafkalog_spark.errors import KafkalogError
from kafkalog_spark.format.layout import MAX_INT64
from kafkalog_spark.log.read.local_log_dir import log_files

_log = logging.getLogger(__name__)

_LOGS_PER_CALL = 50  # logs examined by one call on the owning thread, to keep the event loop responsive
_MEGABYTE = 1 << 20


@dataclass(frozen=True, slots=True)
class _Candidate:
    """Open compacted log, with its segments at the time of the choice (the active one last)."""

    entry: LogEntry
    log: Log
    config: LogConfig
    segments: tuple[LogSegment, ...]
    facts: LogFacts

    @property
    def is_outdated(self) -> bool:
        """True if the log was closed, or retention removed its first segment."""
        return self.log.is_closed or self.log.segments[0] is not self.segments[0]


@dataclass(slots=True)
class CleanerTotals:
    """Totals since the start, for metrics. Threads update them without a lock, so an update may be lost."""

    runs: int = 0
    bytes_read: int = 0
    bytes_written: int = 0
    seconds: float = 0.0


class LogCleaner:
    """Cleaner threads, and the choice of the log that each cleans next.

    Attributes:
        uncleanable: Logs in which cleaning failed; they are not cleaned until the next start.
        totals: Work done so far.
    """

    def __init__(self, table: LogTable, schedule_removal: Callable[[Path, int], None]) -> None:
        """Create the cleaner without its threads.

        Args:
            schedule_removal: Called on the owning thread with renamed `.deleted` files and the delay in ms before they
                may be removed.
        """
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
        self._choosing = threading.Lock()
        self._in_progress: set[Key] = set()
        self.uncleanable: set[LogEntry] = set()
        self.totals = CleanerTotals()

    def start(self) -> None:
        """Start the threads unless log.cleaner.enable is false. The logs must be loaded."""
        if self._config.log_cleaner_enable:
            self._is_started = True
            self._begin_threads()

    def stop(self) -> None:
        """Stop the threads and wait for them. They abort cleanings, except a replacement that has begun. Idempotent."""
        self._is_started = False
        self._stopping.set()
        with self._changed:
            self._changed.notify_all()
        while self._threads:
            self._threads.pop().join()

    def reconfigure(self, config: BrokerConfig) -> None:
        """Apply changed log.cleaner.* properties, from the next log that a thread cleans.

        The number of threads changes immediately, without waiting for threads that are to end.
        """
        self._throttler.rate = config.log_cleaner_io_max_bytes_per_second
        with self._changed:
            self._config = config
            self._changed.notify_all()
        if self._is_started:
            self._begin_threads()

    def _begin_threads(self) -> None:
        """Start missing threads. One whose number is too high ends after its current log."""
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
                    self._back_off()
            except CleaningAborted:
                self._back_off()  # the broker stops, or the owning thread has ended
            except Exception:  # noqa: BLE001 - without its threads the broker would never clean again
                _log.exception("a cleaner thread failed and will try again")
                self._back_off()

    def _back_off(self) -> None:
        with self._changed:
            config = self._config
            # log.cleaner.backoff.ms may be 2^63 - 1, which is longer than a condition can wait.
            seconds = min(config.log_cleaner_backoff_ms / 1000, threading.TIMEOUT_MAX)
            self._changed.wait_for(lambda: self._stopping.is_set() or self._config is not config, seconds)

    def _grab_filthiest(self, now_ms: int) -> tuple[_Candidate, Cleanable] | None:
        """Choose the due log with the largest dirty ratio, and reserve it for this thread. Raises CleaningAborted."""
        with self._choosing:
            self.uncleanable = {entry for entry in self.uncleanable if self._table.entries.get(entry.key) is entry}
            best: tuple[_Candidate, Cleanable] | None = None
            for candidate in self._candidates():
                part = self._cleanable_part(candidate, now_ms)
                if part is not None and (best is None or part.ratio > best[1].ratio):
                    best = candidate, part
            if best is not None:
                self._in_progress.add(best[0].entry.key)
            return best

    def _candidates(self) -> Iterator[_Candidate]:
        entries = self._owner.call(lambda: list(self._table.entries.values()))
        for first in range(0, len(entries), _LOGS_PER_CALL):
            some = entries[first : first + _LOGS_PER_CALL]
            for entry, config in self._owner.call(partial(self._unopened, some)):
                if _may_be_due(entry, config):
                    try:
                        self._owner.call(partial(self._open, entry))
                    except BrokerError as error:
                        _log.error("%s", error)
            yield from self._owner.call(partial(self._cleanable_candidates, some))

    def _unopened(self, entries: Sequence[LogEntry]) -> list[tuple[LogEntry, LogConfig]]:
        """Return compacted logs that are not open yet; runs on the owning thread."""
        unopened = []
        for entry in entries:
            topic = self._table.topics.get(entry.topic)
            if entry.log is None and entry.is_online and topic is not None:
                policy = topic.configs.get("cleanup.policy")
                if "compact" in (self._table.config.log_cleanup_policy if policy is None else policy):
                    unopened.append((entry, self._table.config_of(topic)))
        return unopened

    def _open(self, entry: LogEntry) -> None:
        if entry.log is None and self._table.entries.get(entry.key) is entry and entry.is_online:
            self._table.open(entry)

    def _cleanable_candidates(self, entries: Sequence[LogEntry]) -> list[_Candidate]:
        """Return the open logs that may be cleaned; runs on the owning thread."""
        candidates = []
        for entry in entries:
            log = entry.log
            if log is None or not entry.is_online or log.is_closed or not log.config.is_compacted:
                continue
            if entry.key in self._in_progress or entry in self.uncleanable or len(log.segments) < 2:
                continue
            checkpoint = entry.log_dir.cleaner_offsets.known.get(entry.key)
            facts = LogFacts(log.segments, log.log_start_offset, log.log_end_offset, log.last_stable_offset, checkpoint)
            candidates.append(_Candidate(entry, log, log.config, log.segments, facts))
        return candidates

    def _cleanable_part(self, candidate: _Candidate, now_ms: int) -> Cleanable | None:
        facts = candidate.facts
        try:
            part = cleanable(facts, candidate.config, now_ms)
        except OSError as error:
            self._handle_error(candidate, error)
            return None
        except KafkalogError as error:
            if not candidate.is_outdated:
                self._give_up(candidate.entry, error)
            return None
        if part.resets_checkpoint:
            _log.info(
                "%s: the cleaner checkpoint %s is outside of %d..%d; the log counts as dirty from offset %d",
                candidate.log.name, facts.checkpoint, facts.log_start_offset, facts.log_end_offset,
                part.first_dirty_offset,
            )  # fmt: skip
            self._write_checkpoint(candidate.entry, part.first_dirty_offset)
        return part if part.is_due(candidate.config) else None

    def _handle_error(self, candidate: _Candidate, error: OSError) -> None:
        """Take the log directory offline, give the log up, or leave it for the next round, depending on the error."""
        entry, log = candidate.entry, candidate.log
        if log.is_closed or log.failure is not None:
            return  # the partition was deleted, or went offline, meanwhile
        fault = file_fault(error)
        if fault is FileFault.DIRECTORY:
            _log.error("cleaning of %s failed: %s", log.name, error)
            self._table.call_soon(partial(entry.log_dir.fail, error))
        elif fault is FileFault.NONE:
            _log.warning("cleaning of %s failed and will be tried again: %r", log.name, error)
        elif not candidate.is_outdated:
            self._give_up(entry, error)

    def _give_up(self, entry: LogEntry, error: BaseException) -> None:
        _log.error("%s-%d will not be compacted until the next start: %s", entry.topic, entry.partition, error)
        self.uncleanable.add(entry)

    def _write_checkpoint(self, entry: LogEntry, offset: int) -> None:
        """Write the offset up to which a log is clean.

        A disk fault takes the directory offline. Without the checkpoint the log is cleaned again.
        """
        log_dir = entry.log_dir
        try:
            with log_dir.writing:
                known = log_dir.cleaner_offsets.known
                kept = {key: value for key, value in known.items() if key in self._table.entries}
                if self._table.entries.get(entry.key) is entry:  # otherwise the partition was deleted meanwhile
                    kept[entry.key] = offset
                log_dir.cleaner_offsets.write(kept)
        except OSError as error:
            if file_fault(error) is FileFault.NONE:
                _log.warning("%s: the cleaner checkpoint was not written: %r", log_dir.path, error)
            else:
                self._table.call_soon(partial(log_dir.fail, error))

    def clean_filthiest(self) -> bool:
        """Clean the dirtiest due log (Kafka: `cleanFilthiestLog`), and return False if none is due.

        Raises CleaningAborted if the broker stops.
        """
        chosen = self._grab_filthiest(self._table.clock.now_ms())
        if chosen is None:
            return False
        candidate, part = chosen
        entry, log = candidate.entry, candidate.log
        end: int | None = None
        try:
            end = self._clean(candidate, part)
        except CleaningAborted as reason:
            _log.info("cleaning of %s was aborted: %s", log.name, reason)
        except OSError as error:
            self._handle_error(candidate, error)
        except Exception as error:  # noqa: BLE001 - a bug must not keep the other logs from being cleaned
            self._give_up(entry, error)
        finally:
            try:
                if end is not None:
                    self._write_checkpoint(entry, end)
            finally:
                with self._choosing:
                    self._in_progress.discard(entry.key)
        return end is not None

    def _clean(self, candidate: _Candidate, part: Cleanable) -> int:
        from kafkalog_broker.storage.compaction.cleaner import Cleaner

        config = self._config
        log = candidate.log
        clock = self._table.clock
        try:
            if log.synced_offset < part.first_uncleanable_offset:
                log.flush()
        except BrokerError as error:
            raise CleaningAborted(str(error)) from error
        candidate.entry.log_dir.raise_recovery_point(candidate.entry.key, log.synced_offset)
        request = CleaningRequest(
            directory=log.directory, segments=candidate.segments, config=candidate.config,
            first_dirty_offset=part.first_dirty_offset, first_uncleanable_offset=part.first_uncleanable_offset,
            now_ms=clock.now_ms(),
        )  # fmt: skip
        threads = max(config.log_cleaner_threads, 1)
        began = time.monotonic()
        end, statistics = Cleaner(
            request,
            CleaningHost(log, self._owner, clock.now_ms, self._throttler, self._schedule_removal),
            config.log_cleaner_dedupe_buffer_size // threads,
            config.log_cleaner_io_buffer_load_factor,
            config.log_cleaner_io_buffer_size // threads // 2,  # the other half holds the written bytes
        ).clean()
        seconds = time.monotonic() - began
        read = statistics.bytes_read
        written = statistics.bytes_written
        totals = self.totals
        totals.runs, totals.seconds = totals.runs + 1, totals.seconds + seconds
        totals.bytes_read, totals.bytes_written = totals.bytes_read + read, totals.bytes_written + written
        _log.info(
            "cleaned %s, offsets %d to %d: %.1f MB became %.1f MB in %.2f s (%.1f MB/s); %d %% of the offset map was "
            "in use",
            log.name, part.first_dirty_offset, end, read / _MEGABYTE, written / _MEGABYTE, seconds,
            (read + statistics.map_bytes_read) / _MEGABYTE / max(seconds, 1e-6),
            round(100 * statistics.map_utilization),
        )  # fmt: skip
        if statistics.unreadable_batches:
            _log.warning(
                "cleaned %s, but kept %d batches unchanged: their CRC is valid, but their records are malformed; the "
                "first is at offset %d; kafkalog-check --records lists them",
                log.name, statistics.unreadable_batches, statistics.first_unreadable,
            )  # fmt: skip
        return end


def _may_be_due(entry: LogEntry, config: LogConfig) -> bool:
    """Return whether an unopened log may be due, judging by the names and sizes of its files alone."""
    try:
        files = log_files(entry.path)
    except OSError:
        return False  # the first use of the log opens it and reports the error
    if len(files) < 2:
        return False
    segments = [SegmentFacts(base, facts.st_size) for base, facts in files.items()]
    end = segments[-1].base_offset
    checkpoint = entry.log_dir.cleaner_offsets.known.get(entry.key)
    log = LogFacts(segments, max(entry.log_start_offset, segments[0].base_offset), MAX_INT64, end, checkpoint)
    return cleanable(log, config, 2**63).is_due(config)  # at that time no compaction lag applies
