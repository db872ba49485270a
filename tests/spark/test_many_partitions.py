"""Topics of many small partitions through Spark: few tasks."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.source.helpers.made_logs import append, numbers
from tests.spark.helpers.loads import load

PARTITIONS = 120


@pytest.fixture(scope="module")
def log_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """many-0 to many-119 with ten records each."""
    path = tmp_path_factory.mktemp("logs")
    for partition in range(PARTITIONS):
        append(path, "many", partition, numbers(10 * partition, 10 * partition + 10))
    return path


def test_small_partitions_are_read_by_few_tasks(spark: Any, log_dir: Path) -> None:
    df = load(spark, log_dir, subscribe="many")
    assert df.rdd.getNumPartitions() < PARTITIONS / 2
    assert df.count() == 10 * PARTITIONS
    found = df.selectExpr("count(distinct partition, offset) n", "sum(cast(cast(value as string) as int)) s").first()
    assert (found.n, found.s) == (10 * PARTITIONS, sum(range(10 * PARTITIONS)))
    assert df.limit(1).count() == 1
    assert load(spark, log_dir, subscribe="many", minPartitions=PARTITIONS).rdd.getNumPartitions() == PARTITIONS
