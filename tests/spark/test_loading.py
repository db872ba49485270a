"""How format("kafkalog") is found, what it is given, and the schema it has."""

from __future__ import annotations

import logging
import shutil
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql.types import StructType

import kafkalog_spark
from kafkalog_spark import registration
from kafkalog_spark.errors import OptionError
from kafkalog_spark.registration import REDACTED_OPTIONS
from kafkalog_spark.store.obstore_options import OBSTORE_NAMES
from tests.source.helpers.made_logs import append, numbers
from tests.spark.helpers.loads import fails, load, values

CONNECTOR_SCHEMA = (
    "struct<key:binary,value:binary,topic:string,partition:int,offset:bigint,timestamp:timestamp,timestampType:int>"
)


@pytest.fixture(scope="module")
def log_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """orders-0: "0".."9", orders-1: "10".."19", prices-0: "20".."22" with keys."""
    path = tmp_path_factory.mktemp("logs")
    append(path, "orders", 0, numbers(0, 10))
    append(path, "orders", 1, numbers(10, 20))
    append(path, "prices", 0, numbers(20, 23), keys=["a", None, ""])
    return path


def test_schema_equals_the_connectors(spark: Any, log_dir: Path) -> None:
    schema = load(spark, log_dir).schema
    assert schema.simpleString() == CONNECTOR_SCHEMA
    assert all(field.nullable for field in schema)
    with_headers = load(spark, log_dir, includeHeaders="true").schema
    assert with_headers[:7] == schema
    headers = with_headers["headers"]
    assert headers.dataType.simpleString() == "array<struct<key:string,value:binary>>"
    assert headers.nullable
    assert headers.dataType.containsNull
    assert all(field.nullable for field in headers.dataType.elementType)


def test_all_topics_option_reads_every_topic(spark: Any, log_dir: Path) -> None:
    assert sorted(values(load(spark, log_dir)), key=int) == numbers(0, 23)


def test_registered_source_equals_the_discovered_one(spark: Any, log_dir: Path) -> None:
    session = spark.newSession()
    kafkalog_spark.register(session)
    assert values(load(session, log_dir, subscribe="orders")) == numbers(0, 20)


