"""How many tasks a read has: splits of small partitions share them."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql.types import StructType

from kafkalog_spark.errors import CorruptBatch
from kafkalog_spark.source import task_packing
from kafkalog_spark.source.kernel_loading import KERNELS
from kafkalog_spark.source.task_packing import OPEN_COST, group_splits
from kafkalog_spark.source.task_size import SMALL_SPLIT, TARGET_TASKS
from tests.source.helpers.driver import Load
from tests.source.helpers.made_logs import append, delete_first_segment, numbers
from tests.source.helpers.stream_driver import Query

MB = 1 << 20
LIMIT = 128 * MB


def sizes_of_tasks(sizes: list[int], cores: int = 2, **asked: int) -> list[list[int]]:
    """The sizes of what each task reads."""
    return [
        sizes[task] for task in group_splits(sizes, [1] * len(sizes), cores=cores, max_partition_bytes=LIMIT, **asked)
    ]


def test_thousand_small_partitions_become_a_few_tasks_per_core() -> None:
    assert len(sizes_of_tasks([1500] * 1000)) == 2
    assert len(sizes_of_tasks([1500] * 5000)) == 10
    assert len(sizes_of_tasks([1500] * 1000, cores=8)) == 8


@pytest.mark.parametrize("cores", [2, 3, 4])
def test_packing_leaves_no_core_idle_in_the_last_round(cores: int) -> None:
    for partitions in range(600, 9000, 77):
        assert len(sizes_of_tasks([1500] * partitions, cores)) % cores == 0


def test_small_partitions_not_exceeding_cores_get_one_task_each() -> None:
    assert sizes_of_tasks([10] * 4, cores=4) == [[10]] * 4
    assert len(sizes_of_tasks([10] * 8, cores=2)) == 2


def test_large_partitions_get_one_task_each() -> None:
    assert sizes_of_tasks([128 * MB] * 4) == [[128 * MB]] * 4
    assert sizes_of_tasks([SMALL_SPLIT] * 40) == [[SMALL_SPLIT]] * 40


def test_no_task_exceeds_the_requested_size() -> None:
    sizes = [100 << 10] * 100
    for task in group_splits(sizes, sizes, cores=1, max_partition_bytes=MB):
        assert sum(sizes[task]) <= MB


@given(
    st.lists(st.tuples(st.integers(0, 8 * MB), st.integers(0, 1000)), max_size=60),
    st.integers(1, 4),
    st.none() | st.integers(1, 70),
    st.none() | st.integers(1, 2000),
)
def test_every_split_is_in_one_task_in_order_within_the_limits(
    pieces: list[tuple[int, int]], cores: int, least: int | None, most: int | None
) -> None:
    sizes, offsets = [size for size, _ in pieces], [count for _, count in pieces]
    tasks = group_splits(
        sizes, offsets, cores=cores, max_partition_bytes=LIMIT, min_partitions=least, max_records_per_partition=most
    )
    assert [i for task in tasks for i in range(task.start, task.stop)] == list(range(len(pieces)))
    assert len(tasks) >= min(len(pieces), max(least or 0, cores))
    for task in tasks:
        assert task.stop > task.start
        if task.stop - task.start > 1:
            filled = sum(size + OPEN_COST for size in sizes[task])
            assert filled <= 3 / 2 * max(SMALL_SPLIT, (sum(sizes) + OPEN_COST * len(sizes)) // TARGET_TASKS)
            assert most is None or sum(offsets[task]) <= most


@pytest.fixture
def many(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """40 partitions of ten records; two cores."""
    monkeypatch.setattr(task_packing, "cores", lambda: 2)
    for partition in range(40):
        append(tmp_path, "t", partition, numbers(10 * partition, 10 * partition + 10))
    return tmp_path


def test_partitions_share_tasks_and_every_record_is_read_once_in_order(many: Path) -> None:
    scan = Load(many, subscribe="t").scan()
    assert len(scan.pickled_partitions) == 2
    assert len(scan.splits) == 40
    found = scan.read()
    assert found["offset"].to_pylist() == list(range(10)) * 40
    assert sorted(map(int, (value.decode() for value in found["value"].to_pylist()))) == list(range(400))


def test_task_of_small_partitions_yields_one_arrow_batch(many: Path) -> None:
    assert [[batch.num_rows for batch in task] for task in Load(many, subscribe="t").scan().tasks()] == [[200]] * 2


def test_rows_without_columns_are_counted(many: Path) -> None:
    tasks = Load(many, schema=StructType([])).scan().tasks()
    assert sum(batch.num_rows for task in tasks for batch in task) == 400


def test_min_partitions_and_max_records_make_more_tasks(many: Path) -> None:
    assert len(Load(many, minPartitions=25).scan().splits_by_task) >= 25
    assert len(Load(many, minPartitions=60).scan().splits_by_task) >= 40
    for task in Load(many, maxRecordsPerPartition=25).scan().splits_by_task:
        assert sum(split.range.size for split in task) <= 25


def damage(path: Path, partition: int) -> Path:
    """A wrong byte in records that others follow; returns the file."""
    append(path, "t", partition, ["behind"], roll_first=True)
    damaged = path / f"t-{partition}" / f"{0:020d}.log"
    data = bytearray(damaged.read_bytes())
    data[-1] ^= 1
    damaged.write_bytes(data)
    return damaged


@pytest.mark.local_only("messages name local paths")
def test_damaged_partition_within_a_packed_task_is_named(many: Path) -> None:
    path = damage(many, 17)
    with pytest.raises(CorruptBatch, match="t-17") as caught:
        Load(many, subscribe="t").scan().read()
    assert str(path) in str(caught.value)


def test_rows_before_a_damaged_partition_are_yielded_first(many: Path) -> None:
    """Who asks for no more than them never meets the error, as when the partition has a task of its own."""
    damage(many, 3)
    task = next(iter(Load(many, subscribe="t").scan().tasks()))
    assert next(task).num_rows == 30
    with pytest.raises(CorruptBatch, match="t-3"):
        next(task)


def test_retention_after_planning_moves_only_its_partition_of_a_task(tmp_path: Path) -> None:
    for partition in range(30):
        append(tmp_path, "t", partition, numbers(0, 10))
        append(tmp_path, "t", partition, numbers(10, 20), roll_first=True)
    scan = Load(tmp_path, subscribe="t").scan()
    assert len(scan.splits_by_task) < 30
    delete_first_segment(tmp_path, "t", 7)
    found = scan.read()
    assert found.num_rows == 30 * 20 - 10
    assert [o for p, o in zip(*(found[c].to_pylist() for c in ("partition", "offset")), strict=True) if p == 7] == list(
        range(10, 20)
    )


def test_stream_packs_small_partitions_into_tasks(many: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(KERNELS, "are_ready", lambda: False)
    query = Query(many, startingOffsets="earliest")
    assert query.trigger() == [sorted(numbers(0, 400))]
    assert not query.prefetched
    assert query.tasks == 2
    assert len(query.planned) == 40
