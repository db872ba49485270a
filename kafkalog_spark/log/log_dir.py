"""Log directories: the partitions in them, and what their checkpoints say. The Spark-free way in.

    dirs = LogDirs.open("/data/kafka-logs")
    dirs.topics                                    # {"orders": (0, 1, 2), ...}
    log = dirs.partition("orders", 0)
    log.log_start_offset, log.log_end_offset
    offset_for_timestamp(log, 1_700_000_000_000)
    for batch in dirs.scan("orders"):              # pyarrow.RecordBatch
        ...

Kept free of the kernels until records are read.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from kafkalog_spark.errors import CorruptFile, NotALogDirectory, UnknownPartition, UnsupportedFormat
from kafkalog_spark.log import names
from kafkalog_spark.log.checkpoint import (
    LOG_START_OFFSET_CHECKPOINT,
    RECOVERY_POINT_CHECKPOINT,
    read_offset_checkpoint,
)
from kafkalog_spark.log.log_end import LogEnd
from kafkalog_spark.log.meta_properties import META_PROPERTIES_FILE
from kafkalog_spark.log.names import DirKind
from kafkalog_spark.log.partition_log import PartitionLog

if TYPE_CHECKING:
    import pyarrow as pa

    from kafkalog_spark.log.partition_scan import ScanRequest

_MARKS = (META_PROPERTIES_FILE, RECOVERY_POINT_CHECKPOINT, names.CLEAN_SHUTDOWN_FILE)
"""A directory with one of these is a log directory even when it holds no partition yet."""


@dataclass(frozen=True)
class PartitionPlace:
    """Where a partition lies. Small and picklable: a Spark task opens the partition with nothing else."""

    topic: str
    partition: int
    directory: str

    def open(self, *, pass_over_damage: bool = False, known_end: LogEnd | None = None) -> PartitionLog:
        """Read the checkpoints, then the partition; see PartitionLog. Raises NotALogDirectory."""
        parent = os.path.dirname(self.directory)
        key = (self.topic, self.partition)
        # Checkpoints first: read later, they could be ahead of what was seen of the log.
        recovery_points = offset_checkpoint(parent, RECOVERY_POINT_CHECKPOINT)
        log_starts = offset_checkpoint(parent, LOG_START_OFFSET_CHECKPOINT)
        return PartitionLog(
            self.topic,
            self.partition,
            self.directory,
            recovery_point=recovery_points.get(key),
            log_start_checkpoint=log_starts.get(key),
            pass_over_damage=pass_over_damage,
            known_end=known_end,
        )


@dataclass(frozen=True)
class LogDirs:
    """The partitions of one or more log directories (Kafka's log.dirs), as they were listed."""

    places: dict[tuple[str, int], PartitionPlace] = field(default_factory=dict)
    paths: tuple[str, ...] = ()

    @classmethod
    def open(cls, paths: str | os.PathLike[str] | Iterable[str | os.PathLike[str]]) -> LogDirs:
        """List log directories, or single partition directories (which may be -stray, -future or -delete ones).

        Raises NotALogDirectory: a path is missing, unreadable or neither of the two, or a partition lies in two of
        them.
        """
        if isinstance(paths, str | os.PathLike):
            paths = [paths]
        checked = tuple(os.path.abspath(os.fspath(path)) for path in paths)
        places: dict[tuple[str, int], PartitionPlace] = {}
        for path in checked:
            for place in _places(path):
                key = (place.topic, place.partition)
                if key in places:
                    raise NotALogDirectory(
                        f"the partition lies in {places[key].directory} too; one of them must be left out",
                        topic_partition=f"{place.topic}-{place.partition}",
                        path=place.directory,
                    )
                places[key] = place
        return cls(dict(sorted(places.items())), checked)

    @property
    def topics(self) -> dict[str, tuple[int, ...]]:
        """Partitions by topic, both sorted; internal topics too."""
        topics: dict[str, list[int]] = {}
        for topic, partition in self.places:
            topics.setdefault(topic, []).append(partition)
        return {topic: tuple(partitions) for topic, partitions in topics.items()}

    def partition(self, topic: str, partition: int) -> PartitionLog:
        """Open a partition. Raises UnknownPartition, with what there is."""
        place = self.places.get((topic, partition))
        if place is None:
            known = self.topics.get(topic)
            what = f"has partitions {', '.join(map(str, known))}" if known else f"topics: {self._some_topics()}"
            raise UnknownPartition(
                f"not in {', '.join(self.paths)} ({topic} {what})"
                if known
                else f"not in {', '.join(self.paths)} ({what})",
                topic_partition=f"{topic}-{partition}",
            )
        return place.open()

    def _some_topics(self) -> str:
        some = list(self.topics)
        return ", ".join(some[:10]) + (f" and {len(some) - 10} more" if len(some) > 10 else "") or "none"

    def scan(
        self, topic: str | None = None, request: ScanRequest | None = None, **options: object
    ) -> Iterator[pa.RecordBatch]:
        """All records of a topic, or of every topic that is not internal, partition by partition.

        request, or its fields as keywords (columns=, timestamp_from_ms=, read_committed= ...): see ScanRequest.
        """
        from kafkalog_spark.log.last_stable_offset import last_stable_offset
        from kafkalog_spark.log.partition_scan import ScanRequest, scan_partition

        request = request or ScanRequest(**options)  # type: ignore[arg-type]
        if topic is not None and topic not in self.topics:
            raise UnknownPartition(f"topic {topic} is not in {', '.join(self.paths)} (topics: {self._some_topics()})")
        for key, place in self.places.items():
            if key[0] != topic and (topic is not None or names.is_internal(key[0])):
                continue
            log = place.open(pass_over_damage=request.drop_malformed)
            end = last_stable_offset(log) if request.read_committed else log.log_end_offset
            yield from scan_partition(log, log.log_start_offset, end, request)


def check_paths(paths: Iterable[str | os.PathLike[str]]) -> None:
    """Raise NotALogDirectory for the first path that does not exist. One stat each; `open` sees what is in them."""
    for path in map(os.path.abspath, paths):
        try:
            os.stat(path)
        except FileNotFoundError:
            raise _missing(path) from None
        except OSError:
            continue  # `open` says why it cannot be read


def _missing(path: str) -> NotALogDirectory:
    return NotALogDirectory("does not exist", path=path)


def _places(path: str) -> Iterator[PartitionPlace]:
    try:
        listing = sorted(os.listdir(path))
    except NotADirectoryError:
        raise NotALogDirectory(
            "is a file; give the log directory that holds the partition directories, or one of these", path=path
        ) from None
    except FileNotFoundError:
        raise _missing(path) from None
    except OSError as error:
        raise NotALogDirectory(f"cannot be read: {error.strerror}", path=path) from error
    own = names.parse_partition_dir(os.path.basename(path))
    if own is not None and any(
        name.endswith((names.LOG_SUFFIX, names.LOG_SUFFIX + names.SWAP_SUFFIX)) for name in listing
    ):
        yield PartitionPlace(own.topic, own.partition, path)
        return
    found = False
    for name in listing:
        parsed = names.parse_partition_dir(name)
        if parsed is None or not os.path.isdir(os.path.join(path, name)):
            continue
        found = True
        if parsed.kind is DirKind.LIVE:
            yield PartitionPlace(parsed.topic, parsed.partition, os.path.join(path, name))
    if not found and own is None and not any(mark in listing for mark in _MARKS):
        segments = any(names.parse_segment_file(name) for name in listing)
        raise NotALogDirectory(
            "is not a Kafka log directory: no <topic>-<partition> directory in it"
            + (", but segment files" if segments else ""),
            path=path,
            hint="rename it to <topic>-<partition>, or give its parent" if segments else "give what log.dirs names",
        )


def offset_checkpoint(directory: str, name: str) -> dict[tuple[str, int], int]:
    """A checkpoint file; a damaged one is as good as none, as it is for a broker (LogManager), but not a secret."""
    try:
        return dict(read_offset_checkpoint(os.path.join(directory, name)))
    except (CorruptFile, UnsupportedFormat, OSError) as error:
        import logging

        logging.getLogger("kafkalog").warning("checkpoint not used: %s", error)
        return {}
