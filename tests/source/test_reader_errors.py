"""What cannot be read as asked, and the error that says so."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql.types import LongType, StructField, StructType

from kafkalog_spark.errors import CorruptBatch, DecompressesTooFar, KafkalogError, NotALogDirectory
from kafkalog_spark.format.layout import Codec
from tests.source.helpers.driver import Load, read
from tests.source.helpers.made_logs import FIRST_TIMESTAMP, MadeBatch, numbers, write_batches


def values(table: pa.Table) -> list[str]:
    return [value.decode() for value in table["value"].to_pylist()]


def flip(path: Path, position: int) -> None:
    data = bytearray(path.read_bytes())
    data[position] ^= 0xFF
    path.write_bytes(data)


def failure(scan: Callable[[], Any]) -> KafkalogError:
    with pytest.raises(KafkalogError) as caught:
        scan().read()  # Load() itself raises what is wrong with the path
    assert "\n" not in str(caught.value)
    return caught.value


@pytest.mark.local_only("messages and plans name local paths")
def test_damaged_batch_names_partition_file_position_and_offset(three: Path) -> None:
    log = three / "t-0" / f"{10:020d}.log"
    flip(log, 100)
    error = failure(lambda: Load(three).scan())
    assert isinstance(error, CorruptBatch)
    assert (error.topic_partition, error.path, error.position, error.offset) == ("t-0", str(log), 0, 10)
    assert str(error).startswith(f"t-0 {log} at byte 0 (offset 10): ")


def test_tasks_without_damage_return_their_rows(three: Path) -> None:
    flip(three / "t-0" / f"{10:020d}.log", 100)
    assert values(read(three, startingOffsets='{"t":{"0":20,"1":-2}}')) == numbers(20, 30) + numbers(100, 110)


def test_batch_beyond_the_limit_names_the_option_that_raises_it(tmp_path: Path) -> None:
    write_batches(tmp_path, "t", 0, [MadeBatch([bytes(9000)], [FIRST_TIMESTAMP], codec=Codec.ZSTD)])
    error = failure(lambda: Load(tmp_path, maxDecompressedBatchBytes=8000).scan())
    assert isinstance(error, DecompressesTooFar)
    assert str(error).endswith("raise the option maxDecompressedBatchBytes if such batches are intended")


@pytest.mark.local_only("messages and plans name local paths")
def test_segment_that_cannot_be_opened_is_named(three: Path) -> None:
    log = three / "t-0" / f"{10:020d}.log"
    log.unlink()
    log.symlink_to(log.name)  # a loop: fails for root too, unlike missing permissions
    error = failure(lambda: Load(three).scan())
    assert isinstance(error, NotALogDirectory)
    assert (error.topic_partition, error.path) == ("t-0", str(log))
    assert "cannot be opened: Too many levels of symbolic links" in str(error)


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({"subscribe": "missing"}, "holds no topic missing; it holds t"),
        ({"startingOffsets": "latest"}, "starting offset can't be latest for batch queries on Kafka"),
        (
            {"startingOffsets": '{"t":{"0":1}}'},
            "Partitions specified for Kafka start offsets don't match what are assigned",
        ),
        (
            {"startingOffsets": '{"t":{"0":1,"1":0}}', "endingOffsets": '{"t":{"0":0,"1":0}}'},
            "start offset 1 is greater",
        ),
        (
            {"startingOffsets": '{"t":{"0":31,"1":0}}'},
            "resolved start offset 31 is greater than the resolved end offset 30",
        ),
        ({"endingOffsets": '{"t":{"0":31,"1":0}}'}, "the log holds [0, 30)"),
        (
            {"startingTimestamp": FIRST_TIMESTAMP + 10},
            "No offset matched from request of topic-partition t-0 and timestamp",
        ),
        ({"colums": "offset"}, "unknown option 'colums'; did you mean 'columns'?"),
    ],
    ids=lambda value: next(iter(value)) if isinstance(value, dict) else None,
)
def test_unsatisfiable_read_is_refused_with_the_reason(three: Path, options: dict[str, object], expected: str) -> None:
    assert expected in str(failure(lambda: Load(three, **options).scan()))


def test_missing_path_is_named_at_load(three: Path, tmp_path: Path) -> None:
    missing = tmp_path / "missing"
    for paths in ([missing], [three, missing]):
        with pytest.raises(NotALogDirectory) as caught:
            Load(*paths)
        assert str(caught.value) == f"{missing}: does not exist; {tmp_path} is a log directory: give that"


def test_missing_path_with_a_user_schema_is_named_by_the_first_query(tmp_path: Path) -> None:
    # Spark then calls nothing of ours at load()
    load = Load(tmp_path / "missing", schema=StructType([StructField("offset", LongType(), True)]))
    assert str(failure(load.scan)) == f"{tmp_path / 'missing'}: does not exist"


@pytest.mark.local_only("messages and plans name local paths")
def test_path_without_a_log_directory_is_named_at_load(tmp_path: Path) -> None:
    (tmp_path / "docs").mkdir()
    error = failure(lambda: Load(tmp_path / "docs"))
    assert isinstance(error, NotALogDirectory)
    assert str(error).startswith(f"{tmp_path / 'docs'}: is not a Kafka log directory")


@pytest.mark.local_only("messages name local paths")
def test_same_partition_in_two_directories_is_refused_with_replicas_error(three: Path, tmp_path: Path) -> None:
    shutil.copytree(three / "t-0", tmp_path / "copy" / "t-0")
    error = failure(lambda: Load(three, tmp_path / "copy", replicas="error").scan())
    assert str(three / "t-0") in str(error)
    assert error.topic_partition == "t-0"