def test_register_keeps_the_discovered_source_working(
    spark: Any, log_dir: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """--archives env.tar.gz#env with PYSPARK_PYTHON=./env/bin/python, which is on executors only."""
    session = spark.newSession()
    monkeypatch.setenv("PYSPARK_PYTHON", "./env/bin/python")
    with caplog.at_level(logging.WARNING, "kafkalog_spark"):
        kafkalog_spark.register(session)
    assert "'./env/bin/python' (PYSPARK_PYTHON)" in caplog.text
    assert values(load(session, log_dir, subscribe="orders")) == numbers(0, 20)


def test_register_from_a_wheel_ships_it_to_the_workers(
    spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """spark-submit --py-files kafkalog.whl: PySpark passes on what is called .zip, and nothing called .whl."""
    wheel = tmp_path / "kafkalog-0.1.0-py3-none-any.whl"
    wheel.write_bytes(b"PK")
    monkeypatch.setattr(registration, "__file__", str(wheel / "kafkalog_spark" / "registration.py"))
    given: list[Path] = []
    session = spark.newSession()

    def take(path: str, pyfile: bool) -> None:
        assert pyfile
        given.append(Path(path))

    monkeypatch.setattr(session, "addArtifacts", take)
    registration.register(session)
    assert [path.name for path in given] == ["kafkalog-0.1.0-py3-none-any.zip"]
    assert given[0].read_bytes() == b"PK"
    assert registration._archive_of(__file__) is None


def test_register_of_an_unusable_package_is_refused(spark: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYSPARK_PYTHON", "./env/bin/python")
    monkeypatch.setattr(registration, "_is_discovered", lambda spark: False)
    with pytest.raises(OptionError, match=r"'./env/bin/python' \(PYSPARK_PYTHON\), does not exist on the driver"):
        kafkalog_spark.register(spark)


def test_topics_are_chosen_by_name_pattern_or_assignment(spark: Any, log_dir: Path) -> None:
    assert values(load(spark, log_dir, subscribe="orders,prices ", columns="partition,offset,value")).count("0") == 1
    assert values(load(spark, log_dir, subscribePattern="ord.*")) == numbers(0, 20)
    # a partition that is not there is left out, as in the connector
    assert values(load(spark, log_dir, assign='{"orders":[1,7],"prices":[0]}')) == [*numbers(20, 23), *numbers(10, 20)]


def test_several_directories_are_one_log(spark: Any, log_dir: Path, tmp_path: Path) -> None:
    shutil.copytree(log_dir / "orders-0", tmp_path / "a" / "orders-0")
    shutil.copytree(log_dir / "orders-1", tmp_path / "b" / "orders-1")
    paths = [str(tmp_path / "a"), str(tmp_path / "b")]
    assert values(load(spark, paths)) == numbers(0, 20)
    assert values(load(spark, ",".join(paths), subscribe="orders")) == numbers(0, 20)


def test_one_partition_directory_can_be_loaded(spark: Any, log_dir: Path) -> None:
    assert values(load(spark, log_dir / "orders-1")) == numbers(10, 20)


def test_columns_are_chosen_in_the_order_given(spark: Any, log_dir: Path) -> None:
    df = load(spark, log_dir, subscribe="prices", columns="offset, TOPIC")
    assert df.columns == ["offset", "topic"]
    assert [tuple(row) for row in df.collect()] == [(0, "prices"), (1, "prices"), (2, "prices")]


def test_user_schema_chooses_columns_and_text(spark: Any, log_dir: Path) -> None:
    df = load(spark, log_dir, schema="value string, key string, offset bigint not null", subscribe="prices")
    assert [tuple(row) for row in df.collect()] == [("20", "a", 0), ("21", None, 1), ("22", "", 2)]
    view = load(spark, log_dir, schema="timestamp timestamp, partition int", subscribe="orders")
    assert view.count() == 20


def test_count_without_columns_counts_every_row(spark: Any, log_dir: Path) -> None:
    assert load(spark, log_dir, subscribe="orders").count() == 20
    assert load(spark, log_dir, subscribe="orders").select().count() == 20
    without = load(spark, log_dir, schema=StructType([]), subscribe="orders")
    assert without.count() == 20
    assert without.collect() == [()] * 20


def test_columns_option_applies_in_sql(spark: Any, log_dir: Path) -> None:
    spark.sql(
        f"create or replace temporary view prices using kafkalog "
        f"options (path '{log_dir}', subscribe 'prices', columns 'offset,value')"
    )
    try:
        found = spark.sql(
            "select max(offset) as last, count(*) as n, max(cast(value as string)) as v from prices"
        ).first()
    finally:
        spark.catalog.dropTempView("prices")
    assert tuple(found) == (2, 3, "22")


@pytest.mark.parametrize(
    ("schema", "expected"),
    [
        (
            "ofset bigint",
            "the schema has a column 'ofset', which a Kafka log does not have; its columns are key, value,",
        ),
        ("offset int", "the schema's column 'offset' is int, expected bigint"),
        ("key binary not null", "the schema's column 'key' is NOT NULL, but records without one exist"),
    ],
)
def test_unsupported_schema_is_refused(spark: Any, log_dir: Path, schema: str, expected: str) -> None:
    with fails() as failure:
        load(spark, log_dir, schema=schema).count()
    assert failure.line.startswith(expected)


def test_register_redacts_secret_options_in_plans_of_views(spark: Any) -> None:
    session = spark.newSession()
    kafkalog_spark.register(session)
    kafkalog_spark.register(session)  # adds nothing
    assert session.conf.get("spark.sql.redaction.options.regex") == f"(?i)url|{REDACTED_OPTIONS}"
    names = [f"storage.{name}" for name in OBSTORE_NAMES]
    names += ["fs.s3a.access.key", "fs.s3a.endpoint", "storage.fsspec.passphrase", "Tiered.Encryption.Key.one"]
    names += ["value.schema.registry.basic.auth.user.info", "kafka.sasl.jaas.config", "kafka.ssl.key.pem"]
    options = ", ".join(f"'{name}' 'CANARY{number}'" for number, name in enumerate(names))
    ((plan,),) = session.sql(
        f"EXPLAIN EXTENDED CREATE TEMPORARY VIEW v USING kafkalog OPTIONS (path '/x', subscribe 'orders', {options})"
    ).collect()
    assert "subscribe" in plan
    assert "CANARY" not in plan
