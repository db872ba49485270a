"""A decoder of Kafka's record formats in plain Python: the oracle that the kernels are compared with.

Short and obvious instead of fast: one object a record, bytes read with `struct`, everything checked. It shares no
code with the package, only the standard library and the codecs.

Record batch v2 (KIP-98), message v0 and v1 (KIP-32) with wrappers; none, gzip, snappy (raw and xerial framing), lz4,
zstd. Offsets and timestamps come out as a consumer would see them:

- LogAppendTime: every record has the timestamp of its batch (maxTimestamp) or wrapper.
- v0: timestamp -1 of type -1. (librdkafka prints 0 for it.)
- Inner offsets of a wrapper: absolute in v0, relative in v1, where the wrapper carries the offset of its last message.
"""

from __future__ import annotations

import gzip
import struct
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import crc32c
import lz4.frame
import snappy
import zstandard

NONE, GZIP, SNAPPY, LZ4, ZSTD = range(5)
NO_TIMESTAMP_TYPE, CREATE_TIME, LOG_APPEND_TIME = -1, 0, 1
XERIAL_MAGIC = b"\x82SNAPPY\x00"


class Malformed(Exception):
    """The bytes are not what Kafka writes."""


@dataclass(frozen=True)
class Record:
    """One record as a consumer sees it. `timestamp` in ms; a header is (name, value or None)."""

    offset: int
    timestamp: int
    timestamp_type: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...] = ()


@dataclass(frozen=True)
class Batch:
    """One batch, wrapper or plain message. Fields that a format does not have are -1."""

    position: int
    size: int
    magic: int
    base_offset: int
    last_offset: int
    crc: int
    attributes: int
    records: tuple[Record, ...]
    max_timestamp: int = -1
    base_timestamp: int = -1
    leader_epoch: int = -1
    producer_id: int = -1
    producer_epoch: int = -1
    base_sequence: int = -1

    @property
    def codec(self) -> int:
        return self.attributes & 0x07

    @property
    def is_transactional(self) -> bool:
        return self.magic == 2 and bool(self.attributes & 0x10)

    @property
    def is_control(self) -> bool:
        return self.magic == 2 and bool(self.attributes & 0x20)


def decode_log(path: str | Path) -> list[Batch]:
    """Every batch of a .log file."""
    return list(decode_batches(Path(path).read_bytes()))


def decode_records(data: bytes) -> list[Record]:
    """Every record of the batches in `data` that a consumer would be given: all but those of control batches."""
    return [record for batch in decode_batches(data) if not batch.is_control for record in batch.records]


def decode_batches(data: bytes) -> Iterator[Batch]:
    """Batches of any format, one after the other; a partial one at the end is Malformed."""
    position = 0
    while position < len(data):
        need(len(data) - position >= 17, f"{len(data) - position} bytes at {position} are no batch")
        (length,) = struct.unpack_from(">i", data, position + 8)
        need(length >= 14, f"length {length} at {position}")
        end = position + 12 + length
        need(end <= len(data), f"batch at {position} ends at {end}, data at {len(data)}")
        magic = data[position + 16]
        need(magic in (0, 1, 2), f"magic {magic} at {position}")
        decode = decode_batch_v2 if magic == 2 else decode_message
        yield decode(data[position:end], position)
        position = end


def decode_batch_v2(data: bytes, position: int = 0) -> Batch:
    need(len(data) >= 61, f"batch at {position} is shorter than a header")
    (base_offset, _, leader_epoch, _, crc, attributes, last_offset_delta, base_timestamp, max_timestamp, producer_id,
     producer_epoch, base_sequence, count) = struct.unpack_from(">qiibIhiqqqhii", data)  # fmt: skip
    need(crc == crc32c.crc32c(data[21:]), f"CRC of the batch at {position}")
    log_append_time = bool(attributes & 0x08)
    reader = Reader(decompress(attributes & 0x07, data[61:]))
    records = []
    for _ in range(count):
        length = reader.varint()
        end = reader.at + length
        reader.take(1)  # attributes, unused
        timestamp = wrapped(base_timestamp + reader.varint(longest=10), 64)
        offset = base_offset + reader.varint()
        key = reader.sized(reader.varint())
        value = reader.sized(reader.varint())
        header_count = reader.varint()
        need(header_count >= 0, f"{header_count} headers in the batch at {position}")
        headers = []
        for _ in range(header_count):
            name = reader.take(reader.varint())  # a header without a name is Malformed
            headers.append((name.decode(errors="replace"), reader.sized(reader.varint())))
        need(reader.at == end, f"record of offset {offset} ends at {reader.at}, its length says {end}")
        if log_append_time:
            timestamp = max_timestamp
        records.append(Record(offset, timestamp, int(log_append_time), key, value, tuple(headers)))
    need(reader.at == len(reader.data), f"{len(reader.data) - reader.at} bytes after the last record at {position}")
    return Batch(
        position, len(data), 2, base_offset, base_offset + last_offset_delta, crc, attributes, tuple(records),
        max_timestamp, base_timestamp, leader_epoch, producer_id, producer_epoch, base_sequence,
    )  # fmt: skip


