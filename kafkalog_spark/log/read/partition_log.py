"""Where a partition lies, and its log: its segments as listed now, its log start offset and its end.

A broker may be at work in it. So the listing is a moment's picture: opening a segment that has gone raises
FileNotFoundError, and the caller refreshes and goes on from the offset it had reached. When the whole partition has
been deleted meanwhile, it finds a log without segments.

The small files of a log directory and of a partition's are read here too. One that is damaged is as good as missing to
a reader, as it is to a broker (LeaderEpochFileCache), but not a secret.
"""

from __future__ import annotations

import errno
import logging
import os
import uuid
from bisect import bisect_right
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import NamedTuple, TypeGuard, TypeVar

from kafkalog_spark.errors import CorruptFile, CorruptLog, KafkalogError, NotALogDirectory, UnsupportedFormat
from kafkalog_spark.format import checkpoint, meta_properties, partition_metadata, producer_snapshot
from kafkalog_spark.format.atomic_file import MOST_STATE_BYTES, parsed
from kafkalog_spark.format.checkpoint import EpochEntry, TopicPartition
from kafkalog_spark.format.layout import MAX_INT64
from kafkalog_spark.format.meta_properties import META_PROPERTIES_FILE, MetaProperties, parse_meta_properties
from kafkalog_spark.format.names import SegmentFiles, live_segments, producer_snapshots
from kafkalog_spark.format.partition_metadata import PARTITION_METADATA_FILE, parse_partition_metadata
from kafkalog_spark.format.producer_snapshot import ProducerEntry, parse_producer_snapshot
from kafkalog_spark.format.transaction_index import AbortedTransaction
from kafkalog_spark.log.read.batch_search import LogEnd, find_log_end, still_there
from kafkalog_spark.log.read.segment_file import NO_FACTS, SegmentFile
from kafkalog_spark.store.interface import FileFacts, Store
from kafkalog_spark.store.local_store import LOCAL

T = TypeVar("T")

_log = logging.getLogger(__name__)


def parsed_file(store: Store, path: str, parse: Callable[[bytes], T], most: int = MOST_STATE_BYTES) -> T:
    """Contents of a small file, parsed; errors get the path. Raises CorruptFile for more than `most` bytes, OSError."""
    return parsed(lambda size: store.read_all(path, size), parse, path, most)


def _reader(name: str, parse: Callable[[bytes], T], most: int) -> Callable[[Store, str], T]:
    """Reads the file of that name in a directory of a store. Raises as `parsed_file`."""
    return lambda store, directory: parsed_file(store, os.path.join(directory, name), parse, most)


read_meta_properties = _reader(META_PROPERTIES_FILE, parse_meta_properties, meta_properties.MOST_BYTES)
read_partition_metadata = _reader(PARTITION_METADATA_FILE, parse_partition_metadata, partition_metadata.MOST_BYTES)
read_leader_epochs = _reader(
    checkpoint.LEADER_EPOCH_CHECKPOINT, checkpoint.parse_leader_epochs, checkpoint.MOST_LEADER_EPOCH_BYTES
)


def read_producer_snapshot(store: Store, path: str) -> list[ProducerEntry]:
    return parsed_file(store, path, parse_producer_snapshot, producer_snapshot.MOST_BYTES)


def _unless_damaged(what: str, store: Store, path: str, read: Callable[[], T], default: T) -> T:
    """Return the content, or `default` for a file that is missing, damaged or not readable for this user.

    Raises NotALogDirectory if an object store fails: the file may be good, and without it a read would return deleted
    records, or the copy of an older leader.
    """
    try:
        return read()
    except FileNotFoundError:
        return default
    except (CorruptFile, UnsupportedFormat, OSError) as error:
        if _is_store_failure(error, store):
            raise NotALogDirectory(
                f"the {what} cannot be read: {error.strerror}", path=error.filename or path
            ) from error
        _log.warning("%s not used: %s", what, error)
        return default


def _is_store_failure(error: Exception, store: Store) -> TypeGuard[OSError]:
    """True for a request to an object store that failed, as by a time-out, and says nothing about the object."""
    return store.remote and isinstance(error, OSError) and not isinstance(error, FileNotFoundError | PermissionError)


def offset_checkpoint(store: Store, directory: str, name: str) -> Mapping[TopicPartition, int]:
    """A checkpoint of a log directory; empty when it is missing or damaged. Raises NotALogDirectory."""
    path = os.path.join(directory, name)
    read = partial(parsed_file, store, path, checkpoint.parse_offset_checkpoint)
    return _unless_damaged("checkpoint", store, path, read, {})


