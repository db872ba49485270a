"""docs/forensics.md in Spark: the queries give what they give in DuckDB (tests/report/test_forensics_page.py)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.forensics_page import QUERIES, check_answers, setup_lines
from tests.report.shop_directory import write_shop

pytestmark = pytest.mark.end_to_end


def test_the_seven_questions_are_answered(spark: Any, tmp_path: Path) -> None:
    root = tmp_path / "shop"
    ends = write_shop(root)
    exec(setup_lines("spark.read").replace("/data/kafka-logs", str(root)), {"spark": spark})
    for name in ("batches", "transactions", "records"):
        spark.table(name).cache()  # each is read once, and asked several times
    try:
        answers = [spark.sql(query).toArrow().to_pylist() for query in QUERIES]
    finally:
        for name in ("batches", "segments", "partitions", "transactions", "transactional_ids", "commits", "records"):
            spark.table(name).unpersist()
            spark.catalog.dropTempView(name)
    check_answers(answers, root, ends)