def decode_message(data: bytes, position: int = 0) -> Batch:
    """A v0 or v1 message; of a wrapper, the messages inside it."""
    offset, _, crc, magic, attributes = struct.unpack_from(">qiIbb", data)
    need(crc == zlib.crc32(data[16:]), f"CRC of the message at {position}")
    timestamp, timestamp_type, at = -1, NO_TIMESTAMP_TYPE, 18
    if magic == 1:
        (timestamp,), at = struct.unpack_from(">q", data, 18), 26
        timestamp_type = LOG_APPEND_TIME if attributes & 0x08 else CREATE_TIME
    reader = Reader(data, at)
    key = reader.sized(reader.int32())
    value = reader.sized(reader.int32())
    need(reader.at == len(data), f"message at {position} ends at {reader.at} of {len(data)} bytes")
    codec = attributes & 0x07
    if codec == NONE:
        record = Record(offset, timestamp, timestamp_type, key, value)
        return Batch(position, len(data), magic, offset, offset, crc, attributes, (record,), timestamp)
    if value is None:
        raise Malformed(f"wrapper at {position} without a value")
    inner = list(decode_batches(decompress(codec, value, wrong_lz4_checksum=magic == 0)))
    need(len(inner) > 0, f"wrapper at {position} without messages")
    need(all(i.magic == magic and i.codec == NONE for i in inner), f"wrapper at {position} mixes formats")
    shift = offset - inner[-1].last_offset if magic == 1 else 0
    records = tuple(
        Record(
            record.offset + shift,
            timestamp if timestamp_type == LOG_APPEND_TIME else record.timestamp,
            timestamp_type,
            record.key,
            record.value,
        )
        for message in inner
        for record in message.records
    )
    return Batch(position, len(data), magic, records[0].offset, offset, crc, attributes, records, timestamp)


class Reader:
    """Reads from the start to the end of `data`, never beyond."""

    def __init__(self, data: bytes, at: int = 0) -> None:
        self.data = data
        self.at = at

    def take(self, count: int) -> bytes:
        need(0 <= count <= len(self.data) - self.at, f"{count} bytes at {self.at} of {len(self.data)}")
        self.at += count
        return self.data[self.at - count : self.at]

    def sized(self, length: int) -> bytes | None:
        """Any negative length stands for null, as in Java."""
        return None if length < 0 else self.take(length)

    def int32(self) -> int:
        return int.from_bytes(self.take(4), "big", signed=True)

    def varint(self, longest: int = 5) -> int:
        """Zigzag, of 32 bits in five bytes at most (Java's readVarint), or of 64 bits in ten (readVarlong)."""
        raw = 0
        for shift in range(0, 7 * longest, 7):
            (byte,) = self.take(1)
            raw |= (byte & 0x7F) << shift
            if byte < 0x80:
                raw %= 1 << (32 if longest == 5 else 64)
                return (raw >> 1) ^ -(raw & 1)
        raise Malformed(f"varint before {self.at} has no end after {longest} bytes")


def wrapped(value: int, bits: int) -> int:
    """What Java makes of a sum that its type does not hold."""
    return (value + (1 << bits - 1)) % (1 << bits) - (1 << bits - 1)


def decompress_xerial_or_raw(data: bytes) -> bytes:
    return decompress_xerial(data) if data.startswith(XERIAL_MAGIC) else bytes(snappy.decompress(data))


def decompress(codec: int, data: bytes, wrong_lz4_checksum: bool = False) -> bytes:
    try:
        if codec == NONE:
            return data
        if codec == GZIP:
            return gzip.decompress(data)
        if codec == SNAPPY:
            return decompress_xerial_or_raw(data)
        if codec == LZ4:
            return bytes(lz4.frame.decompress(right_lz4_checksum(data) if wrong_lz4_checksum else data))
        if codec == ZSTD:
            with zstandard.ZstdDecompressor().stream_reader(data, read_across_frames=True) as stream:
                return stream.read()
    except (OSError, EOFError, zlib.error, RuntimeError, snappy.UncompressError, zstandard.ZstdError) as error:
        raise Malformed(f"codec {codec}: {error}") from error
    raise Malformed(f"codec {codec}")


def decompress_xerial(data: bytes) -> bytes:
    """Java's SnappyOutputStream: magic, version i32, compatible version i32, then blocks: length i32, snappy."""
    reader, blocks = Reader(data, 16), []
    while reader.at < len(data):
        blocks.append(snappy.decompress(reader.take(reader.int32())))
    return b"".join(blocks)


def right_lz4_checksum(frame: bytes) -> bytes:
    """The frame with the header checksum that lz4 asks for: of 256 bytes the one it accepts.

    Kafka's v0 messages carry a checksum computed over the wrong bytes (KAFKA-3160).
    """
    at = 14 if frame[4] & 0x08 else 6  # after magic, FLG, BD and the content size, if FLG announces one
    for checksum in range(256):
        fixed = frame[:at] + bytes([checksum]) + frame[at + 1 :]
        try:
            lz4.frame.get_frame_info(fixed)
        except RuntimeError:
            continue
        return fixed
    raise Malformed("lz4 frame header")


def need(condition: bool, what: str) -> None:
    if not condition:
        raise Malformed(what)