def leader_epochs(store: Store, directory: str) -> list[EpochEntry]:
    """leader-epoch-checkpoint of a partition; empty when it is missing or damaged. Raises NotALogDirectory."""
    path = os.path.join(directory, checkpoint.LEADER_EPOCH_CHECKPOINT)
    return _unless_damaged("leader epochs", store, path, partial(read_leader_epochs, store, directory), [])


def readable_meta_properties(store: Store, directory: str) -> MetaProperties:
    """meta.properties of a log directory, which says nothing where it is missing or damaged."""
    try:
        return read_meta_properties(store, directory)
    except (KafkalogError, OSError):
        return MetaProperties(0)


class Checkpoints:
    """Entries of log directories' checkpoints, each file read once for many partitions."""

    def __init__(self) -> None:
        self._read: dict[tuple[str, str], Mapping[TopicPartition, int]] = {}

    def read(self, store: Store, directory: str, name: str) -> Mapping[TopicPartition, int]:
        if (directory, name) not in self._read:
            self._read[directory, name] = offset_checkpoint(store, directory, name)
        return self._read[directory, name]


LISTINGS = 100
"""A listing is taken again when a file it names has gone or was replaced. A cleaner is never that often in a reader's
way; where a gateway serves a segment that a broker appends to, most listings are old before the segment is read."""


class IndexedAborts(NamedTuple):
    """Aborted transactions of a range that ended before `reached`; open: producer id -> first offset of the others."""

    aborted: list[AbortedTransaction]
    open: dict[int, int]
    reached: int


class IndexedRun(NamedTuple):
    """Offsets [start, until). find: asks transaction indexes that are complete; without, or for None, batches tell."""

    start: int
    until: int
    find: Callable[[], IndexedAborts | None] | None


@dataclass(frozen=True, slots=True)
class OpenHints:
    """Knowledge from outside a partition's directory that its log is opened with.

    recovery_point, log_start: from the checkpoints of the log directory, None without an entry; read before the log is
    opened, as a checkpoint that is older than the log is never ahead of it. pass_over_damage: the log ends after its
    last good batch even when damage lies before that. known_end: where it ended once; the search goes on from there.
    """

    recovery_point: int | None = None
    log_start: int | None = None
    pass_over_damage: bool = False
    known_end: LogEnd | None = None


NO_HINTS = OpenHints()


@dataclass(frozen=True)
class PartitionLocation:
    """Directory and store of a partition. Small and picklable: a Spark task opens the partition with nothing else."""

    topic: str
    partition: int
    directory: str
    store: Store = LOCAL

    def open(
        self,
        *,
        pass_over_damage: bool = False,
        known_end: LogEnd | None = None,
        checkpoints: Checkpoints | None = None,
    ) -> PartitionLog:
        """Read the checkpoints, then the partition; see PartitionLog. checkpoints: those read before."""
        hints = OpenHints(pass_over_damage=pass_over_damage, known_end=known_end)
        return self.open_unread(self.checkpointed(hints, checkpoints) if self.has_checkpoints else hints)

    def checkpointed(self, hints: OpenHints, checkpoints: Checkpoints | None = None) -> OpenHints:
        """`hints` with what the log directory's checkpoints say now."""
        read = (checkpoints or Checkpoints()).read
        recovery_points = read(self.store, self.log_dir, checkpoint.RECOVERY_POINT_CHECKPOINT)
        log_starts = read(self.store, self.log_dir, checkpoint.LOG_START_OFFSET_CHECKPOINT)
        tp = self.topic, self.partition
        return replace(hints, recovery_point=recovery_points.get(tp), log_start=log_starts.get(tp))

    def open_unread(self, hints: OpenHints = NO_HINTS) -> PartitionLog:
        return PartitionLog(self, hints)

    @property
    def log_dir(self) -> str:
        return os.path.dirname(self.directory)

    @property
    def stores(self) -> tuple[Store, ...]:
        """Stores of all directories that hold the partition."""
        return (self.store,)

    @property
    def has_checkpoints(self) -> bool:
        """True if a log directory's checkpoints speak of it."""
        return True

    @property
    def local(self) -> PartitionLocation:
        """Where it lies in a log directory; itself where there is no other."""
        return self

    def exists(self) -> bool:
        return self.store.exists(self.directory)

    def topic_id(self) -> uuid.UUID | None:
        """Return the ID in partition.metadata, None if the file is missing or cannot be read.

        Without an ID only offsets can show that the topic is another one. Raises NotALogDirectory if an object store
        fails.
        """
        try:
            return read_partition_metadata(self.store, self.directory)
        except (KafkalogError, OSError) as error:
            if _is_store_failure(error, self.store):
                raise NotALogDirectory(
                    f"the topic ID cannot be read: {error}", topic_partition=f"{self.topic}-{self.partition}"
                ) from error
            return None


