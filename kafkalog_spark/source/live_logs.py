"""The partitions of a stream as they are now, found again at every trigger; only what has changed costs time.

The end of a log is searched from the end found before, which is proven first (find_log_end), so a trigger reads what
was appended since the last one: not segments, not indexes.
"""

from __future__ import annotations

import logging
import os
import time
import uuid
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial

from kafkalog_spark.errors import CorruptLog, NotALogDirectory, UnsupportedFormat
from kafkalog_spark.format.checkpoint import LOG_START_OFFSET_CHECKPOINT, RECOVERY_POINT_CHECKPOINT
from kafkalog_spark.format.names import segment_name
from kafkalog_spark.log.log_dir import LogDirs
from kafkalog_spark.log.read import replica_choice, roots
from kafkalog_spark.log.read.last_stable_offset import StableOffsetWalk
from kafkalog_spark.log.read.log_end import LogEnd
from kafkalog_spark.log.read.missing_segments import warn_of_missing_segments
from kafkalog_spark.log.read.partition_log import LISTINGS, NO_HINTS, OpenHints, PartitionLocation, PartitionLog
from kafkalog_spark.log.read.replica_choice import ReplicaCopy, Replicas
from kafkalog_spark.log.read.roots import Root
from kafkalog_spark.log.read.state_files import Checkpoints
from kafkalog_spark.source.offsets import TopicPartition, assigned_partitions, unmatched
from kafkalog_spark.source.options import ReadOptions
from kafkalog_spark.source.partition_bounds import for_each_place, open_log_dirs, requests_logged
from kafkalog_spark.store.interface import FileFacts, Store

_log = logging.getLogger(__name__)


class LiveCopies:
    """Copies of partitions in several log directories, and which is read at a trigger: offsets are the same in each, so
    a batch may read another copy than the one before. Of level copies the one that was read stays."""

    def __init__(self, replicas: Replicas) -> None:
        self._replicas = replicas
        self._seen: dict[str, LiveLog] = {}
        self._news: dict[TopicPartition, tuple[ReplicaCopy, Sequence[ReplicaCopy]]] = {}

    def check(self, dirs: LogDirs, assigned: Collection[TopicPartition]) -> None:
        """Take a new listing, for the partitions that are read. Raises NotALogDirectory: see LogDirs.chosen."""
        if self._replicas == "error":
            replica_choice.refuse_copies(dirs.copies, assigned)
        replica_choice.check_one_topic(dirs.places, dirs.copies, assigned)
        there = {place.directory for places in dirs.copies.values() for place in places}
        self._seen = {directory: live for directory, live in self._seen.items() if directory in there}

    def look(
        self,
        places: Sequence[PartitionLocation],
        before: LiveLog | None,
        look_at: Callable[[PartitionLocation, LiveLog | None], LiveLog | None],
    ) -> LiveLog | None:
        """The copy to read now; `before`: the one that was read. None when all have been deleted. `look_at`: of one
        copy, from the look before; asked of the highest leader epoch alone: what an older one holds decides nothing."""
        current = None if before is None else before.log.place

        def log_end(place: PartitionLocation) -> int | None:
            live = look_at(place, self._seen.get(place.directory))
            if live is None:
                return None
            self._seen[place.directory] = live
            return live.log_end.offset

        # the first one stays where others are level
        choice = replica_choice.leading_copy(
            sorted(places, key=lambda place: place != current), log_end, alone_too=True
        )
        if choice is None:
            return None
        chosen, copies = choice
        if chosen.place != current:
            order = [place.directory for place in places]
            copies.sort(key=lambda copy: order.index(copy.place.directory))
            self._news[chosen.place.topic, chosen.place.partition] = choice
        return self._seen[chosen.place.directory]

    def report(self) -> None:
        """Log, in one line, what is read from another copy than before."""
        replica_choice.report(self._news)
        self._news = {}


COARSE_NS = 2_000_000_000
"""Resolution of a file system that keeps whole seconds (NFS 3, ext3) or every other one (FAT)."""
FINE_NS = 100_000_000
"""Resolution of all others: Linux stamps files with the time of its last timer tick, 1 to 10 ms ago."""


