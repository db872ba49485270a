"""What reading many small partitions keeps in memory: bytes are counted, not measured."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from kafkalog_spark.log.decode import scan_buffers
from kafkalog_spark.log.decode.row_buffers import RowBuffers
from kafkalog_spark.source import coalescing, kernel_loading, stream_reader
from tests.source.helpers.driver import Load
from tests.source.helpers.made_logs import append
from tests.source.helpers.stream_driver import Query

PARTITIONS = 60


@pytest.fixture
def many(tmp_path: Path) -> Path:
    for partition in range(PARTITIONS):
        append(tmp_path, "t", partition, ["x" * 100])
    return tmp_path


def held(batches: list[pa.RecordBatch]) -> int:
    """Bytes of the memory that the batches keep from being freed, used or not."""
    return sum(batch.get_total_buffer_size() for batch in batches)


def test_prefetched_rows_hold_no_more_memory_than_their_size(many: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    kernel_loading.KERNELS.load()
    kept: list[list[pa.RecordBatch]] = []
    rows_of = stream_reader.copy_small_batch

    def watched(batches: Any) -> list[pa.RecordBatch] | None:
        rows = rows_of(batches)
        assert rows is not None
        kept.append(rows)
        return rows

    monkeypatch.setattr("kafkalog_spark.source.stream_reader.copy_small_batch", watched)
    query = Query(many, startingOffsets="earliest")
    assert [len(batch) for batch in query.trigger()] == [PARTITIONS]
    assert query.prefetched
    ((*rows,),) = kept
    assert sum(batch.num_rows for batch in rows) == PARTITIONS
    assert held(rows) < 2 * sum(batch.nbytes for batch in rows) + 4096


def test_large_prefetched_batch_holds_no_more_memory_than_its_size() -> None:
    data = pa.py_buffer(bytes(10 << 20))
    array = pa.Array.from_buffers(pa.binary(), 1, [None, pa.py_buffer(bytes(3) + b"\x00" + b"\x00\x00\x02\x00"), data])
    view = pa.record_batch({"value": array})
    assert view.nbytes < coalescing.SMALL_BATCH * 3
    assert held([view]) > 10 << 20
    rows = stream_reader.copy_small_batch([view])
    assert rows == [view]
    assert held(rows or []) < 200 << 10


def test_partitions_of_a_task_share_one_set_of_buffers(many: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    spaces: list[scan_buffers.ScanBuffers] = []
    made: list[int] = []
    buffers = RowBuffers

    class Watched(scan_buffers.ScanBuffers):
        def __init__(self) -> None:
            super().__init__()
            spaces.append(self)

    def counted(*args: Any, **named: Any) -> Any:
        made.append(1)
        return buffers(*args, **named)

    monkeypatch.setattr(scan_buffers, "ScanBuffers", Watched)
    monkeypatch.setattr(scan_buffers, "RowBuffers", counted)
    scan = Load(many, subscribe="t").scan()
    tasks = len(scan.splits_by_task)
    assert tasks < PARTITIONS
    assert scan.read().num_rows == PARTITIONS
    assert len(spaces) == len(made) == tasks
    # a window, a header table, decompressed bytes, and rows that are filled, handed over and copied, and filled again
    assert max(space.nbytes for space in spaces) < 32 << 20


def test_values_of_one_partition_do_not_leak_into_the_next(tmp_path: Path) -> None:
    """The buffers are filled again: nulls, empty values and shorter rows after longer ones."""
    values: list[list[str | None]] = [["long" * 50] * 9, [None], [""], ["a", None, "b"], ["z"] * 30, [None] * 4]
    for partition in range(60):
        written = values[partition % 6]
        append(tmp_path, "t", partition, written, keys=values[(partition + 1) % 6][:1] * len(written))
    found = Load(tmp_path, subscribe="t").scan().read().sort_by([("partition", "ascending"), ("offset", "ascending")])
    expected = [v for partition in range(60) for v in values[partition % 6]]
    keys = [values[(partition + 1) % 6][0] for partition in range(60) for _ in values[partition % 6]]
    assert [None if v is None else v.decode() for v in found["value"].to_pylist()] == expected
    assert [None if k is None else k.decode() for k in found["key"].to_pylist()] == keys
