"""Keys and values of the records of __consumer_offsets about offsets and classic groups, as Kafka 4.3 writes them.

| record | key | value, as written | read |
|---|---|---|---|
| an offset that a group has committed | OffsetCommitKey 1 | OffsetCommitValue 4, or 1 with an expiry of its own | 0-4 |
| a group | GroupMetadataKey 2 | GroupMetadataValue 3 | 0-4 |

A null value is a tombstone. Groups of newer protocols: modern/group_records.py.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple
from uuid import UUID

from kafkalog_broker.coordinator.coordinator_log import encoded, too_long
from kafkalog_spark.errors import InvalidRecord
from kafkalog_spark.format.messages.internal import decode_key as decode_any_key
from kafkalog_spark.format.messages.internal import message
from kafkalog_spark.format.names import OFFSETS_TOPIC

_GROUP_KEY, _GROUP_VALUE, _OFFSET_VALUE = map(message, ("GroupMetadataKey", "GroupMetadataValue", "OffsetCommitValue"))
_GROUP_VALUE_VERSION = 3
_write_offset_key = message("OffsetCommitKey").write[1]
_write_offset_value = _OFFSET_VALUE.write[4]
_write_offset_value_with_expiry = _OFFSET_VALUE.write[1]
"""The only version with a field for it: OffsetCommit v2-4 could ask for a retention time."""

_NO_EXPIRY = -1


class OffsetKey(NamedTuple):
    group_id: str
    topic: str
    partition: int


class GroupKey(NamedTuple):
    group_id: str


class OffsetAndMetadata(NamedTuple):
    """A committed offset, as OffsetCommitValue orders it. Times in ms; -1: no leader epoch, no expiry of its own."""

    offset: int
    leader_epoch: int
    metadata: str
    commit_timestamp_ms: int
    expire_timestamp_ms: int = _NO_EXPIRY
    topic_id: UUID | None = None


def offset_key(group_id: str, topic: str, partition: int) -> bytes:
    """Raises BrokerError where a text is too long, as all that write here."""
    try:
        return _write_offset_key((group_id, topic, partition))
    except InvalidRecord as error:
        raise too_long(error) from None


def group_key(group_id: str) -> bytes:
    return encoded(_GROUP_KEY, (group_id,))


def offset_value(committed: OffsetAndMetadata) -> bytes:
    write = _write_offset_value if committed.expire_timestamp_ms == _NO_EXPIRY else _write_offset_value_with_expiry
    try:
        return write(committed)
    except InvalidRecord as error:
        raise too_long(error) from None


def group_value(group: Sequence[Any]) -> bytes:
    return encoded(_GROUP_VALUE, group, _GROUP_VALUE_VERSION)


def decode_key(key: bytes) -> OffsetKey | GroupKey | None:
    """The offset or group that a record is about; None for groups of newer protocols. Raises CorruptLog."""
    found = decode_any_key(OFFSETS_TOPIC, key)
    if found is None:
        return None
    kind, fields = found
    if kind < 2:
        return OffsetKey(*fields)
    return GroupKey(*fields) if kind == 2 else None


def decode_offset_value(value: bytes) -> OffsetAndMetadata:
    return OffsetAndMetadata(*_OFFSET_VALUE.decode(value))


def decode_group_value(value: bytes) -> Any:
    """A GroupMetadataValue. Raises CorruptLog, and UnsupportedFormat for a version that is newer than Kafka 4.3's."""
    return _GROUP_VALUE.decode(value)
