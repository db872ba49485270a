"""Object keys of remote segments in each layout: formatting and parsing.

| layout       | key, after a prefix                                                                          |
|--------------|----------------------------------------------------------------------------------------------|
| broker       | `<topic>-<partition>/<20 digits>.log` and the other files of a partition directory           |
| aiven        | `<topic>-<topicId>/<partition>/<20 digits>-<segmentId>.log`, `.indexes`, `.rsm-manifest`     |
| local-tiered | `<topic>-<partition>-<topicId>/<20 digits>-<segmentId>.log`, `.index`, `.timeindex`, ...     |

Sources: ObjectKeyFactory of Aiven's plugin; RemoteLogSegmentFileset and RemoteTopicPartitionDirectory of Kafka's
LocalTieredStorage. IDs are Kafka's Uuids (22 characters of URL-safe base64). Both IDs and topic names may contain `-`
and `_`, so keys are parsed from the right. Aiven's `key.prefix` is prepended unchanged. If it does not end with a
slash, the key alone does not tell where the topic name starts, so `parse_aiven_topic_dir` takes the prefix.
"""

from __future__ import annotations

import re
import uuid
from collections.abc import Iterable
from dataclasses import dataclass
from enum import Enum
from typing import NamedTuple

from kafkalog_spark.format.checkpoint import EpochEntry
from kafkalog_spark.format.layout import MAX_INT32, MAX_INT64
from kafkalog_spark.format.names import segment_name, valid_topic_name
from kafkalog_spark.format.partition_metadata import uuid_from_text, uuid_to_text


class TopicIdPartition(NamedTuple):
    """A partition, with the topic ID, because a deleted topic and a new one may have the same name."""

    topic: str
    topic_id: uuid.UUID
    partition: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition} (topic id {uuid_to_text(self.topic_id)})"


@dataclass(frozen=True, slots=True)
class RemoteSegment:
    """A segment in remote storage as manifests and `__remote_log_metadata` describe it (RemoteLogSegmentMetadata).

    Attributes:
        end_offset: Last offset, **inclusive**: the base offset of the next segment minus 1, control records included.
        leader_epochs: Epochs of the records, in order. The first starts at `start_offset`, the others where they start
            in the log.
        size: Bytes of the .log file.
        max_timestamp: In ms.
        event_timestamp: In ms.
        custom_metadata: Bytes that the remote storage plugin stores for itself.
    """

    partition: TopicIdPartition
    segment_id: uuid.UUID
    start_offset: int
    end_offset: int
    leader_epochs: tuple[EpochEntry, ...]
    size: int
    max_timestamp: int
    broker_id: int
    event_timestamp: int
    custom_metadata: bytes | None = None
    transaction_index_empty: bool = False

    @property
    def name(self) -> str:
        """Name of the files without suffix: start offset and segment ID, in all layouts."""
        return f"{segment_name(self.start_offset)}-{uuid_to_text(self.segment_id)}"

    @property
    def until(self) -> int:
        return self.end_offset + 1

    @property
    def last_epoch(self) -> int:
        """Leader epoch of the last record, or -1 if it is unknown."""
        return self.leader_epochs[-1].epoch if self.leader_epochs else -1

    def __str__(self) -> str:
        return f"{self.partition.topic}-{self.partition.partition} {self.name} [{self.start_offset}, {self.end_offset}]"


LOCAL_TIERED_ROOT = "kafka-tiered-storage"  # directory that LocalTieredStorage creates below rsm.config.dir


class Layout(Enum):
    """Scheme of object keys; the values are those of the option `layout`."""

    BROKER = "broker"
    AIVEN = "aiven"
    LOCAL_TIERED = "local-tiered"


class RemoteFile(Enum):
    """Kind of an object of a segment. The values are suffixes of Aiven's keys, current and before October 2023."""

    LOG = ".log"
    MANIFEST = ".rsm-manifest"
    INDEXES = ".indexes"
    OFFSET_INDEX = ".index"
    TIME_INDEX = ".timeindex"
    PRODUCER_SNAPSHOT = ".snapshot"
    TRANSACTION_INDEX = ".txnindex"
    LEADER_EPOCHS = ".leader-epoch-checkpoint"


INDEX_FILES = (RemoteFile.OFFSET_INDEX, RemoteFile.TIME_INDEX, RemoteFile.TRANSACTION_INDEX)
LOCAL_TIERED_SUFFIX: dict[RemoteFile, str] = {
    file: file.value for file in RemoteFile if file not in (RemoteFile.MANIFEST, RemoteFile.INDEXES)
}
LOCAL_TIERED_SUFFIX[RemoteFile.LEADER_EPOCHS] = ".leader_epoch_checkpoint"  # underscores
_FILE_OF_SUFFIX = {
    Layout.AIVEN: {file.value: file for file in RemoteFile},
    Layout.LOCAL_TIERED: {suffix: file for file, suffix in LOCAL_TIERED_SUFFIX.items()},
}

