"""State of a stream's partitions at each trigger. Only changed partitions are opened again.

The search for the end of a log begins at the last known end (`find_log_end`), so a trigger reads only the batches that
were appended since, and neither whole segments nor indexes.
"""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Callable, Collection, Mapping
from functools import partial

from kafkalog_spark.errors import CorruptLog, NotALogDirectory, UnsupportedFormat
from kafkalog_spark.format.checkpoint import LOG_START_OFFSET_CHECKPOINT
from kafkalog_spark.format.names import segment_name
from kafkalog_spark.log.log_dir import LogDirs
from kafkalog_spark.log.read import roots
from kafkalog_spark.log.read.missing_segments import warn_of_missing_segments
from kafkalog_spark.log.read.partition_log import MAX_LISTINGS, NO_HINTS, OpenHints, PartitionLocation
from kafkalog_spark.log.read.roots import Root
from kafkalog_spark.source.live_copies import LiveCopies
from kafkalog_spark.source.live_log import LiveLog
from kafkalog_spark.source.options import ReadOptions
from kafkalog_spark.source.read_locations import for_each_location, open_log_dirs
from kafkalog_spark.source.store_requests import requests_logged
from kafkalog_spark.source.subscription import assigned_partitions, unmatched_warning
from kafkalog_spark.source.topic_partitions import TopicPartition
from kafkalog_spark.source.watch import ListingWatch, Watch, directory_watch
from kafkalog_spark.source.watched_checkpoints import WatchedCheckpoints

_log = logging.getLogger(__name__)


