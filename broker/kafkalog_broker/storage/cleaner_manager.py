"""Which log is compacted next, which are being compacted, and how far each has come (LogCleanerManager).

Called by cleaner threads. What belongs to the logs' own thread is asked of it through `ask`, a few logs at a time.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import CancelledError, Future
from concurrent.futures import TimeoutError as NotYet
from dataclasses import dataclass
from functools import partial
from typing import TypeVar

from kafkalog_broker.config.log_config import LogConfig
from kafkalog_broker.errors import BrokerError
from kafkalog_broker.storage.compaction.cleaning_request import CleaningAborted
from kafkalog_broker.storage.compaction.dirty_part import Cleanable, LogFacts, Policy, SegmentFacts, cleanable
from kafkalog_broker.storage.log_table import CallSoon, Key, LogEntry, LogTable
from kafkalog_broker.storage.partition.log import Log
from kafkalog_broker.storage.partition.log_segment import LogSegment
from kafkalog_spark.errors import KafkalogError
from kafkalog_spark.log.format.layout import MAX_INT64, NO_TIMESTAMP
from kafkalog_spark.log.read.directory_listing import log_files

_log = logging.getLogger(__name__)

_LOGS_AT_ONCE = 50
"""Logs that the owning thread is asked about at a time: a few us each."""
_POLL_S = 0.2
"""How often a thread that waits for the owning thread looks whether it is to stop."""

T = TypeVar("T")


class OwnerThread:
    """The thread that owns the logs, as another thread sees it."""

    def __init__(self, call_soon: CallSoon) -> None:
        self._call_soon = call_soon
        self.is_stopping = threading.Event()

    def ask(self, function: Callable[[], T]) -> T:
        """Run `function` there and give its result, or raise what it raised. Raises CleaningAborted when everything
        stops before it was begun."""
        future: Future[T] = Future()

        def run() -> None:
            if future.set_running_or_notify_cancel():
                try:
                    future.set_result(function())
                except BaseException as error:  # noqa: BLE001 - it is raised where it was asked for
                    future.set_exception(error)

        try:
            self._call_soon(run)
        except RuntimeError as error:  # the event loop is closed
            raise CleaningAborted(str(error)) from None
        while True:
            try:
                return future.result(_POLL_S)
            except NotYet:
                if future.done():
                    raise  # raised by the function itself
                if self.is_stopping.is_set():
                    future.cancel()  # has no effect on what has begun
            except CancelledError:
                raise CleaningAborted("the broker stops") from None


@dataclass(frozen=True, slots=True)
class LogToClean:
    """A log that was chosen; nobody else gets it until it is given back. segments: all of it, the active one last."""

    entry: LogEntry
    log: Log
    config: LogConfig
    segments: tuple[LogSegment, ...]
    part: Cleanable


@dataclass(frozen=True, slots=True)
class _Candidate:
    entry: LogEntry
    log: Log
    config: LogConfig
    segments: tuple[LogSegment, ...]
    facts: LogFacts


class CleanerManager:
    """State shared by the cleaner threads. uncleanable: logs in which something went wrong; they are left alone until
    the next start."""

    def __init__(self, table: LogTable, owner: OwnerThread) -> None:
        self._table = table
        self._owner = owner
        self._lock = threading.Lock()
        self._in_progress: set[Key] = set()
        self.uncleanable: set[LogEntry] = set()

    # ---- choosing

    def grab_filthiest(self, now_ms: int) -> LogToClean | None:
        """The log with the largest share of dirty bytes among those that are due; None when none is.

        Raises CleaningAborted.
        """
        with self._lock:
            self._forget_deleted()
            best: LogToClean | None = None
            for candidate in self._candidates():
                part = self._part(candidate, now_ms)
                if part is not None and (best is None or part.ratio > best.part.ratio):
                    best = LogToClean(candidate.entry, candidate.log, candidate.config, candidate.segments, part)
            if best is not None:
                self._in_progress.add(best.entry.key)
            return best

    def _candidates(self) -> Iterator[_Candidate]:
        entries = self._owner.ask(lambda: list(self._table.entries.values()))
        for first in range(0, len(entries), _LOGS_AT_ONCE):
            some = entries[first : first + _LOGS_AT_ONCE]
            for entry, config in self._owner.ask(partial(self._unopened, some)):
                if self._may_be_due(entry, config):
                    self._open(entry)
            yield from self._owner.ask(partial(self._ready, some))

    def _unopened(self, entries: Sequence[LogEntry]) -> list[tuple[LogEntry, LogConfig]]:
        """In the owning thread: compacted logs that nobody has asked for yet."""
        found = []
        for entry in entries:
            topic = self._table.topics.get(entry.topic)
            if entry.log is None and entry.is_online and topic is not None:
                policy = topic.configs.get("cleanup.policy")
                if "compact" in (self._table.config.log_cleanup_policy if policy is None else policy):
                    found.append((entry, self._table.config_of(topic)))
        return found

    def _ready(self, entries: Sequence[LogEntry]) -> list[_Candidate]:
        """In the owning thread."""
        return [found for entry in entries if (found := self._candidate(entry)) is not None]

    def _candidate(self, entry: LogEntry) -> _Candidate | None:
        log = entry.log
        if log is None or not entry.is_online or log.is_closed or not log.config.is_compacted:
            return None
        if entry.key in self._in_progress or entry in self.uncleanable or len(log.segments) < 2:
            return None
        segments = log.segments
        return _Candidate(
            entry,
            log,
            log.config,
            segments,
            LogFacts(
                [
                    SegmentFacts(
                        segment.base_offset,
                        segment.size,
                        lambda segment=segment: segment.largest_timestamp,  # type: ignore[misc]
                        segment.first_timestamp,
                    )
                    for segment in segments
                ],
                log.log_start_offset,
                log.log_end_offset,
                log.last_stable_offset,
                entry.log_dir.cleaner_offsets.known.get(entry.key),
            ),
        )

    def _part(self, candidate: _Candidate, now_ms: int) -> Cleanable | None:
        """What of it is to be cleaned, None when nothing is."""
        policy = policy_of(candidate.config)
        try:
            part = cleanable(candidate.facts, policy, now_ms)
        except (OSError, KafkalogError) as error:
            if self._has_gone(candidate):
                return None
            self.give_up(candidate.entry, error)
            return None
        if part.resets_checkpoint:
            _log.info(
                "%s: the cleaner checkpoint %s lies outside of %d..%d, the log is dirty from %d on",
                candidate.log.name,
                candidate.facts.checkpoint,
                candidate.facts.log_start_offset,
                candidate.facts.log_end_offset,
                part.first_dirty_offset,
            )
            self.write_checkpoint(candidate.entry, part.first_dirty_offset)
        return part if part.is_due(policy) else None

    def _has_gone(self, candidate: _Candidate) -> bool:
        return candidate.log.is_closed or candidate.log.segments[0] is not candidate.segments[0]

    def _may_be_due(self, entry: LogEntry, config: LogConfig) -> bool:
        """Whether a log that nobody has opened may be due, by the names and sizes of its files alone."""
        try:
            files = log_files(entry.path)
        except OSError:
            return False  # opening it is for those who need it, and says what is wrong
        if len(files) < 2:
            return False
        policy = policy_of(config)._replace(min_lag_ms=0)
        segments = [SegmentFacts(base, facts.st_size, lambda: NO_TIMESTAMP, lambda: 1) for base, facts in files.items()]
        end = segments[-1].base_offset
        checkpoint = entry.log_dir.cleaner_offsets.known.get(entry.key)
        facts = LogFacts(segments, max(entry.log_start_offset, segments[0].base_offset), MAX_INT64, end, checkpoint)
        return cleanable(facts, policy, 2**62).is_due(policy)

    def _open(self, entry: LogEntry) -> None:
        def open_it() -> None:
            if entry.log is None and self._table.entries.get(entry.key) is entry and entry.is_online:
                self._table.open(entry)

        try:
            self._owner.ask(open_it)
        except BrokerError as error:
            _log.error("%s", error)

    # ---- giving back

    def done(self, chosen: LogToClean, end_offset: int | None) -> None:
        """The log is clean up to `end_offset`; None: as far as it was. Raises nothing."""
        try:
            if end_offset is not None:
                self.write_checkpoint(chosen.entry, end_offset)
        finally:
            with self._lock:
                self._in_progress.discard(chosen.entry.key)

    def give_up(self, entry: LogEntry, error: BaseException) -> None:
        """Leave a log alone: something is wrong with it."""
        _log.error("%s-%d is not compacted any more, until the next start: %s", entry.topic, entry.partition, error)
        self.uncleanable.add(entry)

    def write_checkpoint(self, entry: LogEntry, offset: int) -> None:
        """Say in cleaner-offset-checkpoint how far a log is clean. A disk that refuses takes its directory offline."""
        log_dir = entry.log_dir
        try:
            with log_dir.writing:
                known = log_dir.cleaner_offsets.known
                kept = {key: value for key, value in known.items() if key in self._table.entries}
                if self._table.entries.get(entry.key) is entry:  # else it is another partition's by now
                    kept[entry.key] = offset
                log_dir.cleaner_offsets.write(kept)
        except OSError as error:
            self._table.call_soon(lambda error=error: log_dir.fail(error))  # type: ignore[misc]

    def _forget_deleted(self) -> None:
        self.uncleanable = {entry for entry in self.uncleanable if self._table.entries.get(entry.key) is entry}


def policy_of(config: LogConfig) -> Policy:
    """The topic properties that decide when a log is due."""
    return Policy(config.min_cleanable_dirty_ratio, config.min_compaction_lag_ms, config.max_compaction_lag_ms)
