"""Names in a log directory: partition directories, segment files, and the files of a listing that count.

Facts of Kafka: LogFileUtils (file names and suffixes), UnifiedLog.parseTopicPartitionName (directories),
Topic.validate (topic names), LogLoader (what becomes of files left by an interrupted cleaning, split or deletion).
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

DELETED_SUFFIX = ".deleted"  # waits for its removal (file.delete.delay.ms)
CLEANED_SUFFIX = ".cleaned"  # being written by the cleaner or by a split: not yet part of the log
SWAP_SUFFIX = ".swap"  # written whole, and about to take the place of older segments

DELETE_DIR_SUFFIX = "-delete"

CLEAN_SHUTDOWN_FILE = ".kafka_cleanshutdown"
LOCK_FILE = ".lock"
REMOTE_STORAGE_FILE = "kafkalog.remote-storage.properties"
"""Properties that say where a broker's remote segments lie, in a log directory; kafkalog's own."""
REMOTE_STORAGE_MARKER = ".kafkalog-remote-storage"
"""File in the folder of remote storage by which a broker recognises it: an empty mount point does not have it."""
INDEX_CACHE_DIR = "remote-log-index-cache"
"""Copies of remote segments' indexes, in a log directory (RemoteIndexCache.DIR_NAME): no partition's directory."""

OFFSETS_TOPIC = "__consumer_offsets"  # groups and committed offsets (Topic.GROUP_METADATA_TOPIC_NAME)
TRANSACTION_TOPIC = "__transaction_state"
"""Transactional ids and their transactions (Topic.TRANSACTION_STATE_TOPIC_NAME)."""
SHARE_STATE_TOPIC = "__share_group_state"
"""Topic of the state of share partitions (Topic.SHARE_GROUP_STATE_TOPIC_NAME)."""
INTERNAL_TOPICS = frozenset({OFFSETS_TOPIC, TRANSACTION_TOPIC, SHARE_STATE_TOPIC})
REMOTE_LOG_METADATA_TOPIC = "__remote_log_metadata"
"""Topic of the events of remote segments (TopicBasedRemoteLogMetadataManagerConfig). To clients it is a topic like any
other, as in Kafka: Metadata does not call it internal."""
CLUSTER_METADATA_TOPIC = "__cluster_metadata"
"""KRaft's own log. It may lie between the partitions, but it is no topic: no consumer can subscribe to it."""

MAX_PARTITIONS = 1_000_000
"""Partitions of all topics that a file may speak of. Each has a directory of its own, so that no broker comes near.
Without a bound, a number in a file would take the memory for 2^31 of them, or make as many directories."""
MAX_TOPIC_NAME_LENGTH = 249  # characters; a directory name has 255 at most, and "-" and the partition follow

_TOPIC_NAME = re.compile(r"[a-zA-Z0-9._-]+")
_PARTITION_DIR = re.compile(r"(?P<topic>.+)-(?P<partition>0|[1-9][0-9]{0,9})")
# The topic part is greedy and the id holds no dot: as in Kafka, the last dot ends the name of the partition.
_RENAMED_DIR = re.compile(r"(?P<name>\S+)\.(?P<id>[^.\s]+)(?P<suffix>-delete|-future|-stray)")
_SEGMENT_FILE = re.compile(
    r"(?P<offset>[0-9]{20})(?P<suffix>\.log|\.index|\.timeindex|\.txnindex|\.snapshot)"
    r"(?P<transient>\.deleted|\.cleaned|\.swap)?"
)


SEGMENT_SUFFIXES = (LOG_SUFFIX, OFFSET_INDEX_SUFFIX, TIME_INDEX_SUFFIX, TRANSACTION_INDEX_SUFFIX)
"""The files of a segment, in the order in which they are renamed."""
_INDEXES = SEGMENT_SUFFIXES[1:]


class DirKind(Enum):
    """State of a partition directory. Readers of a log directory take LIVE ones only."""

    LIVE = "live"
    DELETE = "delete"  # the topic was deleted; the files go a minute later
    FUTURE = "future"  # a replica that is being moved into this log directory, not yet complete
    STRAY = "stray"  # a partition that the cluster metadata does not place on this broker (Kafka >= 3.7)
    METADATA = "metadata"  # `__cluster_metadata-0`, KRaft's own log


class PartitionDir(NamedTuple):
    """`topic` may be cut short in DELETE and STRAY ones: names have 255 characters."""

    topic: str
    partition: int
    kind: DirKind


