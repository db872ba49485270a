"""Positions of all fields of a record batch, and codes of its attributes, for readers, kernels and writers.

Record batch v2 (magic 2, Kafka >= 0.11; DefaultRecordBatch), all integers big-endian:

    byte  0  baseOffset           i64   first offset; outside the CRC
          8  batchLength          i32   bytes after this field; outside the CRC
         12  partitionLeaderEpoch i32   outside the CRC
         16  magic                i8    2
         17  crc                  u32   CRC-32C of everything from byte 21 to the end
         21  attributes           i16   see the ATTRIBUTE_* masks
         23  lastOffsetDelta      i32   last offset - baseOffset (kept by compaction)
         27  baseTimestamp        i64   ms; the first record's, or the delete horizon (attribute bit 6)
         35  maxTimestamp         i64   ms; with LogAppendTime every record's timestamp
         43  producerId           i64   -1: none
         51  producerEpoch        i16
         53  baseSequence         i32
         57  recordCount          i32
         61  records, compressed as a whole by the codec of attribute bits 0-2

    record: length varint, attributes i8, timestampDelta varlong, offsetDelta varint, key length varint (-1: null),
            key, value length varint (-1: null), value, header count varint, headers
    header: key length varint, key (UTF-8), value length varint (-1: null), value
    Varints are zigzag. A record ends exactly where its length says.

Message v0 and v1 (magic 0 and 1; LegacyRecord), each with its own offset:

          0  offset               i64   of a wrapper: its last inner message's
          8  messageSize          i32   bytes after this field
         12  crc                  u32   CRC-32 of everything from byte 16 to the end
         16  magic                i8
         17  attributes           i8    bits 0-2 codec (of a wrapper), bit 3 timestamp type (v1)
         18  timestamp            i64   v1 only
   18 / 26  key length i32 (-1: null), key, value length i32 (-1: null), value

A wrapper's value is a compressed message set. Inner offsets are absolute in v0 and relative in v1, where the wrapper's
offset is that of its last inner message.
"""

from __future__ import annotations

import struct
from enum import IntEnum
from typing import Self

# offset and length, the same in all three formats
OFFSET_AT = 0
LENGTH_AT = 8
LOG_OVERHEAD = 12
MAGIC_AT = 16  # the same byte in all three formats: it can be read before the format is known

# record batch v2
LEADER_EPOCH_AT = 12
CRC_AT = 17
ATTRIBUTES_AT = 21
LAST_OFFSET_DELTA_AT = 23
BASE_TIMESTAMP_AT = 27
MAX_TIMESTAMP_AT = 35
PRODUCER_ID_AT = 43
PRODUCER_EPOCH_AT = 51
BASE_SEQUENCE_AT = 53
RECORD_COUNT_AT = 57
RECORDS_AT = 61
BATCH_OVERHEAD = RECORDS_AT
BATCH_HEADER = struct.Struct(">qiibIhiqqqhii")  # the 61 bytes in the order of the table above

# message v0 / v1
LEGACY_CRC_AT = 12
LEGACY_ATTRIBUTES_AT = 17
LEGACY_TIMESTAMP_AT = 18
LEGACY_KEY_LENGTH_AT = (18, 26)  # by magic
LEGACY_MIN_SIZE = (26, 34)  # a whole message with null key and value, by magic

ATTRIBUTE_CODEC = 0x07
ATTRIBUTE_LOG_APPEND_TIME = 0x08
ATTRIBUTE_TRANSACTIONAL = 0x10
ATTRIBUTE_CONTROL = 0x20
ATTRIBUTE_DELETE_HORIZON = 0x40

NO_TIMESTAMP = -1
NO_PRODUCER_ID = -1
NO_PRODUCER_EPOCH = -1
MAX_PRODUCER_EPOCH = 2**15 - 1
NO_SEQUENCE = -1
NO_LEADER_EPOCH = -1

MIN_RECORD_SIZE = 7
"""Size of the smallest v2 record: length 6, attributes, four one-byte varints, header count. Bounds a record count."""
MAX_INT32 = 2**31 - 1
MIN_INT64, MAX_INT64 = -(2**63), 2**63 - 1
MAX_TIMESTAMP_MS = MAX_INT64 // 1000
"""Timestamps above it, or below its negative, overflow when ms become us. Spark's Kafka connector fails on them too."""
MAX_DECOMPRESSED = 64 << 20
"""Largest decompressed size of a batch in bytes. Producers fill batches of 16 KB to a few MB, and a broker accepts 1 MB
compressed by default (message.max.bytes). The limit bounds the memory of a Python worker."""
MAX_SEGMENT_SIZE = MAX_INT32  # bytes of a .log file: positions in it are Java ints


class FaultCode(IntEnum):
    """Codes that kernels return, each defined as `NAME = number` or `NAME = number, text`."""

    _value_: int
    text: str

    def __new__(cls, number: int, text: str = "") -> Self:
        code = int.__new__(cls, number)
        code._value_, code.text = number, text
        return code


class Codec(IntEnum):
    """Compression codecs, attribute bits 0-2; Kafka's CompressionType. Ids have no gaps. Facts: format/codecs.py."""

    NONE = 0
    GZIP = 1
    SNAPPY = 2
    LZ4 = 3
    ZSTD = 4

    @property
    def label(self) -> str:
        """The codec's name in properties, options and tables."""
        return self.name.lower()


class TimestampType(IntEnum):
    """Kafka's TimestampType, with the ids that Spark's `timestampType` column shows."""

    NO_TIMESTAMP_TYPE = -1
    CREATE_TIME = 0
    LOG_APPEND_TIME = 1


class ControlType(IntEnum):
    """Type in the key of a control record, an i16 after the version; Kafka's ControlRecordType."""

    ABORT = 0
    COMMIT = 1
    LEADER_CHANGE = 2
    SNAPSHOT_HEADER = 3
    SNAPSHOT_FOOTER = 4
    KRAFT_VERSION = 5
    KRAFT_VOTERS = 6


class HeaderColumn(IntEnum):
    """Columns of a header table, int64[n, len(HeaderColumn)], with a row for each batch, message or wrapper."""

    POSITION = 0  # byte in the file, or in the buffer of the sweep
    SIZE = 1  # bytes, including the 12 bytes of offset and length
    BASE_OFFSET = 2  # of a wrapper, which has no first offset in its header: the same as LAST_OFFSET
    LAST_OFFSET = 3
    MAGIC = 4
    ATTRIBUTES = 5
    CRC = 6
    LEADER_EPOCH = 7
    BASE_TIMESTAMP = 8
    MAX_TIMESTAMP = 9
    PRODUCER_ID = 10
    PRODUCER_EPOCH = 11
    BASE_SEQUENCE = 12
    COUNT = 13  # number of records; 1 for a message, -1 (unknown) for a wrapper
    CRC_SEEN = 14  # 1 if the sweep has checked the CRC
    PREVIOUS = 15  # last offset of the batch before; filled by the caller of the sweep
