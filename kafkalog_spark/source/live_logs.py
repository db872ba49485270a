"""The partitions of a stream as they are now, found again at every trigger; only what has changed costs time.

A log directory, a partition's directory and its last segment each take one stat to be seen unchanged; only those
that are not are listed or searched again. The end of a log is searched from the end found before, which is proven first
(find_log_end), so a trigger reads what was appended since the last one: not segments, not indexes.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Collection, Mapping
from functools import partial

from kafkalog_spark.errors import CorruptLog, NotALogDirectory, UnsupportedFormat
from kafkalog_spark.log.format.checkpoint import LOG_START_OFFSET_CHECKPOINT, RECOVERY_POINT_CHECKPOINT
from kafkalog_spark.log.format.names import segment_name
from kafkalog_spark.log.log_dir import LogDirs
from kafkalog_spark.log.read.partition_log import LISTINGS
from kafkalog_spark.log.read.partition_place import PartitionPlace
from kafkalog_spark.log.read.path_patterns import Root, expanded_paths, is_pattern
from kafkalog_spark.log.read.replicas import topic_id_of
from kafkalog_spark.log.read.small_files import offset_checkpoint
from kafkalog_spark.log.store.interface import Store
from kafkalog_spark.source.assigned_places import open_log_dirs
from kafkalog_spark.source.live_copies import LiveCopies
from kafkalog_spark.source.live_log import LiveLog
from kafkalog_spark.source.offset_range_limit import TopicPartition
from kafkalog_spark.source.options import ReadOptions
from kafkalog_spark.source.parallel import for_each_place
from kafkalog_spark.source.request_log import requests_logged
from kafkalog_spark.source.subscription import assigned_partitions
from kafkalog_spark.source.watch import ListingWatch, Watch, directory_watch, segment_watch


class LiveLogs:
    """The partitions that a stream's options ask for. Keeps no file open."""

    def __init__(self, options: ReadOptions, clock_ns: Callable[[], int] = time.monotonic_ns) -> None:
        self._options = options
        self._clock_ns = clock_ns
        self._patterns = any(map(is_pattern, options.paths))
        self._places: tuple[Root, ...] = ()
        self._watches: list[Watch | ListingWatch] = []
        self._dirs: LogDirs | None = None
        self._assigned: dict[frozenset[str], list[TopicPartition]] = {}
        self._checkpoints: dict[str, _Checkpoints] = {}
        self._logs: dict[TopicPartition, LiveLog] = {}
        self._copies = LiveCopies(options.replicas)

    @property
    def present(self) -> Collection[TopicPartition]:
        """Every partition of the log directories, read or not."""
        return () if self._dirs is None else self._dirs.places.keys()

    def look(self, may_be_gone: Collection[str] = ()) -> Mapping[TopicPartition, LiveLog]:
        """The partitions by topic and partition, in order. `may_be_gone`: topics that are read and may be deleted.

        Raises NotALogDirectory when a log directory cannot be read (its partitions are then not taken for deleted),
        UnknownPartition for a topic asked for by name that has never been there, CorruptBatch where the end of a log
        cannot be distinguished from damage.
        """
        with requests_logged("a look at the logs of a stream", (root.store for root in self._places)):
            return self._look(self._clock_ns(), may_be_gone)

    def _look(self, now: int, may_be_gone: Collection[str]) -> Mapping[TopicPartition, LiveLog]:
        dirs = self._listed(now)
        gone = frozenset(may_be_gone)
        if gone not in self._assigned:
            assigned = assigned_partitions(self._options.subscription, dirs.places, gone)
            self._copies.check(dirs, assigned)
            self._assigned = {gone: assigned}
        alone = [dirs.places[tp] for tp in self._assigned[gone] if tp not in dirs.copies]
        for place in alone:  # before the logs: a checkpoint that is read later could be ahead of what was seen of them
            self._checkpoints_of(place).look(now)
        looked_at = for_each_place(
            lambda place: self._look_at(place, self._logs.get((place.topic, place.partition)), now), alone
        )
        found = {(place.topic, place.partition): live for place, live in zip(alone, looked_at, strict=True)}
        logs: dict[TopicPartition, LiveLog] = {}
        for tp in self._assigned[gone]:
            if tp in dirs.copies:
                live = self._copies.look(dirs.copies[tp], self._logs.get(tp), partial(self._look_at, now=now))
            else:
                live = found[tp]
            if live is not None:
                logs[tp] = live
        self._copies.report()
        self._logs = logs
        return logs

    def _listed(self, now: int) -> LogDirs:
        if self._patterns or not self._watches:
            places = expanded_paths(self._options.paths, self._options.storage)
            if places != self._places:
                self._places = places
                self._watches = [directory_watch(store, path) for path, store in places]
        try:
            changed = [watch.changed(now) for watch in self._watches]  # all of them: `any` would stop at the first
        except OSError:
            changed = [True]  # what LogDirs says of it
        if self._dirs is None or any(changed):
            self._assigned = {}
            self._dirs = None
            self._dirs = open_log_dirs(self._options)
        return self._dirs

    def _look_at(self, place: PartitionPlace, live: LiveLog | None, now: int) -> LiveLog | None:
        """None when the partition has been deleted since its log directory was listed."""
        try:
            checkpoints = self._checkpoints_of(place)
            checkpoints.look(now)
            return _look_at_log(place, live, checkpoints, self._options, now)
        except NotALogDirectory:
            if place.exists() or not place.store.exists(place.log_dir):
                raise
            return None

    def _checkpoints_of(self, place: PartitionPlace) -> _Checkpoints:
        found = self._checkpoints.get(place.log_dir)
        if found is None:
            found = self._checkpoints[place.log_dir] = _Checkpoints(place.store, place.log_dir)
        return found


