"""Filters in real Spark: right in every query, because pushdown=auto is off, and pushdown=true refused, where Spark
mixes scans up; and with a source that is allowed to push all the same, right in single scans."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest
from pyspark import cloudpickle

from kafkalog_spark.source.pushdown import FILTERS_ARE_PER_SCAN
from tests.source.helpers.made_logs import append, numbers
from tests.spark.helpers import pushing_source
from tests.spark.helpers.loads import explained, fails, load, setting, values

PUSHDOWN = "spark.sql.python.filterPushdown.enabled"
TOPICS = "out-of-order,segments,logappend,compacted"


def load_pushing(spark: Any, path: Path, **options: object) -> Any:
    """A load that pushes filters whatever this Spark does with them: pushdown=true unless the options say otherwise."""
    cloudpickle.register_pickle_by_value(pushing_source)  # workers need not find the tests
    spark.dataSource.register(pushing_source.PushingSource)
    options.setdefault("allTopics", "subscribe" not in options)
    return spark.read.format("kafkalog_pushing").options(**{"pushdown": True, **options}).load(str(path))


@pytest.fixture
def twenty(tmp_path: Path) -> Path:
    append(tmp_path, "t", 0, numbers(0, 20))
    return tmp_path


@pytest.fixture
def pushing(spark: Any) -> Iterator[None]:
    with setting(spark, PUSHDOWN, "true"):
        yield


@pytest.mark.parametrize("options", [{}, {"pushdown": "auto"}, {"pushdown": False}], ids=["default", "auto", "false"])
def test_two_filters_on_one_load_return_correct_rows(
    spark: Any, twenty: Path, pushing: None, options: dict[str, object]
) -> None:
    df = load(spark, twenty, **options)
    assert values(df.filter("offset >= 5")) == numbers(5, 20)
    assert df.count() == 20
    assert values(df.filter("offset >= 15 and partition = 0")) == numbers(15, 20)
    assert values(df.filter("offset < 3 or offset = 9")) == ["0", "1", "2", "9"]
    assert df.filter("offset >= 15").union(df.filter("offset >= 5")).union(df).count() == 5 + 15 + 20
    spark.sql("DROP VIEW IF EXISTS twenty")
    df.createTempView("twenty")
    assert spark.sql("SELECT count(*) FROM twenty WHERE offset >= 15").first()[0] == 5
    assert spark.sql("SELECT count(*) FROM twenty").first()[0] == 20
    pushed = "PushedFilters: [" in explained(df.filter("offset >= 5"))
    assert pushed == (FILTERS_ARE_PER_SCAN and options.get("pushdown") is not False)


def test_pushdown_auto_pushes_where_spark_keeps_filters_per_scan(spark: Any, twenty: Path, pushing: None) -> None:
    df = load_pushing(spark, twenty, pushdown="auto").filter("offset >= 15")  # what it decides on Spark 5, run by this
    assert "PushedFilters: [GreaterThanOrEqual(offset,15)" in explained(df).replace("IsNotNull(offset), ", "")
    assert values(df) == numbers(15, 20)


@pytest.mark.skipif(FILTERS_ARE_PER_SCAN, reason="this Spark does not mix scans up")
@pytest.mark.parametrize("schema", [None, "offset bigint, value binary"])
def test_pushdown_true_is_refused_with_the_reason(spark: Any, twenty: Path, schema: str | None) -> None:
    with fails() as failure:
        load(spark, twenty, schema, pushdown=True).count()
    assert failure.line.startswith("option 'pushdown' needs Spark 5: Spark 4 uses the filters of one query in later")
    assert "(SPARK-58551)" in failure.line


def test_pushdown_is_refused_exactly_where_spark_confuses_scans(spark: Any, twenty: Path, pushing: None) -> None:
    df = load_pushing(spark, twenty)
    assert values(df.filter("offset >= 5")) == numbers(5, 20)
    right = df.count() == 20 and df.filter("offset >= 15").union(df.filter("offset >= 5")).count() == 20
    assert right == FILTERS_ARE_PER_SCAN


@pytest.fixture(scope="module")
def unpushed(spark: Any) -> Any:
    """The rows without pushdown, held in memory: Spark alone filters them."""
    from tests.golden_data import data_dir

    rows = (
        load(spark, data_dir(), subscribe=TOPICS).select("topic", "partition", "offset", "timestamp", "key").toArrow()
    )
    return spark.createDataFrame(rows)


@pytest.fixture(scope="module")
def middle(unpushed: Any) -> datetime:
    """A timestamp that half of the out-of-order records are below."""
    times = sorted(row.timestamp for row in unpushed.filter("topic = 'out-of-order'").collect())
    return times[len(times) // 2]  # type: ignore[no-any-return]


# {t}: a timestamp amid the data. One predicate of each kind that Spark hands over, and one that it does not;
# tests/source/test_random_filters.py has their combinations.
PREDICATES = [
    ("offset between 300 and 700", "GreaterThanOrEqual(offset,300), LessThanOrEqual(offset,700)"),
    ("offset in (1, 299, 300, 99999)", "In(offset, [1,299,300,99999])"),
    ("not (offset > 10) and partition = 2", "EqualTo(partition,2)"),
    ("topic like 'seg%' and offset >= 5990", "StringStartsWith(topic,seg)"),
    ("timestamp > timestamp'{t}' and timestamp < timestamp'{t}' + interval 2 minutes", "GreaterThan(timestamp,"),
    ("to_date(timestamp) >= date'2000-01-01' and offset < 3", "GreaterThanOrEqual(timestamp,"),
    ("key is null and offset >= 1400", "IsNull(key)"),
    ("offset = 3 or offset = 5999", None),
    ("offset % 1000 = 7", "IsNotNull(offset)"),
]


@pytest.mark.parametrize(("predicate", "pushed"), PREDICATES, ids=[predicate for predicate, _ in PREDICATES])
def test_pushed_filter_returns_the_rows_of_sparks_own_filter(
    spark: Any, golden: Path, unpushed: Any, middle: datetime, pushing: None, predicate: str, pushed: str | None
) -> None:
    condition = predicate.format(t=middle.isoformat(sep=" "))
    df = load_pushing(spark, golden, subscribe=TOPICS).filter(condition).select("topic", "partition", "offset")
    plan = explained(df)
    if pushed is None:
        assert "PushedFilters: [" not in plan
    elif pushed != "IsNull(key)":
        assert "PushedFilters: [" in plan
        assert pushed in plan.partition("PushedFilters: [")[2].partition("\n")[0]
    found = sorted(tuple(row) for row in df.collect())
    assert found == sorted(
        tuple(row) for row in unpushed.filter(condition).select("topic", "partition", "offset").collect()
    )
    assert found
