"""docs/forensics.md in Spark: the queries give what they give in DuckDB (tests/report/test_forensics_page.py)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.forensics_page import PAGE, check_answers
from tests.pages import run_page
from tests.report.shop_directory import write_shop

pytestmark = pytest.mark.end_to_end


def test_forensics_queries_give_their_answers_in_spark(spark: Any, spark_cwd: Path) -> None:
    root = spark_cwd / "kafka-logs"
    ends = write_shop(root)
    answers = []
    try:
        for listing, values in run_page(PAGE, {"spark": spark}):
            if listing.language == "sql":
                answers += [answer.toArrow().to_pylist() for answer in values]
            elif "spark.read" in listing.code:
                for name in ("batches", "transactions", "records"):
                    spark.table(name).cache()  # each is read once, and asked several times
    finally:
        for name in ("batches", "segments", "partitions", "transactions", "transactional_ids", "commits", "records"):
            spark.table(name).unpersist()
            spark.catalog.dropTempView(name)
    check_answers(answers, root, ends)
