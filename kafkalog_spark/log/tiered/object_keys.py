"""Object keys of remote segments in each layout.

| layout       | key, after a prefix                                                                          |
|--------------|----------------------------------------------------------------------------------------------|
| broker       | `<topic>-<partition>/<20 digits>.log` and the other files of a partition directory           |
| aiven        | `<topic>-<topicId>/<partition>/<20 digits>-<segmentId>.log`, `.indexes`, `.rsm-manifest`     |
| local-tiered | `<topic>-<partition>-<topicId>/<20 digits>-<segmentId>.log`, `.index`, `.timeindex`, ...     |

Sources: ObjectKeyFactory of Aiven's plugin; RemoteLogSegmentFileset and RemoteTopicPartitionDirectory of Kafka's
LocalTieredStorage. IDs are Kafka's Uuids (22 characters of URL-safe base64). Both IDs and topic names may contain `-`
and `_`, so keys are parsed from the right. Aiven's `key.prefix` is prepended unchanged. If it does not end with a
slash, the topic name can be separated from it only if the prefix is known: `parse_aiven_topic_dir` has an argument
for it.
"""

from __future__ import annotations

import re
import uuid
from collections.abc import Iterable
from enum import Enum
from typing import NamedTuple

from kafkalog_spark.format.layout import MAX_INT32, MAX_INT64
from kafkalog_spark.format.names import valid_topic_name
from kafkalog_spark.format.partition_metadata import uuid_from_text, uuid_to_text
from kafkalog_spark.log.tiered.remote_segment import RemoteSegment, TopicIdPartition

LOCAL_TIERED_ROOT = "kafka-tiered-storage"  # directory that LocalTieredStorage creates below rsm.config.dir


class Layout(Enum):
    """Scheme of object keys; the values are those of the option `layout`."""

    BROKER = "broker"
    AIVEN = "aiven"
    LOCAL_TIERED = "local-tiered"


class RemoteFile(Enum):
    """Kind of an object of a segment. The values are the key suffixes of Aiven's plugin.

    Before October 2023, the plugin wrote each index to an object of its own. Since then, one object, INDEXES, has them
    all.
    """

    LOG = ".log"
    MANIFEST = ".rsm-manifest"
    INDEXES = ".indexes"
    OFFSET_INDEX = ".index"
    TIME_INDEX = ".timeindex"
    PRODUCER_SNAPSHOT = ".snapshot"
    TRANSACTION_INDEX = ".txnindex"
    LEADER_EPOCHS = ".leader-epoch-checkpoint"


class RemoteObjects(NamedTuple):
    """Names of the objects of one segment in the directory of its partition.

    Attributes:
        objects: Name of each object by kind.
    """

    layout: Layout
    partition: TopicIdPartition
    start_offset: int
    segment_id: uuid.UUID
    objects: dict[RemoteFile, str]

    @property
    def missing_files(self) -> frozenset[RemoteFile]:
        """Required objects that do not exist: the segment is being copied or deleted, or its copy was abandoned."""
        return _REQUIRED_FILES[self.layout] - self.objects.keys()


INDEX_FILES = (RemoteFile.OFFSET_INDEX, RemoteFile.TIME_INDEX, RemoteFile.TRANSACTION_INDEX)
"""The indexes that Kafka's RemoteIndexCache stores."""
LOCAL_TIERED_SUFFIX: dict[RemoteFile, str] = {
    file: file.value for file in RemoteFile if file not in (RemoteFile.MANIFEST, RemoteFile.INDEXES)
}
LOCAL_TIERED_SUFFIX[RemoteFile.LEADER_EPOCHS] = ".leader_epoch_checkpoint"  # underscores
_FILE_OF_SUFFIX = {
    Layout.AIVEN: {file.value: file for file in RemoteFile},
    Layout.LOCAL_TIERED: {suffix: file for file, suffix in LOCAL_TIERED_SUFFIX.items()},
}

_REQUIRED_FILES = {
    Layout.AIVEN: frozenset({RemoteFile.MANIFEST, RemoteFile.LOG}),  # the manifest is written last
    Layout.LOCAL_TIERED: frozenset(LOCAL_TIERED_SUFFIX) - {RemoteFile.TRANSACTION_INDEX},  # the snapshot last
}
"""Objects of every complete segment. A transaction index exists only if a transaction was aborted in the segment."""

_ID = "[A-Za-z0-9_-]{22}"
_OBJECT_NAME = {
    Layout.AIVEN: re.compile(rf"(?P<start>[0-9]{{20}})-(?P<segment>{_ID})(?P<suffix>\.[a-z-]+)"),
    # Older versions of LocalTieredStorage wrote offsets without padding.
    Layout.LOCAL_TIERED: re.compile(rf"(?P<start>[0-9]{{1,20}})-(?P<segment>{_ID})(?P<suffix>\.[a-z_]+)"),
}
"""Names of objects in the directory of their partition."""

# A broker's partition directory, whose name ends with a digit, must not match. Kafka's IDs have 128 bits, so the last
# of their 22 characters has four zero bits and is one of the letters A, Q, g and w.
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
    """Return the topic and topic ID in the name of a directory of Aiven's plugin, or None for any other name.

    The name of a directory of LocalTieredStorage can match too. Only the content tells the two apart.

    Args:
        key_prefix: Part of `key.prefix` after its last slash.
    """
    match = _AIVEN_TOPIC_DIR.fullmatch(name.removeprefix(key_prefix)) if name.startswith(key_prefix) else None
    if not match or not valid_topic_name(match["topic"]):
        return None
    return match["topic"], uuid_from_text(match["topic_id"])


def parse_partition_number(name: str) -> int | None:
    """Return the partition number of a subdirectory of an Aiven topic directory, or None for any other name."""
    return int(name) if _NUMBER.fullmatch(name) and int(name) <= MAX_INT32 else None


def parse_local_tiered_dir(name: str) -> TopicIdPartition | None:
    """Return the partition of a directory of LocalTieredStorage, or None for any other name."""
    match = _LOCAL_TIERED_DIR.fullmatch(name)
    if match is None or not valid_topic_name(match["topic"]) or int(match["partition"]) > MAX_INT32:
        return None
    return TopicIdPartition(match["topic"], uuid_from_text(match["topic_id"]), int(match["partition"]))


def group_by_segment(names: Iterable[str], layout: Layout, partition: TopicIdPartition) -> list[RemoteObjects]:
    """Group the object names in a partition directory by segment, in order of start offset and ID.

    Names that are not object names are ignored.
    """
    segments: dict[tuple[int, uuid.UUID], RemoteObjects] = {}
    for name in names:
        match = _OBJECT_NAME[layout].fullmatch(name)
        file = _FILE_OF_SUFFIX[layout].get(match["suffix"]) if match else None
        if match is None or file is None or int(match["start"]) > MAX_INT64:
            continue
        key = (int(match["start"]), uuid_from_text(match["segment"]))
        segments.setdefault(key, RemoteObjects(layout, partition, *key, {})).objects[file] = name
    return [segments[key] for key in sorted(segments)]