_COMPLETE = {
    Layout.AIVEN: frozenset({RemoteFile.MANIFEST, RemoteFile.LOG}),  # the manifest is written last
    Layout.LOCAL_TIERED: frozenset(LOCAL_TIERED_SUFFIX) - {RemoteFile.TRANSACTION_INDEX},  # the snapshot last
}
"""Files of a complete segment; the transaction index exists only if a transaction was aborted."""

_ID = "[A-Za-z0-9_-]{22}"
_NAME = {
    Layout.AIVEN: re.compile(rf"(?P<start>[0-9]{{20}})-(?P<segment>{_ID})(?P<suffix>\.[a-z-]+)"),
    # older LocalTieredStorage wrote offsets without padding
    Layout.LOCAL_TIERED: re.compile(rf"(?P<start>[0-9]{{1,20}})-(?P<segment>{_ID})(?P<suffix>\.[a-z_]+)"),
}
"""Name of an object in the directory of its partition."""

# Directory names are matched more strictly than object names. Kafka's IDs end with four zero bits, so the last
# character is one of four letters, and the partition directory of a broker, which ends with a digit, never matches.
_DIR_ID = "[A-Za-z0-9_-]{21}[AQgw]"
_AIVEN_TOPIC_DIR = re.compile(rf"(?P<topic>[a-zA-Z0-9._-]+)-(?P<topic_id>{_DIR_ID})")
_LOCAL_TIERED_DIR = re.compile(
    rf"(?P<topic>[a-zA-Z0-9._-]+)-(?P<partition>0|[1-9][0-9]{{0,9}})-(?P<topic_id>{_DIR_ID})"
)
_NUMBER = re.compile(r"0|[1-9][0-9]{0,9}")


def remote_directory(layout: Layout, partition: TopicIdPartition, key_prefix: str = "") -> str:
    """Return the common prefix of the keys of the objects of a partition, without the last slash."""
    topic, topic_id, number = partition
    if layout is Layout.AIVEN:
        return f"{key_prefix}{topic}-{uuid_to_text(topic_id)}/{number}"
    return f"{key_prefix}{topic}-{number}-{uuid_to_text(topic_id)}"


def remote_key(layout: Layout, segment: RemoteSegment, file: RemoteFile, key_prefix: str = "") -> str:
    """Return the key of an object of a segment.

    Raises:
        KeyError: If the layout has no such file: LocalTieredStorage has neither manifests nor `.indexes` objects.
    """
    suffix = file.value if layout is Layout.AIVEN else LOCAL_TIERED_SUFFIX[file]
    return f"{remote_directory(layout, segment.partition, key_prefix)}/{segment.name}{suffix}"


def parse_aiven_topic_dir(name: str, key_prefix: str = "") -> tuple[str, uuid.UUID] | None:
    """Return topic and topic ID of a directory of Aiven's plugin, or None for any other name.

    A directory of LocalTieredStorage can match too; only its content distinguishes them.

    Args:
        key_prefix: Part of `key.prefix` after its last slash.
    """
    found = _AIVEN_TOPIC_DIR.fullmatch(name.removeprefix(key_prefix)) if name.startswith(key_prefix) else None
    if not found or not valid_topic_name(found["topic"]):
        return None
    return found["topic"], uuid_from_text(found["topic_id"])


def parse_partition_number(name: str) -> int | None:
    """Return the partition number of a subdirectory of an Aiven topic directory, or None for any other name."""
    return int(name) if _NUMBER.fullmatch(name) and int(name) <= MAX_INT32 else None


def parse_local_tiered_dir(name: str) -> TopicIdPartition | None:
    """Return the partition of a directory of LocalTieredStorage, or None for any other name."""
    match = _LOCAL_TIERED_DIR.fullmatch(name)
    if match is None or not valid_topic_name(match["topic"]) or int(match["partition"]) > MAX_INT32:
        return None
    return TopicIdPartition(match["topic"], uuid_from_text(match["topic_id"]), int(match["partition"]))


class RemoteObjects(NamedTuple):
    """Objects of one segment in a directory; `objects` maps each kind to the name of the object."""

    layout: Layout
    partition: TopicIdPartition
    start_offset: int
    segment_id: uuid.UUID
    objects: dict[RemoteFile, str]

    @property
    def missing(self) -> frozenset[RemoteFile]:
        """Missing files: the segment is being copied or deleted, or its copy was abandoned."""
        return _COMPLETE[self.layout] - self.objects.keys()


def remote_objects(names: Iterable[str], layout: Layout, partition: TopicIdPartition) -> list[RemoteObjects]:
    """Group the names in a partition directory by segment, in order of start offset and ID; ignore other names."""
    found: dict[tuple[int, uuid.UUID], RemoteObjects] = {}
    for name in names:
        match = _NAME[layout].fullmatch(name)
        file = _FILE_OF_SUFFIX[layout].get(match["suffix"]) if match else None
        if match is None or file is None or int(match["start"]) > MAX_INT64:
            continue
        segment = (int(match["start"]), uuid_from_text(match["segment"]))
        found.setdefault(segment, RemoteObjects(layout, partition, *segment, {})).objects[file] = name
    return [found[segment] for segment in sorted(found)]