class _Checkpoints:
    """Recovery points and log starts of a log directory, read again when the files have changed; of an object store,
    which would be asked as often for that, at every look."""

    def __init__(self, store: Store, directory: str) -> None:
        self._store = store
        self._directory = directory
        self._files = {
            name: Watch(os.path.join(directory, name))
            for name in (RECOVERY_POINT_CHECKPOINT, LOG_START_OFFSET_CHECKPOINT)
        }
        self._offsets: dict[str, Mapping[TopicPartition, int]] = {name: {} for name in self._files}
        self._looked_at: int | None = None

    def look(self, now: int) -> None:
        if now == self._looked_at:
            return  # for another partition, in this look
        for name, file in self._files.items():
            try:
                if self._store.remote or file.changed(now):
                    self._offsets[name] = offset_checkpoint(self._store, self._directory, name)
            except OSError:
                file.forget()
                self._offsets[name] = {}
        self._looked_at = now

    def recovery_point(self, tp: TopicPartition) -> int | None:
        return self._offsets[RECOVERY_POINT_CHECKPOINT].get(tp)

    def log_start(self, tp: TopicPartition) -> int | None:
        return self._offsets[LOG_START_OFFSET_CHECKPOINT].get(tp)


def _look_at_log(
    place: PartitionPlace, live: LiveLog | None, checkpoints: _Checkpoints, options: ReadOptions, now: int
) -> LiveLog:
    tp = (place.topic, place.partition)
    recovery_point, log_start = checkpoints.recovery_point(tp), checkpoints.log_start(tp)
    if live is not None and live.place == place:
        try:
            listed = not live.directory.changed(now)
            if listed and not live.segment.changed(now):
                live.log_start = max(live.log_start, log_start or 0)
                return live
        except OSError:
            listed = False  # the segment was deleted, or the whole partition: the listing shows
            live.directory.forget()
        live.log.follow(recovery_point=recovery_point, log_start_checkpoint=log_start)
        if not listed:
            live.log.refresh()
            live.log.check_not_gone()
            live.topic_id = topic_id_of(place)
        return _with_end(live, options, now)
    directory = directory_watch(place.store, place.directory)
    try:
        directory.changed(now)
    except OSError:
        pass  # PartitionLog says what is wrong
    log = place.open_unread(
        recovery_point=recovery_point,
        log_start_checkpoint=log_start,
        pass_over_damage=options.passes_over_damage,
    )
    return _with_end(LiveLog(place, log, topic_id_of(place), directory, Watch("")), options, now)


def _with_end(live: LiveLog, options: ReadOptions, now: int) -> LiveLog:
    """Find the end of the log; what looks like damage and has changed meanwhile is looked at again."""
    log = live.log
    for attempt in range(LISTINGS):
        path = os.path.join(log.directory, log.segments[-1].log) if log.segments else log.directory
        if live.segment.path != path:
            live.segment = segment_watch(log.store, path)
        try:
            live.segment.changed(now)
            live.log_end = log.log_end
            live.readers_end = live.log_end.offset
            if options.read_committed:
                live.readers_end = live.stable.last_stable_offset(log)
        except FileNotFoundError:
            live.directory.forget()
            log.refresh()
            log.check_not_gone()
            continue
        except (CorruptLog, UnsupportedFormat):
            live.directory.forget()
            if attempt == LISTINGS - 1 or not _has_changed(live):
                live.segment.forget()  # the next look sees the same damage
                raise
            continue
        live.log_start = log.log_start_offset
        log.check_not_gone()
        if isinstance(live.directory, ListingWatch) and log.segments:
            last = segment_name(log.segments[-1].base_offset)
            live.directory.saw(log.names, log.facts, last)
        return live
    raise NotALogDirectory(
        "the last segment is listed and cannot be opened: it does not exist",
        topic_partition=log.name,
        path=os.path.join(log.directory, log.segments[-1].log) if log.segments else log.directory,
    )


def _has_changed(live: LiveLog) -> bool:
    """Whether the log is no longer what it was when its end was looked for; if so, it is listed again."""
    now_ns = time.monotonic_ns()
    try:
        changed = live.segment.changed(now_ns)
    except OSError:
        changed = True
    before = live.log.segments
    live.log.refresh()
    return changed or before != live.log.segments
