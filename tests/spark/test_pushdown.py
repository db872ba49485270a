"""Filters in real Spark: right in every query without pushdown=true, and in single scans with it."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

from tests.source.made_logs import append, numbers
from tests.spark.loads import explained, load, setting, values

PUSHDOWN = "spark.sql.python.filterPushdown.enabled"
TOPICS = "out-of-order,segments,logappend,compacted"


@pytest.fixture
def twenty(tmp_path: Path) -> Path:
    append(tmp_path, "t", 0, numbers(0, 20))
    return tmp_path


@pytest.fixture
def pushing(spark: Any) -> Iterator[None]:
    with setting(spark, PUSHDOWN, "true"):
        yield


def test_two_filters_on_one_load_are_right_though_spark_pushes(spark: Any, twenty: Path, pushing: None) -> None:
    df = load(spark, twenty)
    assert values(df.filter("offset >= 5")) == numbers(5, 20)
    assert df.count() == 20
    assert values(df.filter("offset >= 15 and partition = 0")) == numbers(15, 20)
    assert values(df.filter("offset < 3 or offset = 9")) == ["0", "1", "2", "9"]
    assert df.filter("offset >= 15").union(df.filter("offset >= 5")).union(df).count() == 5 + 15 + 20
    assert "PushedFilters: [" not in explained(df.filter("offset >= 5"))


def test_pushdown_without_sparks_setting_pushes_nothing(spark: Any, twenty: Path) -> None:
    with setting(spark, PUSHDOWN, "false"):
        df = load(spark, twenty, pushdown=True)
        assert values(df.filter("offset >= 5")) == numbers(5, 20)
        assert df.count() == 20


def test_the_leak_of_pushed_filters_into_later_scans_is_still_in_spark(spark: Any, twenty: Path, pushing: None) -> None:
    df = load(spark, twenty, pushdown=True)
    assert values(df.filter("offset >= 5")) == numbers(5, 20)
    assert df.count() == 15, (
        "This Spark keeps the filters of one scan out of the next one (SPARK-58551): with it, the option pushdown can "
        "be true by default, and the README's warning can go."
    )


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


# {t}: a timestamp amid the data
PREDICATES = [
    ("offset between 300 and 700", "GreaterThanOrEqual(offset,300), LessThanOrEqual(offset,700)"),
    ("offset in (1, 299, 300, 99999)", "In(offset, [1,299,300,99999])"),
    ("offset > 5999", "GreaterThan(offset,5999)"),
    ("offset < 0", "LessThan(offset,0)"),
    ("not (offset > 10) and partition = 2", "EqualTo(partition,2)"),
    ("partition > 0 and topic = 'segments'", "EqualTo(topic,segments)"),
    ("topic like 'seg%' and offset >= 5990", "StringStartsWith(topic,seg)"),
    ("topic in ('compacted', 'none') and offset >= '500'", "In(topic, [compacted,none])"),
    ("timestamp >= timestamp'{t}'", "GreaterThanOrEqual(timestamp,"),
    ("timestamp < timestamp'{t}'", "LessThan(timestamp,"),
    ("timestamp > timestamp'{t}' and timestamp < timestamp'{t}' + interval 2 minutes", "GreaterThan(timestamp,"),
    ("timestamp = timestamp'{t}'", "EqualTo(timestamp,"),
    (
        "timestamp >= timestamp'{t}' + interval 1 microsecond and topic = 'out-of-order'",
        "GreaterThanOrEqual(timestamp,",
    ),
    ("to_date(timestamp) >= date'2000-01-01' and offset < 3", "GreaterThanOrEqual(timestamp,"),
    ("timestamp >= timestamp'2999-01-01'", "GreaterThanOrEqual(timestamp,"),
    ("key is null and offset >= 1400", "IsNull(key)"),
    ("offset = 3 or offset = 5999", None),
    ("offset % 1000 = 7", "IsNotNull(offset)"),
]


@pytest.mark.parametrize(("predicate", "pushed"), PREDICATES, ids=[predicate for predicate, _ in PREDICATES])
def test_a_pushed_filter_gives_the_rows_that_spark_alone_gives(
    spark: Any, golden: Path, unpushed: Any, middle: datetime, pushing: None, predicate: str, pushed: str | None
) -> None:
    condition = predicate.format(t=middle.isoformat(sep=" "))
    df = load(spark, golden, subscribe=TOPICS, pushdown=True).filter(condition).select("topic", "partition", "offset")
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
    if "2999" not in predicate and predicate not in ("offset > 5999", "offset < 0"):
        assert found
