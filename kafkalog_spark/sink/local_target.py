"""The log directory that is written to: whether it can be, and which topics it holds."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from kafkalog_spark.errors import (
    BrokerOwnsDirectory,
    CorruptLog,
    KafkalogError,
    LogDirLocked,
    NotALogDirectory,
    OptionError,
    UnsupportedFormat,
)
from kafkalog_spark.format import names
from kafkalog_spark.format.atomic_file import descriptor
from kafkalog_spark.format.checkpoint import LEADER_EPOCH_CHECKPOINT, EpochEntry, read_leader_epochs
from kafkalog_spark.format.meta_properties import META_PROPERTIES_FILE, read_meta_properties
from kafkalog_spark.format.names import DirKind, parse_partition_dir, parse_segment_file
from kafkalog_spark.format.offset_index import ENTRY_SIZE as OFFSET_ENTRY_SIZE
from kafkalog_spark.format.offset_index import load_offset_index
from kafkalog_spark.format.producer_snapshot import format_producer_snapshot, read_producer_snapshot
from kafkalog_spark.format.time_index import ENTRY_SIZE as TIME_ENTRY_SIZE
from kafkalog_spark.format.time_index import load_time_index
from kafkalog_spark.log.log_dir import LogDirs
from kafkalog_spark.log.read.discovery import partition_dirs
from kafkalog_spark.log.read.partition_log import PartitionLog
from kafkalog_spark.log.read.partition_place import PartitionPlace
from kafkalog_spark.log.write.log_dir_lock import LogDirLock
from kafkalog_spark.log.write.segment_recovery import OffsetOverflow, ordered_windows, recover_segment
from kafkalog_spark.sink.disk import Patience
from kafkalog_spark.sink.sink_record import RECORD_FILE, read_record
from kafkalog_spark.sink.staging import job_of

SINK_LOCK_FILE = "kafkalog.sink.lock"
"""Held by a sink that commits, in addition to Kafka's `.lock`: whoever has that without this one is a broker."""

COMMIT_WAIT_SECONDS = 300.0
"""How long a commit waits for another sink's. One takes seconds; a large one syncs many gigabytes."""

_PROBE_SECONDS = 0.2


def check_target(path: Path) -> None:
    """Raise unless `path` is a log directory, or empty, or missing. Changes nothing.

    NotALogDirectory: a file, one partition's directory, something else's directory. UnsupportedFormat, CorruptFile: the
    meta.properties of a layout that is not known. OSError otherwise.
    """
    try:
        listing = os.listdir(path)
    except FileNotFoundError:
        return
    except NotADirectoryError:
        raise NotALogDirectory(
            "is a file, a log directory is written to", path=str(path), hint="give what log.dirs names"
        ) from None
    except OSError as error:
        raise NotALogDirectory(f"cannot be read: {error.strerror}", path=str(path)) from error
    check_no_segments(listing, str(path), str(path.parent))
    read_meta_properties(path / META_PROPERTIES_FILE)
    known = {META_PROPERTIES_FILE, names.LOCK_FILE, SINK_LOCK_FILE, RECORD_FILE}
    if listing and not any(name in known or job_of(name) or parse_partition_dir(name) for name in listing):
        LogDirs.open(path)  # raises for a directory without anything of Kafka's


def check_no_segments(listing: Iterable[str], path: str, parent: str) -> None:
    """Raise NotALogDirectory for the listing of a partition's directory."""
    if any(parse_segment_file(name) is not None for name in listing):
        raise NotALogDirectory(
            "holds segment files: it is the directory of one partition",
            path=path,
            hint=f"give its parent {parent}, and name topic and partition as columns or options",
        )


def find_topics(path: Path) -> dict[str, list[int]]:
    """{topic: its partitions that lie here, sorted}, of live partition directories. A missing directory has none."""
    topics: dict[str, list[int]] = {}
    with contextlib.suppress(FileNotFoundError):
        for parsed, _ in partition_dirs(path):
            if parsed.kind is DirKind.LIVE:
                topics.setdefault(parsed.topic, []).append(parsed.partition)
    return {topic: sorted(partitions) for topic, partitions in topics.items()}


def find_topics_unlocked(path: Path) -> dict[str, list[int]]:
    """`find_topics` for who does not hold the directory's locks: a topic that another sink is making just now has all
    the partitions that it will have, not those whose directories are there so far. Raises as read_record."""
    while True:
        before = _record_stamp(path)
        pending = read_record(path).pending
        topics = find_topics(path)
        if _record_stamp(path) == before:
            break  # else a commit began or ended meanwhile, and the listing may show the middle of it
    for topic in pending.topics if pending is not None else ():
        topics[topic.name] = sorted({*topics.get(topic.name, ()), *range(topic.partitions)})
    return topics