class Watch:
    """Path, and what stat said of it when it was last looked at.

    A state counts as looked at only when that was done so long after the state was first seen that no later change can
    have the same mtime, measured with our clock alone: the file system's may be another machine's.
    """

    def __init__(self, path: str) -> None:
        self.path = path
        self._state: tuple[int, int, int, int] | None = None
        self._first_seen_ns = 0
        self._looked_at = False

    def changed(self, now_ns: int) -> bool:
        """True if there may be something new; if so, the caller looks now. `now_ns`: of a clock that never goes back,
        read before this call. Raises OSError when the path cannot be reached."""
        facts = os.stat(self.path)
        state = (facts.st_dev, facts.st_ino, facts.st_size, facts.st_mtime_ns)
        if state != self._state:
            self._state, self._first_seen_ns, self._looked_at = state, now_ns, False
            return True
        if self._looked_at:
            return False
        granularity = FINE_NS if facts.st_mtime_ns % 1_000_000_000 else COARSE_NS
        self._looked_at = now_ns - self._first_seen_ns >= granularity
        return True

    def forget(self) -> None:
        """Let the next call say that there is something new."""
        self._state = None


PAGE = 1000
"""Names that a LIST gives at once: up to so many, a whole listing costs no more than its tail does."""
WHOLE_EVERY_NS = 60_000_000_000
"""How often a larger directory is listed as a whole, which shows what retention has deleted: a trigger that reads where
nothing is any more finds that out by itself."""


class ListingWatch:
    """Directory of an object store, and what a LIST said of it when it was last looked at. Names, sizes and versions
    are compared; of a partition with more names than one LIST gives, those from its last segment on."""

    def __init__(self, store: Store, directory: str) -> None:
        self._store = store
        self.path = directory
        self._after = ""
        self._whole_since_ns = 0
        self._state: Mapping[str, FileFacts | None] | None = None

    def changed(self, now_ns: int) -> bool:
        """As Watch.changed. Raises OSError; FileNotFoundError where nothing is left."""
        if self._after and now_ns - self._whole_since_ns >= WHOLE_EVERY_NS:
            self.forget()
        if self._state is None:
            self._after, self._whole_since_ns = "", now_ns
        listing = self._store.list(self.path, self._after)
        state = _state_of(listing.names, listing.files, self._after)
        changed, self._state = state != self._state, state
        return changed

    def saw(self, names: Sequence[str], files: Mapping[str, FileFacts], last: str) -> None:
        """Compare with this listing of a partition from now on; `last`: how names of its last segment begin."""
        self._after = last if len(names) > PAGE else ""
        self._state = _state_of(names, files, self._after)

    def forget(self) -> None:
        self._state = None


def _state_of(names: Iterable[str], files: Mapping[str, FileFacts], after: str) -> dict[str, FileFacts | None]:
    return {name: files.get(name) for name in names if name > after}


def directory_watch(store: Store, directory: str) -> Watch | ListingWatch:
    return ListingWatch(store, directory) if store.remote else Watch(directory)


@dataclass(slots=True)
class LiveLog:
    """Partition as of the last look. topic_id: None before Kafka 2.8. readers_end: log_end, or the LSO."""

    log: PartitionLog
    topic_id: uuid.UUID | None
    directory: Watch | ListingWatch
    segment: Watch
    log_start: int = 0
    log_end: LogEnd = field(default_factory=partial(LogEnd, 0, 0))
    readers_end: int = 0
    stable: StableOffsetWalk = field(default_factory=StableOffsetWalk)


