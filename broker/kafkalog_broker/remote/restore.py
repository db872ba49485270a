"""Restoring of logs from remote storage after their disk was lost (Kafka: `TierStateMachine`, but for a leader).

Runs on one thread before the broker handles requests.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import NamedTuple
from uuid import UUID

from kafkalog_broker.config.definition import ConfigError
from kafkalog_broker.config.log_config import REMOTE_STORAGE_ENABLE
from kafkalog_broker.remote.remote_log_metadata_cache import COPY_FINISHED, RemoteLogMetadataCache
from kafkalog_broker.remote.remote_log_metadata_manager import RemoteLogMetadataManager
from kafkalog_broker.storage.log_manager import LogManager
from kafkalog_broker.storage.partition.follower import Follower
from kafkalog_broker.storage.partition.log import Log
from kafkalog_broker.storage.registry_reconciliation import MAX_MISSING_PARTITIONS, plausible_partitions
from kafkalog_broker.storage.topic import Topic
from kafkalog_broker.storage.topic_registry import TopicRegistry
from kafkalog_spark.format.checkpoint import parse_leader_epochs
from kafkalog_spark.format.layout import ControlType
from kafkalog_spark.format.producer_snapshot import parse_producer_snapshot
from kafkalog_spark.log.remote.remote_storage import RemoteStorage
from kafkalog_spark.log.tiered.lineage import newest_segment
from kafkalog_spark.log.tiered.object_keys import RemoteFile

_log = logging.getLogger(__name__)

_CONFIGS = {REMOTE_STORAGE_ENABLE: "true", "retention.ms": "-1", "retention.bytes": "-1"}
"""Overrides of topics whose configuration was lost. With the broker's defaults their segments might be deleted."""


def restore_topics(
    metadata: RemoteLogMetadataManager, topics: TopicRegistry, logs: LogManager, deleted: Collection[UUID]
) -> None:
    """Register topics that are known only from their remote segments, with empty logs.

    Kafka creates no topics from these events, because its controllers know the topics. Numbers of partitions are
    limited as for directories; see `plausible_partitions`. A partition whose log cannot be created is absent.

    Args:
        deleted: IDs of topics whose deletion a crash interrupted.

    Raises:
        BrokerError: If the topic registry cannot be written.
    """
    lost: dict[str, dict[UUID, list[RemoteLogMetadataCache]]] = {}
    unconfigured: dict[str, dict[str, str]] = {}
    for cache in metadata.partitions.values():
        topic_id = cache.partition.topic_id
        if cache.is_deleted or topic_id in deleted or not cache.in_state(COPY_FINISHED):
            continue
        topic = topics.by_id(topic_id)
        if topic is None:
            lost.setdefault(cache.partition.topic, {}).setdefault(topic_id, []).append(cache)
        elif not _configures_remote_segments(topic, logs):
            unconfigured[topic.name] = {**_CONFIGS, **topic.configs, REMOTE_STORAGE_ENABLE: "true"}
    if unconfigured:
        _log.warning("topics with remote segments were given %s: %s", dict(_CONFIGS), ", ".join(sorted(unconfigured)))
        topics.set_all_configs(unconfigured)
    for name, by_id in lost.items():
        last_events = {
            topic_id: max(segment.event_timestamp for cache in caches for segment in cache.in_state(COPY_FINISHED))
            for topic_id, caches in by_id.items()
        }
        chosen = max(last_events, key=last_events.__getitem__)
        others = [topic_id for topic_id in by_id if topic_id != chosen or name in topics]
        if others:
            _log.warning(
                "remote segments of %d other topics with the name %s are not restored; their IDs are %s",
                len(others), name, ", ".join(map(str, others)),
            )  # fmt: skip
        if name in topics:
            continue
        if (other := topics.by_id(chosen)) is not None:  # two topics with one ID would make the registry unreadable
            _log.error("topic %s with remote segments is not restored: topic %s has its ID", name, other.name)
            continue
        numbers = {cache.partition.partition for cache in by_id[chosen]}
        plausible = plausible_partitions(numbers)
        if len(plausible) < len(numbers):
            _log.error(
                "%d partitions of topic %s with remote segments are not restored, the first is %d: more than %d are "
                "missing below it",
                len(numbers) - len(plausible), name, min(numbers - set(plausible)), MAX_MISSING_PARTITIONS,
            )  # fmt: skip
        if not plausible:
            continue
        topic = Topic(name, chosen, 1 + plausible[-1], dict(_CONFIGS))
        _log.warning(
            "topic %s, %d partitions, was restored from remote segments with %s", name, topic.partitions, _CONFIGS
        )
        topics.register_found([topic])
        logs.create_absent([(topic, partition) for partition in range(topic.partitions)])


