"""Every golden directory through real Spark: the table is what Kafka's consumers returned."""

from __future__ import annotations

from typing import Any

import pytest

from tests.golden_data import KAFKA_2_8, KAFKA_4_3, data_dir, golden_logs
from tests.log.rows import plain_rows
from tests.spark.loads import load

COLUMNS = ["key", "value", "topic", "partition", "offset", "timestamp", "timestampType", "headers"]


def by_place(row: dict[str, Any]) -> tuple[str, int, int]:
    return row["topic"], row["partition"], row["offset"]


@pytest.mark.parametrize("isolation", ["read_uncommitted", "read_committed"])
@pytest.mark.parametrize(
    ("release", "crashed"),
    [(KAFKA_4_3, False), (KAFKA_4_3, True), (KAFKA_2_8, False)],
    ids=["4.3.0", "4.3.0 crashed", "2.8.2"],
)
def test_a_log_directory_is_the_table_that_consumers_saw(
    spark: Any, release: str, crashed: bool, isolation: str
) -> None:
    df = load(spark, data_dir(release, crashed=crashed), includeHeaders=True, isolationLevel=isolation)
    found = sorted(plain_rows(df.toArrow().to_batches()), key=by_place)
    expected = [
        {name: row[name] for name in COLUMNS}
        for log in golden_logs(release, crashed=crashed)
        for row in log.records(committed_only=isolation == "read_committed")
    ]
    assert found == sorted(expected, key=by_place)


def test_rows_as_python_objects(spark: Any, golden: Any, golden_legacy: Any) -> None:
    row = load(spark, golden, subscribe="headers", includeHeaders=True).filter("headers is null").first()
    assert (row.topic, row.partition, row.timestampType, row.headers) == ("headers", 0, 0, None)
    assert type(row.value) in (bytes, bytearray)
    # v0 has no timestamps: Kafka's -1 ms
    shown = (
        load(spark, golden_legacy, subscribe="v0-none")
        .selectExpr("cast(timestamp as string) t", "timestampType")
        .first()
    )
    assert tuple(shown) == ("1969-12-31 23:59:59.999", -1)
