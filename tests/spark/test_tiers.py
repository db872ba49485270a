"""format("kafkalog") on tiers: local and remote as one table, and streams over both."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.log.helpers.rows import plain_rows
from tests.log.remote.moving_log import MovingLog
from tests.log.tiered.aiven_writer import KEY_ID, KEYS, AivenMode
from tests.log.tiered.golden_tiered import CLEAN
from tests.log.tiered.reading import aiven_tree, consumed
from tests.spark.helpers.streams import start_query

SINK_COLUMNS = "value binary, topic string, partition int"
KEY_OPTION_PREFIX = f"tiered.encryption.key.{KEY_ID}"


@pytest.mark.parametrize("isolation", ["read_uncommitted", "read_committed"])
def test_local_and_remote_segments_are_one_table(spark: Any, isolation: str, tmp_path: Path) -> None:
    root = aiven_tree(CLEAN, tmp_path, AivenMode.ZSTD_ENCRYPTED, 3000)
    pem = (KEYS / "one.pem").read_text()
    loaded = (
        spark.read.format("kafkalog")
        .option("layout", "aiven")
        .option(KEY_OPTION_PREFIX, pem)
        .option("subscribe", "transactions,codecs,deleted-prefix,recreated")
        .option("includeHeaders", "true")
        .option("isolationLevel", isolation)
        .option("maxPartitionBytes", "20k")
        .load([str(CLEAN.data), str(root)])
    )
    assert loaded.rdd.getNumPartitions() > 4
    rows = plain_rows(loaded.toArrow().to_batches())
    assert pem.splitlines()[1] not in loaded._jdf.queryExecution().toString()
    for topic in ("transactions", "codecs", "deleted-prefix", "recreated"):
        found = sorted((row for row in rows if row["topic"] == topic), key=lambda row: row["offset"])
        assert found == consumed(CLEAN, topic, committed=isolation == "read_committed")


def test_tier_without_a_log_directory_is_a_table(spark: Any) -> None:
    loaded = spark.read.format("kafkalog").option("subscribe", "plain").load(str(CLEAN.remote.parent))
    shown = loaded.groupBy("partition").count().orderBy("partition").collect()
    assert [tuple(row) for row in shown] == [(0, 900), (1, 900)]


def test_stream_starts_in_the_tier_and_continues_in_the_local_log(spark: Any, tmp_path: Path) -> None:
    seen: list[Any] = []
    query = start_query(
        spark.readStream.format("kafkalog")
        .option("subscribe", "transactions")
        .option("startingOffsets", "earliest")
        .option("isolationLevel", "read_committed")
        .option("maxOffsetsPerTrigger", 1000)
        .load(json.dumps([str(CLEAN.data), str(CLEAN.remote)]))
        .writeStream.trigger(availableNow=True)
        .option("checkpointLocation", str(tmp_path / "checkpoint"))
        .foreachBatch(lambda frame, _: seen.extend(row["offset"] for row in frame.select("offset").collect()))
    )
    assert query.awaitTermination(120)
    assert sorted(seen) == [row["offset"] for row in consumed(CLEAN, "transactions", committed=True)]


def test_log_directory_path_alone_reads_its_remote_storage(spark: Any, tmp_path: Path) -> None:
    log = MovingLog(tmp_path, "transactions", {"rsm.config.compression.enabled": "true"})
    log.move(6)
    loaded = spark.read.format("kafkalog").option("subscribe", "transactions").option("includeHeaders", "true")
    planned = loaded.load(str(log.data))
    log.move(6)  # after it was planned
    rows = plain_rows(planned.toArrow().to_batches())
    assert sorted(rows, key=lambda row: row["offset"]) == consumed(CLEAN, "transactions")


def test_stream_reads_every_record_while_segments_move_to_remote_storage(spark: Any, tmp_path: Path) -> None:
    """From everything on disk to all but the active segment remote, a few segments after each batch."""
    log = MovingLog(tmp_path, "transactions", {})
    seen: list[Any] = []

    def take(frame: Any, _: int) -> None:
        log.move(2)  # what the batch was planned on
        seen.extend(row["offset"] for row in frame.select("offset").collect())
        log.move(2)

    query = start_query(
        spark.readStream.format("kafkalog")
        .option("subscribe", "transactions")
        .option("startingOffsets", "earliest")
        .option("maxOffsetsPerTrigger", 200)
        .load(str(log.data))
        .writeStream.trigger(availableNow=True)
        .option("checkpointLocation", str(tmp_path / "checkpoint"))
        .foreachBatch(take)
    )
    assert query.awaitTermination(120)
    assert query.exception() is None
    assert sorted(seen) == [row["offset"] for row in consumed(CLEAN, "transactions")]
    assert not log.segments


def test_sink_appends_to_a_log_whose_segments_are_remote(spark: Any, tmp_path: Path) -> None:
    """What it writes is local, as what a broker writes is: the broker copies it when it is there again."""
    log = MovingLog(tmp_path, "plain", {})
    log.move(100)
    end = CLEAN.said("plain", 0)["high_watermark"]
    rows = spark.createDataFrame([(f"new {number}".encode(), "plain", 0) for number in range(50)], SINK_COLUMNS)
    rows.write.format("kafkalog").mode("append").save(str(log.data))
    loaded = spark.read.format("kafkalog").option("subscribe", "plain").load(str(log.data))
    offsets = sorted(row["offset"] for row in loaded.select("offset").collect())
    assert offsets == list(range(end + 50))
    new = loaded.where(f"offset >= {end}").orderBy("offset").collect()
    assert [bytes(row["value"]) for row in new] == [f"new {number}".encode() for number in range(50)]
