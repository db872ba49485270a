"""format("kafkalog") on tiers: local and remote as one table, and streams over both."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.log.helpers.rows import plain_rows
from tests.log.tiered.aiven_writer import KEY_ID, KEYS, AivenMode
from tests.log.tiered.golden_tiered import CLEAN
from tests.log.tiered.reading import aiven_tree, consumed
from tests.spark.helpers.streams import start_query

KEY_OPTION = f"tiered.encryption.key.{KEY_ID}"


@pytest.mark.parametrize("isolation", ["read_uncommitted", "read_committed"])
def test_local_and_remote_are_one_table(spark: Any, isolation: str, tmp_path: Path) -> None:
    root = aiven_tree(CLEAN, tmp_path, AivenMode.ZSTD_ENCRYPTED, 3000)
    pem = (KEYS / "one.pem").read_text()
    loaded = (
        spark.read.format("kafkalog")
        .option("layout", "aiven")
        .option(KEY_OPTION, pem)
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


def test_a_tier_alone_is_a_table(spark: Any) -> None:
    loaded = spark.read.format("kafkalog").option("subscribe", "plain").load(str(CLEAN.remote.parent))
    shown = loaded.groupBy("partition").count().orderBy("partition").collect()
    assert [tuple(row) for row in shown] == [(0, 900), (1, 900)]


def test_a_stream_begins_in_the_tier_and_goes_on_in_the_local_log(spark: Any, tmp_path: Path) -> None:
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
