"""The log directory that is written to: whether it can be, and which topics it holds."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

from kafkalog_spark.errors import BrokerOwnsDirectory, KafkalogError, LogDirLocked, NotALogDirectory, OptionError
from kafkalog_spark.log.format import names
from kafkalog_spark.log.format.meta_properties import META_PROPERTIES_FILE, read_meta_properties
from kafkalog_spark.log.format.names import DirKind, parse_partition_dir, parse_segment_file
from kafkalog_spark.log.log_dir import LogDirs
from kafkalog_spark.log.read.directory_listing import partition_dirs
from kafkalog_spark.log.write.log_dir_lock import LogDirLock
from kafkalog_spark.sink.patience import Patience
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
