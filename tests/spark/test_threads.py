"""Writes that threads other than the main one begin."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from kafkalog_spark import set_active_session
from tests.sink.helpers.written_logs import texts
from tests.spark.helpers.streams import start_query


def save(frame: Any, path: Path, topic: str) -> None:
    rows = frame.selectExpr("cast(id as string) as value").coalesce(1)
    rows.write.format("kafkalog").mode("append").option("topic", topic).save(str(path))


def test_threads_write_concurrently(spark: Any, tmp_path: Path) -> None:
    with ThreadPoolExecutor(3, initializer=set_active_session, initargs=(spark,)) as pool:
        list(pool.map(lambda n: save(spark.range(n, n + 10), tmp_path / str(n), "t"), (0, 10, 20)))
    for n in (0, 10, 20):
        assert texts(tmp_path / str(n)) == [str(number) for number in range(n, n + 10)]


def test_threads_write_dataframes_of_foreach_batch(spark: Any, tmp_path: Path) -> None:
    save(spark.range(10), tmp_path / "data", "t")

    def write_twice(frame: Any, number: int) -> None:
        rows = frame.selectExpr("cast(value as string) as id")
        with ThreadPoolExecutor(2, initializer=set_active_session, initargs=(frame.sparkSession,)) as pool:
            list(pool.map(lambda name: save(rows, tmp_path / name, "t"), ("one", "other")))

    source = spark.readStream.format("kafkalog").option("subscribe", "t").option("startingOffsets", "earliest")
    writer = source.load(str(tmp_path / "data")).writeStream.foreachBatch(write_twice).trigger(availableNow=True)
    query = start_query(writer.option("checkpointLocation", str(tmp_path / "checkpoint")))
    query.awaitTermination()
    for name in ("one", "other"):
        assert texts(tmp_path / name) == [str(number) for number in range(10)]


def test_stream_started_in_a_thread_writes(spark: Any, tmp_path: Path) -> None:
    save(spark.range(10), tmp_path / "data", "t")
    source = spark.readStream.format("kafkalog").option("subscribe", "t").option("startingOffsets", "earliest")
    writer = source.load(str(tmp_path / "data")).select("value").writeStream.format("kafkalog").option("topic", "t")
    writer = writer.option("checkpointLocation", str(tmp_path / "checkpoint")).trigger(availableNow=True)
    with ThreadPoolExecutor(1, initializer=set_active_session, initargs=(spark,)) as pool:
        pool.submit(start_query, writer, str(tmp_path / "copy")).result().awaitTermination()
    assert texts(tmp_path / "copy") == [str(number) for number in range(10)]
