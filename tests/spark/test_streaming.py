"""spark.readStream.format("kafkalog") in real Spark."""

from __future__ import annotations

import shutil
import time
from pathlib import Path
from typing import Any

import pytest

from kafkalog_spark.format.layout import Codec
from tests.source.helpers.made_logs import FIRST_TIMESTAMP, MadeBatch, append, delete_partition, numbers, write_batches
from tests.spark.helpers.streams import failure, frame_of, offsets_of, ran, running, start_query


@pytest.fixture
def logs(tmp_path: Path) -> Path:
    """Topic t: "0" to "9" on partition 0, "10" to "14" on 1."""
    append(tmp_path / "logs", "t", 0, numbers(0, 10), batch=1)
    append(tmp_path / "logs", "t", 1, numbers(10, 15), batch=1)
    return tmp_path / "logs"


def test_available_now_in_capped_batches_continues_after_a_restart(spark: Any, logs: Path, tmp_path: Path) -> None:
    checkpoint = tmp_path / "checkpoint"
    frame = frame_of(spark, logs, startingOffsets="earliest", maxOffsetsPerTrigger=6)
    first = ran(frame, checkpoint)
    assert [len(batch) for batch in first.batches.values()] == [6, 6, 3]
    assert sorted(first.values) == sorted(numbers(0, 15))
    assert [offsets_of(checkpoint, batch) for batch in range(3)] == [
        '{"t": {"0": 4, "1": 2}}', '{"t": {"0": 8, "1": 4}}', '{"t": {"0": 10, "1": 5}}',
    ]  # fmt: skip
    append(logs, "t", 0, numbers(20, 22))
    append(logs, "t", 2, numbers(22, 24))
    again = ran(frame, checkpoint)
    assert again.batches == {3: numbers(20, 24)}
    assert ran(frame, checkpoint).batches == {}


def test_live_query_from_latest_reads_new_records_and_reports_metrics(spark: Any, logs: Path, tmp_path: Path) -> None:
    with running(frame_of(spark, logs), tmp_path / "checkpoint") as live:
        live.query.processAllAvailable()
        append(logs, "t", 0, numbers(20, 25))
        append(logs, "t", 1, numbers(25, 27))
        live.query.processAllAvailable()
        assert live.values == numbers(20, 27)
        sources = [progress.sources[0] for progress in live.query.recentProgress if progress.numInputRows]
        assert sum(source.numInputRows for source in sources) == 7
        assert sources[0].startOffset == '{"t": {"0": 10, "1": 5}}'
        assert sources[-1].endOffset == sources[-1].latestOffset == '{"t": {"0": 15, "1": 7}}'


def test_prefetched_small_batches_equal_a_batch_read(spark: Any, tmp_path: Path) -> None:
    logs, rows, tasks = tmp_path / "logs", [], []

    def seen(frame: Any, _: int) -> None:
        rows.extend(frame.collect())
        tasks.append(frame.rdd.getNumPartitions())

    def more() -> None:
        """Two rows each on two partitions: two tasks, unless the rows come with the plan."""
        write_batches(logs, "t", 0, [MadeBatch([None, "x"], [FIRST_TIMESTAMP, FIRST_TIMESTAMP + 1], keys=["k", None])])
        write_batches(logs, "t", 1, [MadeBatch(["é", "z"], [5, 6], codec=Codec.ZSTD)])

    more()
    stream = frame_of(spark, logs, startingOffsets="earliest").writeStream.foreachBatch(seen)
    query = start_query(stream.option("checkpointLocation", str(tmp_path / "checkpoint")))
    try:
        end, batches = time.monotonic() + 150, 1
        query.processAllAvailable()
        while tasks[-1] != 1:  # the kernels are being loaded there
            assert time.monotonic() < end, f"every batch was read by tasks: {tasks}"
            more()
            batches += 1
            query.processAllAvailable()
    finally:
        query.stop()
    wanted = spark.read.format("kafkalog").option("allTopics", True).load(str(logs)).collect()
    assert sorted(rows, key=_place) == sorted(wanted, key=_place)
    assert len(rows) == 4 * batches


def _place(row: Any) -> tuple[int, int]:
    return row.partition, row.offset


def test_two_sources_with_one_idle_and_a_self_union_read_every_record(spark: Any, logs: Path, tmp_path: Path) -> None:
    append(logs, "u", 0, numbers(50, 52))
    one = frame_of(spark, logs, subscribe="t", startingOffsets="earliest")
    other = frame_of(spark, logs, subscribe="u", startingOffsets="earliest")
    both = one.union(other).union(one)
    with running(both, tmp_path / "checkpoint") as live:
        live.query.processAllAvailable()
        assert live.values == sorted([*numbers(0, 15) * 2, *numbers(50, 52)])
        append(logs, "t", 0, numbers(20, 22))
        live.query.processAllAvailable()
        assert live.values[32:] == ["20", "20", "21", "21"]


