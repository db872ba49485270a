"""The core of the data source on every release of Spark that pyproject.toml allows (`make test-matrix`).

What a release lacks is refused in one sentence, and the refusal is what is tested there.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyspark
import pytest

from tests.golden_data import KAFKA_2_8, KAFKA_4_3, golden_logs
from tests.log.helpers.rows import plain_rows
from tests.sink.helpers.written_logs import check_log
from tests.source.helpers.made_logs import append, numbers
from tests.spark.helpers.loads import fails, load, values
from tests.spark.helpers.streams import start_query

pytestmark = [pytest.mark.matrix, pytest.mark.end_to_end]

SPARK = tuple(map(int, pyspark.__version__.split(".")[:2]))
WRITES_STREAMS, READS_STREAMS = SPARK >= (4, 1), SPARK >= (4, 2)
COLUMNS = ["key", "value", "topic", "partition", "offset", "timestamp", "timestampType", "headers"]


@contextlib.contextmanager
def refused_without(there: bool, sentence: str) -> Iterator[None]:
    """The block runs as it stands where this Spark has what it needs, and raises the sentence where not."""
    if there:
        yield
        return
    with pytest.raises(Exception, match=sentence):
        yield


def run_to_the_end(writer: Any, path: Path) -> None:
    """Start the stream and wait for its end."""
    query = start_query(writer, str(path))
    try:
        query.awaitTermination(300)
    finally:
        query.stop()


@pytest.mark.parametrize("isolation", ["read_uncommitted", "read_committed"])
@pytest.mark.parametrize("release", [KAFKA_4_3, KAFKA_2_8])
def test_batch_reads_equal_kafkas_consumers(
    spark: Any, golden: Path, golden_legacy: Path, release: str, isolation: str
) -> None:
    path = golden if release == KAFKA_4_3 else golden_legacy
    df = load(spark, path, subscribePattern=".*", includeHeaders=True, isolationLevel=isolation)
    found = {(row["topic"], row["partition"], row["offset"]): row for row in plain_rows(df.toArrow().to_batches())}
    expected = {
        (row["topic"], row["partition"], row["offset"]): {name: row[name] for name in COLUMNS}
        for log in golden_logs(release)
        for row in log.records(committed_only=isolation == "read_committed")
    }
    assert found == expected


def test_rows_columns_and_user_schemas_are_supported(spark: Any, golden: Path) -> None:
    row = load(spark, golden, subscribe="headers", includeHeaders=True).filter("headers is null").first()
    assert (row.topic, row.partition, row.timestampType, row.headers) == ("headers", 0, 0, None)
    assert type(row.value) in (bytes, bytearray)
    chosen = load(spark, golden, subscribe="headers", columns="offset,timestamp")
    assert chosen.columns == ["offset", "timestamp"]
    whole = load(spark, golden, subscribe="headers")
    assert chosen.collect() == whole.select("offset", "timestamp").collect()
    text = load(spark, golden, "offset bigint, value string", subscribe="headers")
    assert text.collect() == whole.selectExpr("offset", "cast(value as string) value").collect()
    assert whole.count() == len(text.collect()) > 0


def test_offset_range_and_filter_return_their_rows(spark: Any, tmp_path: Path) -> None:
    for start in (0, 10, 20):
        append(tmp_path, "t", 0, numbers(start, start + 10), roll_first=True)
    df = load(spark, tmp_path, subscribe="t", startingOffsets='{"t":{"0":5}}', endingOffsets='{"t":{"0":25}}')
    assert values(df) == numbers(5, 25)
    assert values(df.where("offset >= 12")) == numbers(12, 25)


def test_sql_view_is_read(spark: Any, golden: Path) -> None:
    spark.sql(f"create or replace temp view h using kafkalog options (path '{golden}', subscribe 'headers')")
    assert spark.sql("select count(*) from h").first()[0] == load(spark, golden, subscribe="headers").count()


def test_stream_reads_existing_records_and_resumes_from_its_checkpoint(spark: Any, tmp_path: Path) -> None:
    log, out, checkpoint = tmp_path / "log", tmp_path / "out", tmp_path / "checkpoint"
    append(log, "t", 0, numbers(0, 20))
    for end in (20, 30):
        if end > 20:
            append(log, "t", 0, numbers(20, end))
        stream = spark.readStream.format("kafkalog").option("subscribe", "t").option("startingOffsets", "earliest")
        writer = stream.option("maxOffsetsPerTrigger", 7).load(str(log)).selectExpr("cast(value as string) v")
        writer = writer.writeStream.format("parquet").option("checkpointLocation", str(checkpoint))
        with refused_without(READS_STREAMS, r"reading streams needs Spark 4\.2 or newer, this is 4\."):
            run_to_the_end(writer.trigger(availableNow=True), out)
        if not READS_STREAMS:
            return
        assert sorted(int(row.v) for row in spark.read.parquet(str(out)).collect()) == list(range(end))


def test_batch_sink_rows_are_read_back(spark: Any, tmp_path: Path) -> None:
    df = spark.sql("""
        select cast(id % 7 as string) key, concat('value ', id) value, 'orders' topic,
               timestamp_millis(1700000000000 + id) timestamp,
               array(named_struct('key', 'h', 'value', cast('x' as binary))) headers, 'other' other
        from range(0, 1000, 1, 4)
    """)
    sink = df.write.format("kafkalog").mode("append").option("numPartitions", 3).option("compression.type", "zstd")
    sink.save(str(tmp_path / "data"))
    found = load(spark, tmp_path / "data", subscribe="orders", includeHeaders=True)
    rows = found.selectExpr("cast(key as string)", "cast(value as string)", "unix_millis(timestamp)").collect()
    assert {tuple(row) for row in rows} == {(str(n % 7), f"value {n}", 1_700_000_000_000 + n) for n in range(1000)}
    assert len(rows) == 1000
    assert found.selectExpr("headers[0].key", "cast(headers[0].value as string)").distinct().collect() == [("h", "x")]
    # one partition of a key, as with a Kafka producer, and in order within a task
    assert found.groupBy("key").agg({"partition": "approx_count_distinct"}).distinct().count() == 7
    check_log(tmp_path / "data")


def test_stream_sink_writes_each_micro_batch_once(spark: Any, tmp_path: Path) -> None:
    texts = tmp_path / "in"
    texts.mkdir()
    for name in ("a", "b"):
        (texts / f"{name}.txt").write_text(f"{name}1\n{name}2\n")
        stream = spark.readStream.schema("value string").text(str(texts)).writeStream.format("kafkalog")
        stream = stream.option("topic", "t").option("checkpointLocation", str(tmp_path / "checkpoint"))
        with refused_without(WRITES_STREAMS, r"writing streams needs Spark 4\.1 or newer, this is 4\.0"):
            run_to_the_end(stream.trigger(availableNow=True), tmp_path / "log")
        if not WRITES_STREAMS:
            return
    assert values(load(spark, tmp_path / "log", subscribe="t")) == ["a1", "a2", "b1", "b2"]


def test_errors_start_with_one_clear_sentence(spark: Any, golden: Path, tmp_path: Path) -> None:
    with fails() as failure:
        load(spark, tmp_path / "missing", subscribe="t")
    assert failure.line.startswith(f"{tmp_path / 'missing'}: does not exist")
    with fails() as failure:
        load(spark, golden, subscribe="nosuch").count()
    assert "nosuch" in failure.line
    append(tmp_path, "t", 0, numbers(0, 10))
    (log,) = (tmp_path / "t-0").glob("*.log")
    data = bytearray(log.read_bytes())
    data[100] ^= 0xFF
    log.write_bytes(data)
    append(tmp_path, "t", 0, numbers(10, 20), roll_first=True)
    with fails() as failure:
        load(spark, tmp_path, subscribe="t").count()
    assert failure.line.startswith(f"t-0 {log} at byte 0 (offset 0): CRC-32C does not match")
