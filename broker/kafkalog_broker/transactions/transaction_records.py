"""Keys and values of the records in __transaction_state, bit for bit as Kafka 4.3 writes them.

| | version | fields |
|---|---|---|
| TransactionLogKey | 0 | transactional id string |
| TransactionLogValue | 1; 0 is read | see below |

producer id i64 | epoch i16 | timeout i32 | status i8 | [topic, [partition i32]], null when Empty | last update i64 |
start i64 | tagged fields. Times in ms.

Tagged fields of version 1, each left out at its default: 0 previous producer id i64 (-1), 1 next producer id i64 (-1),
2 client transaction version i16 (0). Others are passed over. A null value is a tombstone.
"""

from __future__ import annotations

import struct

from kafkalog_broker.protocol.frames import uvarint
from kafkalog_broker.transactions.transaction_metadata import (
    CLASSIC,
    TopicPartition,
    TransactionMetadata,
    TransactionState,
)
from kafkalog_spark.errors import UnsupportedFormat
from kafkalog_spark.format.internal_records import MessageReader
from kafkalog_spark.format.layout import NO_PRODUCER_ID

KEY_VERSION = 0
VALUE_VERSION = 1
_FIRST_FLEXIBLE = 1
_PREVIOUS_PRODUCER_ID, _NEXT_PRODUCER_ID, _CLIENT_VERSION = range(3)

_I16 = struct.Struct(">h")
_I64 = struct.Struct(">q")
_HEAD = struct.Struct(">hqhib")  # version, producer id, epoch, timeout, status
_TIMES = struct.Struct(">qq")


def transaction_key(transactional_id: str) -> bytes:
    text = transactional_id.encode()
    return _I16.pack(KEY_VERSION) + _I16.pack(len(text)) + text


def transaction_value(metadata: TransactionMetadata) -> bytes:
    """Partitions stand in the order of their topics and numbers; Kafka has them in that of a hash table."""
    out = bytearray(
        _HEAD.pack(VALUE_VERSION, metadata.producer_id, metadata.producer_epoch, metadata.timeout_ms, metadata.state)
    )
    if metadata.state is TransactionState.EMPTY:
        out.append(0)
    else:
        topics: dict[str, list[int]] = {}
        for topic, partition in sorted(metadata.partitions):
            topics.setdefault(topic, []).append(partition)
        out += uvarint(len(topics) + 1)
        for topic, partitions in topics.items():
            text = topic.encode()
            out += uvarint(len(text) + 1) + text + uvarint(len(partitions) + 1)
            out += struct.pack(f">{len(partitions)}i", *partitions)
            out.append(0)
    out += _TIMES.pack(metadata.last_update_ms, metadata.start_ms)
    tagged = []
    if metadata.previous_producer_id != NO_PRODUCER_ID:
        tagged.append((_PREVIOUS_PRODUCER_ID, _I64.pack(metadata.previous_producer_id)))
    if metadata.next_producer_id != NO_PRODUCER_ID:
        tagged.append((_NEXT_PRODUCER_ID, _I64.pack(metadata.next_producer_id)))
    if metadata.client_version != CLASSIC:
        tagged.append((_CLIENT_VERSION, _I16.pack(metadata.client_version)))
    out.append(len(tagged))
    for tag, data in tagged:
        out += bytes((tag, len(data))) + data
    return bytes(out)


def read_transaction_key(data: bytes) -> str:
    """The transactional id. Raises UnsupportedFormat for another version, CorruptLog."""
    reader = MessageReader(data, "a key of __transaction_state")
    version = reader.int16()
    if version != KEY_VERSION:
        raise UnsupportedFormat(f"a key of __transaction_state has version {version}, only {KEY_VERSION} is known")
    return reader.string()


def read_transaction_value(transactional_id: str, data: bytes) -> TransactionMetadata:
    """Raises UnsupportedFormat for another version or state, CorruptLog."""
    reader = MessageReader(data, f"the record of transactional id {transactional_id!r}")
    version = reader.int16()
    if not 0 <= version <= VALUE_VERSION:
        raise UnsupportedFormat(
            f"the record of transactional id {transactional_id!r} has version {version}, 0 to {VALUE_VERSION} are known"
        )
    reader.flexible = version >= _FIRST_FLEXIBLE
    producer_id, epoch = reader.int64(), reader.int16()
    timeout_ms, status = reader.int32(), reader.int8()
    try:
        state = TransactionState(status)
    except ValueError:
        raise UnsupportedFormat(
            f"the record of transactional id {transactional_id!r} has the state {status}, which is not known"
        ) from None
    partitions = _partitions(reader)
    last_update_ms, start_ms = reader.int64(), reader.int64()
    tagged = reader.tagged_fields()
    previous, following = tagged.get(_PREVIOUS_PRODUCER_ID), tagged.get(_NEXT_PRODUCER_ID)
    client_version = tagged.get(_CLIENT_VERSION)
    try:
        return TransactionMetadata(
            transactional_id=transactional_id,
            producer_id=producer_id,
            producer_epoch=epoch,
            timeout_ms=timeout_ms,
            state=state,
            partitions=partitions,
            start_ms=start_ms,
            last_update_ms=last_update_ms,
            previous_producer_id=NO_PRODUCER_ID if previous is None else _I64.unpack(previous)[0],
            next_producer_id=NO_PRODUCER_ID if following is None else _I64.unpack(following)[0],
            client_version=CLASSIC if client_version is None else _I16.unpack(client_version)[0],
        )
    except struct.error:
        raise reader.wrong("a tagged field has a wrong length") from None


def _partitions(reader: MessageReader) -> frozenset[TopicPartition]:
    found: set[TopicPartition] = set()
    for _ in range(reader.nullable_array_length() or 0):
        topic = reader.string()
        found.update(TopicPartition(topic, reader.int32()) for _ in range(reader.nullable_array_length() or 0))
        reader.tagged_fields()
    return frozenset(found)
