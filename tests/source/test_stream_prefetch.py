"""The rows of a small batch come with its plan. The driver of these tests compares them with what tasks read."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql.datasource_internal import _SimpleStreamReaderWrapper

from kafkalog_spark.errors import CorruptBatch
from kafkalog_spark.format.layout import Codec
from kafkalog_spark.source import kernel_loading, stream_reader
from tests.source.helpers.made_logs import FIRST_TIMESTAMP, MadeBatch, append, numbers, write_batches
from tests.source.helpers.stream_driver import Query


@pytest.fixture(autouse=True)
def _loaded() -> None:
    kernel_loading.KERNELS.load()


def test_small_batch_of_several_partitions_is_prefetched_as_one_partition(tmp_path: Path) -> None:
    for partition in range(3):
        append(tmp_path, "t", partition, numbers(10 * partition, 10 * partition + 10))
    query = Query(tmp_path, startingOffsets="earliest")
    assert query.trigger() == [sorted(numbers(0, 30))]
    assert query.prefetched
    assert len(query.planned) == 3
    append(tmp_path, "t", 1, numbers(30, 31))
    assert query.trigger() == [["30"]]
    assert query.prefetched


def test_only_a_prefetched_batch_is_planned_as_a_simple_reader(tmp_path: Path) -> None:
    """Else Spark would neither report the latest offset nor respect the limits."""
    append(tmp_path, "t", 0, numbers(0, 10))
    query = Query(tmp_path, startingOffsets="earliest")
    assert query.trigger() == [numbers(0, 10)]
    assert query.prefetched
    assert not isinstance(query.reader, _SimpleStreamReaderWrapper)
    assert query.reader.reportLatestOffset() == {"t": {"0": 10}}


def test_prefetched_rows_include_nulls_keys_and_compressed_batches(tmp_path: Path) -> None:
    batches = [
        MadeBatch(["a", None], [FIRST_TIMESTAMP] * 2, keys=[None, "k"], codec=codec)
        for codec in (Codec.NONE, Codec.GZIP, Codec.LZ4)
    ]
    write_batches(tmp_path, "t", 0, batches)
    query = Query(tmp_path, startingOffsets="earliest")
    found = query.batch()
    assert query.prefetched
    assert found is not None
    assert found["key"].to_pylist() == [None, b"k"] * 3
    assert found["value"].to_pylist() == [b"a", None] * 3
    assert found["offset"].to_pylist() == list(range(6))


def test_prefetched_rows_have_the_requested_columns(tmp_path: Path) -> None:
    append(tmp_path, "t", 0, numbers(0, 3))
    query = Query(tmp_path, startingOffsets="earliest", columns="offset,value")
    found = query.batch()
    assert query.prefetched
    assert found is not None
    assert found.column_names == ["offset", "value"]


@pytest.mark.parametrize("asked", [{"minPartitions": 2}, {"maxRecordsPerPartition": 5}, {"includeHeaders": True}])
def test_rows_with_headers_and_explicit_task_counts_are_read_by_tasks(tmp_path: Path, asked: Any) -> None:
    append(tmp_path, "t", 0, numbers(0, 10))
    query = Query(tmp_path, startingOffsets="earliest", **asked)
    assert query.trigger() == [numbers(0, 10)]
    assert not query.prefetched


def test_large_remainder_is_read_by_tasks_and_small_remainder_is_prefetched(tmp_path: Path) -> None:
    large = ["x" * (stream_reader.MAX_PREFETCH_BYTES // 2)] * 3
    append(tmp_path, "t", 0, large, batch=1)
    query = Query(tmp_path, startingOffsets="earliest")
    assert query.trigger() == [large]
    assert not query.prefetched
    append(tmp_path, "t", 0, ["next"])
    assert query.trigger() == [["next"]]
    assert query.prefetched


def test_batch_that_decompresses_to_much_is_read_by_tasks(tmp_path: Path) -> None:
    value = "x" * (stream_reader.MAX_PREFETCHED_ROW_BYTES // 4)
    write_batches(tmp_path, "t", 0, [MadeBatch([value], [FIRST_TIMESTAMP], codec=Codec.ZSTD)] * 5)
    query = Query(tmp_path, startingOffsets="earliest")
    assert query.trigger() == [[value] * 5]
    assert not query.prefetched


def test_prefetch_leaves_errors_to_the_tasks(tmp_path: Path) -> None:
    append(tmp_path, "t", 0, numbers(0, 10))
    append(tmp_path, "t", 0, numbers(10, 20), roll_first=True)
    first = tmp_path / "t-0" / f"{0:020d}.log"
    data = bytearray(first.read_bytes())
    data[-1] ^= 1
    first.write_bytes(data)
    query = Query(tmp_path, startingOffsets="earliest")
    with pytest.raises(CorruptBatch):
        query.trigger()
    assert not query.prefetched
    assert not isinstance(query.reader, _SimpleStreamReaderWrapper)
    assert query.checkpoint.committed == 0


def test_batches_are_read_by_tasks_until_the_kernels_are_loaded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kernels = kernel_loading.Kernels()
    monkeypatch.setattr(kernels, "_loader", object())  # it has begun
    monkeypatch.setattr("kafkalog_spark.source.stream_reader.KERNELS", kernels)
    append(tmp_path, "t", 0, numbers(0, 10))
    query = Query(tmp_path, startingOffsets="earliest")
    assert query.trigger() == [numbers(0, 10)]
    assert not query.prefetched
    kernels.load()
    append(tmp_path, "t", 0, numbers(10, 20))
    assert query.trigger() == [numbers(10, 20)]
    assert query.prefetched


def test_prefetch_stops_at_a_size() -> None:
    batch = pa.record_batch({"v": pa.array([b"x" * (stream_reader.MAX_PREFETCHED_ROW_BYTES // 3)])})
    assert stream_reader.copy_small_batch([batch] * 2) == [batch] * 2
    assert stream_reader.copy_small_batch([batch] * 3) is None
