"""Readers of the small files of a log directory and of a partition: checkpoints, meta.properties, partition.metadata.

A damaged file counts as missing for a reader, as it does for a broker (Kafka: `LeaderEpochFileCache`), and is logged.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Mapping
from functools import partial
from typing import TypeGuard, TypeVar

from kafkalog_spark.errors import CorruptFile, KafkalogError, NotALogDirectory, UnsupportedFormat
from kafkalog_spark.format import checkpoint, meta_properties, partition_metadata, producer_snapshot
from kafkalog_spark.format.checkpoint import EpochEntry, TopicPartition
from kafkalog_spark.format.meta_properties import META_PROPERTIES_FILE, MetaProperties, parse_meta_properties
from kafkalog_spark.format.partition_metadata import PARTITION_METADATA_FILE, parse_partition_metadata
from kafkalog_spark.format.producer_snapshot import ProducerEntry, parse_producer_snapshot
from kafkalog_spark.format.regular_file import MAX_STATE_FILE_BYTES, parsed
from kafkalog_spark.store.interface import Store

T = TypeVar("T")

_log = logging.getLogger(__name__)


def parsed_file(store: Store, path: str, parse: Callable[[bytes], T], most: int = MAX_STATE_FILE_BYTES) -> T:
    """Return the parsed content of a small file.

    Args:
        store: The store.
        path: Path of the file; added to errors.
        parse: Parses the bytes.
        most: Largest size of such a file in bytes.

    Raises:
        CorruptFile: If the file is larger, or as `parse`.
        OSError: If the file cannot be read.
    """
    return parsed(lambda size: store.read_all(path, size), parse, path, most)


def _file_reader(name: str, parse: Callable[[bytes], T], most: int) -> Callable[[Store, str], T]:
    """Return a function that reads the file of this name in a directory of a store. It raises as `parsed_file`."""
    return lambda store, directory: parsed_file(store, os.path.join(directory, name), parse, most)


read_meta_properties = _file_reader(
    META_PROPERTIES_FILE, parse_meta_properties, meta_properties.MAX_META_PROPERTIES_BYTES
)
read_partition_metadata = _file_reader(PARTITION_METADATA_FILE, parse_partition_metadata, partition_metadata.MOST_BYTES)
read_leader_epochs = _file_reader(
    checkpoint.LEADER_EPOCH_CHECKPOINT, checkpoint.parse_leader_epochs, checkpoint.MAX_LEADER_EPOCH_CHECKPOINT_BYTES
)


def read_producer_snapshot(store: Store, path: str) -> list[ProducerEntry]:
    """Return the entries of a producer snapshot. Raises as `parsed_file`."""
    return parsed_file(store, path, parse_producer_snapshot, producer_snapshot.MAX_SNAPSHOT_BYTES)


def _unless_damaged(what: str, store: Store, path: str, read: Callable[[], T], default: T) -> T:
    """Return the content of a file; `default` if it is missing, damaged or not readable for this user.

    Raises NotALogDirectory if a request to an object store fails: the file may be good, and a read that ignored it
    would return deleted records, or the copy of an older leader.
    """
    try:
        return read()
    except FileNotFoundError:
        return default
    except (CorruptFile, UnsupportedFormat, OSError) as error:
        if is_store_failure(error, store):
            raise NotALogDirectory(
                f"the {what} cannot be read: {error.strerror}", path=error.filename or path
            ) from error
        _log.warning("%s not used: %s", what, error)
        return default


def is_store_failure(error: Exception, store: Store) -> TypeGuard[OSError]:
    """Return True if `error` is a failed request to an object store, for example a time-out. The object may exist."""
    return store.is_remote and isinstance(error, OSError) and not isinstance(error, FileNotFoundError | PermissionError)


def offset_checkpoint(store: Store, directory: str, name: str) -> Mapping[TopicPartition, int]:
    """Return a checkpoint of a log directory, empty if it is missing or damaged.

    Raises NotALogDirectory if an object store fails.
    """
    path = os.path.join(directory, name)
    read = partial(parsed_file, store, path, checkpoint.parse_offset_checkpoint)
    return _unless_damaged("checkpoint", store, path, read, {})


def leader_epochs(store: Store, directory: str) -> list[EpochEntry]:
    """Return the leader-epoch-checkpoint of a partition, empty if it is missing or damaged.

    Raises NotALogDirectory if an object store fails.
    """
    path = os.path.join(directory, checkpoint.LEADER_EPOCH_CHECKPOINT)
    return _unless_damaged("leader epochs", store, path, partial(read_leader_epochs, store, directory), [])


def readable_meta_properties(store: Store, directory: str) -> MetaProperties:
    """Return the meta.properties of a log directory, without IDs if the file is missing or damaged."""
    try:
        return read_meta_properties(store, directory)
    except (KafkalogError, OSError):
        return MetaProperties(0)


class Checkpoints:
    """Cache of the checkpoints of log directories: each file is read once for many partitions."""

    def __init__(self) -> None:
        self._read: dict[tuple[str, str], Mapping[TopicPartition, int]] = {}

    def read(self, store: Store, directory: str, name: str) -> Mapping[TopicPartition, int]:
        """Return a checkpoint as `offset_checkpoint`."""
        if (directory, name) not in self._read:
            self._read[directory, name] = offset_checkpoint(store, directory, name)
        return self._read[directory, name]