def _record_stamp(path: Path) -> tuple[int, int] | None:
    """Another one after each replacement of the record: a commit replaces it before it makes a topic and afterwards."""
    try:
        status = os.stat(path / RECORD_FILE)
    except FileNotFoundError:
        return None
    return status.st_ino, status.st_mtime_ns


def partition_count(partitions: list[int]) -> int:
    """How many partitions a topic has of which these lie here: others may lie in another of log.dirs."""
    return partitions[-1] + 1


def check_no_broker(path: Path) -> None:
    """Raise BrokerOwnsDirectory when a broker runs on the directory. Makes no file; another sink does not matter."""
    if not (path / names.LOCK_FILE).exists():
        return
    patience = Patience(_PROBE_SECONDS)
    try:
        while True:
            try:
                LogDirLock.acquire(path).release()
                return
            except LogDirLocked:
                if _is_locked(path, SINK_LOCK_FILE):
                    return
                if not patience.wait():
                    raise _broker_owns(path) from None
    except OSError as error:
        raise unwritable(path, error) from error


def _is_locked(path: Path, file_name: str) -> bool:
    if not (path / file_name).exists():
        return False
    try:
        LogDirLock.acquire(path, file_name).release()
    except LogDirLocked:
        return True
    return False


def _lock_of_broker(path: Path) -> LogDirLock:
    """Kafka's lock. Tried for a moment: another sink takes it, too, to see whether it can."""
    patience = Patience(_PROBE_SECONDS)
    while True:
        try:
            return LogDirLock.acquire(path)
        except LogDirLocked:
            if not patience.wait():
                raise _broker_owns(path) from None


def _broker_owns(path: Path) -> BrokerOwnsDirectory:
    return BrokerOwnsDirectory(
        f"a running broker owns this log directory ({names.LOCK_FILE} is locked)",
        path=str(path),
        hint="write through it with option kafka.bootstrap.servers (at least once), or stop it first",
    )


@contextmanager
def sink_lock(path: Path, patience: Patience) -> Iterator[None]:
    """Both locks of the directory, which go with the process. Waits for another sink.

    Raises LogDirLocked when one holds them for too long, BrokerOwnsDirectory at once when a broker has the directory,
    OSError.
    """
    while True:
        try:
            ours = LogDirLock.acquire(path, SINK_LOCK_FILE)
            break
        except LogDirLocked:
            if not patience.wait():
                raise LogDirLocked(
                    f"another sink has been committing here for more than {patience.seconds:g} s",
                    path=str(path / SINK_LOCK_FILE),
                    hint="if it hangs, end its process: the lock goes with it",
                ) from None
    try:
        kafkas = _lock_of_broker(path)
        try:
            yield
        finally:
            kafkas.release()
    finally:
        ours.release()


def unwritable(path: Path, error: OSError) -> KafkalogError:
    """The error for a log directory that the operating system does not let us write."""
    return NotALogDirectory(
        f"cannot be written: {error.strerror or error}",
        path=str(error.filename or path),
        hint="nothing was written; the driver and every executor need the directory, writable, under the same path",
    )


def one_directory(path: str) -> Path:
    """The absolute path. Raises OptionError for one that cannot be made absolute."""
    try:
        return Path(os.path.abspath(path))
    except OSError as error:
        raise OptionError(f"option 'path': {error}") from error


# Where the log of a partition goes on, and that it can: its end found, or made whole after a crash.
#
# A directory that a broker stopped cleanly, or a sink wrote, needs no change. What a crash left is recovered as a
# broker would: segments after the recovery point are checked, a torn tail is cut off, the indexes of the last
# segment are made again. Damage that is no torn tail is refused: a broker would cut off everything after it.

FIRST_EPOCH = 0
"""Leader epoch of a log that has none yet."""


@dataclass(frozen=True, slots=True)
class PartitionEnd:
    """next_offset: the log end offset. leader_epoch: of the batches to come; epochs: what the checkpoint is to say
    then, None when it says so already. snapshot: producer state at the end, as a .snapshot holds it, None when it is
    not known."""

    next_offset: int
    leader_epoch: int
    epochs: tuple[EpochEntry, ...] | None
    snapshot: bytes | None


EMPTY_END = PartitionEnd(0, FIRST_EPOCH, (EpochEntry(FIRST_EPOCH, 0),), format_producer_snapshot([]))
"""Of a partition that is not there yet."""


