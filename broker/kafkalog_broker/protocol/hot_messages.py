"""Messages of hot paths: tuples and the like that are written in place of the classes of `api_messages`, whose fields
they are named after, and a parser of Produce requests with one batch. Records are whole batches in order: bytes-like
pieces or slices of files, which are sent untouched."""

from __future__ import annotations

import struct
from collections.abc import Collection, Hashable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple
from uuid import UUID

from kafkalog_spark.format.transaction_index import AbortedTransaction
from kafkalog_spark.format.varints import read_uvarint

Topic = Hashable  # name, or topic ID in versions that have it (from Fetch 13 on)


class EpochEnd(NamedTuple):
    epoch: int
    end_offset: int


@dataclass(slots=True)
class PartitionFetchResponse:
    """Response for a partition. -1 stands for an unknown offset.

    Attributes:
        records: None is written as null, () as empty, as Kafka does on errors.
        aborted_transactions: None for read_uncommitted.
    """

    partition_index: int
    error_code: int = 0
    high_watermark: int = -1
    last_stable_offset: int = -1
    log_start_offset: int = -1
    records: Sequence[Any] | None = ()
    aborted_transactions: Sequence[AbortedTransaction] | None = None
    diverging_epoch: EpochEnd | None = None
    preferred_read_replica: ClassVar[int] = -1
    current_leader: ClassVar[None] = None
    snapshot_id: ClassVar[None] = None


class RefusedPartitions:
    """Partitions with the same error, as their numbers alone. Their responses are made when they are written."""

    def __init__(self, error_code: int) -> None:
        self.error_code = error_code
        self.indexes: dict[int, None] = {}

    def __len__(self) -> int:
        return len(self.indexes)

    def __iter__(self) -> Iterator[PartitionFetchResponse]:
        # An empty list of aborted transactions, not null, as Kafka writes where no log was read.
        return (PartitionFetchResponse(index, self.error_code, aborted_transactions=()) for index in self.indexes)


class TopicFetchResponse(NamedTuple):
    topic: Topic
    partitions: Sequence[PartitionFetchResponse] | RefusedPartitions

    @property
    def topic_id(self) -> Topic:
        return self.topic


class FetchResponse(NamedTuple):
    responses: Sequence[TopicFetchResponse]
    error_code: int = 0
    session_id: int = 0
    throttle_time: int = 0
    node_endpoints: tuple[()] = ()


class _SameLeader(NamedTuple):
    """In answers of Kafka's where the leader is still the one asked."""

    leader_id: int = 0
    leader_epoch: int = 0


@dataclass(slots=True)
class ShareFetchPartition:
    partition_index: int
    error_code: int = 0
    error_message: str | None = None
    acknowledge_error_code: int = 0
    acknowledge_error_message: str | None = None
    records: Sequence[Any] = ()
    acquired_records: Sequence[tuple[int, int, int]] = ()  # as share.acquisition.Acquired
    current_leader: ClassVar[_SameLeader] = _SameLeader()

    @property
    def size(self) -> int:
        """Bytes of its records."""
        return sum(map(len, self.records))


class ShareFetchTopic(NamedTuple):
    topic_id: UUID | None
    partitions: Collection[ShareFetchPartition]


class ShareFetchResponse(NamedTuple):
    responses: Sequence[ShareFetchTopic] = ()
    error_code: int = 0
    error_message: str | None = None
    acquisition_lock_timeout: int = 0
    throttle_time: int = 0
    node_endpoints: tuple[()] = ()  # there is one node


# Nodes, topics and partitions, in Metadata, DescribeTopicPartitions and others.

OPERATIONS_NOT_ASKED_FOR = -(2**31)

ZERO_ID = UUID(int=0)


class NodeEndpoint(NamedTuple):
    node_id: int
    host: str
    port: int
    rack: str | None = None


class PartitionMetadata(NamedTuple):
    partition_index: int
    leader_id: int
    replica_nodes: Sequence[int]
    isr_nodes: Sequence[int]
    leader_epoch: int = 0
    offline_replicas: Sequence[int] = ()
    error_code: int = 0
    eligible_leader_replicas: Sequence[int] = ()
    last_known_elr: Sequence[int] = ()


class MetadataResponse(NamedTuple):
    brokers: Sequence[NodeEndpoint]
    topics: Sequence[TopicMetadata]
    cluster_id: str | None
    controller_id: int
    cluster_authorized_operations: int = OPERATIONS_NOT_ASKED_FOR
    throttle_time: int = 0
    error_code: int = 0


class TopicMetadata(NamedTuple):
    """`name` None only with an id that is not known (Metadata 12 and later)."""

    name: str | None
    topic_id: UUID
    partitions: Sequence[PartitionMetadata]
    error_code: int = 0
    is_internal: bool = False
    topic_authorized_operations: int = OPERATIONS_NOT_ASKED_FOR


