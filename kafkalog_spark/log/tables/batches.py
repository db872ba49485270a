"""Rows of the table `batches`: the headers of a segment as Arrow columns, one window of bytes at a time."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from kafkalog_spark.errors import CorruptBatch, UnsupportedFormat, in_utf8
from kafkalog_spark.format import layout
from kafkalog_spark.format.batch_header import BatchHeader, crc_in_pieces, wrapper_value_at
from kafkalog_spark.format.layout import MAX_DECOMPRESSED, Codec, HeaderColumn
from kafkalog_spark.log.codecs.decompress import decompress
from kafkalog_spark.log.codecs.output import Output
from kafkalog_spark.log.codecs.scratch import Scratch
from kafkalog_spark.log.read.header_windows import HeaderTable
from kafkalog_spark.log.read.partition_log import PartitionLog
from kafkalog_spark.log.read.segment_file import SegmentFile
from kafkalog_spark.log.read.segment_lookup import locate
from kafkalog_spark.log.repair.damaged_segment import Damage, windows_and_damage
from kafkalog_spark.log.tables.declarations import BATCHES
from kafkalog_spark.log.tables.open_unit import Batches, OpenUnit
from kafkalog_spark.log.tables.timestamps import timestamps

_SCRATCH = 1 << 20  # initial bytes of the buffer for decompressed records


class UncompressedSizes:
    """Finds the uncompressed sizes of batches in a segment. limit: largest uncompressed size of a batch."""

    def __init__(self, file: SegmentFile, limit: int | None = None) -> None:
        self._file = file
        self._limit = limit or MAX_DECOMPRESSED
        self._scratch = Scratch(_SCRATCH)

    def size_of(self, header: BatchHeader) -> int | None:
        """Return the bytes of the uncompressed records, None if they cannot be decompressed."""
        records_at = _records_at(header)
        if header.codec == Codec.NONE:
            return header.size - records_at
        data = memoryview(self._file.read(header.position, header.size))
        try:
            if header.magic < 2:
                records_at = wrapper_value_at(data, header.magic)
            return decompress(header.codec, data[records_at:], Output(self._scratch, 0, self._limit))
        except (CorruptBatch, UnsupportedFormat):
            return None
        finally:
            self._scratch.shrink(_SCRATCH)

    def ratio_of(self, header: BatchHeader) -> float | None:
        """Return the uncompressed size divided by the stored size, None if either is unknown or 0."""
        stored, size = header.size - _records_at(header), self.size_of(header)
        return size / stored if size is not None and stored else None


def _records_at(header: BatchHeader) -> int:
    return layout.RECORDS_AT if header.magic == 2 else layout.LEGACY_MIN_SIZE[header.magic]


_CODECS = pa.array([codec.label for codec in Codec])
_TIMESTAMP_TYPES = pa.array(["CreateTime", "LogAppendTime"])


def batches_of_unit(unit: OpenUnit) -> Batches:
    """Return the rows of a segment."""
    with unit.open_segment() as file:
        yield from batch_rows(
            file, unit.log, unit.query.columns, unit.unit.start, unit.unit.end,
            max_decompressed=unit.query.max_decompressed,
        )  # fmt: skip


def batch_rows(
    file: SegmentFile,
    log: PartitionLog,
    columns: tuple[str, ...],
    start: int,
    end: int,
    *,
    max_decompressed: int | None = None,
) -> Iterator[pa.RecordBatch]:
    """Yield the batches of an open segment of `log` that have offsets in [start, end), and the damage between them.

    Rows are in the order of the file. Raises NotALogDirectory if the file cannot be read.
    """
    builder = _ColumnBuilder(file, log.topic, log.partition, max_decompressed)
    schema = BATCHES.schema(columns)
    position = locate(file, start) if start > file.base_offset else 0
    for part in windows_and_damage(file, position, log.recovery_point):
        if isinstance(part, Damage):
            yield from BATCHES.batches(columns, [builder.of_damage(part)])
            continue
        table = part.table[
            (part.table[:, HeaderColumn.LAST_OFFSET] >= start) & (part.table[:, HeaderColumn.BASE_OFFSET] < end)
        ]
        if len(table):
            yield pa.RecordBatch.from_arrays([builder.column(name, table) for name in columns], schema=schema)
        if int(part.table[-1, HeaderColumn.BASE_OFFSET]) >= end:
            return


_Mask = npt.NDArray[np.bool_]


def _flag(table: HeaderTable, mask: int) -> _Mask:
    rows: _Mask = (table[:, HeaderColumn.MAGIC] == 2) & ((table[:, HeaderColumn.ATTRIBUTES] & mask) != 0)
    return rows


_has_horizon = partial(_flag, mask=layout.ATTRIBUTE_DELETE_HORIZON)


def _names(codes: npt.NDArray[np.int64], unknown: _Mask, names: pa.Array) -> pa.Array:
    return pa.DictionaryArray.from_arrays(pa.array(codes, pa.int32(), mask=unknown), names).cast(pa.string())


def _codec(table: HeaderTable) -> pa.Array:
    codes = table[:, HeaderColumn.ATTRIBUTES] & layout.ATTRIBUTE_CODEC
    return _names(codes, codes > max(Codec), _CODECS)


def _timestamp_type(table: HeaderTable) -> pa.Array:
    codes = (table[:, HeaderColumn.ATTRIBUTES] & layout.ATTRIBUTE_LOG_APPEND_TIME) // layout.ATTRIBUTE_LOG_APPEND_TIME
    return _names(codes, table[:, HeaderColumn.MAGIC] == 0, _TIMESTAMP_TYPES)


def _last_sequence(table: HeaderTable) -> pa.Array:
    base = table[:, HeaderColumn.BASE_SEQUENCE]
    last = (base + table[:, HeaderColumn.LAST_OFFSET] - table[:, HeaderColumn.BASE_OFFSET]) & layout.MAX_INT32
    return pa.array(np.where(base < 0, layout.NO_SEQUENCE, last), pa.int32())


def _copied(name: str, column: HeaderColumn, *, with_wrappers: bool = True) -> Callable[[HeaderTable], pa.Array]:
    return lambda table: pa.array(
        table[:, column], BATCHES.columns[name], mask=None if with_wrappers else table[:, HeaderColumn.COUNT] < 0
    )


_HEADER_COLUMN_NAMES = (
    "position", "size", "last_offset", "magic", "producer_id", "producer_epoch", "base_sequence", "leader_epoch",
)  # fmt: skip
_HEADER_COLUMNS: dict[str, Callable[[HeaderTable], pa.Array]] = {
    **{name: _copied(name, HeaderColumn[name.upper()]) for name in _HEADER_COLUMN_NAMES},
    "base_offset": _copied("base_offset", HeaderColumn.BASE_OFFSET, with_wrappers=False),
    "record_count": _copied("record_count", HeaderColumn.COUNT, with_wrappers=False),
    "codec": _codec,
    "timestamp_type": _timestamp_type,
    "base_timestamp": lambda table: timestamps(table[:, HeaderColumn.BASE_TIMESTAMP], ~_has_horizon(table)),
    "max_timestamp": lambda table: timestamps(table[:, HeaderColumn.MAX_TIMESTAMP]),
    "delete_horizon": lambda table: timestamps(table[:, HeaderColumn.BASE_TIMESTAMP], _has_horizon(table)),
    "last_sequence": _last_sequence,
    "transactional": lambda table: pa.array(_flag(table, layout.ATTRIBUTE_TRANSACTIONAL)),
    "control": lambda table: pa.array(_flag(table, layout.ATTRIBUTE_CONTROL)),
    "crc_stored": _copied("crc_stored", HeaderColumn.CRC),
    "crc_computed": _copied("crc_computed", HeaderColumn.CRC),  # a window has only batches whose CRC is correct
    "valid": lambda table: pa.repeat(True, len(table)),
    "error": lambda table: pa.nulls(len(table), pa.string()),
}


class _ColumnBuilder:
    """Builds the columns of batches of one segment."""

    def __init__(self, file: SegmentFile, topic: str, partition: int, max_decompressed: int | None) -> None:
        self._file = file
        self._uncompressed = UncompressedSizes(file, max_decompressed)
        self._constants = {"topic": topic, "partition": partition, "segment": file.base_offset}
        self._constants["file"] = in_utf8(file.path)

    def column(self, name: str, table: HeaderTable) -> pa.Array:
        if name in self._constants:
            return pa.repeat(pa.scalar(self._constants[name], BATCHES.columns[name]), len(table))
        if name in ("uncompressed_size", "compression_ratio"):
            headers = (BatchHeader(*row[: len(BatchHeader._fields)]) for row in table.tolist())
            value_of = self._uncompressed.size_of if name == "uncompressed_size" else self._uncompressed.ratio_of
            return pa.array(map(value_of, headers), BATCHES.columns[name])
        return _HEADER_COLUMNS[name](table)

    def of_damage(self, damage: Damage) -> dict[str, object]:
        """Return the row of a damaged stretch, with the fields of its header if it is exactly one batch."""
        row: dict[str, object] = {"position": damage.position, "size": damage.size}
        row |= {**self._constants, "valid": False, "error": damage.error}
        header = damage.header
        if header is None:
            return row
        table = np.array([(*header, 0, 0)], np.int64)
        for name in _HEADER_COLUMNS.keys() - row.keys():
            try:
                cell = _HEADER_COLUMNS[name](table)[0]
            except pa.ArrowInvalid:  # a record count that does not fit into int32
                continue
            # as_py() raises for years beyond 9999.
            row[name] = cell.value if isinstance(cell, pa.TimestampScalar) else cell.as_py()
        row["crc_computed"] = crc_in_pieces(self._file.read, header)
        return row