def settle_partition(place: PartitionPlace, *, clean: bool) -> PartitionEnd:
    """Make the log whole where a crash left it otherwise, and say where it goes on.

    clean: a broker closed the log directory cleanly. Raises CorruptLog (CorruptBatch, UnsupportedFormat) for a log that
    only a broker may repair, NotALogDirectory, OSError; the records that were there stay.
    """
    try:
        log = place.open()
        unfinished = [
            name
            for name in log.names
            if name.endswith((names.SWAP_SUFFIX, names.CLEANED_SUFFIX)) and names.parse_segment_file(name)
        ]
        if unfinished:
            raise CorruptLog(
                f"{unfinished[0]} is left from a cleaning that was not finished",
                path=place.directory,
                hint="let a broker load the directory once",
            )
        if not clean:
            _check_unflushed(log)
        end = log.log_end
        if log.segments:
            _settle_last_segment(log)
        epochs = read_leader_epochs(Path(place.directory) / LEADER_EPOCH_CHECKPOINT)
    except OffsetOverflow as overflow:
        raise CorruptLog(
            str(overflow),
            topic_partition=f"{place.topic}-{place.partition}",
            hint="let a broker load the directory once: it splits the segment",
        ) from None
    except KafkalogError as error:
        raise error.at(topic_partition=f"{place.topic}-{place.partition}") from None
    epoch, changed = leader_epochs_at(epochs, end.offset)
    return PartitionEnd(end.offset, epoch, changed, _snapshot_at(log, end.offset))


def leader_epochs_at(epochs: list[EpochEntry], next_offset: int) -> tuple[int, tuple[EpochEntry, ...] | None]:
    """(epoch of batches from `next_offset` on, the entries that the checkpoint needs for them or None).

    The latest epoch goes on. An entry after the end, of a leader that was cut off, begins at the end.
    """
    epoch = epochs[-1].epoch if epochs else FIRST_EPOCH
    kept = [entry for entry in epochs if entry.start_offset <= next_offset]
    if kept and kept[-1].epoch == epoch:
        return epoch, None
    return epoch, (*(entry for entry in kept if entry.start_offset < next_offset), EpochEntry(epoch, next_offset))


def _check_unflushed(log: PartitionLog) -> None:
    """Check the batches of the segments between the recovery point and the last one, and flush them.

    Nothing is appended after damage: recovery would cut the records off again.
    """
    first = log.segment_index(log.recovery_point or 0)
    for segment in log.segments[first:-1]:
        path = os.path.join(log.directory, segment.log)
        with descriptor(path) as fd:
            try:
                for _, wrong in ordered_windows(fd, Path(path), segment.base_offset, os.fstat(fd).st_size):
                    if wrong is not None:
                        raise wrong
                os.fsync(fd)
            except KafkalogError as error:
                error.hint = error.hint or "let a broker recover the directory, or restore the segment from a backup"
                raise error.at(path=path) from None


def _settle_last_segment(log: PartitionLog) -> None:
    """Cut a torn tail off the last segment and complete its indexes, unless it was closed."""
    last, end = log.segments[-1], log.log_end
    path = Path(log.directory, last.log)
    if path.stat().st_size == end.position and (end.position == 0 or _was_closed(path, last.base_offset)):
        return
    if path.stat().st_size > end.position:
        os.truncate(path, end.position)  # before the indexes: `end` is what was proven
    recovered = recover_segment(Path(log.directory), last.base_offset, sync=True)
    if end.position and recovered.next_offset != end.offset:
        raise CorruptLog(
            f"the log ends at offset {end.offset}, but recovery of its last segment at {recovered.next_offset}",
            path=str(path),
            hint="let a broker recover the directory",
        )


def _was_closed(path: Path, base_offset: int) -> bool:
    """Whether both indexes are there and cut to their entries, as rolling and a clean close leave them."""
    try:
        offset_size = path.with_suffix(names.OFFSET_INDEX_SUFFIX).stat().st_size
        time_size = path.with_suffix(names.TIME_INDEX_SUFFIX).stat().st_size
    except FileNotFoundError:
        return False
    offsets = load_offset_index(path.with_suffix(names.OFFSET_INDEX_SUFFIX), base_offset)
    times = load_time_index(path.with_suffix(names.TIME_INDEX_SUFFIX), base_offset)
    return len(offsets) * OFFSET_ENTRY_SIZE == offset_size and len(times) * TIME_ENTRY_SIZE == time_size > 0


def _snapshot_at(log: PartitionLog, offset: int) -> bytes | None:
    """The producer snapshot of the log's end, where a broker or a sink has left one."""
    for at, path in log.snapshots_up_to(offset):
        if at == offset:
            try:
                return format_producer_snapshot(read_producer_snapshot(path))
            except (CorruptLog, UnsupportedFormat):
                return None  # brokers drop it, too, and read the log instead
        break
    return format_producer_snapshot([]) if not log.segments or offset == 0 else None
