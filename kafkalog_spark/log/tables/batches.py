"""The table `batches`: headers of a segment as Arrow, a window of bytes at a time."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from kafkalog_spark.errors import CorruptBatch, UnsupportedFormat
from kafkalog_spark.format import layout
from kafkalog_spark.format.batch_header import BatchHeader, crc_in_pieces, wrapper_value_at
from kafkalog_spark.format.layout import MAX_DECOMPRESSED, Codec, H
from kafkalog_spark.log.decode.decompress import Output, Scratch, decompress
from kafkalog_spark.log.read.partition_log import PartitionLog
from kafkalog_spark.log.read.segment_file import SegmentFile
from kafkalog_spark.log.read.segment_file import Table as HeaderTable
from kafkalog_spark.log.tables.damage import Damage, stretches
from kafkalog_spark.log.tables.table import BATCHES, constant, timestamp_us, timestamps

# How large the records of a batch are without compression.

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


_CODECS = pa.array([codec.name.lower() for codec in Codec])
_TIMESTAMP_TYPES = pa.array(["CreateTime", "LogAppendTime"])
_KINDS = {column.name: column.type for column in BATCHES.columns}


def batch_rows(
    file: SegmentFile,
    log: PartitionLog,
    columns: tuple[str, ...],
    *,
    start: int = 0,
    end: int = layout.MAX_INT64,
    max_decompressed: int | None = None,
) -> Iterator[pa.RecordBatch]:
    """The batches of `log`'s open segment that have offsets in [start, end), and all damage between them, in the
    order of the file. Raises NotALogDirectory where the file cannot be read."""
    maker = _Columns(file, log.topic, log.partition, max_decompressed)
    schema = BATCHES.schema(columns)
    position = file.locate(start) if start > file.base_offset else 0
    for found in stretches(file, position, log.recovery_point):
        if isinstance(found, Damage):
            row = maker.of_damage(found)
            arrays = [pa.array([row.get(name)], _KINDS[name]) for name in columns]
            yield pa.RecordBatch.from_arrays(arrays, schema=schema)
            continue
        table = found.table[(found.table[:, H.LAST_OFFSET] >= start) & (found.table[:, H.BASE_OFFSET] < end)]
        if len(table):
            yield pa.RecordBatch.from_arrays([maker.column(name, table) for name in columns], schema=schema)
        if int(found.table[-1, H.BASE_OFFSET]) >= end:
            return


_Rows = npt.NDArray[np.bool_]


def _v2(table: HeaderTable) -> _Rows:
    rows: _Rows = table[:, H.MAGIC] == 2
    return rows


def _flag(table: HeaderTable, mask: int) -> _Rows:
    rows: _Rows = _v2(table) & ((table[:, H.ATTRIBUTES] & mask) != 0)
    return rows


def _known(values: npt.NDArray[np.int64], known: _Rows, name: str) -> pa.Array:
    return pa.array(values, _KINDS[name], mask=~known)


def _base_offset(table: HeaderTable) -> pa.Array:
    return _known(table[:, H.BASE_OFFSET], table[:, H.COUNT] >= 0, "base_offset")


def _record_count(table: HeaderTable) -> pa.Array:
    return _known(table[:, H.COUNT], table[:, H.COUNT] >= 0, "record_count")


def _codec(table: HeaderTable) -> pa.Array:
    codes = table[:, H.ATTRIBUTES] & layout.ATTRIBUTE_CODEC
    return pa.DictionaryArray.from_arrays(pa.array(codes, pa.int32(), mask=codes > max(Codec)), _CODECS).cast(
        pa.string()
    )


def _timestamp_type(table: HeaderTable) -> pa.Array:
    codes = (table[:, H.ATTRIBUTES] & layout.ATTRIBUTE_LOG_APPEND_TIME) // layout.ATTRIBUTE_LOG_APPEND_TIME
    indices = pa.array(codes, pa.int32(), mask=table[:, H.MAGIC] == 0)
    return pa.DictionaryArray.from_arrays(indices, _TIMESTAMP_TYPES).cast(pa.string())


def _base_timestamp(table: HeaderTable) -> pa.Array:
    return timestamps(table[:, H.BASE_TIMESTAMP], ~_flag(table, layout.ATTRIBUTE_DELETE_HORIZON))


def _delete_horizon(table: HeaderTable) -> pa.Array:
    return timestamps(table[:, H.BASE_TIMESTAMP], _flag(table, layout.ATTRIBUTE_DELETE_HORIZON))


def _last_sequence(table: HeaderTable) -> pa.Array:
    base = table[:, H.BASE_SEQUENCE]
    last = (base + table[:, H.LAST_OFFSET] - table[:, H.BASE_OFFSET]) & layout.MAX_INT32
    return pa.array(np.where(base < 0, layout.NO_SEQUENCE, last), pa.int32())


def _plain(column: H, name: str) -> Callable[[HeaderTable], pa.Array]:
    return lambda table: pa.array(table[:, column], _KINDS[name])


_OF_TABLE: dict[str, Callable[[HeaderTable], pa.Array]] = {
    "position": _plain(H.POSITION, "position"),
    "size": _plain(H.SIZE, "size"),
    "base_offset": _base_offset,
    "last_offset": _plain(H.LAST_OFFSET, "last_offset"),
    "record_count": _record_count,
    "magic": _plain(H.MAGIC, "magic"),
    "codec": _codec,
    "timestamp_type": _timestamp_type,
    "base_timestamp": _base_timestamp,
    "max_timestamp": lambda table: timestamps(table[:, H.MAX_TIMESTAMP]),
    "delete_horizon": _delete_horizon,
    "producer_id": _plain(H.PRODUCER_ID, "producer_id"),
    "producer_epoch": _plain(H.PRODUCER_EPOCH, "producer_epoch"),
    "base_sequence": _plain(H.BASE_SEQUENCE, "base_sequence"),
    "last_sequence": _last_sequence,
    "transactional": lambda table: pa.array(_flag(table, layout.ATTRIBUTE_TRANSACTIONAL)),
    "control": lambda table: pa.array(_flag(table, layout.ATTRIBUTE_CONTROL)),
    "leader_epoch": _plain(H.LEADER_EPOCH, "leader_epoch"),
    "crc_stored": _plain(H.CRC, "crc_stored"),
    "crc_computed": _plain(H.CRC, "crc_computed"),  # the batches of a window have the right one
    "valid": lambda table: constant(True, pa.bool_(), len(table)),
    "error": lambda table: constant(None, pa.string(), len(table)),
}


class _Columns:
    """Makes columns of the header tables of one segment."""

    def __init__(self, file: SegmentFile, topic: str, partition: int, max_decompressed: int | None) -> None:
        self._file = file
        self._uncompressed = Uncompressed(file, max_decompressed)
        self._constants = {"topic": topic, "partition": partition, "segment": file.base_offset, "file": file.path}

    def column(self, name: str, table: HeaderTable) -> pa.Array:
        if name in self._constants:
            return constant(self._constants[name], _KINDS[name], len(table))
        if name == "uncompressed_size":
            return pa.array([self._uncompressed.size_of(_header(row)) for row in table.tolist()], pa.int64())
        if name == "compression_ratio":
            return pa.array([self._uncompressed.ratio_of(_header(row)) for row in table.tolist()], pa.float64())
        return _OF_TABLE[name](table)

    def of_damage(self, damage: Damage) -> dict[str, object]:
        """A row about a stretch that is no good batch. Header fields where exactly one batch takes it all."""
        row: dict[str, object] = {
            **self._constants,
            "position": damage.position,
            "size": damage.size,
            "valid": False,
            "error": damage.error,
        }
        header = damage.header
        if header is None:
            return row
        table = np.array([(*header, 0, 0)], np.int64)
        for name in _OF_TABLE:
            if name not in row:
                try:
                    row[name] = _OF_TABLE[name](table)[0].as_py()
                except (OverflowError, pa.ArrowInvalid):  # a record count that no int32 holds
                    row[name] = None
        for name, at in (("max_timestamp", header.max_timestamp), ("base_timestamp", header.base_timestamp)):
            if row[name] is not None:
                row[name] = timestamp_us(at)
        if row["delete_horizon"] is not None:
            row["delete_horizon"] = timestamp_us(header.base_timestamp)
        row["crc_computed"] = crc_in_pieces(self._file.read, header)
        return row


def _header(row: list[int]) -> BatchHeader:
    return BatchHeader(*row[: len(BatchHeader._fields)])
