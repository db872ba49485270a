"""Names in a log directory: topics, partition directories, segment files, and the live segments of a listing.

Kafka: LogFileUtils (file names and suffixes), UnifiedLog.parseTopicPartitionName (directories), Topic.validate (topic
names), LogLoader (handling of files left by an interrupted cleaning, split or deletion).
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from enum import Enum
from typing import NamedTuple

from kafkalog_spark.format.layout import MAX_INT32, MAX_INT64

LOG_SUFFIX = ".log"
OFFSET_INDEX_SUFFIX = ".index"
TIME_INDEX_SUFFIX = ".timeindex"
TRANSACTION_INDEX_SUFFIX = ".txnindex"
PRODUCER_SNAPSHOT_SUFFIX = ".snapshot"

DELETED_SUFFIX = ".deleted"  # removed after file.delete.delay.ms
CLEANED_SUFFIX = ".cleaned"  # being written by the cleaner or by a split, not yet part of the log
SWAP_SUFFIX = ".swap"  # complete, and about to replace older segments

DELETE_DIR_SUFFIX = "-delete"

CLEAN_SHUTDOWN_FILE = ".kafka_cleanshutdown"
LOCK_FILE = ".lock"
REMOTE_STORAGE_FILE = "kafkalog.remote-storage.properties"
"""File in a log directory in which kafkalog-broker records the location of its remote segments."""
REMOTE_STORAGE_MARKER = ".kafkalog-remote-storage"
"""File in the folder of remote storage by which a broker recognises it: an empty mount point does not have it."""
INDEX_CACHE_DIR = "remote-log-index-cache"
"""Directory in a log directory with copies of remote segments' indexes (RemoteIndexCache.DIR_NAME)."""

OFFSETS_TOPIC = "__consumer_offsets"  # groups and committed offsets (Topic.GROUP_METADATA_TOPIC_NAME)
TRANSACTION_TOPIC = "__transaction_state"
"""Transactional ids and their transactions (Topic.TRANSACTION_STATE_TOPIC_NAME)."""
SHARE_STATE_TOPIC = "__share_group_state"
"""Topic of the state of share partitions (Topic.SHARE_GROUP_STATE_TOPIC_NAME)."""
INTERNAL_TOPICS = frozenset({OFFSETS_TOPIC, TRANSACTION_TOPIC, SHARE_STATE_TOPIC})
REMOTE_LOG_METADATA_TOPIC = "__remote_log_metadata"
"""Topic of the events of remote segments (TopicBasedRemoteLogMetadataManagerConfig). As in Kafka, a Metadata response
does not mark it as internal."""
CLUSTER_METADATA_TOPIC = "__cluster_metadata"
"""KRaft's own log. Its directory may be next to the partitions, but no consumer can subscribe to it."""

MAX_PARTITIONS = 1_000_000
"""Largest number of partitions of all topics that is accepted in a file. Without a bound, a wrong number would
allocate memory for 2^31 partitions, or create as many directories."""
MAX_TOPIC_NAME_LENGTH = 249  # characters; a directory name has at most 255, including "-" and the partition

_TOPIC_NAME = re.compile(r"[a-zA-Z0-9._-]+")
_PARTITION_DIR = re.compile(r"(?P<topic>.+)-(?P<partition>0|[1-9][0-9]{0,9})")
# The topic part is greedy and the id has no dot: as in Kafka, the last dot ends the name of the partition.
_RENAMED_DIR = re.compile(r"(?P<name>\S+)\.(?P<id>[^.\s]+)(?P<suffix>-delete|-future|-stray)")
_SEGMENT_FILE = re.compile(
    r"(?P<offset>[0-9]{20})(?P<suffix>\.log|\.index|\.timeindex|\.txnindex|\.snapshot)"
    r"(?P<transient>\.deleted|\.cleaned|\.swap)?"
)


SEGMENT_SUFFIXES = (LOG_SUFFIX, OFFSET_INDEX_SUFFIX, TIME_INDEX_SUFFIX, TRANSACTION_INDEX_SUFFIX)
"""The files of a segment, in the order in which they are renamed."""
_INDEXES = SEGMENT_SUFFIXES[1:]


class DirKind(Enum):
    """State of a partition directory. Readers use only LIVE ones."""

    LIVE = "live"
    DELETE = "delete"  # the topic was deleted; the files are removed a minute later
    FUTURE = "future"  # a replica that is being moved into this log directory, not yet complete
    STRAY = "stray"  # a partition that the cluster metadata does not place on this broker (Kafka >= 3.7)
    METADATA = "metadata"  # `__cluster_metadata-0`, KRaft's own log


class PartitionDir(NamedTuple):
    """Parsed name of a partition directory. `topic` may be truncated if `kind` is DELETE or STRAY."""

    topic: str
    partition: int
    kind: DirKind


class SegmentFileName(NamedTuple):
    """Parsed name of a segment file. `base_offset` of a `.snapshot` is the next offset to be written."""

    base_offset: int
    suffix: str
    transient_suffix: str | None


@dataclass(frozen=True, slots=True)
class SegmentFiles:
    """File names, without directory, of one live segment. None means that the file does not exist."""

    base_offset: int
    log: str
    offset_index: str | None = None
    time_index: str | None = None
    transaction_index: str | None = None


def segment_name(base_offset: int) -> str:
    """Return the common part of the file names of a segment: the base offset in 20 decimal digits."""
    if not 0 <= base_offset <= MAX_INT64:
        raise ValueError(f"a base offset is between 0 and 2^63-1, got {base_offset}")
    return f"{base_offset:020d}"


