"""Records of __consumer_offsets: what their keys and values say (Kafka's group-coordinator, CoordinatorRecordType).

| key version | is about | value |
|---|---|---|
| 0, 1 | an offset that a group has committed: group, topic, partition | OffsetCommitValue 0-4 |
| 2 | a classic group | GroupMetadataValue 0-4 |
| 3, 11, 17 | a consumer (KIP-848), share (KIP-932) or streams group (KIP-1071) | i16 version, i32 epoch, ... |
| 5, 10, 19 | a member of one of these | a value, or null when it has left |

A null value is a tombstone. Keys of other versions say nothing of these.
"""

from __future__ import annotations

import struct
import uuid
from dataclasses import dataclass
from typing import Any, NamedTuple
from uuid import UUID

from kafkalog_spark.errors import CorruptLog, UnsupportedFormat
from kafkalog_spark.format.layout import NO_PRODUCER_ID

# Records of `__cluster_metadata`, KRaft's log (MetadataRecordSerde): of them the one that counts producer ids.
#
# ProducerIdsRecord, a record's value: frame version, key and version as unsigned varints (1, 15, 0), then brokerId
# i32, brokerEpoch i64, nextProducerId i64 and tagged fields.

PRODUCER_IDS = b"\x01\x0f\x00"
"""How the value of a ProducerIdsRecord begins."""

_BODY = struct.Struct(">iqq")


def next_producer_id(value: bytes | memoryview) -> int | None:
    """The first id that no broker has got, of a ProducerIdsRecord; None of any other record."""
    begin = len(PRODUCER_IDS)
    if len(value) < begin + _BODY.size or value[:begin] != PRODUCER_IDS:
        return None
    return int(_BODY.unpack_from(value, begin)[2])


# The types of Kafka's generated messages, classic and flexible (KIP-482), as records of internal topics use them.
#
# The broker has a codec for the protocol's messages; the log format does without it for the few that lie in logs,
# and the coordinators read their records with this too.

_MAX_VARINT = 5  # bytes of an unsigned varint of 32 bits
_INT8, _INT16, _INT32, _INT64 = (struct.Struct(form) for form in (">b", ">h", ">i", ">q"))


class MessageReader:
    """Reads one message from its first byte on. `flexible`: whether strings, arrays and bytes are compact, and structs
    end in tagged fields. Whatever does not fit raises CorruptLog, which says `what` the message is."""

    def __init__(self, data: bytes, what: str) -> None:
        self._data = data
        self._what = what
        self.at = 0
        self.flexible = False

    def wrong(self, why: str) -> CorruptLog:
        """The error to raise for what was read last."""
        return CorruptLog(f"{self._what}: {why}, at byte {self.at} of {len(self._data)}")

    def take(self, size: int) -> bytes:
        """The next `size` bytes."""
        if not 0 <= size <= len(self._data) - self.at:
            raise self.wrong(f"{size} bytes are announced, {len(self._data) - self.at} are left")
        self.at += size
        return self._data[self.at - size : self.at]

    def _number(self, form: struct.Struct) -> Any:
        return form.unpack(self.take(form.size))[0]

    def int8(self) -> int:
        return int(self._number(_INT8))

    def int16(self) -> int:
        return int(self._number(_INT16))

    def int32(self) -> int:
        return int(self._number(_INT32))

    def int64(self) -> int:
        return int(self._number(_INT64))

    def uvarint(self) -> int:
        """An unsigned varint of 32 bits."""
        value = 0
        for place in range(_MAX_VARINT):
            byte = self.take(1)[0]
            value |= (byte & 0x7F) << (7 * place)
            if byte < 0x80:
                return value
        raise self.wrong("an unsigned varint has more than 32 bits")

    def nullable_string(self) -> str | None:
        size = self.uvarint() - 1 if self.flexible else self.int16()
        if size < 0:
            return None
        try:
            return self.take(size).decode("utf-8")
        except UnicodeDecodeError:
            raise self.wrong("a string is not UTF-8") from None

    def string(self) -> str:
        """A string that is not null."""
        text = self.nullable_string()
        if text is None:
            raise self.wrong("a string is null that must not be")
        return text

    def blob(self) -> bytes:
        """Bytes that are not null."""
        size = self.uvarint() - 1 if self.flexible else self.int32()
        return self.take(size)

    def array_length(self) -> int:
        """Elements that follow, of an array that is not null."""
        count = self.nullable_array_length()
        if count is None:
            raise self.wrong("an array is null that must not be")
        return count

    def nullable_array_length(self) -> int | None:
        """Elements that follow; None for a null array. Raises for more than there are bytes."""
        count = self.uvarint() - 1 if self.flexible else self.int32()
        if count > len(self._data) - self.at:
            raise self.wrong(f"an array announces {count} elements, {len(self._data) - self.at} bytes are left")
        return None if count < 0 else count

    def tagged_fields(self) -> dict[int, bytes]:
        """The tagged fields that stand here, by tag; none in a message that is not flexible."""
        if not self.flexible:
            return {}
        return {self.uvarint(): self.take(self.uvarint()) for _ in range(self.array_of_tags())}

    def array_of_tags(self) -> int:
        """How many tagged fields follow."""
        count = self.uvarint()
        if count > len(self._data) - self.at:
            raise self.wrong(f"{count} tagged fields are announced, {len(self._data) - self.at} bytes are left")
        return count


