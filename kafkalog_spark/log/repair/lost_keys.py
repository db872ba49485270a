"""Keys of the records in lost batches, if they can be read.

The keys may be wrong, because the CRC or the offsets of their batch are. Records of a batch are read up to the first
one that is malformed or whose offset does not increase.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from typing import NamedTuple

from kafkalog_spark.errors import CorruptBatch, KafkalogError
from kafkalog_spark.format import layout
from kafkalog_spark.format.batch_header import BatchHeader
from kafkalog_spark.format.layout import Codec
from kafkalog_spark.format.records import read_records
from kafkalog_spark.log.codecs.decompress import decompress
from kafkalog_spark.log.codecs.output import Output
from kafkalog_spark.log.codecs.scratch import Scratch
from kafkalog_spark.log.read.segment_file import SegmentFile
from kafkalog_spark.log.repair.report import KEY_BYTES

MAX_KEYS = 100
"""Largest number of different keys that are listed for a damaged stretch, because people read the report."""
_MAX_BATCH_BYTES = 16 << 20  # size of a batch, compressed and uncompressed, up to which its keys are read
_MAX_RECORDS = 100_000  # records of a damaged stretch whose keys are read: they are parsed in plain Python


class LostKeys(NamedTuple):
    """Keys of lost records.

    Attributes:
        keys: Up to MAX_KEYS different keys, in order, each truncated to KEY_BYTES + 1 bytes.
        records: Number of records whose key, null included, could be read.
    """

    keys: tuple[bytes, ...]
    records: int


def read_lost_keys(file: SegmentFile, position: int, size: int) -> LostKeys:
    """Read the keys of the v2 batches in the bytes [position, position + size) of a file, which may be damaged.

    Raises:
        NotALogDirectory: If the file cannot be read.
    """
    keys: dict[bytes, None] = {}  # an ordered set
    records, end = 0, position + size
    while position + layout.RECORDS_AT < end and records < _MAX_RECORDS:
        try:
            header = file.header_at(position)
        except KafkalogError:
            break
        if header is None or header.end > end or header.magic != 2:
            break
        for key in _keys_of(file, header):
            records += 1
            if key is not None and len(keys) < MAX_KEYS:
                keys[key] = None
        position = header.end
    return LostKeys(tuple(keys), records)


def _keys_of(file: SegmentFile, header: BatchHeader) -> Iterator[bytes | None]:
    """Yield the keys of a batch's records, up to the first malformed record."""
    if header.is_control or not 0 < header.record_count <= _MAX_RECORDS or header.size > _MAX_BATCH_BYTES:
        return
    payload = memoryview(file.read(header.position, header.size))[layout.RECORDS_AT :]
    if header.codec != Codec.NONE:
        output = Output(Scratch(1 << 20), 0, _MAX_BATCH_BYTES)
        with suppress(KafkalogError):  # the output has the bytes before the fault
            decompress(header.codec, payload, output)
        payload = output.scratch.view[: output.at]
    previous, last = -1, header.last_offset - header.base_offset
    with suppress(CorruptBatch):
        for record in read_records(payload, header.record_count, header.base_timestamp):
            if not previous < record.offset_delta <= last:
                return
            previous = record.offset_delta
            end = record.key_at + min(record.key_size, KEY_BYTES + 1)  # one byte more shows that the key is longer
            yield bytes(payload[record.key_at : end]) if record.key_size >= 0 else None
