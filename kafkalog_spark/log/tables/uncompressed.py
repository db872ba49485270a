"""How large the records of a batch are without compression."""

from __future__ import annotations

from kafkalog_spark.errors import CorruptBatch, UnsupportedFormat
from kafkalog_spark.log.format import layout
from kafkalog_spark.log.format.batch_header import BatchHeader, wrapper_value_at
from kafkalog_spark.log.format.layout import Codec
from kafkalog_spark.log.read.decompress import MAX_DECOMPRESSED, Output, decompress
from kafkalog_spark.log.read.scratch import Scratch
from kafkalog_spark.log.read.segment_file import SegmentFile

_SCRATCH = 1 << 20
"""Bytes of decompressed records to begin with."""


class Uncompressed:
    """Decompresses batches of one segment, for their size only. limit: bytes that one may decompress to."""

    def __init__(self, file: SegmentFile, limit: int | None = None) -> None:
        self._file = file
        self._limit = limit or MAX_DECOMPRESSED
        self._scratch: Scratch | None = None

    def size_of(self, header: BatchHeader) -> int | None:
        """Bytes of the records; None where they do not decompress."""
        begins = _records_begin(header)
        if header.codec == Codec.NONE:
            return header.size - begins
        scratch = self._scratch = self._scratch or Scratch(_SCRATCH)
        data = memoryview(self._file.read(header.position, header.size))
        try:
            if header.magic < 2:
                begins = wrapper_value_at(data, header.magic)
            return decompress(header.codec, data[begins:], Output(scratch, 0, self._limit))
        except (CorruptBatch, UnsupportedFormat):
            return None
        finally:
            scratch.shrink(_SCRATCH)

    def ratio_of(self, header: BatchHeader) -> float | None:
        """That size to the bytes that the records take in the file; None where there are none of one of them."""
        stored, size = header.size - _records_begin(header), self.size_of(header)
        return size / stored if size is not None and stored else None


def _records_begin(header: BatchHeader) -> int:
    return layout.RECORDS_AT if header.magic == 2 else layout.LEGACY_MIN_SIZE[header.magic]
