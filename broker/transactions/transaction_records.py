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

from broker.protocol.wire import uvarint
from broker.transactions.transaction_metadata import CLASSIC, TopicPartition, TransactionMetadata
from broker.transactions.transaction_state import TransactionState
from kafkalog_spark.errors import CorruptLog, UnsupportedFormat
from kafkalog_spark.log.layout import NO_PRODUCER_ID

KEY_VERSION = 0
VALUE_VERSION = 1
_FIRST_FLEXIBLE = 1
_PREVIOUS_PRODUCER_ID, _NEXT_PRODUCER_ID, _CLIENT_VERSION = range(3)

_I16 = struct.Struct(">h")
_I32 = struct.Struct(">i")
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
    reader = _Reader(data, "a key of __transaction_state")
    version = reader.number(_I16)
    if version != KEY_VERSION:
        raise UnsupportedFormat(f"a key of __transaction_state has version {version}, only {KEY_VERSION} is known")
    return reader.text(reader.number(_I16))


def read_transaction_value(transactional_id: str, data: bytes) -> TransactionMetadata:
    """Raises UnsupportedFormat for another version or state, CorruptLog."""
    reader = _Reader(data, f"the record of transactional id {transactional_id!r}")
    version = reader.number(_I16)
    if not 0 <= version <= VALUE_VERSION:
        raise UnsupportedFormat(
            f"the record of transactional id {transactional_id!r} has version {version}, 0 to {VALUE_VERSION} are known"
        )
    flexible = version >= _FIRST_FLEXIBLE
    producer_id, epoch = reader.number(_I64), reader.number(_I16)
    timeout_ms, status = reader.number(_I32), reader.take(1)[0]
    try:
        state = TransactionState(status)
    except ValueError:
        raise UnsupportedFormat(
            f"the record of transactional id {transactional_id!r} has the state {status}, which is not known"
        ) from None
    partitions = reader.partitions(flexible)
    last_update_ms, start_ms = reader.number(_I64), reader.number(_I64)
    tagged = reader.tagged_fields() if flexible else {}
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
        raise reader.corrupt("a tagged field has a wrong length") from None


class _Reader:
    def __init__(self, data: bytes, what: str) -> None:
        self._data, self._what, self._at = data, what, 0

    def corrupt(self, why: str) -> CorruptLog:
        return CorruptLog(f"{self._what}: {why}, at byte {self._at} of {len(self._data)}")

    def take(self, size: int) -> bytes:
        end = self._at + size
        if size < 0 or end > len(self._data):
            raise self.corrupt(f"{size} bytes announced, {len(self._data) - self._at} are left")
        piece = self._data[self._at : end]
        self._at = end
        return piece

    def number(self, kind: struct.Struct) -> int:
        value: int = kind.unpack(self.take(kind.size))[0]
        return value

    def text(self, size: int) -> str:
        try:
            return self.take(size).decode()
        except UnicodeDecodeError:
            raise self.corrupt("a string is not UTF-8") from None

    def varint(self) -> int:
        value = shift = 0
        while True:
            byte = self.take(1)[0]
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                return value
            shift += 7
            if shift > 28:
                raise self.corrupt("a varint of more than 5 bytes")

    def partitions(self, flexible: bool) -> frozenset[TopicPartition]:
        found = set()
        for _ in range(self._count(flexible)):
            topic = self.text(self.varint() - 1 if flexible else self.number(_I16))
            for _ in range(self._count(flexible)):
                found.add(TopicPartition(topic, self.number(_I32)))
            if flexible:
                self.tagged_fields()
        return frozenset(found)

    def _count(self, flexible: bool) -> int:
        """Elements of an array; 0 for a null one. Each has at least four bytes behind it, so no count can be a lie
        that costs memory."""
        count = self.varint() - 1 if flexible else self.number(_I32)
        if count > len(self._data):
            raise self.corrupt(f"an array of {count} elements")
        return max(count, 0)

    def tagged_fields(self) -> dict[int, bytes]:
        return {self.varint(): self.take(self.varint()) for _ in range(self.varint())}
