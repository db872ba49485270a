"""Encoder of Arrow records into v2 batches. It creates no Python object per record."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from kafkalog_spark.errors import InvalidRecord
from kafkalog_spark.format import layout
from kafkalog_spark.format.codecs import compression_level
from kafkalog_spark.format.layout import BATCH_OVERHEAD, MAX_INT32, Codec, TimestampType
from kafkalog_spark.kernels.encode import EncodeCursor, EncodeStatus, Fact, encode_records
from kafkalog_spark.log.codecs.compress import check_decompressed, compress
from kafkalog_spark.log.write.arrow_columns import kernel_columns
from kafkalog_spark.log.write.encoded_batch import header_fields, seal

DEFAULT_BATCH_SIZE = 64 * 1024
"""Four times the default of the Java producer's batch.size: larger batches compress better and are cheaper to read."""

DEFAULT_MAX_BATCH_BYTES = 1024 * 1024 + 12
"""Kafka's default of max.message.bytes: brokers refuse larger batches."""

_OUTPUT_SIZE = 1 << 20  # bytes encoded by one kernel call: fits into the L2 cache and amortizes the cost of the call
_BATCHES_PER_CALL = 1024  # largest number of batches that one kernel call encodes
_MAX_CONCAT_BYTES = 8 << 20  # small chunks of a Table are concatenated up to this size, to avoid small batches
_MIN_WHOLE_BATCHES = 8
"""Number of batches from which on a chunk is not concatenated: the copy would cost more than one small last batch."""


@dataclass(frozen=True)
class BatchParams:
    """Settings of the encoded batches.

    Attributes:
        codec: Compression codec.
        level: Compression level, or None for the default of the codec; see format/codecs.py.
        batch_size: Largest batch in bytes before compression, header included (a producer's batch.size). A record that
            does not fit gets a batch of its own.
        max_batch_bytes: Largest batch in bytes after compression, header included (max.message.bytes).
        timestamp_type: With LOG_APPEND_TIME, readers see `log_append_time` as the timestamp of every record.
        log_append_time: In ms; required with LOG_APPEND_TIME and not allowed otherwise.
        leader_epoch: Leader epoch of every batch.

    Raises:
        ValueError: If a value is out of range or contradicts another one.
    """

    codec: Codec = Codec.NONE
    level: int | None = None
    batch_size: int = DEFAULT_BATCH_SIZE
    max_batch_bytes: int = DEFAULT_MAX_BATCH_BYTES
    timestamp_type: TimestampType = TimestampType.CREATE_TIME
    log_append_time: int | None = None
    leader_epoch: int = 0

    def __post_init__(self) -> None:
        compression_level(self.codec, self.level)
        for name in ("batch_size", "max_batch_bytes"):
            size = getattr(self, name)
            if not BATCH_OVERHEAD < size <= MAX_INT32:
                raise ValueError(f"{name} must be between {BATCH_OVERHEAD + 1} and {MAX_INT32} bytes, got {size}")
        if self.batch_size > self.max_batch_bytes:
            raise ValueError(f"batch_size {self.batch_size} is larger than max_batch_bytes {self.max_batch_bytes}")
        if self.timestamp_type == TimestampType.NO_TIMESTAMP_TYPE:
            raise ValueError("record batches v2 have CREATE_TIME or LOG_APPEND_TIME")
        if (self.timestamp_type == TimestampType.LOG_APPEND_TIME) != (self.log_append_time is not None):
            raise ValueError(
                "log_append_time is required with LOG_APPEND_TIME and not allowed with any other timestamp type"
            )

    @property
    def attributes(self) -> int:
        """Attributes field of the batch header, codec included."""
        append_time = self.timestamp_type == TimestampType.LOG_APPEND_TIME
        return self.codec | (layout.ATTRIBUTE_LOG_APPEND_TIME if append_time else 0)


class BatchSize(NamedTuple):
    """Size of a batch in bytes, and its number of records."""

    size: int
    records: int


class EncodedRun(NamedTuple):
    """Consecutive whole batches.

    Attributes:
        data: The bytes of the batches, valid until the next run is requested.
        batches: Size and number of records of each batch.
    """

    data: memoryview
    batches: list[BatchSize]