# Produce, versions 0 to 13. Records stay where they are in the frame; one batch is read by hand.
#
# v0-2    acks i16 | timeout_ms i32 | [name string | [index i32 | message set bytes]]
# v3-8    transactional_id nullable string | acks i16 | timeout_ms i32 | [name string | [index i32 | records bytes]]
# v9-12   the same with compact strings, compact arrays and tagged fields after every struct
# v13     topics by id (16 bytes) instead of name (KIP-516)

_LEGACY_HEAD = struct.Struct(">hhiih")  # transactional id's size, acks, timeout, topics, size of the name
_LEGACY_PARTITION = struct.Struct(">iii")  # partitions, index, size of the records
_FLEXIBLE_HEAD = struct.Struct(">BhiBB")  # the same; sizes and counts one higher
_FLEXIBLE_PARTITION = struct.Struct(">Bi")

_ZERO_ID = UUID(int=0)
FIRST_TRANSACTIONAL_VERSION = 3
FIRST_FLEXIBLE_VERSION = 9
FIRST_TOPIC_ID_VERSION = 13


@dataclass(slots=True)
class ProduceRequest:
    """`topics`: (name, or UUID from version 13 on; [(partition, records)]). `records`: a read-only memoryview into the
    frame, or None where the client sent null."""

    transactional_id: str | None
    acks: int
    topics: list[tuple[str | UUID, list[tuple[int, memoryview | None]]]]


def produce_request(entity: Any) -> ProduceRequest:
    """Return a request of any version in this form."""
    return ProduceRequest(
        entity.transactional_id,
        entity.acks,
        [
            (topic.topic_id or _ZERO_ID if entity.__version__ >= FIRST_TOPIC_ID_VERSION else topic.name,
             [(one.index, one.records) for one in topic.partition_data])
            for topic in entity.topic_data
        ],
    )  # fmt: skip


def parse_one_batch(frame: bytes | memoryview, position: int, version: int) -> ProduceRequest | None:
    """The body that begins at `position`, of a request with one batch and no transactional id, in half the time; None
    for all others, and for those in which something is wrong: `frames.decode_request` says what."""
    try:
        if FIRST_FLEXIBLE_VERSION <= version < FIRST_TOPIC_ID_VERSION:
            no_id, acks, _, topics, size = _FLEXIBLE_HEAD.unpack_from(frame, position)
            name_at = position + _FLEXIBLE_HEAD.size
            name_end = name_at + size - 1
            if no_id or topics != 2 or not 0 < size < 0x80:
                return None
            partitions, index = _FLEXIBLE_PARTITION.unpack_from(frame, name_end)
            size, start = read_uvarint(frame, name_end + _FLEXIBLE_PARTITION.size)
            stop = start + size - 1
            if partitions != 2 or not size or frame[stop:] != b"\0\0\0":  # no tags of partition, topic and request
                return None
        elif FIRST_TRANSACTIONAL_VERSION <= version < FIRST_FLEXIBLE_VERSION:
            no_id, acks, _, topics, size = _LEGACY_HEAD.unpack_from(frame, position)
            name_at = position + _LEGACY_HEAD.size
            name_end = name_at + size
            if no_id != -1 or topics != 1 or size < 0:
                return None
            partitions, index, size = _LEGACY_PARTITION.unpack_from(frame, name_end)
            start = name_end + _LEGACY_PARTITION.size
            stop = start + size
            if partitions != 1 or size < 0 or stop != len(frame):
                return None
        else:
            return None
        name = str(frame[name_at:name_end], "utf-8")
    except (struct.error, IndexError, ValueError):
        return None
    return ProduceRequest(None, acks, [(name, [(index, memoryview(frame)[start:stop].toreadonly())])])


class RecordError(NamedTuple):
    """A record, by its index in the batch, that was wrong."""

    batch_index: int
    batch_index_error_message: str | None


@dataclass(slots=True)
class PartitionProduceResponse:
    """Answer for the batch of a partition. -1 stands for an offset or time that is not known."""

    index: int
    error_code: int = 0
    base_offset: int = -1
    log_append_time: int = -1
    log_start_offset: int = -1
    record_errors: Sequence[RecordError] = ()
    error_message: str | None = None
    current_leader: ClassVar[None] = None


class TopicProduceResponse(NamedTuple):
    name: str | UUID
    partition_responses: Sequence[PartitionProduceResponse]

    @property
    def topic_id(self) -> str | UUID:
        return self.name


class ProduceResponse(NamedTuple):
    responses: Sequence[TopicProduceResponse]
    throttle_time: int = 0
    node_endpoints: tuple[()] = ()