class LiveLogs:
    """The partitions that a stream's options ask for. No file stays open. quiet: log nothing about partitions or
    segments that are missing."""

    def __init__(
        self, options: ReadOptions, clock_ns: Callable[[], int] = time.monotonic_ns, *, quiet: bool = False
    ) -> None:
        self._options = options
        self._clock_ns = clock_ns
        self._patterns = any(map(roots.is_pattern, options.paths))
        self._places: tuple[Root, ...] = ()
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
        """Every partition of the log directories, read or not."""
        return () if self._dirs is None else self._dirs.places.keys()

    def look(self, may_be_gone: Collection[str] = ()) -> Mapping[TopicPartition, LiveLog]:
        """The partitions by topic and partition, in order. `may_be_gone`: topics that are read and may be deleted.

        Raises NotALogDirectory when a log directory cannot be read (its partitions are then not taken for deleted),
        UnknownPartition for a named topic that has never been there, CorruptBatch where a log's end may be damage.
        """
        with requests_logged("a look at the logs of a stream", (root.store for root in self._places)):
            return self._look(self._clock_ns(), may_be_gone)

    def _look(self, now: int, may_be_gone: Collection[str]) -> Mapping[TopicPartition, LiveLog]:
        dirs = self._listed(now)
        gone = frozenset(may_be_gone)
        if gone not in self._assigned:
            assigned = assigned_partitions(self._options.subscription, dirs.places, gone)
            self._warn_of_unmatched(dirs)
            self._copies.check(dirs, assigned)
            self._assigned = {gone: assigned}
        alone = [dirs.places[tp] for tp in self._assigned[gone] if tp not in dirs.copies]
        copies = [place for tp in self._assigned[gone] for place in dirs.copies.get(tp, ())]
        # before the logs: a checkpoint that is read later could be ahead of what was seen of them
        for place in {place.log_dir: place for place in (*alone, *copies)}.values():
            self._checkpoints.look(place.store, place.log_dir, now)
            place.checkpointed(NO_HINTS, self._checkpoints)
        looked_at = for_each_place(
            lambda place: self._look_at(place, self._logs.get((place.topic, place.partition)), now), alone
        )
        lives = {(place.topic, place.partition): live for place, live in zip(alone, looked_at, strict=True)}
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
        """Log once, until it changes, what of the subscription matches nothing."""
        text = unmatched(self._options.subscription, dirs.places, dirs.paths)
        if text is not None and text != self._unmatched and not self._quiet:
            _log.warning("%s", text)
        self._unmatched = text

    def _listed(self, now: int) -> LogDirs:
        if self._patterns or not self._watches:
            places = roots.expanded_paths(self._options.paths, self._options.storage)
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

    def _look_at(self, place: PartitionLocation, live: LiveLog | None, now: int) -> LiveLog | None:
        """None when the partition has been deleted since its log directory was listed."""
        try:
            return self._look_at_log(place, live, now)
        except NotALogDirectory:
            if place.exists() or not place.store.exists(place.log_dir):
                raise
            return None

    def _look_at_log(self, place: PartitionLocation, live: LiveLog | None, now: int) -> LiveLog:
        checkpoints = self._checkpoints
        if live is not None and live.log.place == place:
            log_starts = checkpoints.read(place.store, place.log_dir, LOG_START_OFFSET_CHECKPOINT)
            try:
                listed = not live.directory.changed(now)
                # in an object store a change of the segment shows in the listing
                if listed and (place.store.remote or not live.segment.changed(now)):
                    live.log_start = max(live.log_start, log_starts.get((place.topic, place.partition), 0))
                    return live
            except OSError:
                listed = False  # the segment was deleted, or the whole partition: the listing shows
                live.directory.forget()
            hints = place.checkpointed(NO_HINTS, checkpoints)
            live.log.follow(recovery_point=hints.recovery_point, log_start=hints.log_start)
            if not listed:
                live.log.refresh()
                live.log.check_not_gone()
                live.topic_id = place.topic_id()
            return self._with_end(live, now)
        directory = directory_watch(place.store, place.directory)
        try:
            directory.changed(now)
        except OSError:
            pass  # PartitionLog says what is wrong
        hints = place.checkpointed(OpenHints(pass_over_damage=self._options.passes_over_damage), checkpoints)
        return self._with_end(LiveLog(place.open_unread(hints), place.topic_id(), directory, Watch("")), now)

    def _with_end(self, live: LiveLog, now: int) -> LiveLog:
        """Find the end of the log; what looks like damage and has changed meanwhile is looked at again."""
        log = live.log
        for attempt in range(LISTINGS):
            path = os.path.join(log.directory, log.segments[-1].log) if log.segments else log.directory
            if live.segment.path != path:
                live.segment = Watch(path)
            try:
                if not log.store.remote:
                    live.segment.changed(now)
                live.log_end = log.log_end
                live.readers_end = live.log_end.offset
                if self._options.read_committed:
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


class WatchedCheckpoints(Checkpoints):
    """Checkpoints whose files are read again when they have changed; of an object store, at every look."""

    def __init__(self) -> None:
        super().__init__()
        self._watches: dict[tuple[str, str], Watch] = {}

    def look(self, store: Store, directory: str, now: int) -> None:
        """Forget what may have changed in a log directory since the look before."""
        for name in (RECOVERY_POINT_CHECKPOINT, LOG_START_OFFSET_CHECKPOINT):
            watch = self._watches.setdefault((directory, name), Watch(os.path.join(directory, name)))
            try:
                if store.remote or watch.changed(now):
                    self._read.pop((directory, name), None)
            except OSError:
                watch.forget()
                self._read[directory, name] = {}


def _has_changed(live: LiveLog) -> bool:
    """True if the log is no longer what it was when its end was looked for; if so, it is listed again."""
    try:
        changed = not live.log.store.remote and live.segment.changed(time.monotonic_ns())
    except OSError:
        changed = True
    before = live.log.segments
    live.log.refresh()
    return changed or before != live.log.segments
