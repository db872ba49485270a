"""Keys and values of the records of committed offsets in __consumer_offsets.

Written as OffsetCommitKey 1 and OffsetCommitValue 4, the versions that Kafka 4.3 writes; an offset with an expire
timestamp is written as OffsetCommitValue 1. Values 0 to 4 are read.
"""

from __future__ import annotations

from typing import NamedTuple
from uuid import UUID

from kafkalog_broker.coordinator.coordinator_record import text_too_long_error
from kafkalog_broker.groups.classic.classic_group_records import GroupKey
from kafkalog_spark.errors import InvalidRecord
from kafkalog_spark.format.messages.internal import decode_key as decode_any_key
from kafkalog_spark.format.messages.internal import message
from kafkalog_spark.format.names import OFFSETS_TOPIC

_OFFSET_VALUE = message("OffsetCommitValue")
_write_offset_key = message("OffsetCommitKey").write[1]
_write_offset_value = _OFFSET_VALUE.write[4]
_write_offset_value_with_expiry = _OFFSET_VALUE.write[1]  # the only version that has an expire timestamp

_GROUP_KEY_VERSION = 2  # lower key versions belong to OffsetCommitKey
_NO_EXPIRY = -1


class OffsetKey(NamedTuple):
    group_id: str
    topic: str
    partition: int


class OffsetAndMetadata(NamedTuple):
    """A committed offset, with the fields in the order of OffsetCommitValue.

    Attributes:
        leader_epoch: -1 if unknown.
        expire_timestamp_ms: -1 unless the commit had a retention time of its own (OffsetCommit v2 to v4).
    """

    offset: int
    leader_epoch: int
    metadata: str
    commit_timestamp_ms: int
    expire_timestamp_ms: int = _NO_EXPIRY
    topic_id: UUID | None = None


def offset_key(group_id: str, topic: str, partition: int) -> bytes:
    """Encode the key of an offset. Raises BrokerError unknown_server_error if a text is too long."""
    try:
        return _write_offset_key((group_id, topic, partition))
    except InvalidRecord as error:
        raise text_too_long_error(error) from None


def offset_value(committed: OffsetAndMetadata) -> bytes:
    """Encode a committed offset. Raises BrokerError unknown_server_error if the metadata is too long."""
    write = _write_offset_value if committed.expire_timestamp_ms == _NO_EXPIRY else _write_offset_value_with_expiry
    try:
        return write(committed)
    except InvalidRecord as error:
        raise text_too_long_error(error) from None


def decode_key(key: bytes) -> OffsetKey | GroupKey | None:
    """Decode the key of an offset or a classic group.

    Returns:
        None for keys of consumer, share and streams groups.

    Raises:
        CorruptLog: If the bytes are malformed.
    """
    decoded = decode_any_key(OFFSETS_TOPIC, key)
    if decoded is None:
        return None
    version, fields = decoded
    if version < _GROUP_KEY_VERSION:
        return OffsetKey(*fields)
    return GroupKey(*fields) if version == _GROUP_KEY_VERSION else None


def decode_offset_value(value: bytes) -> OffsetAndMetadata:
    """Decode a committed offset. Raises CorruptLog if the bytes are malformed."""
    return OffsetAndMetadata(*_OFFSET_VALUE.decode(value))
