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
from kafkalog_spark.log.format.checkpoint import (
    LEADER_EPOCH_CHECKPOINT,
    LOG_START_OFFSET_CHECKPOINT,
    RECOVERY_POINT_CHECKPOINT,
    EpochEntry,
    TopicPartition,
    parse_leader_epochs,
    parse_offset_checkpoint,
)
from kafkalog_spark.log.format.meta_properties import META_PROPERTIES_FILE, parse_meta_properties
from kafkalog_spark.log.format.partition_metadata import PARTITION_METADATA_FILE, parse_partition_metadata
from kafkalog_spark.log.store.interface import Store

MOST_BYTES = 256 << 20
"""Bytes. A checkpoint of a million partitions has 50 MB."""

T = TypeVar("T")

_log = logging.getLogger(__name__)


def parsed_file(store: Store, path: str, parse: Callable[[bytes], T]) -> T:
    """What `parse` makes of the file's bytes; its errors get the path. Raises FileNotFoundError, OSError."""
    data = store.read_all(path, MOST_BYTES)
    try:
        return parse(data)
    except KafkalogError as error:
        raise error.at(path=path) from None


def offset_checkpoint(store: Store, directory: str, name: str) -> Mapping[TopicPartition, int]:
    """A checkpoint of a log directory; empty when it is missing or damaged."""
    try:
        return parsed_file(store, os.path.join(directory, name), parse_offset_checkpoint)
    except FileNotFoundError:
        return {}
    except (CorruptFile, UnsupportedFormat, OSError) as error:
        _log.warning("checkpoint not used: %s", error)
        return {}


def leader_epochs(store: Store, directory: str) -> list[EpochEntry]:
    """leader-epoch-checkpoint of a partition; empty when it is missing or damaged."""
    try:
        return parsed_file(store, os.path.join(directory, LEADER_EPOCH_CHECKPOINT), parse_leader_epochs)
    except FileNotFoundError:
        return []
    except (CorruptFile, UnsupportedFormat, OSError) as error:
        _log.warning("leader epochs not used: %s", error)
        return []


def topic_id(store: Store, directory: str) -> uuid.UUID | None:
    """What partition.metadata says; None where it says nothing: offsets alone tell then whether the topic is the
    same."""
    try:
        return parsed_file(store, os.path.join(directory, PARTITION_METADATA_FILE), parse_partition_metadata).topic_id
    except (KafkalogError, OSError):
        return None


def cluster_id(store: Store, directory: str) -> str | None:
    """The cluster id in a log directory's meta.properties; None where that says nothing."""
    try:
        return parsed_file(store, os.path.join(directory, META_PROPERTIES_FILE), parse_meta_properties).cluster_id
    except (KafkalogError, OSError):
        return None


def node_id(store: Store, directory: str) -> int | None:
    """The id of the node, as the same file says it."""
    try:
        return parsed_file(store, os.path.join(directory, META_PROPERTIES_FILE), parse_meta_properties).node_id
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
