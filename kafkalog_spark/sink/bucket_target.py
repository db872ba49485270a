"""The log directory in a bucket that is written to: whether it can be, and which topics it holds."""

from __future__ import annotations

import logging
import os
import posixpath
from collections.abc import Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass

from kafkalog_spark.errors import CorruptLog, KafkalogError, NotALogDirectory
from kafkalog_spark.format import names
from kafkalog_spark.format.checkpoint import EpochEntry
from kafkalog_spark.format.meta_properties import META_PROPERTIES_FILE
from kafkalog_spark.format.names import DirKind, parse_partition_dir
from kafkalog_spark.log.log_dir import LogDirs
from kafkalog_spark.log.read.partition_log import PartitionLog
from kafkalog_spark.log.read.partition_place import PartitionPlace
from kafkalog_spark.log.read.small_files import Checkpoints, leader_epochs, read_meta_properties
from kafkalog_spark.sink.bucket import COMMITS, STAGED, Bucket, piece_name
from kafkalog_spark.sink.commit_log import BucketSegment
from kafkalog_spark.sink.local_target import EMPTY_END, check_no_segments, leader_epochs_at


def check_bucket(bucket: Bucket) -> None:
    """Raise unless the directory is a log directory, or empty, or missing. Changes nothing. One LIST.

    NotALogDirectory: an object, one partition's directory, something else's directory. UnsupportedFormat, CorruptFile:
    the meta.properties of a layout that is not known. OSError otherwise.
    """
    try:
        files, directories = bucket.names()
    except NotADirectoryError:
        raise NotALogDirectory(
            "is an object, a log directory is written to", path=bucket.root, hint="give a path of its own"
        ) from None
    check_no_segments(files, bucket.root, posixpath.dirname(bucket.root))
    if META_PROPERTIES_FILE in files:
        read_meta_properties(bucket.store, bucket.root)
    known = {META_PROPERTIES_FILE, COMMITS, STAGED}
    found = files + directories
    if found and not any(name in known or parse_partition_dir(name) for name in found):
        LogDirs.open(bucket.root, bucket.store.options)  # raises for a directory without anything of Kafka's


def topics_in_bucket(bucket: Bucket) -> dict[str, list[int]]:
    """{topic: its partitions, sorted}, of live partition directories. One LIST."""
    topics: dict[str, list[int]] = {}
    for name in bucket.names()[1]:
        parsed = parse_partition_dir(name)
        if parsed is not None and parsed.kind is DirKind.LIVE:
            topics.setdefault(parsed.topic, []).append(parsed.partition)
    return {topic: sorted(partitions) for topic, partitions in topics.items()}


# Where the log of a partition goes on in a bucket. Objects cannot be cut: a log that has to be is refused.

_REPAIR = "copy the partition's directory to a disk, let a broker load it once, and put it back; nothing was written"


@dataclass(frozen=True, slots=True)
class BucketEnd:
    """next_offset: the log end offset. leader_epoch, epochs: as PartitionEnd. replaces_empty: the log ends with an
    empty segment, which begins at that offset."""

    next_offset: int
    leader_epoch: int
    epochs: tuple[EpochEntry, ...] | None
    replaces_empty: bool = False


NEW_END = BucketEnd(EMPTY_END.next_offset, EMPTY_END.leader_epoch, EMPTY_END.epochs)
"""Of a partition that is not there yet."""


