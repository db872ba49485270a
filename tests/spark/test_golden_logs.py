"""What Kafka wrote before it crashed, and rows without timestamps, through real Spark."""

from __future__ import annotations

from typing import Any

import pytest

from tests.golden_data import KAFKA_4_3, data_dir, golden_logs
from tests.log.helpers.rows import plain_rows
from tests.spark.helpers.loads import load

COLUMNS = ["key", "value", "topic", "partition", "offset", "timestamp", "timestampType", "headers"]


def by_place(row: dict[str, Any]) -> tuple[str, int, int]:
    return row["topic"], row["partition"], row["offset"]


@pytest.mark.parametrize("isolation", ["read_uncommitted", "read_committed"])
def test_crashed_log_directory_read_equals_kafkas_consumers(spark: Any, isolation: str) -> None:
    """Those that were closed are read in test_every_version.py."""
    df = load(spark, data_dir(KAFKA_4_3, crashed=True), includeHeaders=True, isolationLevel=isolation)
    found = sorted(plain_rows(df.toArrow().to_batches()), key=by_place)
    expected = [
        {name: row[name] for name in COLUMNS}
        for log in golden_logs(KAFKA_4_3, crashed=True)
        for row in log.records(committed_only=isolation == "read_committed")
    ]
    assert found == sorted(expected, key=by_place)


def test_record_without_a_timestamp_has_timestamp_minus_one(spark: Any, golden_legacy: Any) -> None:
    shown = (
        load(spark, golden_legacy, subscribe="v0-none")
        .selectExpr("cast(timestamp as string) t", "timestampType")
        .first()
    )
    assert tuple(shown) == ("1969-12-31 23:59:59.999", -1)