def tagged_uuid(data: bytes | None) -> uuid.UUID | None:
    """A tagged field that is a UUID; None when it is left out, or all zeros."""
    if data is None or len(data) != 16 or not any(data):
        return None
    return uuid.UUID(bytes=data)


NEWEST_GROUP_VALUE = 4
_FIRST_FLEXIBLE_GROUP = 4
_EXPIRY_VERSION = 1
_TOPIC_ID_TAG = 0
NOT_SAID = -1
"""A time or an epoch that the record's version does not have."""

GROUP_KINDS = {2: "classic", 3: "consumer", 11: "share", 17: "streams"}
"""Key version of the record of a group, and the kind of group."""
MEMBER_KINDS = {5: "consumer", 10: "share", 19: "streams"}
"""Key version of the record of a member, and the kind of its group."""


class OffsetKey(NamedTuple):
    """A committed offset is about this."""

    group_id: str
    topic: str
    partition: int


class GroupKey(NamedTuple):
    """A group. kind: of GROUP_KINDS."""

    group_id: str
    kind: str


class MemberKey(NamedTuple):
    """A member of a group of a newer protocol."""

    group_id: str
    kind: str
    member_id: str


@dataclass(frozen=True, slots=True)
class CommittedOffset:
    """Times in ms. leader_epoch, expire_timestamp: NOT_SAID where the record has none."""

    offset: int
    leader_epoch: int
    metadata: str
    commit_timestamp: int
    expire_timestamp: int
    topic_id: UUID | None


@dataclass(frozen=True, slots=True)
class Member:
    """Of a classic group; timeouts in ms."""

    member_id: str
    group_instance_id: str | None
    client_id: str
    client_host: str
    rebalance_timeout: int
    session_timeout: int
    subscription: bytes
    assignment: bytes


@dataclass(frozen=True, slots=True)
class Group:
    """generation: the epoch, of groups of newer protocols, of which the rest is empty. state_timestamp: ms."""

    generation: int
    protocol_type: str | None = None
    protocol: str | None = None
    leader: str | None = None
    state_timestamp: int = NOT_SAID
    members: tuple[Member, ...] = ()


Key = OffsetKey | GroupKey | MemberKey


def parse_key(data: bytes) -> Key | None:
    """What a record is about; None for what is neither offset, group nor member. Raises CorruptLog."""
    reader = MessageReader(data, "a key of __consumer_offsets")
    version = reader.int16()
    if version in (0, 1):
        return OffsetKey(reader.string(), reader.string(), reader.int32())
    if version in GROUP_KINDS:
        return GroupKey(reader.string(), GROUP_KINDS[version])
    if version in MEMBER_KINDS:
        return MemberKey(reader.string(), MEMBER_KINDS[version], reader.string())
    return None


def parse_offset(data: bytes) -> CommittedOffset:
    """OffsetCommitValue. Raises CorruptLog; UnsupportedFormat for a version that is newer than Kafka 4.3's."""
    reader, version = _begun(data, "OffsetCommitValue")
    offset = reader.int64()
    leader_epoch = reader.int32() if version >= 3 else NOT_SAID
    metadata = reader.string()
    committed = reader.int64()
    expires = reader.int64() if version == _EXPIRY_VERSION else NOT_SAID
    topic_id = tagged_uuid(reader.tagged_fields().get(_TOPIC_ID_TAG))
    return CommittedOffset(offset, leader_epoch, metadata, committed, expires, topic_id)


def parse_group(kind: str, data: bytes) -> Group:
    """The value of a group's record. Raises as parse_offset."""
    if kind != "classic":
        reader = MessageReader(data, f"the record of a {kind} group")
        reader.int16()
        return Group(reader.int32())
    reader, version = _begun(data, "GroupMetadataValue")
    protocol_type, generation = reader.string(), reader.int32()
    protocol, leader = reader.nullable_string(), reader.nullable_string()
    since = reader.int64() if version >= 2 else NOT_SAID
    members = tuple(_member(reader, version) for _ in range(reader.nullable_array_length() or 0))
    return Group(generation, protocol_type, protocol, leader, since, members)


def _begun(data: bytes, what: str) -> tuple[MessageReader, int]:
    """The reader, past the version that a value begins with, and that version."""
    reader = MessageReader(data, what)
    version = reader.int16()
    if not 0 <= version <= NEWEST_GROUP_VALUE:
        raise UnsupportedFormat(f"{what} of version {version}, expected 0 to {NEWEST_GROUP_VALUE}")
    reader.flexible = version >= _FIRST_FLEXIBLE_GROUP
    return reader, version


