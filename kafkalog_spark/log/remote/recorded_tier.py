"""Remote storage of a log directory by its own file: where the broker that works in it copies segments to.

`kafkalog.remote-storage.properties` holds the broker's properties (RemoteStorageOptions) but for secrets.
Credentials of a bucket come from options, the environment or the machine's role, as for every bucket.
"""

from __future__ import annotations

from dataclasses import dataclass

from kafkalog_spark.errors import NotALogDirectory
from kafkalog_spark.format.meta_properties import parse_properties
from kafkalog_spark.format.names import is_internal
from kafkalog_spark.log.read.discovery import RemoteDir
from kafkalog_spark.log.read.partition_log import PartitionLocation, parsed_file
from kafkalog_spark.log.remote.remote_storage_options import RemoteStorageOptions
from kafkalog_spark.log.tiered.remote_log_metadata import REMOTE_LOG_METADATA_TOPIC
from kafkalog_spark.log.tiered.remote_names import TopicIdPartition, remote_directory
from kafkalog_spark.log.tiered.tier_options import KeyRing
from kafkalog_spark.store.interface import Store
from kafkalog_spark.store.storage_options import StorageOptions
from kafkalog_spark.store.stores import store_of


@dataclass(frozen=True)
class RecordedTier:
    """options: by the file. store: of their root, with what the user said of storage before what the file says."""

    options: RemoteStorageOptions
    store: Store

    @classmethod
    def read(cls, store: Store, path: str, given: StorageOptions | None) -> RecordedTier:
        """Read the file. Raises CorruptFile, OptionError for a value that cannot be used, NotALogDirectory."""
        try:
            properties = parsed_file(store, path, parse_properties)
        except OSError as error:
            raise NotALogDirectory(f"cannot be read: {error.strerror}", path=path) from error
        options = RemoteStorageOptions.of(properties)
        return cls(options, store_of(options.root, (given or StorageOptions()).over(options.storage)))

    @property
    def keys(self) -> KeyRing:
        """Private keys, by the paths that the broker has."""
        return self.options.keys

    def dir_of(self, place: PartitionLocation) -> RemoteDir | None:
        """Where the segments of a partition in the log directory are copied to; None for one without a topic id, and
        for topics that are never copied."""
        if is_internal(place.topic) or place.topic == REMOTE_LOG_METADATA_TOPIC:
            return None
        topic_id = place.topic_id()
        if topic_id is None:
            return None
        options = self.options
        partition = TopicIdPartition(place.topic, topic_id, place.partition)
        directory = f"{options.root}/{remote_directory(options.layout, partition, options.key_prefix)}"
        prefix = options.key_prefix.rpartition("/")[2]
        return RemoteDir(
            options.layout, place.topic, place.partition, topic_id, directory, self.store, prefix, options.root
        )