class RecordEncoder:
    """Encoder of records into batches; not thread-safe.

    All calls reuse one output buffer, because allocating it for each call would cost as much as the encoding.
    """

    def __init__(self, params: BatchParams) -> None:
        self._params = params
        self._output = np.empty(0, np.uint8)
        self._facts = np.empty((_BATCHES_PER_CALL, len(Fact)), np.int64)
        self._next_offset = 0

    def runs(
        self, records: pa.RecordBatch | pa.Table, next_offset: int, now_ms: int | None = None
    ) -> Iterator[EncodedRun]:
        """Encode `records` into batches, and yield them in order, about a megabyte at a time.

        The columns may be in any order; other columns are refused:
            value      Required. Any Arrow binary or string type, or the null type.
            key        The same types as value. If it is missing, no record has a key.
            headers    list<struct<key, value>> of the same types; a null list is encoded as an empty one.
            timestamp  timestamp[ms | us | ns, any zone], rounded down to ms, or int64 ms. `now_ms` replaces nulls and a
                       missing column.
            offset     int64, increasing from `next_offset` on; gaps are preserved. If it is missing, offsets are
                       consecutive from `next_offset` on.

        Args:
            records: Records to encode. Small chunks of a Table are concatenated first, to avoid small batches.
            next_offset: Lowest valid offset of the first record.
            now_ms: Timestamp of records without one; `log_append_time` if None.

        Raises:
            InvalidRecord: If a record cannot be encoded, with its offset and row. Earlier runs are yielded first.
        """
        params = self._params
        default_timestamp = params.log_append_time if now_ms is None else now_ms
        self._next_offset = next_offset
        first_row = 0
        for chunk in _record_batches(records, params.batch_size):
            for view, facts in self._encode_chunk(chunk, first_row, default_timestamp):
                if params.codec == Codec.NONE:  # the batches are already consecutive in the buffer
                    for fact in facts:
                        self._seal(view, fact)
                    data = view[: facts[-1][Fact.END]] if facts else view[:0]
                    sizes = [end - start for start, end, *_ in facts]
                else:
                    sealed = (self._seal(view, fact) for fact in facts)
                    packed = [memoryview(buffer)[start:end] for buffer, start, end in sealed]
                    data, sizes = memoryview(b"".join(packed)), [len(batch) for batch in packed]
                yield EncodedRun(
                    data, [BatchSize(size, fact[Fact.COUNT]) for size, fact in zip(sizes, facts, strict=True)]
                )
            first_row += chunk.num_rows

    def _encode_chunk(
        self, chunk: pa.RecordBatch, first_row: int, default_timestamp: int | None
    ) -> Iterator[tuple[memoryview, list[list[int]]]]:
        """Encode a chunk without headers and compression.

        Yields the output buffer after each kernel call, with a list of `Fact` values for each batch in it.

        Args:
            chunk: Records to encode.
            first_row: Row of the first record in the input of `runs`, for errors.
            default_timestamp: Timestamp in ms of records without one.
        """
        batch_size, facts = self._params.batch_size, self._facts
        usual_size = max(_OUTPUT_SIZE, batch_size)
        if self._output.size != usual_size:  # release the larger buffer of an unusually large record
            self._output = np.empty(usual_size, np.uint8)
        columns = kernel_columns(chunk, default_timestamp)
        cursor = np.zeros(len(EncodeCursor), np.int64)
        cursor[EncodeCursor.NEXT_OFFSET] = self._next_offset
        status = EncodeStatus.FULL
        while status in (EncodeStatus.FULL, EncodeStatus.NEED_ROOM):
            if status == EncodeStatus.NEED_ROOM:  # one record alone needs a larger buffer
                needed = int(cursor[EncodeCursor.NEEDED])
                if self._params.codec == Codec.NONE:
                    self._check_size(needed, self._next_offset, 1)
                if needed > MAX_INT32:
                    raise InvalidRecord(f"a record takes {needed} bytes, but a batch holds at most {MAX_INT32}")
                self._output = np.empty(needed, np.uint8)
            result = encode_records(chunk.num_rows, columns, batch_size, self._output, facts, cursor)
            status, self._next_offset = EncodeStatus(result), int(cursor[EncodeCursor.NEXT_OFFSET])
            yield memoryview(self._output.data), facts[: cursor[EncodeCursor.BATCHES]].tolist()
        if status.text:
            row = first_row + int(cursor[EncodeCursor.ROW])
            raise InvalidRecord(f"row {row} cannot be encoded: {status.text}", offset=self._next_offset)

    def _check_size(self, size: int, offset: int, count: int) -> None:
        if size > self._params.max_batch_bytes:
            raise InvalidRecord(
                f"a batch of {count} record{'s' if count > 1 else ''} takes {size} bytes in the log, "
                f"at most {self._params.max_batch_bytes} are allowed",
                offset=offset,
                hint="raise max.message.bytes or make the record smaller",
            )

    def _seal(self, view: memoryview, fact: list[int]) -> tuple[bytearray | memoryview, int, int]:
        """Compress and seal the batch in `view[start:end]`, and return the buffer, start and end of the result."""
        start, end, count, base_offset, last_offset, base_timestamp, max_timestamp = fact
        params = self._params
        if params.log_append_time is not None:
            max_timestamp = params.log_append_time
        attributes = params.attributes
        buffer: bytearray | memoryview = view
        if params.codec != Codec.NONE:
            check_decompressed(end - start - BATCH_OVERHEAD, base_offset)
            packed = compress(params.codec, view[start + BATCH_OVERHEAD : end], params.level)
            if BATCH_OVERHEAD + len(packed) > params.max_batch_bytes >= end - start:
                attributes &= ~layout.ATTRIBUTE_CODEC  # only the uncompressed batch is within max_batch_bytes
            else:
                buffer = bytearray(BATCH_OVERHEAD) + packed
                start, end = 0, len(buffer)
        self._check_size(end - start, base_offset, count)
        head = header_fields(
            base_offset, last_offset, count, base_timestamp, max_timestamp, attributes=attributes,
            leader_epoch=params.leader_epoch, producer_id=layout.NO_PRODUCER_ID,
            producer_epoch=layout.NO_PRODUCER_EPOCH, base_sequence=layout.NO_SEQUENCE,
        )  # fmt: skip
        seal(buffer, start, end, head)
        return buffer, start, end


def _record_batches(records: pa.RecordBatch | pa.Table, batch_size: int) -> Iterator[pa.RecordBatch]:
    """Yield the rows as record batches; small chunks of a Table are concatenated."""
    if isinstance(records, pa.RecordBatch):
        yield records
        return
    large = min(_MIN_WHOLE_BATCHES * batch_size, _MAX_CONCAT_BYTES)
    pending: list[pa.RecordBatch] = []
    pending_size = last_size = 0
    for chunk in records.to_batches():
        size = chunk.nbytes
        if pending and (max(last_size, size) >= large or pending_size + size > _MAX_CONCAT_BYTES):
            yield _concat(pending)
            pending, pending_size = [], 0
        pending.append(chunk)
        pending_size, last_size = pending_size + size, size
    if pending:
        yield _concat(pending)


def _concat(chunks: list[pa.RecordBatch]) -> pa.RecordBatch:
    return chunks[0] if len(chunks) == 1 else pa.concat_batches(chunks)