def _member(reader: MessageReader, version: int) -> Member:
    member_id = reader.string()
    instance_id = reader.nullable_string() if version >= 3 else None
    client_id, client_host = reader.string(), reader.string()
    rebalance_timeout = reader.int32() if version >= 1 else NOT_SAID
    session_timeout = reader.int32()
    subscription, assignment = reader.blob(), reader.blob()
    reader.tagged_fields()
    return Member(
        member_id, instance_id, client_id, client_host, rebalance_timeout, session_timeout, subscription, assignment
    )


# Records of __transaction_state: what a transaction coordinator knows of a transactional id (TransactionLog).
#
# | | version | fields |
# |---|---|---|
# | TransactionLogKey | 0 | transactional id string |
# | TransactionLogValue | 0; 1, flexible | see below |
#
# producer id i64, epoch i16, timeout i32 (ms), state i8, [topic, [partition i32]] (null when Empty), last update
# i64, start i64 (ms), tagged fields.
#
# Tagged fields of version 1: 0 previous producer id i64, 1 next producer id i64, 2 client transaction version i16. A
# null value is a tombstone.

NEWEST_TRANSACTION_VALUE = 1
_FIRST_FLEXIBLE_TRANSACTION = 1
_PREVIOUS_PRODUCER_ID, _NEXT_PRODUCER_ID = 0, 1
_PRODUCER_ID = struct.Struct(">q")

STATES = (
    "Empty", "Ongoing", "PrepareCommit", "PrepareAbort", "CompleteCommit", "CompleteAbort", "Dead",
    "PrepareEpochFence",
)  # fmt: skip
"""By number; Kafka's TransactionState."""
UNFINISHED = frozenset({"Ongoing", "PrepareCommit", "PrepareAbort", "PrepareEpochFence"})
"""A partition of a transaction in one of these waits for its marker."""


@dataclass(frozen=True, slots=True)
class TransactionalId:
    """state: of STATES. Times in ms, -1 where there is none; producer ids -1 for none. partitions: (topic, number)."""

    transactional_id: str
    producer_id: int
    producer_epoch: int
    timeout: int
    state: str
    partitions: tuple[tuple[str, int], ...]
    last_update: int
    start: int
    previous_producer_id: int = NO_PRODUCER_ID
    next_producer_id: int = NO_PRODUCER_ID

    def waits_for(self, topic: str, partition: int, producer_epoch: int) -> bool:
        """Whether its coordinator knows of a transaction of that epoch in the partition, and will end it."""
        return (
            self.state in UNFINISHED and (topic, partition) in self.partitions and self.producer_epoch >= producer_epoch
        )


def parse_transactional_id(key: bytes) -> str:
    """What a record is about. Raises CorruptLog; UnsupportedFormat for another version."""
    reader = MessageReader(key, "a key of __transaction_state")
    version = reader.int16()
    if version != 0:
        raise UnsupportedFormat(f"a key of __transaction_state of version {version}, expected 0")
    return reader.string()


def parse_transaction(transactional_id: str, data: bytes) -> TransactionalId:
    """What the coordinator wrote. Raises CorruptLog; UnsupportedFormat for another version or state."""
    what = f"the record of transactional id {transactional_id!r}"
    reader = MessageReader(data, what)
    version = reader.int16()
    if not 0 <= version <= NEWEST_TRANSACTION_VALUE:
        raise UnsupportedFormat(f"{what} has version {version}, expected 0 to {NEWEST_TRANSACTION_VALUE}")
    reader.flexible = version >= _FIRST_FLEXIBLE_TRANSACTION
    producer_id, epoch, timeout, state = reader.int64(), reader.int16(), reader.int32(), reader.int8()
    if not 0 <= state < len(STATES):
        raise UnsupportedFormat(f"{what} has state {state}, expected 0 to {len(STATES) - 1}")
    partitions: list[tuple[str, int]] = []
    for _ in range(reader.nullable_array_length() or 0):
        topic = reader.string()
        partitions += [(topic, reader.int32()) for _ in range(reader.nullable_array_length() or 0)]
        reader.tagged_fields()
    last_update, start = reader.int64(), reader.int64()
    tagged = reader.tagged_fields()
    return TransactionalId(
        transactional_id,
        producer_id,
        epoch,
        timeout,
        STATES[state],
        tuple(sorted(partitions)),
        last_update,
        start,
        _tagged_id(tagged.get(_PREVIOUS_PRODUCER_ID)),
        _tagged_id(tagged.get(_NEXT_PRODUCER_ID)),
    )


def _tagged_id(data: bytes | None) -> int:
    return NO_PRODUCER_ID if data is None or len(data) != _PRODUCER_ID.size else int(_PRODUCER_ID.unpack(data)[0])