def is_internal(topic: str) -> bool:
    """True for topics of the brokers themselves, which a subscription by pattern does not include."""
    return topic in INTERNAL_TOPICS or topic == CLUSTER_METADATA_TOPIC


def is_written_by_broker(topic: str) -> bool:
    """True for topics whose records a broker loads and trusts at its start, so that clients must not write to them."""
    return is_internal(topic) or topic == REMOTE_LOG_METADATA_TOPIC


def valid_topic_name(topic: str) -> bool:
    """True for 1 to 249 of the characters a-z A-Z 0-9 . _ - except "." and ".." (Kafka: Topic.validate)."""
    return len(topic) <= MAX_TOPIC_NAME_LENGTH and topic not in (".", "..") and bool(_TOPIC_NAME.fullmatch(topic))


def similar_topics(topic: str, topics: Iterable[str]) -> list[str]:
    """Return the topics that `topic` may be a misspelling of, at most three, the most similar first."""
    by_key: dict[str, list[str]] = {}
    for name in topics:
        by_key.setdefault(name.lower().replace("_", "-").replace(".", "-"), []).append(name)
    key = topic.lower().replace("_", "-").replace(".", "-")
    return [name for near in difflib.get_close_matches(key, by_key, cutoff=0.7) for name in sorted(by_key[near])][:3]


def metrics_name(topic: str) -> str:
    """Return the name of a topic in metrics, in which dots and underscores are equal (Topic.unifyCollisionChars)."""
    return topic.replace(".", "_")


def parse_partition_dir(name: str) -> PartitionDir | None:
    """Parse the name of a partition directory; None for any other name.

    `topic-N` is LIVE, `topic-N.<id>-delete`, `-future` and `-stray` are the other kinds; Kafka accepts any id. The last
    dash before N ends the topic: `a-1-2` is partition 2 of `a-1`.
    """
    kind = DirKind.LIVE
    renamed = _RENAMED_DIR.fullmatch(name)
    if renamed:
        name = renamed["name"]
        kind = DirKind(renamed["suffix"][1:])
    parts = _PARTITION_DIR.fullmatch(name)
    if not parts or not valid_topic_name(parts["topic"]) or int(parts["partition"]) > MAX_INT32:
        return None
    if kind is DirKind.LIVE and parts["topic"] == CLUSTER_METADATA_TOPIC:
        kind = DirKind.METADATA
    return PartitionDir(parts["topic"], int(parts["partition"]), kind)


def parse_segment_file(name: str) -> SegmentFileName | None:
    """Parse the name of a segment's .log, index or producer snapshot; None for any other name."""
    parts = _SEGMENT_FILE.fullmatch(name)
    if not parts or int(parts["offset"]) > MAX_INT64:
        return None
    return SegmentFileName(int(parts["offset"]), parts["suffix"], parts["transient"])


def producer_snapshots(names: Iterable[str]) -> list[tuple[int, str]]:
    """Return (offset, file name) of the producer snapshots in a listing, by offset."""
    return sorted(
        (file.base_offset, name)
        for name in names
        if name.endswith(PRODUCER_SNAPSHOT_SUFFIX) and (file := parse_segment_file(name))
    )


def live_segments(names: Iterable[str], next_offset: Callable[[str], int]) -> list[SegmentFiles]:
    """Return the segments of the log by base offset, from a listing of its directory, by the rules of LogLoader.

    The cleaner (or a split) writes `.cleaned` files, renames them to `.swap` from the highest base offset down, renames
    the segments that they replace to `.deleted`, then removes the suffix `.swap`. At any time of this process, and
    after a crash:

    - `.deleted` and `.cleaned` files are ignored.
    - A `.swap` file whose base offset is not below that of the lowest `.cleaned` file belongs to a replacement that did
      not complete (KAFKA-6264). It is ignored, because all old segments still exist.
    - The other `.swap` logs are part of the log. They replace every plain segment with the same base offset, or with a
      base offset between their lowest base offset and their highest next offset.
    - An index without a .log is ignored. A `.swap` log does not use a plain index, which describes the old log. A plain
      log uses a `.swap` index, because the .log is the first file to be renamed.

    Args:
        names: File names in the directory.
        next_offset: Returns the offset after the last record of a `.log.swap`, or its base offset if it is empty. It
            may raise FileNotFoundError, if a running broker renamed the file: then list the directory again.
    """
    plain: dict[tuple[int, str], str] = {}
    swap: dict[tuple[int, str], str] = {}
    lowest_cleaned = MAX_INT64 + 1
    for name in names:
        file = parse_segment_file(name)
        if file is None:
            continue
        if file.transient_suffix is None:
            plain[file.base_offset, file.suffix] = name
        elif file.transient_suffix == SWAP_SUFFIX:
            swap[file.base_offset, file.suffix] = name
        elif file.transient_suffix == CLEANED_SUFFIX:
            lowest_cleaned = min(lowest_cleaned, file.base_offset)
    swap = {key: name for key, name in swap.items() if key[0] < lowest_cleaned}

    swap_logs = {base: name for (base, suffix), name in swap.items() if suffix == LOG_SUFFIX}
    replaced_from = min(swap_logs, default=0)
    replaced_to = max((next_offset(name) for name in swap_logs.values()), default=0)

    logs = {base: (name, (swap,)) for base, name in swap_logs.items()} | {
        base: (name, (swap, plain))
        for (base, suffix), name in plain.items()
        if suffix == LOG_SUFFIX and base not in swap_logs and not replaced_from <= base < replaced_to
    }
    segments = []
    for base, (log, sources) in sorted(logs.items()):
        indexes = (
            next((files[base, suffix] for files in sources if (base, suffix) in files), None) for suffix in _INDEXES
        )
        segments.append(SegmentFiles(base, log, *indexes))
    return segments
