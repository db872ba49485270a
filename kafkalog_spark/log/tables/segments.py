"""The tables `batches`, `segments` and `partitions`, from the segments themselves: headers as Arrow, a window of bytes
at a time; what each segment holds, and what its indexes are worth; where a partition begins and ends.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from kafkalog_spark.errors import CorruptBatch, CorruptIndex, KafkalogError, UnsupportedFormat, in_utf8
from kafkalog_spark.format import layout, names, offset_index, time_index
from kafkalog_spark.format.batch_header import BatchHeader, crc_in_pieces, wrapper_value_at
from kafkalog_spark.format.checkpoint import HIGH_WATERMARK_CHECKPOINT, RECOVERY_POINT_CHECKPOINT
from kafkalog_spark.format.layout import MAX_DECOMPRESSED, NO_TIMESTAMP, Codec, HeaderColumn
from kafkalog_spark.format.partition_metadata import uuid_to_text
from kafkalog_spark.log.check.index_check import OffsetIndexCheck, TimeIndexCheck
from kafkalog_spark.log.codecs.decompress import decompress
from kafkalog_spark.log.codecs.output import Output
from kafkalog_spark.log.codecs.scratch import Scratch
from kafkalog_spark.log.read.last_stable_offset import last_stable_offset
from kafkalog_spark.log.read.partition_log import Checkpoints, PartitionLocation, PartitionLog, leader_epochs
from kafkalog_spark.log.read.segment_file import SegmentFile
from kafkalog_spark.log.read.segment_file import Table as HeaderTable
from kafkalog_spark.log.repair.damaged_segment import Damage, windows_and_damage
from kafkalog_spark.log.repair.judged_segment import end_of
from kafkalog_spark.log.tables.table import BATCHES, left_overs, segment_size, timestamp_us, timestamps

_SCRATCH = 1 << 20  # bytes of decompressed records to begin with


class Uncompressed:
    """Decompresses batches of one segment, for their size only. limit: bytes that one may decompress to."""

    def __init__(self, file: SegmentFile, limit: int | None = None) -> None:
        self._file = file
        self._limit = limit or MAX_DECOMPRESSED
        self._scratch = Scratch(_SCRATCH)

    def size_of(self, header: BatchHeader) -> int | None:
        """Bytes of the records; None where they do not decompress."""
        begins = _records_begin(header)
        if header.codec == Codec.NONE:
            return header.size - begins
        data = memoryview(self._file.read(header.position, header.size))
        try:
            if header.magic < 2:
                begins = wrapper_value_at(data, header.magic)
            return decompress(header.codec, data[begins:], Output(self._scratch, 0, self._limit))
        except (CorruptBatch, UnsupportedFormat):
            return None
        finally:
            self._scratch.shrink(_SCRATCH)

    def ratio_of(self, header: BatchHeader) -> float | None:
        """That size to the bytes that the records take in the file; None where there are none of one of them."""
        stored, size = header.size - _records_begin(header), self.size_of(header)
        return size / stored if size is not None and stored else None


def _records_begin(header: BatchHeader) -> int:
    return layout.RECORDS_AT if header.magic == 2 else layout.LEGACY_MIN_SIZE[header.magic]


_CODECS = pa.array([codec.label for codec in Codec])
_TIMESTAMP_TYPES = pa.array(["CreateTime", "LogAppendTime"])


def batch_rows(
    file: SegmentFile,
    log: PartitionLog,
    columns: tuple[str, ...],
    start: int,
    end: int,
    *,
    max_decompressed: int | None = None,
) -> Iterator[pa.RecordBatch]:
    """The batches of `log`'s open segment that have offsets in [start, end), and all damage between them, in the
    order of the file. Raises NotALogDirectory where the file cannot be read."""
    maker = _Columns(file, log.topic, log.partition, max_decompressed)
    schema = BATCHES.schema(columns)
    position = file.locate(start) if start > file.base_offset else 0
    for part in windows_and_damage(file, position, log.recovery_point):
        if isinstance(part, Damage):
            yield from BATCHES.batches(columns, [maker.of_damage(part)])
            continue
        table = part.table[
            (part.table[:, HeaderColumn.LAST_OFFSET] >= start) & (part.table[:, HeaderColumn.BASE_OFFSET] < end)
        ]
        if len(table):
            yield pa.RecordBatch.from_arrays([maker.column(name, table) for name in columns], schema=schema)
        if int(part.table[-1, HeaderColumn.BASE_OFFSET]) >= end:
            return


_Rows = npt.NDArray[np.bool_]


def _flag(table: HeaderTable, mask: int) -> _Rows:
    rows: _Rows = (table[:, HeaderColumn.MAGIC] == 2) & ((table[:, HeaderColumn.ATTRIBUTES] & mask) != 0)
    return rows


_has_horizon = partial(_flag, mask=layout.ATTRIBUTE_DELETE_HORIZON)


def _names(codes: npt.NDArray[np.int64], unknown: _Rows, names: pa.Array) -> pa.Array:
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


def _plain(name: str, column: HeaderColumn, *, of_wrappers: bool = True) -> Callable[[HeaderTable], pa.Array]:
    return lambda table: pa.array(
        table[:, column], BATCHES.columns[name], mask=None if of_wrappers else table[:, HeaderColumn.COUNT] < 0
    )


_NAMED_ALIKE = (
    "position", "size", "last_offset", "magic", "producer_id", "producer_epoch", "base_sequence", "leader_epoch",
)  # fmt: skip
_OF_TABLE: dict[str, Callable[[HeaderTable], pa.Array]] = {
    **{name: _plain(name, HeaderColumn[name.upper()]) for name in _NAMED_ALIKE},
    "base_offset": _plain("base_offset", HeaderColumn.BASE_OFFSET, of_wrappers=False),
    "record_count": _plain("record_count", HeaderColumn.COUNT, of_wrappers=False),
    "codec": _codec,
    "timestamp_type": _timestamp_type,
    "base_timestamp": lambda table: timestamps(table[:, HeaderColumn.BASE_TIMESTAMP], ~_has_horizon(table)),
    "max_timestamp": lambda table: timestamps(table[:, HeaderColumn.MAX_TIMESTAMP]),
    "delete_horizon": lambda table: timestamps(table[:, HeaderColumn.BASE_TIMESTAMP], _has_horizon(table)),
    "last_sequence": _last_sequence,
    "transactional": lambda table: pa.array(_flag(table, layout.ATTRIBUTE_TRANSACTIONAL)),
    "control": lambda table: pa.array(_flag(table, layout.ATTRIBUTE_CONTROL)),
    "crc_stored": _plain("crc_stored", HeaderColumn.CRC),
    "crc_computed": _plain("crc_computed", HeaderColumn.CRC),  # the batches of a window have the right one
    "valid": lambda table: pa.repeat(True, len(table)),
    "error": lambda table: pa.nulls(len(table), pa.string()),
}


class _Columns:
    def __init__(self, file: SegmentFile, topic: str, partition: int, max_decompressed: int | None) -> None:
        self._file = file
        self._uncompressed = Uncompressed(file, max_decompressed)
        self._constants = {"topic": topic, "partition": partition, "segment": file.base_offset}
        self._constants["file"] = in_utf8(file.path)

    def column(self, name: str, table: HeaderTable) -> pa.Array:
        if name in self._constants:
            return pa.repeat(pa.scalar(self._constants[name], BATCHES.columns[name]), len(table))
        if name in ("uncompressed_size", "compression_ratio"):
            headers = (BatchHeader(*row[: len(BatchHeader._fields)]) for row in table.tolist())
            value_of = self._uncompressed.size_of if name == "uncompressed_size" else self._uncompressed.ratio_of
            return pa.array(map(value_of, headers), BATCHES.columns[name])
        return _OF_TABLE[name](table)

    def of_damage(self, damage: Damage) -> dict[str, object]:
        """A row about a stretch that is no good batch. Header fields where exactly one batch takes it all."""
        row: dict[str, object] = {"position": damage.position, "size": damage.size}
        row |= {**self._constants, "valid": False, "error": damage.error}
        header = damage.header
        if header is None:
            return row
        table = np.array([(*header, 0, 0)], np.int64)
        for name in _OF_TABLE.keys() - row.keys():
            try:
                cell = _OF_TABLE[name](table)[0]
            except pa.ArrowInvalid:  # a record count that no int32 holds
                continue
            # Python has the years 1 to 9999 only
            row[name] = cell.value if isinstance(cell, pa.TimestampScalar) else cell.as_py()
        row["crc_computed"] = crc_in_pieces(self._file.read, header)
        return row


# The table `segments`.

_TRANSIENT = {names.DELETED_SUFFIX: "deleted", names.CLEANED_SUFFIX: "cleaned", names.SWAP_SUFFIX: "swap"}


def segment_row(file: SegmentFile, log: PartitionLog) -> dict[str, Any]:
    """The row of `log`'s open segment. Raises FileNotFoundError when an index goes away meanwhile, NotALogDirectory."""
    files = file.files
    # read before the batches: a live index may tell of batches that come after them
    offsets = OffsetIndexCheck(_index(file, files.offset_index, offset_index.ENTRY_SIZE), file.base_offset)
    times = TimeIndexCheck(_index(file, files.time_index, time_index.ENTRY_SIZE), file.base_offset)
    offsets_wrong, times_wrong = len(offsets.faults), len(times.faults)
    batches = damaged = position = 0
    records: int | None = 0
    error: str | None = None
    first_timestamp = max_timestamp = NO_TIMESTAMP
    end_offset = file.base_offset
    for part in windows_and_damage(file, 0, log.recovery_point):
        if isinstance(part, Damage):
            damaged += part.size
            error = error or part.error
            offsets.skip_damage()
            continue
        table = part.table
        offsets_wrong += sum(1 for _ in offsets.take(table, end_offset - 1, int(table[0, HeaderColumn.POSITION])))
        if not damaged:  # what lies in damage may have been the latest record
            times_wrong += sum(1 for _ in times.take(table))
        if not batches:
            first_timestamp = int(table[0, HeaderColumn.BASE_TIMESTAMP])
        batches += len(table)
        if records is not None:
            records = (
                None if (table[:, HeaderColumn.COUNT] < 0).any() else records + int(table[:, HeaderColumn.COUNT].sum())
            )
        max_timestamp = max(max_timestamp, int(table[:, HeaderColumn.MAX_TIMESTAMP].max()))
        end_offset, position = int(table[-1, HeaderColumn.LAST_OFFSET]) + 1, end_of(table[-1])
    if not damaged and not file.is_last:  # as kafkalog-check: of a live or damaged one nobody knows
        offsets_wrong += sum(1 for _ in offsets.finish(position))
        times_wrong += sum(1 for _ in times.finish())
    return {
        "topic": log.topic,
        "partition": log.partition,
        "segment": file.base_offset,
        "state": "live",
        "file": file.path,
        "size": file.size,
        "closed": not file.is_last,
        "end_offset": end_offset,
        "batches": batches,
        "records": records,
        "first_timestamp": timestamp_us(first_timestamp),
        "max_timestamp": timestamp_us(max_timestamp),
        "offset_index_entries": files.offset_index and offsets.entries,
        "offset_index_wrong": files.offset_index and offsets_wrong,
        "time_index_entries": files.time_index and times.entries,
        "time_index_wrong": files.time_index and times_wrong,
        "aborted_transactions": _aborted(file),
        "has_snapshot": any(at == file.base_offset for at, _ in names.producer_snapshots(log.names)),
        "damaged_bytes": damaged,
        "error": error,
    }


