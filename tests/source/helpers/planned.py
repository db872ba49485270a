"""Helpers for planning tests: the planned log and views of its tasks."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from pyspark.sql.datasource import Filter

from kafkalog_spark.source.split import Split
from tests.source.helpers.driver import Load

RECORDS = 100
SEGMENT_BYTES = 400  # two batches of ten small records


def planned(path: Path, *filters: Filter, **options: object) -> list[Split]:
    return Load(path, pushdown=bool(filters), **options).scan(*filters).splits


def edges(splits: Sequence[Split]) -> list[tuple[int, int]]:
    return [(split.range.start, split.range.end) for split in splits]
