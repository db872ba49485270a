"""df.write and writeStream to a bucket in real Spark: an S3 server on this machine."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import PySparkException

from kafkalog_spark.sink.bucket_stage import STAGED
from tests.sink.helpers.written_buckets import Place
from tests.spark.helpers.streams import start_query
from tests.spark.test_streaming_sink import add
from tests.store.buckets import s3_options
from tests.store.s3_server import S3Server, available

pytestmark = pytest.mark.skipif(available() is not None, reason=str(available()))


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[S3Server]:
    with S3Server(tmp_path_factory.mktemp("s3") / "buckets") as running:
        running.make_bucket("tier")
        yield running


@pytest.fixture
def place(server: S3Server) -> Place:
    return Place.new(server)


def save(df: Any, place: Place, **options: object) -> None:
    writer = df.write.format("kafkalog").mode("append").options(**s3_options(place.server))
    for name, value in options.items():
        writer = writer.option(name.replace("_", "."), value)
    writer.save(place.root.replace("s3://", "s3a://"))


def test_saved_rows_are_read_by_spark_and_pass_the_check(spark: Any, place: Place, tmp_path: Path) -> None:
    df = spark.range(0, 3000, 1, 4).selectExpr(
        "cast(id as string) value",
        "cast(id % 17 as string) key",
        "array(struct('h' key, cast('1' as binary) value)) headers",
    )
    for _ in range(2):
        save(df, place, topic="t", numPartitions=3, compression_type="lz4")
    ours = spark.read.format("kafkalog").options(**s3_options(place.server), subscribe="t", includeHeaders="true")
    found = ours.load(place.root)
    assert found.count() == 6000
    assert found.selectExpr("count(distinct value) n", "max(partition) p", "max(offset) o").first()[:2] == (3000, 2)
    assert {tuple(map(tuple, row.headers)) for row in found.select("headers").distinct().collect()} == {(("h", b"1"),)}
    place.check(tmp_path)


def test_failed_job_leaves_nothing(spark: Any, place: Place) -> None:
    """But what a task staged that Spark let run on past the abort, which a later sink removes."""
    df = spark.range(0, 100, 1, 4).selectExpr("cast(id as string) value")
    bad = df.selectExpr("value", "if(value = '99', raise_error('stop'), 0) partition")
    with pytest.raises(PySparkException, match="stop"):
        save(bad, place, topic="t")
    assert lasting(place) == []
    save(df, place, topic="t")
    before = lasting(place)
    with pytest.raises(PySparkException, match="stop"):
        save(bad, place, topic="t")
    assert lasting(place) == before
    with pytest.raises(PySparkException, match=r"cannot be written: there is no bucket nowhere"):
        df.write.format("kafkalog").mode("append").options(**s3_options(place.server), topic="t").save("s3://nowhere/x")


def lasting(place: Place) -> list[str]:
    return [name for name in place.names() if not name.startswith(f"{STAGED}/")]


def run(spark: Any, source: Path, place: Place, checkpoint: Path, column: str = "value") -> Any:
    """Run the stream over all that is there; the query, ended."""
    query = (
        spark.readStream.schema("value string").option("maxFilesPerTrigger", 1).text(str(source)).selectExpr(column)
        .writeStream.format("kafkalog").option("topic", "t").option("checkpointLocation", str(checkpoint))
        .options(**s3_options(place.server)).trigger(availableNow=True).start(place.root)
    )  # fmt: skip
    try:
        query.awaitTermination(120)
    except PySparkException:
        pass  # the caller looks at query.exception()
    return query


def test_replayed_micro_batches_are_written_once(spark: Any, place: Place, tmp_path: Path) -> None:
    """What a crash between our commit and Spark's leaves: the offsets are logged, the batch is not in commits/."""
    source, checkpoint = tmp_path / "in", tmp_path / "checkpoint"
    for number in range(3):
        add(source, f"{number}.txt", *range(10 * number, 10 * number + 10))
    query = run(spark, source, place, checkpoint)
    assert query.exception() is None
    assert place.texts() == [str(n) for n in range(30)]
    assert place.staged() == []
    for path in (checkpoint / "commits").iterdir():
        if "2" in path.name:
            path.unlink()
    add(source, "3.txt", 30)
    assert run(spark, source, place, checkpoint).exception() is None
    assert place.texts() == [str(n) for n in range(31)]
    add(source, "4.txt", "bad")
    fails = "assert_true(value != 'bad') is null and false x"
    failed = run(spark, source, place, checkpoint, f"struct(value, {fails}).value")
    assert "bad" in str(failed.exception())
    assert len(place.texts()) == 31
    assert run(spark, source, place, checkpoint).exception() is None
    assert place.texts()[31:] == ["bad"]
    place.check(tmp_path)
    told = [file.read_text(errors="replace") for file in checkpoint.rglob("*") if file.is_file()]
    told += [str(query.lastProgress), str(failed.exception())]
    assert not [text for text in told if place.server.secret_key in text]


def test_stream_reads_the_output_of_another_stream(spark: Any, place: Place, tmp_path: Path) -> None:
    rows: list[str] = []
    for number in range(2):
        add(tmp_path / "in", f"{number}.txt", *range(10 * number, 10 * number + 10))
        assert run(spark, tmp_path / "in", place, tmp_path / "write").exception() is None
        reader = start_query(
            spark.readStream.format("kafkalog").options(**s3_options(place.server), subscribe="t")
            .option("startingOffsets", "earliest").load(place.root).selectExpr("cast(value as string) value")
            .writeStream.foreachBatch(lambda df, _: rows.extend(row.value for row in df.collect()))
            .option("checkpointLocation", str(tmp_path / "read")).trigger(availableNow=True)
        )  # fmt: skip
        assert reader.awaitTermination(600)
        assert reader.exception() is None
        assert sorted(map(int, rows)) == list(range(10 * number + 10))