def end_in_bucket(place: PartitionPlace, last: BucketSegment | None, checkpoints: Checkpoints) -> BucketEnd:
    """The end of a partition's log. One LIST, if `last`, the partition's last segment by the newest commit, is still
    the last one; else the end is looked for as readers do.

    What lies before the last segment is believed. Raises CorruptLog for a log that has to be cut or cleaned first,
    NotALogDirectory, FileNotFoundError.
    """
    log = place.open_unread()
    if last is not None and _is_last(log, last):
        return BucketEnd(last.next_offset, last.leader_epoch, None)
    try:
        _check_settled(log)
        log = place.open(checkpoints=checkpoints)
        end = log.log_end
        size = log.size_of(len(log.segments) - 1) if log.segments else 0
        if size != end.position:
            raise CorruptLog(
                f"the last segment has {size - end.position} bytes after its last whole batch, at byte {end.position}, "
                "as a crash or a copy of a running broker's file leaves them; an object cannot be cut",
                path=os.path.join(place.directory, log.segments[-1].log),
                position=end.position,
                offset=end.offset,
                hint=_REPAIR,
            )
    except KafkalogError as error:
        error.hint = error.hint or _REPAIR
        raise error.at(topic_partition=f"{place.topic}-{place.partition}") from None
    epoch, changed = leader_epochs_at(leader_epochs(place.store, place.directory), end.offset)
    replaces = bool(log.segments) and size == 0 and log.segments[-1].base_offset == end.offset
    return BucketEnd(end.offset, epoch, changed, replaces)


def _is_last(log: PartitionLog, segment: BucketSegment) -> bool:
    if not log.segments or log.segments[-1].base_offset != segment.base_offset:
        return False
    return log.size_of(len(log.segments) - 1) == segment.size


def _check_settled(log: PartitionLog) -> None:
    for name in log.names:
        if name.endswith((names.SWAP_SUFFIX, names.CLEANED_SUFFIX)) and names.parse_segment_file(name):
            raise CorruptLog(f"{name} is left from a cleaning that was not finished", path=log.directory, hint=_REPAIR)


def last_segments(segments: Mapping[tuple[str, int], list[BucketSegment]]) -> dict[tuple[str, int], BucketSegment]:
    """Of each partition the last segment."""
    return {key: own[-1] for key, own in segments.items()}


# A task's staged objects: pieces of up to 16 MiB, each put whole: a task holds few bytes of each partition.

_log = logging.getLogger(__name__)

PIECE_BYTES = 16 << 20
"""Of a staged object: large enough that its request costs little, small enough that the driver can hold some."""
_PUTS_AT_ONCE = 2
"""With as many that wait, 64 MiB."""


class BucketStage:
    """Objects below kafkalog.staged. What a task that is killed leaves there, a later sink removes."""

    held_bytes = 64 << 20

    def __init__(self, bucket: Bucket, job: str) -> None:
        self._bucket = bucket
        self._job = job
        self._open: dict[str, bytearray] = {}
        self._names: list[str] = []
        self._threads: ThreadPoolExecutor | None = None
        self._running: list[Future[None]] = []

    def file_bytes(self, segment_bytes: int) -> int:
        """A segment is made of several."""
        return min(PIECE_BYTES, segment_bytes)

    def topics(self) -> dict[str, list[int]]:
        """See Stage. A topic that another sink is making has all its partitions at once: see bucket_publish."""
        return topics_in_bucket(self._bucket)

    def begin(self, task: int, attempt: str, number: int) -> str:
        """See Stage."""
        name = piece_name(self._job, task, attempt, number)
        self._open[name] = bytearray()
        return name

    def append(self, name: str, data: memoryview) -> None:
        """See Stage."""
        self._open[name] += data

    def finish(self, name: str) -> None:
        """Put it, while the task goes on. Raises what an earlier put raised."""
        data = self._open.pop(name)
        while len(self._running) >= 2 * _PUTS_AT_ONCE:
            self._running.pop(0).result()
        if self._threads is None:
            self._threads = ThreadPoolExecutor(min(_PUTS_AT_ONCE, self._bucket.parallel), "stage")
        self._names.append(name)
        self._running.append(self._threads.submit(self._bucket.put, name, data))

    def close(self) -> None:
        """See Stage."""
        running, self._running = self._running, []
        for put in running:
            put.result()
        if self._threads is not None:
            self._threads.shutdown()
            self._threads = None

    def discard(self) -> None:
        """See Stage."""
        if self._threads is not None:
            self._threads.shutdown(cancel_futures=True)
            self._threads = None
        try:
            self._bucket.delete(self._names)
        except OSError as error:
            _log.warning("staged objects are left, a later sink removes them: %s", error)

    def error(self, error: OSError) -> KafkalogError:
        """See Stage."""
        return self._bucket.unwritable(error)
