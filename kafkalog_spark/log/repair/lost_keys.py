"""Keys of lost batches, as far as they can still be read: whose records are gone.

Nothing proves them: the CRC that would is wrong, or the batch is in the wrong place. A record is read where it is
well-formed and its offset rises; at the first one that is not, the rest of its batch is left alone.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from kafkalog_spark.errors import CorruptBatch, KafkalogError
from kafkalog_spark.log.format import layout
from kafkalog_spark.log.format.batch_header import BatchHeader
from kafkalog_spark.log.format.layout import Codec
from kafkalog_spark.log.format.records import read_records
from kafkalog_spark.log.read.decompress import Output, decompress
from kafkalog_spark.log.read.scratch import Scratch
from kafkalog_spark.log.read.segment_file import SegmentFile
from kafkalog_spark.log.repair.report import KEY_BYTES

MOST_KEYS = 100
"""Different ones of a stretch: a report is read by people, and those of a whole segment are a table's work."""
_MOST_BYTES = 16 << 20
"""Of a batch, as it lies and decompressed. Producers send 1 MB at most unless configured otherwise."""
_MOST_RECORDS = 100_000
"""Of a stretch: plain Python reads some 500,000 a second."""


@dataclass(slots=True)
class LostKeys:
    """records: whose key could be read, null or not. keys: different ones in their order, at most MOST_KEYS, of
    each at most KEY_BYTES + 1 bytes."""

    records: int = 0
    keys: dict[bytes, None] = field(default_factory=dict)

    def take(self, key: bytes | None) -> None:
        self.records += 1
        if key is not None and len(self.keys) < MOST_KEYS:
            self.keys[key] = None


def lost_keys(file: SegmentFile, position: int, size: int) -> LostKeys:
    """The keys of v2 batches in the bytes [position, position + size). Raises NotALogDirectory where the file cannot be
    read, and nothing for what it holds."""
    found, end = LostKeys(), position + size
    while position + layout.RECORDS_AT < end and found.records < _MOST_RECORDS:
        try:
            header = file.header_at(position)
        except KafkalogError:
            return found
        if header is None or header.end > end or header.magic != 2:
            return found
        for key in _keys_of(file, header):
            found.take(key)
        position = header.end
    return found


def _keys_of(file: SegmentFile, header: BatchHeader) -> Iterator[bytes | None]:
    """The keys of a batch's records up to the first one that is malformed."""
    if header.is_control or not 0 < header.record_count <= _MOST_RECORDS or header.size > _MOST_BYTES:
        return
    payload = memoryview(file.read(header.position, header.size))[layout.RECORDS_AT :]
    if header.codec != Codec.NONE:
        payload = _decompressed(header.codec, payload)
    previous, last = -1, header.last_offset - header.base_offset
    try:
        for record in read_records(payload, header.record_count, header.base_timestamp):
            if not previous < record.offset_delta <= last:
                return
            previous = record.offset_delta
            end = record.key_at + min(record.key_size, KEY_BYTES + 1)  # one more shows that it goes on
            yield bytes(payload[record.key_at : end]) if record.key_size >= 0 else None
    except CorruptBatch:
        return


def _decompressed(codec: int, data: memoryview) -> memoryview:
    """As much as decompresses."""
    output = Output(Scratch(1 << 20), 0, _MOST_BYTES)
    try:
        decompress(codec, data, output)
    except KafkalogError:
        pass  # what came before the fault is there
    return output.scratch.view[: output.at]