class PartitionLog:
    """The log of a partition in one directory. names, facts: what the last listing said. gone: the directory was
    deleted by the last refresh. Raises NotALogDirectory when the directory is not there or cannot be read."""

    names: list[str]
    facts: Mapping[str, FileFacts]
    segments: list[SegmentFiles]

    def __init__(self, place: PartitionLocation, hints: OpenHints = NO_HINTS) -> None:
        self.place = place
        self.topic, self.partition = place.topic, place.partition
        self.directory, self.store = place.directory, place.store
        self.hints = hints
        self.gone = False
        self.facts = NO_FACTS
        self._list()

    @property
    def name(self) -> str:
        return f"{self.topic}-{self.partition}"

    def place_for(self, start: int, end: int | None) -> PartitionLocation:
        """Its place for a task that reads [start, end), with what saves requests. end: None for its end."""
        return self.place

    def refresh(self) -> None:
        """List the directory again; one that has gone since is a log without segments."""
        self.__dict__.pop("log_end", None)
        try:
            self._list()
        except NotALogDirectory:
            if self.store.exists(self.directory):
                raise
            self.gone = True
            self.facts = NO_FACTS
            self._take([], [])

    @property
    def recovery_point(self) -> int | None:
        return self.hints.recovery_point

    @property
    def pass_over_damage(self) -> bool:
        return self.hints.pass_over_damage

    def follow(self, *, recovery_point: int | None, log_start: int | None) -> None:
        """Search the log's end again, from the one found before, with the checkpoints' entries of now; list nothing."""
        known_end = self.__dict__.pop("log_end", self.hints.known_end)
        self.hints = replace(self.hints, recovery_point=recovery_point, log_start=log_start, known_end=known_end)

    def still_holds(self, end: LogEnd) -> bool:
        """True if the batch that the log once ended with is where it was: then nothing before it has been truncated."""
        index = self.segment_index(end.offset if end.segment < 0 else end.segment)
        if not self.segments or self.segments[index].base_offset != end.segment:
            return False
        try:
            with self.open_segment(index) as file:
                return still_there(file, end) is not None
        except FileNotFoundError:
            return False

    def check_not_gone(self) -> None:
        """Raise NotALogDirectory for a partition that has been deleted, as opening it now would."""
        if self.gone:
            raise self._unreadable(FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT)))

    def _list(self) -> None:
        def end_of_swap(name: str) -> int:
            with self._open(SegmentFiles(int(name[:20]), name), None) as file:
                return find_log_end(file).offset

        for attempt in range(LISTINGS):
            try:
                listing = self.store.list(self.directory)
                self.facts = listing.files
                self._take(listing.names, live_segments(listing.names, end_of_swap))
            except FileNotFoundError as error:
                if attempt < LISTINGS - 1 and self.store.exists(self.directory):
                    continue  # a .swap lost its suffix after it was listed
                raise self._unreadable(error) from error
            except OSError as error:
                raise self._unreadable(error) from error
            self.gone = False
            return

    def _take(self, names: list[str], segments: list[SegmentFiles]) -> None:
        self.names, self.segments = names, segments
        self._bases = [segment.base_offset for segment in segments]

    def _unreadable(self, error: OSError) -> NotALogDirectory:
        what = f"the partition's directory cannot be read: {error.strerror}"
        return NotALogDirectory(what, topic_partition=self.name, path=self.directory)

    @property
    def log_start_offset(self) -> int:
        """The first offset that readers may see: the first segment's, or one that records were deleted up to."""
        first = self._bases[0] if self._bases else 0
        return max(first, self.hints.log_start or 0)

    def segment_index(self, offset: int) -> int:
        """Place in `segments` of the one that holds `offset`, or would; 0 for offsets before the first."""
        return max(bisect_right(self._bases, offset) - 1, 0)

    def next_base_offset(self, index: int) -> int | None:
        return self._bases[index + 1] if index + 1 < len(self._bases) else None

    def open_segment(self, index: int) -> SegmentFile:
        """Raises FileNotFoundError when it has gone since the listing, NotALogDirectory when it cannot be opened."""
        try:
            return self._opened(index)
        except FileNotFoundError:
            raise
        except OSError as error:
            raise NotALogDirectory(
                f"the segment cannot be opened: {error.strerror}",
                topic_partition=self.name,
                path=self.segment_path(index),
                hint="whoever reads the log needs the permission to" if isinstance(error, PermissionError) else None,
            ) from error

    def _opened(self, index: int) -> SegmentFile:
        return self._open(self.segments[index], self.next_base_offset(index))

    def _open(
        self, files: SegmentFiles, next_base: int | None, facts: Mapping[str, FileFacts] | None = None
    ) -> SegmentFile:
        return SegmentFile.open(
            self.store, self.directory, files, next_base, self.name, facts=self.facts if facts is None else facts,
            pass_over_damage=self.pass_over_damage,
        )  # fmt: skip

    def segment_path(self, index: int) -> str:
        return os.path.join(self.directory, self.segments[index].log)

    def prefetch_segments(self, start: int, end: int) -> None:
        """Fetch what opening the segments of [start, end) needs; it stays the same until the next refresh."""

    def largest_timestamp(self, index: int) -> int | None:
        """The largest timestamp (ms) in a segment where that is known without opening it; of control batches too."""
        return None

    def size_of(self, index: int) -> int:
        """Bytes of a segment's .log. Raises FileNotFoundError when it has gone since it was listed."""
        known = self.facts.get(self.segments[index].log)
        return os.stat(self.segment_path(index)).st_size if known is None else known.size

    def open_segment_at(self, offset: int) -> SegmentFile | None:
        """Open the segment that holds `offset`, or would; see _read_listed."""
        return self._read_listed(lambda: self.open_segment(self.segment_index(offset)), offset)

    def _read_listed(self, read: Callable[[], T], offset: int) -> T | None:
        """Result of `read` for the segment that holds `offset`, listing again while segments vanish; None without
        segments. Raises as `open_segment`, and NotALogDirectory for one that is listed LISTINGS times and never there.
        """
        for _ in range(LISTINGS):
            if not self.segments:
                return None
            path = self.segment_path(self.segment_index(offset))
            try:
                return read()
            except FileNotFoundError:
                self.refresh()
        raise NotALogDirectory(
            "the segment is listed and cannot be opened: it does not exist",
            topic_partition=self.name,
            path=path,
            hint="a symbolic link that leads nowhere is listed like this, and an object that is replaced all the time",
        )

    def list_again(self, file: SegmentFile, gone: FileNotFoundError, tries: int) -> None:
        """List again after an object was replaced while it was read. Raises NotALogDirectory at LISTINGS `tries`."""
        if tries >= LISTINGS:
            raise NotALogDirectory(
                f"the segment was replaced {tries} times while it was read: {gone.strerror}",
                topic_partition=file.topic_partition,
                path=file.path,
                hint="read a copy that stays as it is",
            ) from gone
        self.refresh()

    def has_changed(self, file: SegmentFile) -> bool:
        """List again; whether `file`, or what follows it, is no longer what it was when it was opened: a segment that
        looks damaged may only have been truncated by a recovering broker, or merged with others by the cleaner."""
        changed = file.has_changed()
        self.refresh()
        if not self.segments:
            return True
        index = self.segment_index(file.base_offset)
        now = self.segments[index].log, self.next_base_offset(index)
        return changed or now != (file.files.log, file.next_base_offset)

    @cached_property
    def log_end(self) -> LogEnd:
        """LEO and where the last segment's good bytes end, as of the last refresh; a log that ends below its start (its
        files were removed by hand) is empty at its start, as Kafka makes it. Raises as find_log_end."""

        def find_end() -> LogEnd:
            with self.open_segment(len(self.segments) - 1) as file:
                return find_log_end(file, self.hints.recovery_point, self.hints.known_end)

        end = self._read_listed(find_end, MAX_INT64) or LogEnd(0, 0)
        return end._replace(offset=max(end.offset, self.log_start_offset))

    @property
    def log_end_offset(self) -> int:
        """LEO: the offset that the next record will get."""
        return self.log_end.offset

    def snapshots_up_to(self, offset: int) -> list[tuple[int, str]]:
        """(offset, path) of producer snapshots taken at or before `offset`, latest first."""
        found = producer_snapshots(self.names)
        return [(at, os.path.join(self.directory, name)) for at, name in reversed(found) if at <= offset]

    def read_snapshot(self, path: str) -> list[ProducerEntry]:
        """Entries of a producer snapshot of `snapshots_up_to`. Raises CorruptSnapshot, UnsupportedFormat, OSError."""
        return read_producer_snapshot(self.store, path)

    def latest_snapshot(self, offset: int) -> tuple[int, list[ProducerEntry]] | None:
        """(offset, entries) of the latest producer snapshot from the log's start to `offset` that can be read."""
        for at, path in self.snapshots_up_to(offset):
            if at < self.log_start_offset:
                break
            with suppress(CorruptLog, UnsupportedFormat, OSError):  # an older one, or the log itself, tells the same
                return at, self.read_snapshot(path)
        return None

    def indexed_runs(self, start: int, end: int) -> list[IndexedRun]:
        """[start, end) in runs by how aborted transactions are found. A .txnindex of a log directory is not asked:
        a missing or truncated one looks like a log without aborts."""
        return [IndexedRun(start, end, None)]
