"""Damaged logs, copies of them and their ends, as Spark reads them."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest

from tests.golden_data import KAFKA_4_3, golden_logs
from tests.log.helpers.damaged_log import patched
from tests.spark.helpers.loads import load

(LOG,) = [log for log in golden_logs(KAFKA_4_3, "segments", crashed=False) if log.partition == 0]


@pytest.fixture(scope="module")
def damaged(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """Two copies of segments-0: in the first the second batch is damaged, in the second the first."""
    roots = (tmp_path_factory.mktemp("broker-1"), tmp_path_factory.mktemp("broker-2"))
    for number, root in zip((1, 0), roots, strict=True):
        shutil.copytree(LOG.directory, root / LOG.name)
        (path, *_) = sorted((root / LOG.name).glob("*.log"))
        batch = LOG.batches(LOG.directory / path.name)[number]
        path.write_bytes(patched(path.read_bytes(), batch.position + batch.size - 2, b"\xee\xee"))
    return roots


def test_permissive_mode_returns_rows_and_damage_to_sql(spark: Any, damaged: tuple[Path, Path]) -> None:
    batch = LOG.batches(LOG.segments()[0])[1]
    frame = load(spark, damaged[0], subscribe="segments", mode="PERMISSIVE", minPartitions="3")
    frame.createOrReplaceTempView("salvaged")
    (row,) = spark.sql(
        "SELECT count(offset), count(_error), max(_position), max(_length), max(_first_offset), max(_next_offset),"
        " max(_file) FROM salvaged"
    ).collect()
    lost = batch.last_offset - batch.base_offset + 1
    assert tuple(row)[:6] == (
        LOG.record_count - lost, 1, batch.position, batch.size, batch.base_offset, batch.last_offset + 1,
    )  # fmt: skip
    assert row[6] == str(damaged[0] / LOG.name / LOG.segments()[0].name)


def test_tail_of_two_merged_damaged_copies_is_complete(spark: Any, damaged: tuple[Path, Path]) -> None:
    both = ",".join(map(str, damaged))
    whole = spark.read.format("kafkalog").options(subscribe="segments", replicas="merge", columns="offset").load(both)
    assert sorted(row.offset for row in whole.collect()) == [row["offset"] for row in LOG.records()]
    tail = load(spark, damaged[0], subscribe="segments", tail="7", columns="offset")
    assert sorted(row.offset for row in tail.collect()) == [row["offset"] for row in LOG.records()[-7:]]
