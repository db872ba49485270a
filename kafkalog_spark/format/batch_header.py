"""Header of one batch, parsed in plain Python, for planning, which does not load the kernels (kernels.sweep)."""

from __future__ import annotations

import struct
import zlib
from collections.abc import Callable
from typing import NamedTuple

from kafkalog_spark.errors import CorruptBatch, UnsupportedFormat
from kafkalog_spark.format import layout
from kafkalog_spark.format.crc32c import crc32c
from kafkalog_spark.format.layout import TimestampType

_PREFIX = struct.Struct(">qi4xb")  # offset, length, magic
_V0 = struct.Struct(">qiIbb")
_V1 = struct.Struct(">qiIbbq")

HEADER_SIZES = (*layout.LEGACY_MIN_SIZE, layout.RECORDS_AT)  # smallest size in bytes of a batch, by magic

PREFIX_SIZE = layout.MAGIC_AT + 1  # bytes of a batch that contain its size and magic

Read = Callable[[int, int], bytes]
"""read(position, size) returns the bytes of a file, fewer at its end."""

MAX_UNCHECKED_BYTES = 16 << 20
"""Size in bytes up to which a batch is read into memory before its CRC is checked: a larger length may be damage."""

_CRC_READ = 1 << 20  # bytes that are read at a time for the CRC of a large batch


class BatchHeader(NamedTuple):
    """Header of a record batch (v2), or of a message or wrapper (v0, v1). Timestamps are in ms, sizes in bytes.

    The header of a wrapper does not have the first offset and the number of records: base_offset equals last_offset,
    and record_count is -1.
    """

    position: int
    size: int
    base_offset: int
    last_offset: int
    magic: int
    attributes: int
    crc: int
    leader_epoch: int
    base_timestamp: int
    max_timestamp: int
    producer_id: int
    producer_epoch: int
    base_sequence: int
    record_count: int

    @property
    def end(self) -> int:
        """Position of the next batch."""
        return self.position + self.size

    @property
    def last_sequence(self) -> int:
        """Sequence of the last record; -1 without sequences. 0 follows 2^31-1, even within a batch."""
        if self.base_sequence < 0:
            return layout.NO_SEQUENCE
        return (self.base_sequence + self.last_offset - self.base_offset) & layout.MAX_INT32

    @property
    def codec(self) -> int:
        return self.attributes & layout.ATTRIBUTE_CODEC

    @property
    def timestamp_type(self) -> TimestampType:
        if self.magic == 0:
            return TimestampType.NO_TIMESTAMP_TYPE
        return TimestampType(bool(self.attributes & layout.ATTRIBUTE_LOG_APPEND_TIME))

    @property
    def is_control(self) -> bool:
        return self.magic == 2 and bool(self.attributes & layout.ATTRIBUTE_CONTROL)

    @property
    def is_transactional(self) -> bool:
        return self.magic == 2 and bool(self.attributes & layout.ATTRIBUTE_TRANSACTIONAL)


def parse_prefix(data: bytes | memoryview, at: int, position: int) -> tuple[int, int]:
    """Return (size in bytes, magic) of the batch at data[at:], which has at least PREFIX_SIZE bytes.

    Args:
        data: Bytes of the file.
        at: Start of the batch in `data`.
        position: Start of the batch in the file, for errors.

    Raises:
        CorruptBatch: For a length that no batch can have.
        UnsupportedFormat: For an unknown magic.
    """
    offset, length, magic = _PREFIX.unpack_from(data, at)
    if not any(data[at : at + PREFIX_SIZE]):
        raise CorruptBatch("zeros where a batch should begin", position=position)
    if not 0 <= magic <= 2:
        raise UnsupportedFormat(f"magic {magic} where a batch should begin (0, 1 or 2 expected)", position=position)
    size = length + layout.LOG_OVERHEAD
    if size < HEADER_SIZES[magic]:
        raise CorruptBatch(
            f"batch length {length}, a batch of magic {magic} has at least {HEADER_SIZES[magic] - layout.LOG_OVERHEAD}",
            position=position,
            offset=offset,
        )
    return size, magic


def parse_header(data: bytes | memoryview, at: int, position: int) -> BatchHeader:
    """Parse the header of the batch at data[at:], which has at least HEADER_SIZES[magic] bytes. See `parse_prefix`."""
    size, magic = parse_prefix(data, at, position)
    if magic == 2:
        (
            base, _, epoch, _, crc, attributes, delta, base_timestamp, max_timestamp, producer, producer_epoch,
            sequence,
            count,
        ) = layout.BATCH_HEADER.unpack_from(data, at)  # fmt: skip
        return BatchHeader(
            position, size, base, base + delta, magic, attributes, crc, epoch, base_timestamp, max_timestamp, producer,
            producer_epoch, sequence, count,
        )  # fmt: skip
    timestamp = layout.NO_TIMESTAMP
    if magic == 1:
        offset, _, crc, _, attributes, timestamp = _V1.unpack_from(data, at)
    else:
        offset, _, crc, _, attributes = _V0.unpack_from(data, at)
    count = -1 if attributes & layout.ATTRIBUTE_CODEC else 1
    return BatchHeader(
        position, size, offset, offset, magic, attributes, crc, layout.NO_LEADER_EPOCH, timestamp, timestamp,
        layout.NO_PRODUCER_ID, layout.NO_PRODUCER_EPOCH, layout.NO_SEQUENCE, count,
    )  # fmt: skip