def test_columns_and_headers_equal_a_batch_read(spark: Any, golden: Path, tmp_path: Path) -> None:
    options = {"subscribe": "headers", "includeHeaders": True}
    expected = (
        spark.read.format("kafkalog").options(**options).load(str(golden)).orderBy("partition", "offset").collect()
    )
    found: list[Any] = []
    query = start_query(
        frame_of(spark, golden, startingOffsets="earliest", **options)
        .writeStream.foreachBatch(lambda frame, _: found.extend(frame.orderBy("partition", "offset").collect()))
        .option("checkpointLocation", str(tmp_path / "checkpoint"))
        .trigger(availableNow=True)
    )
    query.awaitTermination(120)
    assert len(expected) > 0
    assert found == expected


def test_user_schema_applies_to_a_stream(spark: Any, logs: Path, tmp_path: Path) -> None:
    reader = spark.readStream.format("kafkalog").option("allTopics", True).schema("offset bigint, value string")
    frame = reader.option("startingOffsets", "earliest").load(str(logs))
    found: list[Any] = []
    query = start_query(
        frame.writeStream.foreachBatch(lambda batch, _: found.extend(batch.collect()))
        .option("checkpointLocation", str(tmp_path / "checkpoint"))
        .trigger(availableNow=True)
    )
    query.awaitTermination(120)
    assert sorted((row.offset, row.value) for row in found) == sorted(
        [*enumerate(numbers(0, 10)), *enumerate(numbers(10, 15))]
    )


def test_invalid_options_are_the_first_line_of_the_error(spark: Any, logs: Path, tmp_path: Path) -> None:
    refused: list[tuple[dict[str, Any], str]] = [
        ({"endingOffsets": "latest"}, "ending offset not valid in streaming queries"),
        (
            {"startingOffsets": '{"t":{"0":1}}'},
            "If startingOffsets contains specific offsets, you must specify all",
        ),
        ({"subscribe": "u", "failOnDataLoss": False}, "the log directory holds no topic u"),
    ]
    for number, (options, message) in enumerate(refused):
        assert failure(frame_of(spark, logs, **options), tmp_path / f"checkpoint{number}").startswith(message)


@pytest.mark.end_to_end
def test_query_fails_when_its_topic_is_missing_and_continues_when_it_is_back(
    spark: Any, logs: Path, tmp_path: Path
) -> None:
    checkpoint = tmp_path / "checkpoint"
    frame = frame_of(spark, logs, startingOffsets="earliest")
    ran(frame, checkpoint)
    shutil.copytree(logs, tmp_path / "backup")
    delete_partition(logs, "t", 1)
    assert "Reason: Partitions Set(t-1) have been deleted." in failure(frame, checkpoint)
    assert not (checkpoint / "offsets" / "1").exists()
    shutil.copytree(tmp_path / "backup" / "t-1", logs / "t-1")
    append(logs, "t", 1, numbers(20, 23))
    assert ran(frame, checkpoint).batches == {1: numbers(20, 23)}


@pytest.mark.end_to_end
def test_damaged_batch_fails_the_task_and_the_query_continues_after_repair(
    spark: Any, logs: Path, tmp_path: Path
) -> None:
    checkpoint = tmp_path / "checkpoint"
    frame = frame_of(spark, logs, startingOffsets="earliest")
    ran(frame, checkpoint)
    append(logs, "t", 0, numbers(20, 30), roll_first=True, batch=2)
    log = logs / "t-0" / f"{10:020d}.log"
    good = log.read_bytes()
    bad = bytearray(good)
    bad[70] ^= 0xFF
    log.write_bytes(bad)
    assert failure(frame, checkpoint).startswith(f"t-0 {log} at byte 0 (offset 10): CRC-32C does not match")
    lenient = frame_of(spark, logs, startingOffsets="earliest", mode="DROPMALFORMED")
    shutil.copytree(checkpoint, tmp_path / "other")
    assert ran(lenient, tmp_path / "other").values == numbers(22, 30)
    log.write_bytes(good)
    assert ran(frame, checkpoint).values == numbers(20, 30)


@pytest.mark.end_to_end
def test_malformed_checkpoint_offsets_fail_the_query(spark: Any, logs: Path, tmp_path: Path) -> None:
    checkpoint = tmp_path / "checkpoint"
    frame = frame_of(spark, logs, startingOffsets="earliest")
    ran(frame, checkpoint)
    path = checkpoint / "offsets" / "0"
    good = path.read_text()
    (checkpoint / "offsets" / ".0.crc").unlink()
    path.write_text(good.replace('{"t": {"0": 10, "1": 5}}', '{"t": {"0": "ten"}}'))
    assert failure(frame, checkpoint).startswith('the query\'s offsets cannot be used: "ten" is not an offset for t-0')
    path.write_text(good)
    append(logs, "t", 0, numbers(20, 22))
    assert ran(frame, checkpoint).values == numbers(20, 22)
