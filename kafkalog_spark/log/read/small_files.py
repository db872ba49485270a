"""The small files of a log directory and of a partition's, read from wherever they lie.

A missing file is what Kafka takes it for; one that is damaged is as good as missing to a reader, as it is to a broker
(LogManager, LeaderEpochFileCache), but not a secret.
"""

from __future__ import annotations

import logging
import os
import uuid
from collections.abc import Callable, Mapping
from typing import TypeVar

from kafkalog_spark.errors import CorruptFile, KafkalogError, UnsupportedFormat
from kafkalog_spark.format import meta_properties, partition_metadata, producer_snapshot
from kafkalog_spark.format.atomic_file import MOST_STATE_BYTES, parsed
from kafkalog_spark.format.checkpoint import (
    LEADER_EPOCH_CHECKPOINT,
    LOG_START_OFFSET_CHECKPOINT,
    MOST_LEADER_EPOCH_BYTES,
    RECOVERY_POINT_CHECKPOINT,
    EpochEntry,
    TopicPartition,
    parse_leader_epochs,
    parse_offset_checkpoint,
)
from kafkalog_spark.format.meta_properties import META_PROPERTIES_FILE, MetaProperties, parse_meta_properties
from kafkalog_spark.format.partition_metadata import (
    PARTITION_METADATA_FILE,
    PartitionMetadata,
    parse_partition_metadata,
)
from kafkalog_spark.format.producer_snapshot import ProducerEntry, parse_producer_snapshot
from kafkalog_spark.store.interface import Store

T = TypeVar("T")

_log = logging.getLogger(__name__)


def parsed_file(store: Store, path: str, parse: Callable[[bytes], T], most: int = MOST_STATE_BYTES) -> T:
    """Contents of a small file, parsed; errors of `parse` get the path. Raises CorruptFile for one of more than `most`
    bytes, FileNotFoundError, OSError."""
    return parsed(lambda size: store.read_all(path, size), parse, path, most)


def read_meta_properties(store: Store, directory: str) -> MetaProperties:
    """meta.properties of a log directory. Raises as `parsed_file`."""
    path = os.path.join(directory, META_PROPERTIES_FILE)
    return parsed_file(store, path, parse_meta_properties, meta_properties.MOST_BYTES)


def read_partition_metadata(store: Store, directory: str) -> PartitionMetadata:
    """partition.metadata of a partition's directory. Raises as `parsed_file`."""
    path = os.path.join(directory, PARTITION_METADATA_FILE)
    return parsed_file(store, path, parse_partition_metadata, partition_metadata.MOST_BYTES)


def read_leader_epochs(store: Store, directory: str) -> list[EpochEntry]:
    """leader-epoch-checkpoint of a partition's directory. Raises as `parsed_file`."""
    path = os.path.join(directory, LEADER_EPOCH_CHECKPOINT)
    return parsed_file(store, path, parse_leader_epochs, MOST_LEADER_EPOCH_BYTES)


def read_producer_snapshot(store: Store, path: str) -> list[ProducerEntry]:
    """A producer snapshot. Raises as `parsed_file`, and CorruptSnapshot."""
    return parsed_file(store, path, parse_producer_snapshot, producer_snapshot.MOST_BYTES)


def _unless_damaged(what: str, read: Callable[[], T], default: T) -> T:
    try:
        return read()
    except FileNotFoundError:
        return default
    except (CorruptFile, UnsupportedFormat, OSError) as error:
        _log.warning("%s not used: %s", what, error)
        return default


def offset_checkpoint(store: Store, directory: str, name: str) -> Mapping[TopicPartition, int]:
    """A checkpoint of a log directory; empty when it is missing or damaged."""
    path = os.path.join(directory, name)
    return _unless_damaged("checkpoint", lambda: parsed_file(store, path, parse_offset_checkpoint), {})


def leader_epochs(store: Store, directory: str) -> list[EpochEntry]:
    """leader-epoch-checkpoint of a partition; empty when it is missing or damaged."""
    return _unless_damaged("leader epochs", lambda: read_leader_epochs(store, directory), [])


def topic_id(store: Store, directory: str) -> uuid.UUID | None:
    """Topic id from partition.metadata; None without: then only offsets can show that the topic is another one."""
    try:
        return read_partition_metadata(store, directory).topic_id
    except (KafkalogError, OSError):
        return None


def cluster_id(store: Store, directory: str) -> str | None:
    """The cluster id in a log directory's meta.properties; None where that says nothing."""
    try:
        return read_meta_properties(store, directory).cluster_id
    except (KafkalogError, OSError):
        return None


def node_id(store: Store, directory: str) -> int | None:
    """The id of the node, as the same file says it."""
    try:
        return read_meta_properties(store, directory).node_id
    except (KafkalogError, OSError):
        return None


class Checkpoints:
    """Recovery points and log starts that log directories' checkpoints name, each file read once.

    For many partitions that are opened one after the other: a checkpoint that is read before a log is never ahead of
    what is seen of the log.
    """

    def __init__(self) -> None:
        self._read: dict[tuple[str, str], Mapping[TopicPartition, int]] = {}

    def recovery_point(self, store: Store, directory: str, tp: TopicPartition) -> int | None:
        return self._of(store, directory, RECOVERY_POINT_CHECKPOINT).get(tp)

    def log_start(self, store: Store, directory: str, tp: TopicPartition) -> int | None:
        return self._of(store, directory, LOG_START_OFFSET_CHECKPOINT).get(tp)

    def _of(self, store: Store, directory: str, name: str) -> Mapping[TopicPartition, int]:
        found = self._read.get((directory, name))
        if found is None:
            found = self._read[directory, name] = offset_checkpoint(store, directory, name)
        return found
