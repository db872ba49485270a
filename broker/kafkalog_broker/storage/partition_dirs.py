"""The partition directories of the log directories, and which topics they belong to: decisions at start.

A topic registry that is there is believed. Directories of topics that it does not know come from a real Kafka, or the
registry was lost: they are taken in by what their partition.metadata says.
"""

from __future__ import annotations

import logging
import uuid
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from kafkalog_broker.storage.log_directory import LogDirectory, LogDirError
from kafkalog_broker.storage.topics_file import Topic
from kafkalog_spark.errors import CorruptFile
from kafkalog_spark.log.format.names import DirKind
from kafkalog_spark.log.format.partition_metadata import PARTITION_METADATA_FILE, read_partition_metadata
from kafkalog_spark.log.read.directory_listing import partition_dirs

_log = logging.getLogger(__name__)

KEPT_CONFIGS = {"retention.ms": "-1", "retention.bytes": "-1"}
"""Of a topic whose configuration is not known: nothing of it is deleted until somebody says so."""


class PartitionPlace(NamedTuple):
    """A live partition directory. topic_id: what partition.metadata says; None when there is none, or a damaged one."""

    topic: str
    partition: int
    log_dir: LogDirectory
    path: Path
    topic_id: uuid.UUID | None


@dataclass(frozen=True, slots=True)
class FoundDirs:
    """`live`, and the directories of deleted partitions that wait for their removal."""

    live: list[PartitionPlace]
    deleted: list[Path]


def find_partition_dirs(log_dir: LogDirectory) -> FoundDirs:
    """What lies in a log directory. Raises OSError."""
    live: list[PartitionPlace] = []
    deleted: list[Path] = []
    for parsed, found in partition_dirs(log_dir.path):
        path = Path(found)
        if parsed.kind is DirKind.DELETE:
            deleted.append(path)
        elif parsed.kind is DirKind.LIVE:
            live.append(PartitionPlace(parsed.topic, parsed.partition, log_dir, path, _topic_id(path)))
        elif parsed.kind is not DirKind.METADATA:
            _log.warning("%s is left alone: a -%s directory is not served", path, parsed.kind.value)
    return FoundDirs(sorted(live, key=lambda place: (place.topic, place.partition)), deleted)


def _topic_id(path: Path) -> uuid.UUID | None:
    try:
        metadata = read_partition_metadata(path / PARTITION_METADATA_FILE)
    except CorruptFile as error:
        _log.warning("%s; the topic's id is taken from elsewhere", error)
        return None
    return None if metadata is None else metadata.topic_id


@dataclass(frozen=True, slots=True)
class Reconciled:
    """serve: the places to load, with their topic. changed: topics the registry is to take in. deleted: partitions of
    topics that were deleted before the crash. strays: directories of another topic of that name, which stay as they
    are. missing: (topic, partition) without a directory."""

    serve: list[tuple[PartitionPlace, Topic]]
    changed: dict[str, Topic]
    deleted: list[PartitionPlace]
    strays: list[PartitionPlace]
    missing: list[tuple[Topic, int]]


def reconcile(
    places: Sequence[PartitionPlace],
    topics: Mapping[str, Topic],
    deleted_ids: frozenset[uuid.UUID],
    compacted: Iterable[str],
    new_id: Callable[[], uuid.UUID],
    internal: Mapping[str, Mapping[str, str]],
) -> Reconciled:
    """Bring directories and registry together. compacted: topics that a cleaner checkpoint names. internal: the
    overrides of internal topics (config.internal_topics).

    Raises LogDirError when a partition lies in two log directories.
    """
    all_topics, changed = dict(topics), dict[str, Topic]()
    compacted = frozenset(compacted)
    result = Reconciled([], changed, [], [], [])
    accepted: dict[tuple[str, int], PartitionPlace] = {}
    for place in places:
        known = all_topics.get(place.topic)
        if place.topic_id in deleted_ids:
            result.deleted.append(place)
            continue
        if known is None:
            known = Topic(place.topic, place.topic_id or new_id(), 0, _configs_of(place.topic, compacted, internal))
        elif place.topic_id not in (None, known.id):
            result.strays.append(place)
            continue
        if place.partition >= known.partitions:
            known = Topic(known.name, known.id, place.partition + 1, known.configs)
            changed[known.name] = known
        all_topics[known.name] = known
        other = accepted.setdefault((place.topic, place.partition), place)
        if other is not place:
            raise LogDirError(
                f"partition {place.topic}-{place.partition} also lies in {other.path.parent}",
                path=str(place.path),
                hint="move one of the two out of the log directories",
            )
    result.serve.extend((place, all_topics[place.topic]) for place in accepted.values())
    result.missing.extend(
        (topic, partition)
        for topic in all_topics.values()
        for partition in range(topic.partitions)
        if (topic.name, partition) not in accepted
    )
    return result


def _configs_of(topic: str, compacted: frozenset[str], internal: Mapping[str, Mapping[str, str]]) -> Mapping[str, str]:
    if topic in internal:
        return internal[topic]
    return {**KEPT_CONFIGS, "cleanup.policy": "compact"} if topic in compacted else KEPT_CONFIGS
