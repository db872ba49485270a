"""Keys of the records in lost batches, as far as they can be read.

The keys are unproven: the batch has a wrong CRC or a wrong position. Records of a batch are read up to the first one
that is malformed or whose offset does not increase.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress

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

MOST_KEYS = 100
"""Different ones of a stretch: a report is read by people, and those of a whole segment are a table's work."""
_MOST_BYTES = 16 << 20  # of a batch whose keys are listed, compressed or not
_MOST_RECORDS = 100_000  # records of a loss whose keys are listed: plain Python reads some 500,000 a second


def lost_keys(file: SegmentFile, position: int, size: int) -> tuple[dict[bytes, None], int]:
    """Different keys of v2 batches in the bytes [position, position + size) in their order, at most MOST_KEYS, of each
    at most KEY_BYTES + 1 bytes; and the number of records whose key, null or not, could be read. Raises
    NotALogDirectory where the file cannot be read, and nothing for what it holds."""
    keys: dict[bytes, None] = {}
    records, end = 0, position + size
    while position + layout.RECORDS_AT < end and records < _MOST_RECORDS:
        try:
            header = file.header_at(position)
        except KafkalogError:
            break
        if header is None or header.end > end or header.magic != 2:
            break
        for key in _keys_of(file, header):
            records += 1
            if key is not None and len(keys) < MOST_KEYS:
                keys[key] = None
        position = header.end
    return keys, records


def _keys_of(file: SegmentFile, header: BatchHeader) -> Iterator[bytes | None]:
    """The keys of a batch's records up to the first one that is malformed."""
    if header.is_control or not 0 < header.record_count <= _MOST_RECORDS or header.size > _MOST_BYTES:
        return
    payload = memoryview(file.read(header.position, header.size))[layout.RECORDS_AT :]
    if header.codec != Codec.NONE:
        output = Output(Scratch(1 << 20), 0, _MOST_BYTES)
        with suppress(KafkalogError):  # what came before the fault is there
            decompress(header.codec, payload, output)
        payload = output.scratch.view[: output.at]
    previous, last = -1, header.last_offset - header.base_offset
    with suppress(CorruptBatch):
        for record in read_records(payload, header.record_count, header.base_timestamp):
            if not previous < record.offset_delta <= last:
                return
            previous = record.offset_delta
            end = record.key_at + min(record.key_size, KEY_BYTES + 1)  # one more shows that it goes on
            yield bytes(payload[record.key_at : end]) if record.key_size >= 0 else None
