"""Small logs made to order, with the project's own writer (which is held against real Kafka elsewhere)."""

from __future__ import annotations

import shutil
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa

from kafkalog_spark.format.layout import Codec, TimestampType
from kafkalog_spark.log.write.record_encoder import BatchParams
from tests.log.helpers.encoded_batches import encode_batches, of_producer
from tests.log.helpers.log_writer import LogWriter

FIRST_TIMESTAMP = 1_700_000_000_000  # ms
_ONE_BATCH = 1 << 20  # bytes; larger than anything made here


@dataclass(frozen=True)
class MadeBatch:
    """One v2 batch to be written: a value and a timestamp (ms) for each record.

    gap: offsets left out before it, as by compaction. log_append_time: ms, what readers see instead of `timestamps`.
    roll_first: it begins a new segment. producer_id: it belongs to that producer's transaction.
    """

    values: Sequence[str | bytes | None]
    timestamps: Sequence[int]
    keys: Sequence[str | bytes | None] | None = None
    gap: int = 0
    codec: Codec = Codec.NONE
    log_append_time: int | None = None
    roll_first: bool = False
    producer_id: int | None = None


def write_batches(
    log_dir: Path,
    topic: str,
    partition: int,
    batches: Iterable[MadeBatch],
    *,
    segment_bytes: int = 1 << 30,
    index_interval_bytes: int = 0,
) -> int:
    """Append batches and close cleanly; returns the log end offset. With an interval of 0 every batch but a segment's
    first gets an entry in the offset index. A segment is rolled before it gets larger than `segment_bytes`."""
    log_dir.mkdir(parents=True, exist_ok=True)
    (log_dir / "meta.properties").touch()
    directory = log_dir / f"{topic}-{partition}"
    with LogWriter(directory, segment_bytes=segment_bytes, index_interval_bytes=index_interval_bytes) as writer:
        for batch in batches:
            if batch.roll_first:
                writer.roll()
            columns = {"value": _bytes(batch.values), "timestamp": pa.array(batch.timestamps, pa.int64())}
            if batch.keys is not None:
                columns["key"] = _bytes(batch.keys)
            kind = TimestampType.CREATE_TIME if batch.log_append_time is None else TimestampType.LOG_APPEND_TIME
            params = BatchParams(
                codec=batch.codec,
                timestamp_type=kind,
                log_append_time=batch.log_append_time,
                batch_size=_ONE_BATCH,
            )
            records = pa.RecordBatch.from_pydict(columns)
            (encoded,) = encode_batches(records, writer.next_offset + batch.gap, params)
            writer.append(encoded if batch.producer_id is None else of_producer(encoded, batch.producer_id, 0, 0))
        return writer.next_offset


def append(
    log_dir: Path,
    topic: str,
    partition: int,
    values: Sequence[str | bytes | None],
    *,
    keys: Sequence[str | bytes | None] | None = None,
    timestamps: Sequence[int] | None = None,
    batch: int = 10,
    roll_first: bool = False,
    codec: Codec = Codec.NONE,
    segment_bytes: int = 1 << 30,
    index_interval_bytes: int = 0,
) -> int:
    """Append records, `batch` to a batch; returns the log end offset. Without `timestamps` (ms) a record has
    FIRST_TIMESTAMP + its place in `values`."""
    if timestamps is None:
        timestamps = [FIRST_TIMESTAMP + i for i in range(len(values))]
    batches = [
        MadeBatch(
            values[at : at + batch],
            timestamps[at : at + batch],
            None if keys is None else keys[at : at + batch],
            codec=codec,
            roll_first=roll_first and at == 0,
        )
        for at in range(0, len(values), batch)
    ]
    return write_batches(
        log_dir, topic, partition, batches, segment_bytes=segment_bytes, index_interval_bytes=index_interval_bytes
    )


def numbers(start: int, end: int) -> list[str]:
    """ "start", ..., "end - 1": values as Spark's own suites write them."""
    return [str(i) for i in range(start, end)]


def segment_offsets(log_dir: Path, topic: str, partition: int) -> list[int]:
    """Return the base offsets of the existing segments."""
    return sorted(int(path.stem) for path in (log_dir / f"{topic}-{partition}").glob("*.log"))


def delete_first_segment(log_dir: Path, topic: str, partition: int) -> int:
    """Delete the oldest segment as retention does; return the new log start offset."""
    first, second, *_ = segment_offsets(log_dir, topic, partition)
    for path in (log_dir / f"{topic}-{partition}").glob(f"{first:020d}.*"):
        path.unlink()
    return second


def delete_partition(log_dir: Path, topic: str, partition: int) -> None:
    shutil.rmtree(log_dir / f"{topic}-{partition}")


def _bytes(values: Sequence[str | bytes | None]) -> pa.Array:
    return pa.array([value.encode() if isinstance(value, str) else value for value in values], pa.binary())
