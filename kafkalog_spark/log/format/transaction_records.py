"""Records of __transaction_state: what a transaction coordinator knows of a transactional id (TransactionLog).

| | version | fields |
|---|---|---|
| TransactionLogKey | 0 | transactional id string |
| TransactionLogValue | 0; 1, flexible | see below |

producer id i64, epoch i16, timeout i32 (ms), state i8, [topic, [partition i32]] (null when Empty), last update i64,
start i64 (ms), tagged fields.

Tagged fields of version 1: 0 previous producer id i64, 1 next producer id i64, 2 client transaction version i16. A null
value is a tombstone.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass

from kafkalog_spark.errors import UnsupportedFormat
from kafkalog_spark.log.format.layout import NO_PRODUCER_ID
from kafkalog_spark.log.format.message_reader import MessageReader

NEWEST_VALUE = 1
_FIRST_FLEXIBLE = 1
_PREVIOUS_PRODUCER_ID, _NEXT_PRODUCER_ID = 0, 1
_INT64 = struct.Struct(">q")

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
    if not 0 <= version <= NEWEST_VALUE:
        raise UnsupportedFormat(f"{what} has version {version}, expected 0 to {NEWEST_VALUE}")
    reader.flexible = version >= _FIRST_FLEXIBLE
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
    return NO_PRODUCER_ID if data is None or len(data) != _INT64.size else int(_INT64.unpack(data)[0])
