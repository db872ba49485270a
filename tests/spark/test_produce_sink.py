"""Option kafka.bootstrap.servers: the sink produces to a running broker."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import PySparkException

from kafkalog_broker.testing import RunningBroker, running_broker
from tests.sink.helpers.written_logs import read
from tests.spark.helpers.loads import fails
from tests.spark.test_batch_sink import save

pytestmark = pytest.mark.end_to_end


@pytest.fixture(scope="module")
def broker() -> Iterator[RunningBroker]:
    with running_broker({"num.partitions": 3}, topics={"t": 3}) as running:
        yield running


def test_produced_records_have_key_value_headers_and_timestamp(
    spark: Any, broker: RunningBroker, tmp_path: Path
) -> None:
    df = spark.sql("""
        select cast(id as string) key, if(id = 5, null, concat('value ', id)) value,
               timestamp_millis(1700000000000 + id) timestamp, if(id = 3, 2, null) partition,
               array(named_struct('key', 'h', 'value', cast('x' as binary))) headers
        from range(0, 500, 1, 2)
    """)
    save(df, None, topic="t", kafka_bootstrap_servers=broker.bootstrap, compression_type="lz4")
    rows = {row["key"]: row for row in read(broker.log_dir, "t")}
    assert len(rows) == 500
    assert rows[b"5"]["value"] is None
    assert rows[b"3"]["partition"] == 2
    assert rows[b"9"]["headers"] == [{"key": "h", "value": b"x"}]
    assert {row["timestamp"] for row in rows.values()} == set(range(1_700_000_000_000, 1_700_000_000_500))
    # keys land where the road through files puts them
    save(df.where("key != '3'"), tmp_path, topic="t", numPartitions=3)
    assert {row["key"]: row["partition"] for row in read(tmp_path, "t")} == {
        key: row["partition"] for key, row in rows.items() if key != b"3"
    }


def test_directory_of_a_running_broker_is_refused_and_producing_works(spark: Any, broker: RunningBroker) -> None:
    df = spark.sql("select 'a' value, 'refused' topic")
    with fails() as failure:
        save(df, broker.log_dir)
    assert "a running broker owns this log directory" in failure.line
    save(df, None, kafka_bootstrap_servers=broker.bootstrap)
    assert [row["value"] for row in read(broker.log_dir, "refused")] == [b"a"]


def test_record_that_the_broker_refuses_fails_the_write(spark: Any, broker: RunningBroker) -> None:
    with pytest.raises(PySparkException, match=r"1 records were refused, the first: t-\S+: .*larg"):
        save(
            spark.sql("select repeat('a', 2000000) value"),
            None,
            topic="t",
            kafka_bootstrap_servers=broker.bootstrap,
            kafka_message_max_bytes=10_000_000,
        )
    with pytest.raises(PySparkException, match="Invalid partition number: -1"):
        save(spark.sql("select 'a' value, -1 partition"), None, topic="t", kafka_bootstrap_servers=broker.bootstrap)


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"kafka_no_such_setting": "1"}, "an option 'kafka.*' cannot be used: No such configuration property"),
        ({"kafka_key_serializer": "x"}, "Kafka option 'key.serializer' is not supported as keys are serialized with"),
        ({"kafka_bootstrap_servers": ""}, "option 'kafka.bootstrap.servers' is empty"),
    ],
)
def test_settings_are_checked_before_a_task_runs(spark: Any, options: dict[str, str], text: str) -> None:
    with fails() as failure:
        save(spark.sql("select 'a' value"), None, topic="t", **{"kafka_bootstrap_servers": "x:1", **options})
    assert text in failure.line


def test_stream_produces_every_record(spark: Any, broker: RunningBroker, tmp_path: Path) -> None:
    source = tmp_path / "source"
    spark.range(50).selectExpr("cast(id as string) value").write.text(str(source))
    query = (
        spark.readStream.text(str(source)).writeStream.format("kafkalog")
        .option("topic", "streamed").option("kafka.bootstrap.servers", broker.bootstrap)
        .option("checkpointLocation", str(tmp_path / "checkpoint")).trigger(availableNow=True).start()
    )  # fmt: skip
    query.awaitTermination(300)
    assert query.exception() is None
    assert {row["value"] for row in read(broker.log_dir, "streamed")} == {b"%d" % n for n in range(50)}