def parse_complete_batch_prefix(data: bytes | memoryview, at: int, bytes_left: int, position: int) -> tuple[int, int]:
    """Parse the prefix of a batch that must end within the file.

    Args:
        data, at, position: As `parse_prefix`.
        bytes_left: Number of bytes from the start of the batch to the end of the file.

    Returns:
        (size in bytes, magic).

    Raises:
        CorruptBatch: If the batch is longer than `bytes_left`, or as `parse_prefix`.
        UnsupportedFormat: For an unknown magic.
    """
    if bytes_left <= layout.MAGIC_AT:
        raise CorruptBatch(f"the file ends {bytes_left} bytes into a batch header", position=position)
    size, magic = parse_prefix(data, at, position)
    if size > bytes_left:
        raise CorruptBatch(f"a batch of {size} bytes begins here, the file ends after {bytes_left}", position=position)
    return size, magic


def read_batch_header(read: Read, position: int, end: int, max_unchecked: int) -> BatchHeader:
    """Read the header of the batch at `position`, and check that the batch ends before byte `end`.

    The CRC of a batch of more than `max_unchecked` bytes is checked piece by piece, so that a wrong length does not
    cause an allocation of that size. Raises as `parse_complete_batch_prefix`, and CorruptBatch for a wrong CRC.
    """
    head = read(position, layout.RECORDS_AT)
    left = end - position if len(head) == layout.RECORDS_AT else min(len(head), end - position)
    size, _ = parse_complete_batch_prefix(head, 0, left, position)
    header = parse_header(head, 0, position)
    if size > max_unchecked:
        compare_crc(header, crc_in_pieces(read, header))
    return header


def crc_in_pieces(read: Read, header: BatchHeader) -> int:
    """Compute the CRC of a batch without reading it into memory as a whole.

    If the file is truncated at the same time, return the CRC of the remaining bytes.
    """
    crc = 0
    at = header.position + crc_start(header.magic)
    while at < header.end and (piece := read(at, min(_CRC_READ, header.end - at))):
        crc = update_crc(crc, piece, header.magic)
        at += len(piece)
    return crc


def wrapper_value_at(batch: bytes | memoryview, magic: int) -> int:
    """Return the position of the compressed message set in a wrapper (v0, v1), which it fills to the end.

    Raises CorruptBatch if key and value do not fill the wrapper.
    """
    key_at = layout.LEGACY_KEY_LENGTH_AT[magic]
    key_size = int.from_bytes(batch[key_at : key_at + 4], "big", signed=True)
    value_at = key_at + 8 + max(key_size, 0)
    value_size = int.from_bytes(batch[value_at - 4 : value_at], "big", signed=True)
    if value_size < 0 or value_at + value_size != len(batch):
        raise CorruptBatch(f"a wrapper with key size {key_size} and value size {value_size}")
    return value_at


def compute_crc(batch: bytes | memoryview, magic: int) -> int:
    """Return the CRC of a batch by its format: CRC-32C (v2) or CRC-32 (v0, v1)."""
    return update_crc(0, memoryview(batch)[crc_start(magic) :], magic)


def crc_start(magic: int) -> int:
    """Return the first byte of a batch that its CRC covers. The CRC covers all bytes after it."""
    return layout.ATTRIBUTES_AT if magic == 2 else layout.MAGIC_AT


def update_crc(crc: int, data: bytes | memoryview, magic: int) -> int:
    """Continue `crc`, the CRC of the previous bytes (0 without any), with `data`."""
    return crc32c(data, crc) if magic == 2 else zlib.crc32(data, crc)


def check_crc(header: BatchHeader, batch: bytes | memoryview) -> None:
    """Raise CorruptBatch if the CRC of `batch`, all bytes of the header's batch, differs from that in the header."""
    compare_crc(header, compute_crc(batch, header.magic))


def compare_crc(header: BatchHeader, computed: int) -> None:
    if computed != header.crc:
        what = crc_text(header.magic, header.crc, computed)
        raise CorruptBatch(what, position=header.position, offset=header.base_offset)


def crc_text(magic: int, expected: int, computed: int) -> str:
    name = "CRC-32C" if magic == 2 else "CRC-32"
    return f"{name} does not match: the header says {expected:#010x}, the bytes give {computed:#010x}"