def _configures_remote_segments(topic: Topic, logs: LogManager) -> bool:
    """Return whether the topic's configuration determines if its remote segments are kept or deleted."""
    try:
        config = logs.config_of(topic)
    except ConfigError:
        return True
    return config.remote_storage_enable or config.remote_log_delete_on_disable


def restore_lineage(log: Log, remote: RemoteLogMetadataCache, storage: RemoteStorage) -> None:
    """Copy leader epochs from the newest remote segment if the log has lost its own.

    Loading rebuilds a lost leader-epoch-checkpoint from the local segments, so the lineage then begins with the first
    of them. Earlier remote segments would belong to no epoch of the log, and would be deleted.

    Raises:
        BrokerError, RemoteStorageError, CorruptLog: If the remote segment's epochs cannot be read, or the file cannot
            be written.
    """
    last = newest_segment(remote.in_state(COPY_FINISHED))
    local_start = log.segments[0].base_offset
    entries = log.epochs.entries
    if last is None or log.log_start_offset >= local_start or (entries and entries[0].start_offset != local_start):
        return
    epochs = parse_leader_epochs(storage.fetch_index(last, RemoteFile.LEADER_EPOCHS))
    first_entries = [entry for entry in epochs if entry.start_offset < local_start]
    if not first_entries:
        return
    rest = [entry for entry in entries if entry.epoch > first_entries[-1].epoch]
    _log.warning(
        "%s: leader-epoch-checkpoint has no epochs below the first local offset %d; using those of the remote "
        "segment %s", log.name, local_start, last.segment_id,
    )  # fmt: skip
    with log.offline_on_error():
        log.epochs.replace([*first_entries, *rest])


class RestoredLog(NamedTuple):
    """Result of `restore_log`.

    Attributes:
        removed_files: Files of the old log, renamed `.deleted`, which may be removed.
        producer_ids: Producer IDs in the restored state.
    """

    removed_files: Sequence[Path]
    producer_ids: Sequence[int]


def restore_log(log: Log, remote: RemoteLogMetadataCache, storage: RemoteStorage, now_ms: int) -> RestoredLog | None:
    """Make a log that ends before its remote segments continue after them.

    The log gets the leader epochs of the last segment, a new epoch, and producer state from that segment's snapshot.
    Transactions that are open in the snapshot are aborted, because the records that ended them were lost.

    Returns:
        None if the log does not end before its remote segments; nothing has changed then.

    Raises:
        BrokerError, RemoteStorageError, CorruptLog: If the remote files cannot be read, or the log cannot be written.
    """
    last = newest_segment(remote.in_state(COPY_FINISHED))
    if last is None or last.until <= log.log_end_offset or log.epochs.latest > last.last_epoch:
        return None
    epochs = [
        entry
        for entry in parse_leader_epochs(storage.fetch_index(last, RemoteFile.LEADER_EPOCHS))
        if entry.start_offset < last.until
    ]
    producers = parse_producer_snapshot(storage.fetch_index(last, RemoteFile.PRODUCER_SNAPSHOT))
    start = remote.first_offset(epochs)
    _log.warning(
        "%s ends at offset %d, but its remote segments end at %d: continuing there",
        log.name, log.log_end_offset, last.until,
    )  # fmt: skip
    removed = Follower(log).truncate_fully_and_start_at(last.until)
    with log.offline_on_error():
        log.epochs.replace(epochs)
        log.local.log_start_offset = last.start_offset if start is None else start
        log.producer_state.load(producers, last.until)
        log.local.take_snapshot()
        # Flushed before the new epoch, which tells a start after a crash that this log was restored.
        log.flush()
        log.lead(last.last_epoch + 1)
    for producer in producers:
        if producer.has_open_transaction:
            coordinator_epoch = max(producer.coordinator_epoch, 0)
            log.append_control(
                ControlType.ABORT, producer.producer_id, producer.producer_epoch, coordinator_epoch, now_ms
            )
    log.flush()
    return RestoredLog(removed, [producer.producer_id for producer in producers])
