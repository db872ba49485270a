"""Timestamps of JSON that name no zone are in the session's, as those of Spark's own from_json."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random
from typing import Any

import pytest
from pyspark import TaskContext
from pyspark.sql.types import ArrayType, DateType, StructField, StructType, TimestampNTZType, TimestampType

from kafkalog_spark.errors import OptionError
from kafkalog_spark.source.record_projection import plan_projection
from kafkalog_spark.source.resolved_read import LoadOptions
from kafkalog_spark.spark import session_time_zone as zones
from kafkalog_spark.spark.session_time_zone import session_time_zone
from tests.source.helpers.made_logs import append
from tests.spark.helpers.loads import load
from tests.spark.helpers.spark_functions import comparable
from tests.spark.helpers.streams import start_query

ZONES = ("America/New_York", "Asia/Kathmandu", "Australia/Lord_Howe", "Pacific/Apia", "GMT+02:00", "Etc/UTC")
"""With half an hour of summer time, without a day (2011-12-30), an offset, and UTC by another name."""
CHANGES = (
    "2024-03-10",
    "2024-11-03",
    "2024-04-07",
    "2024-10-06",
    "2011-12-30",
    "1883-11-18",
    "1986-01-01",
    "0001-01-01",
)
SCHEMA = "t timestamp, n timestamp_ntz, d date, l array<timestamp>, m map<string, timestamp>"
SLOW = {"timestampFormat": "yyyy-MM-dd HH:mm:ss"}


def texts() -> list[str]:
    """Times on days on which a zone's clocks were changed, and on any."""
    rng = Random(7)
    days = [
        *CHANGES * 12,
        *(f"{rng.randint(1, 9999):04}-{rng.randint(1, 12):02}-{rng.randint(1, 28):02}" for _ in range(60)),
    ]
    hours = [rng.randrange(5 if day in CHANGES else 24) for day in days]
    return [
        f"{day} {hour:02}:{rng.randrange(60):02}:{rng.randrange(60):02}" for day, hour in zip(days, hours, strict=True)
    ]


def value(text: str) -> str:
    later = text.replace(" ", "T") + ".5"
    moments = [later, f"{later}Z", text[:10]]
    return json.dumps({"t": text, "n": text, "d": text[:10], "l": moments, "m": {"a": f"{text}+09:00"}})


@pytest.fixture(scope="module")
def log_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("zones")
    append(path, "orders", 0, [value(text) for text in texts()])
    return path


@pytest.fixture
def set_zone(spark: Any) -> Iterator[Callable[[str], None]]:
    yield lambda zone: spark.sql(f"SET TIME ZONE '{zone}'")
    spark.conf.set("spark.sql.session.timeZone", "UTC")


def by_from_json(spark: Any, path: Path, **options: str) -> Any:
    from pyspark.sql import functions

    raw = load(spark, path, "value string, offset long").orderBy("offset")
    found = functions.from_json("value", SCHEMA, {**options, "columnNameOfCorruptRecord": "none"})
    return comparable(raw.select(found.alias("row")).toArrow()["row"])


def by_us(frame: Any) -> Any:
    from pyspark.sql import functions

    row = functions.struct(*[name for name in frame.columns if name != "offset"])
    return comparable(frame.orderBy("offset").select(row.alias("row")).toArrow()["row"])


@pytest.mark.parametrize("options", [{}, SLOW], ids=["kernel", "pattern"])
def test_batch_uses_the_time_zone_set_when_it_runs(
    spark: Any, log_dir: Path, set_zone: Callable[[str], None], options: dict[str, str]
) -> None:
    frame = load(spark, log_dir, f"{SCHEMA}, offset long", **{"value.format": "json", **options})
    seen = set()
    for zone in ZONES:
        set_zone(zone)
        found = by_us(frame)
        assert found == by_from_json(spark, log_dir, **options), zone
        seen.add(repr(found))
    assert len(seen) == len(ZONES)


def test_time_zone_option_takes_precedence_over_the_session(
    spark: Any, log_dir: Path, set_zone: Callable[[str], None]
) -> None:
    set_zone("America/New_York")
    frame = load(spark, log_dir, f"{SCHEMA}, offset long", **{"value.format": "json", "value.timeZone": "Asia/Tokyo"})
    assert by_us(frame) == by_from_json(spark, log_dir, timeZone="Asia/Tokyo") != by_from_json(spark, log_dir)


def test_stream_uses_the_time_zone_set_when_it_started(
    spark: Any, log_dir: Path, set_zone: Callable[[str], None], tmp_path: Path
) -> None:
    for number, zone in enumerate(ZONES[:3]):
        set_zone(zone)
        reader = spark.readStream.format("kafkalog").option("startingOffsets", "earliest").option("subscribe", "orders")
        stream = reader.option("value.format", "json").schema(f"{SCHEMA}, offset long").load(str(log_dir))
        sink = stream.writeStream.format("memory").queryName(f"zoned_{number}").trigger(availableNow=True)
        query = start_query(sink.option("checkpointLocation", str(tmp_path / zone)))
        query.awaitTermination()
        assert by_us(spark.table(f"zoned_{number}")) == by_from_json(spark, log_dir), zone


def test_time_zone_unknown_to_python_is_named_when_a_timestamp_is_decoded(monkeypatch: pytest.MonkeyPatch) -> None:
    task = OldTask()
    task.zone = "Mars/Olympus_Mons"
    monkeypatch.setattr(TaskContext, "get", staticmethod(lambda: task))
    load = LoadOptions({"path": "/", "subscribe": "a", "value.format": "json"})
    options = load.parse(streaming=False)
    local = StructType([StructField("d", DateType()), StructField("n", TimestampNTZType())])
    plan_projection(load.resolve(options, local))
    with pytest.raises(OptionError, match=r"spark\.sql\.session\.timeZone: there is no time zone 'Mars/Olympus_Mons'"):
        plan_projection(load.resolve(options, StructType([StructField("l", ArrayType(TimestampType()))])))


def test_time_zone_outside_of_a_task_is_utc() -> None:
    assert session_time_zone() == "UTC"


class OldTask:
    """A task of a Spark that says no more than what was set."""

    zone: str | None = None

    def getLocalProperty(self, name: str) -> str | None:
        return self.zone if name == "spark.sql.session.timeZone" else None


def test_time_zone_not_passed_to_tasks_is_logged_once(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    task = OldTask()
    monkeypatch.setattr(TaskContext, "get", staticmethod(lambda: task))
    zones._unknown_zone.cache_clear()
    assert [session_time_zone(), session_time_zone()] == ["UTC", "UTC"]
    assert [record.getMessage().split(",")[0] for record in caplog.records] == ["spark.sql.session.timeZone is not set"]
    task.zone = "Asia/Tokyo"
    assert session_time_zone() == "Asia/Tokyo"
