"""Records of __share_group_state, byte for byte as Kafka 4.3 writes them.

| record | key | value |
|---|---|---|
| snapshot of a share partition's state | ShareSnapshotKey, type 0 | ShareSnapshotValue 0 |
| tombstone: the state was deleted | ShareSnapshotKey, type 0 | null |
| update since the last snapshot | ShareUpdateKey, type 1 | ShareUpdateValue 0 |
"""

from __future__ import annotations

from dataclasses import dataclass

from kafkalog_broker.coordinator.coordinator_record import Record, encode_message
from kafkalog_broker.share.share_state import SharePartitionKey, ShareState, ShareStateUpdate
from kafkalog_spark.format.messages.internal import decode_key, message
from kafkalog_spark.format.names import SHARE_STATE_TOPIC

SNAPSHOT, UPDATE = 0, 1  # key types

_KEYS = {SNAPSHOT: message("ShareSnapshotKey"), UPDATE: message("ShareUpdateKey")}
_SNAPSHOT_VALUE, _UPDATE_VALUE = message("ShareSnapshotValue"), message("ShareUpdateValue")


@dataclass(frozen=True, slots=True)
class SnapshotRecord:
    """The whole state of a share partition; `state` is None in a tombstone."""

    key: SharePartitionKey
    state: ShareState | None


@dataclass(frozen=True, slots=True)
class UpdateRecord:
    """A change of a share partition's state."""

    key: SharePartitionKey
    update: ShareStateUpdate


ShareRecord = SnapshotRecord | UpdateRecord


def encode_record(record: ShareRecord) -> Record:
    """Encode a record.

    Raises:
        BrokerError: unknown_server_error, if the group ID is too long.
    """
    if isinstance(record, UpdateRecord):
        return encode_message(_KEYS[UPDATE], record.key), _UPDATE_VALUE.encode(record.update)
    key = encode_message(_KEYS[SNAPSHOT], record.key)
    return key, None if record.state is None else _SNAPSHOT_VALUE.encode(record.state)


def decode_record(record: Record) -> ShareRecord | None:
    """Decode a record.

    Returns:
        None for a key type that Kafka 4.3 does not have, and for the tombstone of an update, which Kafka does not
        write.

    Raises:
        CorruptLog: If key or value is damaged.
        UnsupportedFormat: If the value has a later version.
    """
    key_bytes, value = record
    decoded_key = decode_key(SHARE_STATE_TOPIC, key_bytes)
    if decoded_key is None:
        return None
    key_type = decoded_key[0]
    key = SharePartitionKey(*decoded_key[1])
    if key_type == SNAPSHOT:
        return SnapshotRecord(key, None if value is None else ShareState(*_SNAPSHOT_VALUE.decode(value)))
    return None if value is None else UpdateRecord(key, ShareStateUpdate(*_UPDATE_VALUE.decode(value)))
