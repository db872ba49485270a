"""Record of a control batch, which holds exactly one and is not compressed.

The key is i16 version and i16 type (Kafka's ControlRecordType). The value of a marker that ends a transaction is i16
version and i32 coordinator epoch (EndTransactionMarker). Later versions may append further fields.
"""

from __future__ import annotations

import struct

from kafkalog_spark.errors import CorruptBatch
from kafkalog_spark.format import layout
from kafkalog_spark.format.layout import ControlType
from kafkalog_spark.format.varints import read_varint, read_varlong

KEY = struct.Struct(">hh")
VALUE = struct.Struct(">hi")
VERSION = 0  # of key and value, as Kafka writes them
TRANSACTION_ENDS = frozenset({ControlType.ABORT, ControlType.COMMIT})


def control_type(batch: bytes | memoryview) -> int:
    """Return the type of the record, a layout.ControlType. Raises CorruptBatch if the key is too short."""
    return _key(batch)[0]


def transaction_end(batch: bytes | memoryview) -> tuple[ControlType, int] | None:
    """Return (COMMIT or ABORT, coordinator epoch) of a transaction marker; None for other control records.

    Raises CorruptBatch if key or value is too short.
    """
    kind, at = _key(batch)
    if kind not in TRANSACTION_ENDS:
        return None
    value, _ = _field(batch, at)
    if len(value) < VALUE.size:
        raise CorruptBatch(f"a control record's value has {len(value)} bytes, at least {VALUE.size} are needed")
    return ControlType(kind), int(VALUE.unpack_from(value)[1])


def _key(batch: bytes | memoryview) -> tuple[int, int]:
    """Return (type, position after the key)."""
    try:
        at = read_varint(batch, layout.RECORDS_AT, len(batch))[1] + 1  # length, attributes
        at = read_varlong(batch, at, len(batch))[1]  # timestamp delta
        at = read_varint(batch, at, len(batch))[1]  # offset delta
    except IndexError:
        raise CorruptBatch("a control record's key is missing") from None
    key, at = _field(batch, at)
    if len(key) < KEY.size:
        raise CorruptBatch(f"a control record's key has {len(key)} bytes, at least {KEY.size} are needed")
    return int(KEY.unpack_from(key)[1]), at


def _field(batch: bytes | memoryview, at: int) -> tuple[bytes | memoryview, int]:
    """Return (bytes of the length-prefixed field at batch[at:], which may be cut; position after it)."""
    try:
        size, at = read_varint(batch, at, len(batch))
    except IndexError:
        return b"", at
    end = at + max(size, 0)
    return batch[at:end], end
