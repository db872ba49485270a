"""Partition directories found at start, and the topics that they belong to.

A topic in the registry is believed. Directories of other topics come from a real Kafka, or the registry was lost: their
topics are registered with the ID in partition.metadata.
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
"""Overrides of a topic whose configuration is not known: nothing of it is deleted until they are set again."""
MOST_MISSING = 1_000
"""Partitions of a topic known from its directories alone, or from its remote segments, that may be missing below one
that is there. The missing ones are created, so a directory `orders-2147483647` is no evidence of all those below it."""


def believed_partitions(numbers: Iterable[int]) -> list[int]:
    """Those of a topic's partition numbers, rising, below which at most MOST_MISSING are missing."""
    return [number for index, number in enumerate(sorted(numbers)) if number - index <= MOST_MISSING]


class PartitionDir(NamedTuple):
    """A live partition directory. topic_id: what partition.metadata says; None when there is none, or a damaged one.
    failure: why it cannot be served, None if nothing is known against it."""

    topic: str
    partition: int
    log_dir: LogDirectory
    path: Path
    topic_id: uuid.UUID | None
    failure: str | None = None


def find_partition_dirs(log_dir: LogDirectory) -> tuple[list[PartitionDir], list[Path]]:
    """The live partition directories, and those that were deleted and wait for their removal. Raises OSError."""
    live: list[PartitionDir] = []
    deleted: list[Path] = []
    for parsed, name in partition_dirs(log_dir.path):
        path = Path(name)
        if parsed.kind is DirKind.DELETE:
            deleted.append(path)
        elif parsed.kind is DirKind.LIVE:
            live.append(_partition_dir(parsed.topic, parsed.partition, log_dir, path))
        elif parsed.kind is not DirKind.METADATA:
            _log.warning("%s is left alone: a -%s directory is not served", path, parsed.kind.value)
    return sorted(live, key=lambda directory: (directory.topic, directory.partition)), deleted


def _partition_dir(topic: str, partition: int, log_dir: LogDirectory, path: Path) -> PartitionDir:
    """Raises OSError if the log directory cannot be read."""
    topic_id = failure = None
    try:
        if path.is_symlink():
            # What lies behind it may be another partition, or files of somebody else, and would be written to.
            failure = f"{path} is a symbolic link to {os.readlink(path)}; add the log directory behind it to log.dirs"
        else:
            topic_id = read_partition_metadata(path / PARTITION_METADATA_FILE)
    except CorruptFile as error:
        _log.warning("%s; the topic's id is taken from elsewhere", error)
    except PermissionError as error:
        failure = f"{path} cannot be read: {error}"
    return PartitionDir(topic, partition, log_dir, path, topic_id, None if failure is None else printable(failure))


@dataclass(frozen=True, slots=True)
class Reconciled:
    """serve: directories to load, with their topic. changed: topics the registry is to take in. deleted: directories of
    topics deleted before the crash. strays, with the reason: they stay, and are not served. missing: without a
    directory."""

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
    """Bring directories and registry together. compacted: topics that a cleaner checkpoint names. internal: the
    overrides of internal topics."""
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
    believed = {topic: set(believed_partitions(of_topic)) for topic, of_topic in numbers.items()}
    for directory in directories:
        topic = all_topics.get(directory.topic)
        if directory.topic_id in deleted_ids:
            result.deleted.append(directory)
            continue
        is_beyond = topic is None or directory.partition >= topic.partitions
        if is_beyond and directory.partition not in believed[directory.topic]:
            why = f"more than {MOST_MISSING} partitions of {directory.topic} are missing below it"
            result.strays.append((directory, why))
            continue
        if topic is None:
            configs = {**KEPT_CONFIGS, "cleanup.policy": "compact"} if directory.topic in compacted else KEPT_CONFIGS
            topic_id = known_ids.get(directory.topic) or new_id()
            topic = Topic(directory.topic, topic_id, 0, internal.get(directory.topic, configs))
        elif directory.topic_id not in (None, topic.id):
            result.strays.append((directory, "it belongs to another topic of that name (partition.metadata)"))
            continue
        if directory.partition >= topic.partitions:
            topic = Topic(topic.name, topic.id, directory.partition + 1, topic.configs)
            changed[topic.name] = topic
        all_topics[topic.name] = topic
        key = (directory.topic, directory.partition)
        other = accepted.setdefault(key, directory)
        if other is not directory:
            places = f"it lies in {other.path.parent} and in {directory.path.parent}"
            accepted[key] = other._replace(failure=f"{places}; move one of the two out of the log directories")
    result.serve.extend((directory, all_topics[directory.topic]) for directory in accepted.values())
    result.missing.extend(
        (topic, partition)
        for topic in all_topics.values()
        for partition in range(topic.partitions)
        if (topic.name, partition) not in accepted
    )
    return result