def left_over_rows(log: PartitionLog) -> Iterator[dict[str, Any]]:
    for name, file in left_overs(log).items():
        path = os.path.join(log.directory, name)
        facts = log.facts.get(name)
        try:
            size = os.stat(path).st_size if facts is None else facts.size
        except FileNotFoundError:
            continue  # its time had come
        # a plain segment that is not part of the log: a .swap takes its place
        state = "deleted" if file.transient_suffix is None else _TRANSIENT[file.transient_suffix]
        row = {"topic": log.topic, "partition": log.partition, "segment": file.base_offset}
        yield row | {"state": state, "file": path, "size": size}


def _aborted(file: SegmentFile) -> int | None:
    try:
        return None if file.files.transaction_index is None else len(file.aborted())
    except FileNotFoundError:
        raise
    except (CorruptIndex, OSError):
        return None


def _index(file: SegmentFile, name: str | None, entry_size: int) -> bytes:
    """An index's bytes; none of one that is not there or cannot be read: it is a hint (kafkalog-check says why)."""
    try:
        return file.read_index(name, entry_size)
    except FileNotFoundError:
        raise
    except OSError:
        return b""


# The table `partitions`: where each begins and ends, and what the files alongside its log say.


def partition_row(place: PartitionLocation, checkpoints: Checkpoints, *, closed: bool) -> dict[str, Any]:
    """The row of one partition. closed: its log directory has a clean-shutdown marker. Raises NotALogDirectory for one
    that is gone or cannot be read."""
    tp = place.topic, place.partition
    row: dict[str, Any] = {}
    if place.has_checkpoints:
        of_dir = place.store, place.log_dir
        row = {
            "high_watermark": checkpoints.read(*of_dir, HIGH_WATERMARK_CHECKPOINT).get(tp),
            "recovery_point": checkpoints.read(*of_dir, RECOVERY_POINT_CHECKPOINT).get(tp),
            "clean_shutdown": closed,
        }
    log = place.open(pass_over_damage=True, checkpoints=checkpoints)
    topic_id = place.topic_id()
    row |= {
        "topic": place.topic,
        "partition": place.partition,
        "directory": place.directory,
        "topic_id": None if topic_id is None else uuid_to_text(topic_id),
        "segments": len(log.segments),
        "size": sum(segment_size(log, index) for index in range(len(log.segments))),
        "log_start_offset": log.log_start_offset,
        "leader_epochs": [entry._asdict() for entry in leader_epochs(place.store, place.directory)],
        "log_end_offset": log.log_end_offset,
    }
    try:
        strict = place.open(checkpoints=checkpoints)  # damage hides the LSO: a marker may lie in it
        if strict.log_end_offset == row["log_end_offset"]:
            row["last_stable_offset"] = last_stable_offset(strict)
    except KafkalogError as error:
        row["error"] = str(error)
    return row
