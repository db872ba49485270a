"""Partition directories found at start, and the topics that they belong to.

The registry takes precedence. Directories of other topics come from a real Kafka broker, or the registry was lost;
their topics are registered with the ID in partition.metadata.
"""

from __future__ import annotations

import logging
import os
import uuid
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from kafkalog_broker.storage.log_directory import LogDirectory
from kafkalog_broker.storage.topic import Topic
from kafkalog_spark.errors import CorruptFile, printable
from kafkalog_spark.format.names import DirKind
from kafkalog_spark.format.partition_metadata import (
    PARTITION_METADATA_FILE,
    read_partition_metadata,
)
from kafkalog_spark.log.read.local_log_dir import partition_dirs

_log = logging.getLogger(__name__)

KEPT_CONFIGS = {"retention.ms": "-1", "retention.bytes": "-1"}
"""Overrides of a topic whose configuration is unknown, so that no records are deleted until it is configured again."""
MAX_MISSING_PARTITIONS = 1_000
"""Largest number of partitions that may be missing below an existing one, for a topic that is known only from its
directories or remote segments. Missing ones are created, so a stray `orders-2147483647` must not create them all."""


def plausible_partitions(numbers: Iterable[int]) -> list[int]:
    """Return the partition numbers of a topic, ascending, below which at most MAX_MISSING_PARTITIONS are missing."""
    return [number for index, number in enumerate(sorted(numbers)) if number - index <= MAX_MISSING_PARTITIONS]


class PartitionDir(NamedTuple):
    """A live partition directory.

    Attributes:
        topic_id: ID in partition.metadata; None if the file is missing or damaged.
        failure: Why it cannot be served, or None.
    """

    topic: str
    partition: int
    log_dir: LogDirectory
    path: Path
    topic_id: uuid.UUID | None
    failure: str | None = None


def find_partition_dirs(log_dir: LogDirectory) -> tuple[list[PartitionDir], list[Path]]:
    """Return the live partition directories, and the deleted ones that are still to be removed. Raises OSError."""
    live: list[PartitionDir] = []
    deleted: list[Path] = []
    for parsed, name in partition_dirs(log_dir.path):
        path = Path(name)
        if parsed.kind is DirKind.DELETE:
            deleted.append(path)
        elif parsed.kind is DirKind.LIVE:
            live.append(_partition_dir(parsed.topic, parsed.partition, log_dir, path))
        elif parsed.kind is not DirKind.METADATA:
            _log.warning("%s is not served, because it is a -%s directory", path, parsed.kind.value)
    return sorted(live, key=lambda directory: (directory.topic, directory.partition)), deleted


def _partition_dir(topic: str, partition: int, log_dir: LogDirectory, path: Path) -> PartitionDir:
    """Read a partition directory's topic ID. Raises OSError if the log directory cannot be read."""
    topic_id = failure = None
    try:
        if path.is_symlink():
            # Its target may be another partition or foreign files, and would be written to.
            failure = f"{path} is a symbolic link to {os.readlink(path)}; add the log directory behind it to log.dirs"
        else:
            topic_id = read_partition_metadata(path / PARTITION_METADATA_FILE)
    except CorruptFile as error:
        _log.warning("%s; using the topic ID of the registry or of another partition", error)
    except PermissionError as error:
        failure = f"{path} cannot be read: {error}"
    return PartitionDir(topic, partition, log_dir, path, topic_id, None if failure is None else printable(failure))


@dataclass(frozen=True, slots=True)
class Reconciled:
    """Result of `reconcile`.

    Attributes:
        serve: Directories to load, with their topic.
        changed: Topics to add to or replace in the registry, by name.
        deleted: Directories of topics that were deleted before a crash.
        strays: Directories that are kept but not served, with the reason.
        missing: Topics and partition numbers without a directory.
    """

    serve: list[tuple[PartitionDir, Topic]]
    changed: dict[str, Topic]
    deleted: list[PartitionDir]
    strays: list[tuple[PartitionDir, str]]
    missing: list[tuple[Topic, int]]


def reconcile(
    directories: Sequence[PartitionDir],
    topics: Mapping[str, Topic],
    deleted_ids: frozenset[uuid.UUID],
    compacted: Iterable[str],
    new_id: Callable[[], uuid.UUID],
    internal: Mapping[str, Mapping[str, str]],
) -> Reconciled:
    """Match partition directories with the topic registry.

    Args:
        compacted: Topics that a cleaner checkpoint names.
        internal: Overrides of internal topics.
    """
    all_topics, changed = dict(topics), dict[str, Topic]()
    compacted = frozenset(compacted)
    result = Reconciled([], changed, [], [], [])
    accepted: dict[tuple[str, int], PartitionDir] = {}
    numbers: dict[str, set[int]] = {}
    known_ids: dict[str, uuid.UUID] = {}
    for directory in directories:
        numbers.setdefault(directory.topic, set()).add(directory.partition)
        if directory.topic_id is not None and directory.topic_id not in deleted_ids:
            known_ids.setdefault(directory.topic, directory.topic_id)
    plausible = {topic: set(plausible_partitions(partitions)) for topic, partitions in numbers.items()}
    for directory in directories:
        topic = all_topics.get(directory.topic)
        if directory.topic_id in deleted_ids:
            result.deleted.append(directory)
            continue
        is_beyond = topic is None or directory.partition >= topic.partitions
        if is_beyond and directory.partition not in plausible[directory.topic]:
            why = f"more than {MAX_MISSING_PARTITIONS} partitions of {directory.topic} are missing below it"
            result.strays.append((directory, why))
            continue
        if topic is None:
            configs = {**KEPT_CONFIGS, "cleanup.policy": "compact"} if directory.topic in compacted else KEPT_CONFIGS
            topic_id = known_ids.get(directory.topic) or new_id()
            topic = Topic(directory.topic, topic_id, 0, internal.get(directory.topic, configs))
        elif directory.topic_id not in (None, topic.id):
            result.strays.append((directory, "by partition.metadata it belongs to another topic of the same name"))
            continue
        if directory.partition >= topic.partitions:
            topic = Topic(topic.name, topic.id, directory.partition + 1, topic.configs)
            changed[topic.name] = topic
        all_topics[topic.name] = topic
        key = (directory.topic, directory.partition)
        other = accepted.setdefault(key, directory)
        if other is not directory:
            both = f"it exists in {other.path.parent} and in {directory.path.parent}"
            accepted[key] = other._replace(failure=f"{both}; move one of the two out of the log directories")
    result.serve.extend((directory, all_topics[directory.topic]) for directory in accepted.values())
    result.missing.extend(
        (topic, partition)
        for topic in all_topics.values()
        for partition in range(topic.partitions)
        if (topic.name, partition) not in accepted
    )
    return result