class LiveLogs:
    """The partitions that the options of a stream name. No file stays open.

    Args:
        options: Options of the stream.
        clock_ns: Monotonic clock.
        quiet: True to log no missing partitions or segments.
    """

    def __init__(
        self, options: ReadOptions, clock_ns: Callable[[], int] = time.monotonic_ns, *, quiet: bool = False
    ) -> None:
        self._options = options
        self._clock_ns = clock_ns
        self._has_patterns = any(map(roots.is_pattern, options.paths))
        self._roots: tuple[Root, ...] = ()
        self._watches: list[Watch | ListingWatch] = []
        self._dirs: LogDirs | None = None
        self._assigned: dict[frozenset[str], list[TopicPartition]] = {}
        self._checkpoints = WatchedCheckpoints()
        self._logs: dict[TopicPartition, LiveLog] = {}
        self._copies = LiveCopies(options.replicas)
        self._quiet = quiet
        self._unmatched: str | None = None

    @property
    def present(self) -> Collection[TopicPartition]:
        """All partitions of the log directories, read or not."""
        return () if self._dirs is None else self._dirs.locations.keys()

    def look(self, may_be_gone: Collection[str] = ()) -> Mapping[TopicPartition, LiveLog]:
        """Return the present state of the partitions, sorted by topic and partition.

        Args:
            may_be_gone: Topics that were read before and may have been deleted.

        Raises:
            NotALogDirectory: If a log directory cannot be read. Its partitions do not count as deleted.
            UnknownPartition: For a named topic that does not exist and is not in `may_be_gone`.
            CorruptBatch: If it is uncertain whether a log ends at a position or is damaged there.
        """
        with requests_logged("a look at the logs of a stream", (root.store for root in self._roots)):
            return self._look(self._clock_ns(), may_be_gone)

    def _look(self, now: int, may_be_gone: Collection[str]) -> Mapping[TopicPartition, LiveLog]:
        dirs = self._list_if_changed(now)
        gone = frozenset(may_be_gone)
        if gone not in self._assigned:
            assigned = assigned_partitions(self._options.subscription, dirs.locations, gone)
            self._warn_of_unmatched(dirs)
            self._copies.check(dirs, assigned)
            self._assigned = {gone: assigned}
        single = [dirs.locations[tp] for tp in self._assigned[gone] if tp not in dirs.copies]
        copies = [location for tp in self._assigned[gone] for location in dirs.copies.get(tp, ())]
        # Checkpoints are read before the logs: a later checkpoint could be ahead of the log as it was read.
        for location in {location.log_dir: location for location in (*single, *copies)}.values():
            self._checkpoints.look(location.store, location.log_dir, now)
            location.with_checkpoints(NO_HINTS, self._checkpoints)
        looked_at = for_each_location(
            lambda location: self._look_at(location, self._logs.get((location.topic, location.partition)), now), single
        )
        lives = {(location.topic, location.partition): live for location, live in zip(single, looked_at, strict=True)}
        logs: dict[TopicPartition, LiveLog] = {}
        for tp in self._assigned[gone]:
            if tp in dirs.copies:
                live = self._copies.look(dirs.copies[tp], self._logs.get(tp), partial(self._look_at, now=now))
            else:
                live = lives[tp]
            if live is not None:
                logs[tp] = live
        self._copies.report()
        if not self._quiet:
            warn_of_missing_segments(live.log for tp, live in logs.items() if tp not in self._logs)
        self._logs = logs
        return logs

    def _warn_of_unmatched(self, dirs: LogDirs) -> None:
        """Log a warning about topics and partitions of the subscription that do not exist, whenever it changes."""
        text = unmatched_warning(self._options.subscription, dirs.locations, dirs.paths)
        if text is not None and text != self._unmatched and not self._quiet:
            _log.warning("%s", text)
        self._unmatched = text

    def _list_if_changed(self, now: int) -> LogDirs:
        """Return the log directories, listed again if one may have changed."""
        if self._has_patterns or not self._watches:
            expanded = roots.expanded_paths(self._options.paths, self._options.storage)
            if expanded != self._roots:
                self._roots = expanded
                self._watches = [directory_watch(store, path) for path, store in expanded]
        try:
            changed = [watch.changed(now) for watch in self._watches]  # all of them: `any` would stop at the first
        except OSError:
            changed = [True]  # LogDirs raises the error
        if self._dirs is None or any(changed):
            self._assigned = {}
            self._dirs = None
            self._dirs = open_log_dirs(self._options)
        return self._dirs

    def _look_at(self, location: PartitionLocation, live: LiveLog | None, now: int) -> LiveLog | None:
        """Look at a partition again. Return None if it was deleted since its log directory was listed."""
        try:
            return self._look_at_log(location, live, now)
        except NotALogDirectory:
            if location.exists() or not location.store.exists(location.log_dir):
                raise
            return None

    def _look_at_log(self, location: PartitionLocation, live: LiveLog | None, now: int) -> LiveLog:
        checkpoints = self._checkpoints
        if live is not None and live.log.location == location:
            log_starts = checkpoints.read(location.store, location.log_dir, LOG_START_OFFSET_CHECKPOINT)
            try:
                listed = not live.directory.changed(now)
                # In an object store a change of the segment shows in the listing.
                if listed and (location.store.is_remote or not live.segment.changed(now)):
                    live.log_start = max(live.log_start, log_starts.get((location.topic, location.partition), 0))
                    return live
            except OSError:
                listed = False  # the segment or the partition was deleted, which listing it again shows
                live.directory.forget()
            hints = location.with_checkpoints(NO_HINTS, checkpoints)
            live.log.update_checkpoints(recovery_point=hints.recovery_point, log_start=hints.log_start)
            if not listed:
                live.log.refresh()
                live.log.check_not_deleted()
                live.topic_id = location.topic_id()
            return self._with_end(live, now)
        directory = directory_watch(location.store, location.directory)
        try:
            directory.changed(now)
        except OSError:
            pass  # PartitionLog raises the error
        hints = location.with_checkpoints(OpenHints(pass_over_damage=self._options.passes_over_damage), checkpoints)
        return self._with_end(
            LiveLog(location.open_without_checkpoints(hints), location.topic_id(), directory, Watch("")), now
        )

    def _with_end(self, live: LiveLog, now: int) -> LiveLog:
        """Find the end of the log. If the log seems damaged and has changed meanwhile, search again."""
        log = live.log
        for attempt in range(MAX_LISTINGS):
            path = os.path.join(log.directory, log.segments[-1].log) if log.segments else log.directory
            if live.segment.path != path:
                live.segment = Watch(path)
            try:
                if not log.store.is_remote:
                    live.segment.changed(now)
                live.log_end = log.log_end
                live.readers_end = live.log_end.offset
                if self._options.read_committed:
                    live.readers_end = live.stable.last_stable_offset(log)
            except FileNotFoundError:
                live.directory.forget()
                log.refresh()
                log.check_not_deleted()
                continue
            except (CorruptLog, UnsupportedFormat):
                live.directory.forget()
                if attempt == MAX_LISTINGS - 1 or not _has_changed(live):
                    live.segment.forget()  # so that the next look finds the same damage
                    raise
                continue
            live.log_start = log.log_start_offset
            log.check_not_deleted()
            if isinstance(live.directory, ListingWatch) and log.segments:
                last = segment_name(log.segments[-1].base_offset)
                live.directory.set_state(log.names, log.facts, last)
            return live
        raise NotALogDirectory(
            "the last segment is in the listing of the directory, but does not exist",
            topic_partition=log.name,
            path=os.path.join(log.directory, log.segments[-1].log) if log.segments else log.directory,
        )


def _has_changed(live: LiveLog) -> bool:
    """List the log again, and return True if it has changed since its end was searched."""
    try:
        changed = not live.log.store.is_remote and live.segment.changed(time.monotonic_ns())
    except OSError:
        changed = True
    before = live.log.segments
    live.log.refresh()
    return changed or before != live.log.segments