class SegmentFileName(NamedTuple):
    """base_offset: of a `.snapshot` the next offset to be written."""

    base_offset: int
    suffix: str
    transient_suffix: str | None


@dataclass(frozen=True, slots=True)
class SegmentFiles:
    """File names, without directory, of one segment that is part of the log; None where there is no such file."""

    base_offset: int
    log: str
    offset_index: str | None = None
    time_index: str | None = None
    transaction_index: str | None = None


def segment_name(base_offset: int) -> str:
    """20 decimal digits: what the names of all files of a segment begin with."""
    if not 0 <= base_offset <= MAX_INT64:
        raise ValueError(f"a base offset is between 0 and 2^63-1, got {base_offset}")
    return f"{base_offset:020d}"


def is_internal(topic: str) -> bool:
    """True for topics of the brokers themselves, which a subscription to everything leaves out."""
    return topic in INTERNAL_TOPICS or topic == CLUSTER_METADATA_TOPIC


def is_written_by_broker(topic: str) -> bool:
    """True for topics whose records a broker believes at its start: nobody else has a reason to write to them."""
    return is_internal(topic) or topic == REMOTE_LOG_METADATA_TOPIC


def valid_topic_name(topic: str) -> bool:
    """Topic.validate: 1 to 249 of the characters a-z A-Z 0-9 . _ - and neither "." nor ".."."""
    return len(topic) <= MAX_TOPIC_NAME_LENGTH and topic not in (".", "..") and bool(_TOPIC_NAME.fullmatch(topic))


def similar_topics(topic: str, topics: Iterable[str]) -> list[str]:
    """Return the topics that `topic` may be a misspelling of, at most three, the most similar first."""
    by_key: dict[str, list[str]] = {}
    for name in topics:
        by_key.setdefault(name.lower().replace("_", "-").replace(".", "-"), []).append(name)
    key = topic.lower().replace("_", "-").replace(".", "-")
    return [name for near in difflib.get_close_matches(key, by_key, cutoff=0.7) for name in sorted(by_key[near])][:3]


def metrics_name(topic: str) -> str:
    """The name of a topic in metrics, where topics with a dot may collide (Topic.unifyCollisionChars)."""
    return topic.replace(".", "_")


def parse_partition_dir(name: str) -> PartitionDir | None:
    """None when no broker would have made it. `topic-N` is LIVE; `topic-N.<id>-delete`, `-future`, `-stray` are the
    others (Kafka accepts any id). The last dash before N ends the topic: `a-1-2` is partition 2 of `a-1`."""
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
    """Take a file's name apart; None when it is not a segment's .log, index or producer snapshot."""
    parts = _SEGMENT_FILE.fullmatch(name)
    if not parts or int(parts["offset"]) > MAX_INT64:
        return None
    return SegmentFileName(int(parts["offset"]), parts["suffix"], parts["transient"])


def producer_snapshots(names: Iterable[str]) -> list[tuple[int, str]]:
    """(offset, file name) of the producer snapshots in a listing, by offset; the offset is the next one to write."""
    return sorted(
        (file.base_offset, name)
        for name in names
        if name.endswith(PRODUCER_SNAPSHOT_SUFFIX) and (file := parse_segment_file(name))
    )


def live_segments(names: Iterable[str], next_offset: Callable[[str], int]) -> list[SegmentFiles]:
    """Which segments a listing of a partition directory holds, by base offset, as LogLoader would decide.

    The cleaner (or a split) writes `.cleaned` files, renames them `.swap` from the highest base offset down, renames
    the segments they replace `.deleted`, then strips `.swap`. At any instant of that, running or crashed:

    - `.deleted` files do not count;
    - a `.swap` whose base offset is not below the lowest `.cleaned` one belongs to a change that was not finished
      (KAFKA-6264): it does not count, and `.cleaned` files never do. The old segments are all there;
    - the other `.swap` logs are the log. They replace each plain segment of the same base offset, and each with a base
      offset in [lowest of theirs, highest next offset of theirs);
    - an index without a .log does not count. A `.swap` log never takes a plain index: that one describes the old log.
      A plain log takes a `.swap` index, because the .log is the first file to lose the suffix.

    next_offset(name): the offset after the last one in that `.log.swap` (its base offset when it is empty), asked once
    for each that counts. A file that a running broker renamed meanwhile raises FileNotFoundError: list again.
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
    return [
        SegmentFiles(
            base, name, *(next((of[base, index] for of in listed if (base, index) in of), None) for index in _INDEXES)
        )
        for base, (name, listed) in sorted(logs.items())
    ]
