"""Reconciliation of the topic registry with the partition directories that exist when the broker starts.

The registry takes precedence. Directories of other topics come from a real Kafka broker, or the registry was lost;
their topics are registered with the ID in partition.metadata.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from kafkalog_broker.storage.partition_dirs import PartitionDir
from kafkalog_broker.storage.topic import Topic

KEPT_CONFIGS = {"retention.ms": "-1", "retention.bytes": "-1"}
"""Overrides of a topic whose configuration is unknown, so that no records are deleted until it is configured again."""
MAX_MISSING_PARTITIONS = 1_000
"""Largest number of partitions that may be missing below an existing one, for a topic that is known only from its
directories or remote segments. Missing ones are created, so a stray `orders-2147483647` must not create them all."""


def plausible_partitions(numbers: Iterable[int]) -> list[int]:
    """Return the partition numbers of a topic, ascending, below which at most MAX_MISSING_PARTITIONS are missing."""
    return [number for index, number in enumerate(sorted(numbers)) if number - index <= MAX_MISSING_PARTITIONS]


@dataclass(frozen=True, slots=True)
class Reconciliation:
    """Result of `reconcile`.

    Attributes:
        serve: Directories to load, with their topic.
        changed: Topics to add to or replace in the registry, by name.
        deleted: Directories of topics that were deleted before a crash.
        strays: Directories that are kept but not served, with the reason.
        missing: Topics and partition numbers without a directory.
    """

    serve: list[tuple[PartitionDir, Topic]] = field(default_factory=list)
    changed: dict[str, Topic] = field(default_factory=dict)
    deleted: list[PartitionDir] = field(default_factory=list)
    strays: list[tuple[PartitionDir, str]] = field(default_factory=list)
    missing: list[tuple[Topic, int]] = field(default_factory=list)


def reconcile(
    directories: Sequence[PartitionDir],
    topics: Mapping[str, Topic],
    deleted_ids: frozenset[uuid.UUID],
    compacted: Collection[str],
    new_id: Callable[[], uuid.UUID],
    internal: Mapping[str, Mapping[str, str]],
) -> Reconciliation:
    """Match partition directories with the topic registry.

    Args:
        topics: Topics of the registry, by name.
        deleted_ids: IDs of topics whose directories are to be removed.
        compacted: Names of topics in cleaner checkpoints. One that the registry lacks is registered as compacted.
        new_id: Returns a new topic ID.
        internal: Overrides of internal topics, by name.
    """
    result = Reconciliation()
    all_topics = dict(topics)
    topic_ids = _topic_ids_of(directories, deleted_ids)
    plausible = _plausible_partitions_of(directories)
    accepted: dict[tuple[str, int], PartitionDir] = {}

    def new_topic(name: str) -> Topic:
        configs = {**KEPT_CONFIGS, "cleanup.policy": "compact"} if name in compacted else KEPT_CONFIGS
        return Topic(name, topic_ids.get(name) or new_id(), 0, internal.get(name, configs))

    for directory in directories:
        if directory.topic_id in deleted_ids:
            result.deleted.append(directory)
            continue
        topic = all_topics.get(directory.topic)
        reason = _stray_reason(directory, topic, plausible[directory.topic])
        if reason is not None:
            result.strays.append((directory, reason))
            continue
        topic = topic or new_topic(directory.topic)
        if directory.partition >= topic.partitions:
            topic = replace(topic, partitions=directory.partition + 1)
            result.changed[topic.name] = topic
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


def _topic_ids_of(directories: Iterable[PartitionDir], deleted_ids: frozenset[uuid.UUID]) -> dict[str, uuid.UUID]:
    """Return the topic ID in the first partition.metadata of each topic, except IDs of deleted topics."""
    topic_ids: dict[str, uuid.UUID] = {}
    for directory in directories:
        if directory.topic_id is not None and directory.topic_id not in deleted_ids:
            topic_ids.setdefault(directory.topic, directory.topic_id)
    return topic_ids


def _plausible_partitions_of(directories: Iterable[PartitionDir]) -> dict[str, set[int]]:
    """Return the `plausible_partitions` of each topic's directories."""
    numbers: dict[str, set[int]] = {}
    for directory in directories:
        numbers.setdefault(directory.topic, set()).add(directory.partition)
    return {topic: set(plausible_partitions(partitions)) for topic, partitions in numbers.items()}


def _stray_reason(directory: PartitionDir, topic: Topic | None, plausible: Collection[int]) -> str | None:
    """Return why a directory must not be served as a partition of `topic`; None if it may be served."""
    is_beyond = topic is None or directory.partition >= topic.partitions
    if is_beyond and directory.partition not in plausible:
        return f"more than {MAX_MISSING_PARTITIONS} partitions of {directory.topic} are missing below it"
    if topic is not None and directory.topic_id not in (None, topic.id):
        return "by partition.metadata it belongs to another topic of the same name"
    return None
