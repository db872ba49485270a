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

from kafkalog_spark.errors import NotALogDirectory, UnknownPartition
from kafkalog_spark.log.format import names
from kafkalog_spark.log.format.checkpoint import (
    RECOVERY_POINT_CHECKPOINT,
)
from kafkalog_spark.log.format.meta_properties import META_PROPERTIES_FILE
from kafkalog_spark.log.format.names import DirKind
from kafkalog_spark.log.read.partition_log import PartitionLog
from kafkalog_spark.log.read.partition_place import PartitionPlace
from kafkalog_spark.log.read.path_patterns import expanded_paths
from kafkalog_spark.log.read.replicas import chosen_places

if TYPE_CHECKING:
    import pyarrow as pa

    from kafkalog_spark.log.read.partition_scan import ScanRequest

_MARKS = (META_PROPERTIES_FILE, RECOVERY_POINT_CHECKPOINT, names.CLEAN_SHUTDOWN_FILE)
"""A directory with one of these is a log directory even when it holds no partition yet."""


@dataclass(frozen=True)
class LogDirs:
    """The partitions of one or more log directories (Kafka's log.dirs), as they were listed.

    `places`: each partition, where it lies first. `copies`: all places of those that lie in several of the directories;
    `place` says which of them to read. `paths`: absolute, patterns replaced by what they found. `partitions_only`:
    whether every path is the directory of a single partition.
    """

    places: dict[tuple[str, int], PartitionPlace] = field(default_factory=dict)
    paths: tuple[str, ...] = ()
    copies: dict[tuple[str, int], tuple[PartitionPlace, ...]] = field(default_factory=dict)
    partitions_only: bool = False

    @classmethod
    def open(cls, paths: str | os.PathLike[str] | Iterable[str | os.PathLike[str]]) -> LogDirs:
        """List log directories, or single partition directories (which may be -stray, -future or -delete ones).

        `~` and the wildcards of a shell are understood. Raises NotALogDirectory: a path is missing, unreadable or
        neither of the two, or a pattern finds nothing.
        """
        if isinstance(paths, str | os.PathLike):
            paths = [paths]
        checked = expanded_paths(paths)
        found: dict[tuple[str, int], list[PartitionPlace]] = {}
        partitions_only = True
        for path in checked:
            for place in _places(path):
                partitions_only = partitions_only and place.directory == path
                others = found.setdefault((place.topic, place.partition), [])
                if not any(_same_directory(place.directory, other.directory) for other in others):
                    others.append(place)
        ordered = sorted(found.items())
        return cls(
            {tp: places[0] for tp, places in ordered},
            checked,
            {tp: tuple(places) for tp, places in ordered if len(places) > 1},
            partitions_only and bool(found),
        )

    @property
    def topics(self) -> dict[str, tuple[int, ...]]:
        """Partitions by topic, both sorted; internal topics too."""
        topics: dict[str, list[int]] = {}
        for topic, partition in self.places:
            topics.setdefault(topic, []).append(partition)
        return {topic: tuple(partitions) for topic, partitions in topics.items()}

    def partition(self, topic: str, partition: int) -> PartitionLog:
        """Open a partition; of several copies the one that `replicas.best` names. Raises UnknownPartition, with what
        there is."""
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
        return chosen_places(self.places, self.copies, [(topic, partition)])[topic, partition].open()

    def _some_topics(self) -> str:
        some = list(self.topics)
        return ", ".join(some[:10]) + (f" and {len(some) - 10} more" if len(some) > 10 else "") or "none"

    def scan(
        self, topic: str | None = None, request: ScanRequest | None = None, **options: object
    ) -> Iterator[pa.RecordBatch]:
        """All records of a topic, or of every topic that is not internal, partition by partition.

        request, or its fields as keywords (columns=, timestamp_from_ms=, read_committed= ...): see ScanRequest.
        """
        from kafkalog_spark.log.read.last_stable_offset import last_stable_offset
        from kafkalog_spark.log.read.partition_scan import ScanRequest, scan_partition

        request = request or ScanRequest(**options)  # type: ignore[arg-type]
        if topic is not None and topic not in self.topics:
            raise UnknownPartition(f"topic {topic} is not in {', '.join(self.paths)} (topics: {self._some_topics()})")
        wanted = [key for key in self.places if key[0] == topic or (topic is None and not names.is_internal(key[0]))]
        for place in chosen_places(self.places, self.copies, wanted, pass_over_damage=request.drop_malformed).values():
            log = place.open(pass_over_damage=request.drop_malformed)
            end = last_stable_offset(log) if request.read_committed else log.log_end_offset
            yield from scan_partition(log, log.log_start_offset, end, request)


def _same_directory(one: str, other: str) -> bool:
    try:
        return one == other or os.path.samefile(one, other)
    except OSError:
        return False  # gone since it was listed


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
