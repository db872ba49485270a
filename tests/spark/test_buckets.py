"""format("kafkalog") on a bucket: an S3 server on this machine, over the directories that are read locally too."""

from __future__ import annotations

import pickle
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pyarrow.fs import copy_files

import kafkalog_spark
from kafkalog_spark.datasource import KafkaLogDataSource
from tests.source.helpers.made_logs import append, numbers
from tests.spark.helpers.loads import values
from tests.spark.helpers.streams import start_query
from tests.store.s3_server import S3Server

HADOOPS = "spark.hadoop."


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[S3Server]:
    top = tmp_path_factory.mktemp("buckets")
    with S3Server(top) as running:
        running.make_bucket("logs")
        yield running


@pytest.fixture(scope="module")
def filled(server: S3Server, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """orders-0: "0".."9" and "10".."19" in two segments, orders-1: "20".."29"; in the bucket too, below `kafka`."""
    local = tmp_path_factory.mktemp("local")
    append(local, "orders", 0, numbers(0, 10))
    append(local, "orders", 0, numbers(10, 20), roll_first=True)
    append(local, "orders", 1, numbers(20, 30))
    copy_files(str(local), "logs/kafka", destination_filesystem=server.file_system())
    return local


def test_bucket_read_equals_a_directory_read(spark: Any, server: S3Server, filled: Path) -> None:
    ours = spark.read.format("kafkalog").option("subscribe", "orders")
    local = ours.load(str(filled)).orderBy("partition", "offset").toArrow()
    assert ours.options(**server.options).load("s3a://logs/kafka").orderBy("partition", "offset").toArrow() == local
    both = ours.options(**server.options, replicas="longest").load([str(filled), "s3://logs/kafka"])
    assert both.orderBy("partition", "offset").toArrow() == local


def test_s3_settings_of_the_session_suffice(spark: Any, server: S3Server, filled: Path) -> None:
    """spark.hadoop.fs.s3a.…, as jobs have it for Parquet; an option of the load takes precedence."""
    session = spark.newSession()
    for name, value in server.options.items():  # an application's are in the conf of each of its sessions
        session.conf.set(HADOOPS + name, value)
    session.conf.set("spark.hadoop.fs.s3a.threads.max", "20")  # of Hadoop's own client
    kafkalog_spark.register(session)
    try:
        ours = session.read.format("kafkalog").option("subscribe", "orders")
        assert values(ours.load("s3a://logs/kafka")) == numbers(0, 30)
        with pytest.raises(Exception, match=r"credentials|access key|signature|denied") as refused:
            ours.option("fs.s3a.secret.key", "not-the-right-one").load("s3a://logs/kafka").collect()
        assert "not-the-right-one" not in str(refused.value)
    finally:
        session.dataSource.register(KafkaLogDataSource)


def test_secrets_appear_in_no_plan_progress_checkpoint_or_error(
    spark: Any, server: S3Server, filled: Path, tmp_path: Path
) -> None:
    asked = {**server.options, "subscribe": "orders"}
    frame = spark.read.format("kafkalog").options(**asked).load("s3a://logs/kafka")
    plan = frame._jdf.queryExecution().toString()
    assert "RelationV2" in plan
    frames: list[int] = []
    query = start_query(
        spark.readStream.format("kafkalog")
        .options(**asked, startingOffsets="earliest")
        .load("s3a://logs/kafka")
        .writeStream.trigger(availableNow=True)
        .option("checkpointLocation", str(tmp_path / "checkpoint"))
        .foreachBatch(lambda frame, _: frames.append(frame.count()))
    )
    assert query.awaitTermination(120)
    assert sum(frames) == 30
    told = [plan, str(query.lastProgress), query._jsq.explainInternal(True) if hasattr(query, "_jsq") else ""]
    told += [file.read_text(errors="replace") for file in (tmp_path / "checkpoint").rglob("*") if file.is_file()]
    for text in told:
        assert server.secret_key not in text
    with pytest.raises(Exception, match="no-such-bucket") as missing:
        spark.read.format("kafkalog").options(**asked).load("s3a://no-such-bucket/kafka").collect()
    assert server.secret_key not in str(missing.value)
    source = KafkaLogDataSource({**asked, "path": "s3a://logs/kafka"})
    reader = source.reader(source.schema())
    assert server.secret_key not in repr(vars(reader))
    assert server.secret_key.encode() in pickle.dumps(reader)  # tasks need it
