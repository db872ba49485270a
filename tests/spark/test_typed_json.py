"""format("kafkalog") with value.format=json means what Spark's from_json means."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from pyspark.sql.types import StructType

from kafkalog_spark.typed.decoder import encoder_of
from tests.source.helpers.made_logs import append
from tests.spark.helpers.loads import fails, load
from tests.spark.helpers.random_json import DDL, random_values
from tests.spark.helpers.spark_functions import assert_same, by_spark, by_us, frame_of
from tests.spark.helpers.streams import start_query
from tests.typed.random_rows import Limits, random_rows

WITH_CORRUPT = f"{DDL}, _corrupt_record string"
OPTIONS: dict[str, Mapping[str, str]] = {
    "defaults": {},
    "lenient": {
        "allowComments": "true",
        "allowUnquotedFieldNames": "true",
        "allowNumericLeadingZeros": "true",
        "allowBackslashEscapingAnyCharacter": "true",
        "allowUnquotedControlChars": "true",
    },
    "strict": {"allowSingleQuotes": "false", "allowNonNumericNumbers": "false"},
    "patterns": {
        "timestampFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSXXX",
        "timestampNTZFormat": "yyyy-MM-dd HH:mm:ss",
        "dateFormat": "yyyy/MM/dd",
    },
    "patterns and fallback": {
        "timestampFormat": "yyyy-MM-dd HH:mm:ss",
        "dateFormat": "yyyy/MM/dd",
        "enableDateTimeParsingFallback": "true",
    },
    "zone": {"timeZone": "Europe/Berlin"},
    "no effect": {"primitivesAsString": "true", "prefersDecimal": "true", "multiLine": "true"},
}


def test_a_sample_is_decoded_as_by_from_json(spark: Any) -> None:
    values = random_values(60, seed=1)
    theirs = by_spark(spark, "from_json", values, WITH_CORRUPT, {"timeZone": "UTC"})
    assert_same(by_us("json", values, WITH_CORRUPT, {}), theirs, values)


@pytest.mark.parametrize("name", OPTIONS)
def test_random_values_are_decoded_as_by_from_json(spark: Any, name: str) -> None:
    values = random_values(300, seed=len(name))
    options = {"timeZone": "UTC", **OPTIONS[name]}
    theirs = by_spark(spark, "from_json", values, WITH_CORRUPT, options)
    assert_same(by_us("json", values, WITH_CORRUPT, options), theirs, values)


@pytest.mark.slow
@pytest.mark.timeout(1200)
@pytest.mark.parametrize("name", OPTIONS)
def test_twenty_thousand_random_values_are_decoded_as_by_from_json(spark: Any, name: str) -> None:
    values = random_values(20_000, seed=20 + len(name))
    options = {"timeZone": "UTC", **OPTIONS[name]}
    theirs = by_spark(spark, "from_json", values, WITH_CORRUPT, options)
    assert_same(by_us("json", values, WITH_CORRUPT, options), theirs, values)


VALUES = [
    '{"id":1,"user":"a","amount":1.5}',
    '{"id":"x","user":"b"}',
    None,
    "",
    '{"id":4',
    '{"user":"é","nested":{"x":7}}',
]


@pytest.fixture(scope="module")
def log_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """orders-0: VALUES, of which the second and the fifth are bad."""
    path = tmp_path_factory.mktemp("typed")
    append(path, "orders", 0, VALUES, keys=[f'{{"k":{i}}}' for i in range(len(VALUES))])
    return path


def rows(frame: Any) -> list[tuple[Any, ...]]:
    return [tuple(row) for row in frame.orderBy("offset").collect()]


def test_columns_of_the_values_beside_kafkas_own(spark: Any, log_dir: Path) -> None:
    schema = "id long, user string, offset long, nested struct<x: long>, key string"
    frame = load(spark, log_dir, schema, **{"value.format": "json"})
    assert rows(frame) == [
        (1, "a", 0, None, '{"k":0}'),
        (None, "b", 1, None, '{"k":1}'),
        (None, None, 2, None, '{"k":2}'),
        (None, None, 3, None, '{"k":3}'),
        (None, None, 4, None, '{"k":4}'),
        (None, "é", 5, (7,), '{"k":5}'),
    ]


def test_structs_keep_names_apart(spark: Any, log_dir: Path) -> None:
    schema = "offset long, value struct<offset: int, id: int, _corrupt_record: string>, key struct<k: int>"
    frame = load(spark, log_dir, schema, **{"value.format": "json", "key.format": "json"})
    found = rows(frame)
    assert found[0] == (0, (None, 1, None), (0,))
    assert found[1] == (1, (None, None, VALUES[1]), (1,))
    assert [row[1] for row in found[2:5]] == [None, None, (None, None, VALUES[4])]


def test_without_a_schema_of_the_users_own(spark: Any, log_dir: Path) -> None:
    frame = load(
        spark, log_dir, **{"value.format": "json", "value.schema": "id bigint, user string", "key.format": "string"}
    )
    expected = "struct<key:string,value:struct<id:bigint,user:string>,topic:string,partition:int,offset:bigint,"
    assert frame.schema.simpleString().startswith(expected)
    assert frame.where("value.id = 1").select("key", "value.user").collect() == [('{"k":0}', "a")]


def test_a_bad_value_fails_or_is_left_out_by_mode(spark: Any, log_dir: Path) -> None:
    schema = "id long, offset long"
    dropped = load(spark, log_dir, schema, mode="DROPMALFORMED", **{"value.format": "json"})
    assert [offset for _, offset in rows(dropped)] == [0, 2, 3, 5]
    with fails() as failure:
        load(spark, log_dir, schema, mode="FAILFAST", **{"value.format": "json"}).collect()
    assert "orders-0 (offset 1): the value cannot be read as json: id: STRING cannot be read as int64" in failure.line
    kept = load(spark, log_dir, schema, mode="FAILFAST", **{"value.format": "json", "value.mode": "PERMISSIVE"})
    assert len(rows(kept)) == len(VALUES)


def test_only_what_is_wanted_is_checked(spark: Any, log_dir: Path) -> None:
    frame = load(spark, log_dir, "user string, offset long", mode="DROPMALFORMED", **{"value.format": "json"})
    assert [offset for _, offset in rows(frame)] == [0, 1, 2, 3, 5]
    assert load(spark, log_dir, "offset long", mode="FAILFAST", **{"value.format": "json"}).count() == len(VALUES)


def test_a_stream_decodes_too(spark: Any, log_dir: Path, tmp_path: Path) -> None:
    reader = spark.readStream.format("kafkalog").option("subscribe", "orders").option("startingOffsets", "earliest")
    schema = "id long, offset long, nested struct<x: long>"
    stream = reader.option("value.format", "json").option("mode", "PERMISSIVE").schema(schema).load(str(log_dir))
    sink = stream.writeStream.format("memory").queryName("typed_orders")
    query = start_query(sink.option("checkpointLocation", str(tmp_path / "checkpoint")).trigger(availableNow=True))
    query.awaitTermination()
    found = rows(spark.table("typed_orders"))
    assert found[0] == (1, 0, None)
    assert found[5] == (None, 5, (7,))
    assert len(found) == len(VALUES)


def test_a_view_in_sql(spark: Any, log_dir: Path) -> None:
    spark.sql(
        f"CREATE OR REPLACE TEMPORARY VIEW typed_view (id BIGINT, user STRING) USING kafkalog OPTIONS "
        f"(path '{log_dir}', subscribe 'orders', `value.format` 'json')"
    )
    assert spark.sql("SELECT user FROM typed_view WHERE id = 1").collect() == [("a",)]


def test_a_table_in_sql_with_columns_of_its_own(spark: Any, log_dir: Path) -> None:
    spark.sql("CREATE TABLE typed_table (id BIGINT, user STRING) USING kafkalog")
    try:
        options = f"('path' = '{log_dir}', 'subscribe' = 'orders', 'value.format' = 'json')"
        assert spark.sql(f"SELECT user FROM typed_table WITH {options} WHERE id = 1").collect() == [("a",)]
    finally:
        spark.sql("DROP TABLE typed_table")


@pytest.mark.parametrize(
    ("schema", "options", "line"),
    [
        (
            "timestamp long",
            {},
            "the schema's column 'timestamp' is bigint, and Kafka's own column of that name timestamp",
        ),
        ("id variant", {}, "the schema's column 'id' is variant, which is not decoded here"),
        ("id interval day to second", {}, "which is not decoded here"),
        ("id long", {"encoding": "UTF-16LE"}, "option 'encoding' is not taken here"),
        ("id long", {"timestampFormat": "EEE"}, "option 'timestampFormat': the pattern 'EEE' has 'EEE'"),
        ("id long", {"maxNumLen": "5"}, "option 'maxNumLen' is not taken here"),
        ("id long", {"value.sep": ","}, "the format json has no option 'sep'"),
        ("id long, value struct<x: int>", {}, "the schema has a struct 'value', and columns of the values beside it"),
        ("_corrupt_record long", {}, "column '_corrupt_record' is for the text of bad values"),
        (None, {}, "JSON says nothing of its columns, and neither does an option"),
        ("id long", {"value.format": "xml"}, "option 'value.format' must be one of"),
    ],
)
def test_what_is_refused(
    spark: Any, log_dir: Path, schema: str | StructType | None, options: Mapping[str, str], line: str
) -> None:
    with fails() as failure:
        load(spark, log_dir, schema, **{"value.format": "json", **options}).collect()
    assert line in failure.line


def test_rows_are_written_as_to_json_writes_them(spark: Any, tmp_path: Path) -> None:
    from pyspark.sql import functions

    frame = spark.sql(
        "SELECT id, id / 7 AS part, cast(id AS float) / 3 AS small, cast(id AS decimal(20,5)) AS price, "
        "id = 2 AS flag, "
        "concat('é\"\\\\/', id) AS user, if(id = 1, null, named_struct('x', id, 'y', cast(null AS string))) "
        "AS nested, "
        "array(id, null) AS tags, map('k', id * 1e-9) AS pairs, timestamp_micros(id * 1700000000123456) AS at, "
        "date_add(date'2024-02-28', cast(id AS int)) AS day, cast(concat('b', id) AS binary) AS blob, "
        "cast('nan' AS double) AS nothing, timestamp_ntz'2024-01-02 03:04:05.678' AS local FROM range(4)"
    )
    packed = functions.to_json(functions.struct(*frame.columns), {"timeZone": "UTC"})
    expected = sorted(row[0] for row in frame.select(packed).collect())
    directory = tmp_path / "logs"
    writer = frame.repartition(1).write.format("kafkalog").mode("append").option("topic", "made")
    writer.option("value.format", "json").save(str(directory))
    assert sorted(row[0] for row in load(spark, directory, "value string").collect()) == expected
    schema = ", ".join(f"{field.name} {field.dataType.simpleString()}" for field in frame.schema.fields)
    back = load(spark, directory, schema, **{"value.format": "json"})
    assert back.select("id", "part", "small", "user", "tags").orderBy("id").collect() == (
        frame.select("id", "part", "small", "user", "tags").orderBy("id").collect()
    )


def assert_rows_are_written_as_by_to_json(spark: Any, seed: int, count: int) -> None:
    from pyspark.sql import functions

    rng = Random(seed)
    rows = random_rows(rng, count, Limits(first_day=-4_000_000, last_day=6_000_000)).drop_null()
    zone, nulls = rng.choice(["UTC", "Europe/Berlin", "America/New_York", "+05:45"]), rng.choice(["true", "false"])
    ours = encoder_of("json", {"timezone": zone, "ignorenullfields": nulls}, pa.schema(list(rows.type))).encode(rows)
    frame = frame_of(spark, rows)
    options = {"timeZone": zone, "ignoreNullFields": nulls}
    theirs = frame.select(functions.to_json("row", options).alias("text")).toArrow()["text"].to_pylist()
    wrong = [(one, other) for one, other in zip(ours.to_pylist(), theirs, strict=True) if not same_json(one, other)]
    assert wrong == [], f"{len(wrong)} of {len(rows)}"


class Number(str):
    """A fraction as it is written: Java before 19 writes some with more digits than it needs."""

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Number):
            return False
        return float(self) == float(other) or np.float32(self) == np.float32(other)

    __hash__ = None  # type: ignore[assignment]


def same_json(ours: bytes, theirs: str) -> bool:
    if ours == theirs.encode():
        return True
    one, other = (json.loads(text, parse_float=Number, object_pairs_hook=list) for text in (ours, theirs))
    return bool(one == other)


@pytest.mark.parametrize("seed", range(2))
def test_random_rows_are_written_as_by_to_json(spark: Any, seed: int) -> None:
    assert_rows_are_written_as_by_to_json(spark, seed, 100)


@pytest.mark.slow
@pytest.mark.timeout(1200)
def test_twenty_thousand_random_rows_are_written_as_by_to_json(spark: Any) -> None:
    for seed in range(100, 200):
        assert_rows_are_written_as_by_to_json(spark, seed, 215)  # one in twenty is null, and left out


def test_a_struct_value_and_key_are_written(spark: Any, tmp_path: Path) -> None:
    frame = spark.sql("SELECT named_struct('k', 1) AS key, named_struct('a', cast(null AS int), 'b', 'x') AS value")
    writer = (
        frame.write.format("kafkalog").mode("append").option("topic", "made").option("value.ignoreNullFields", "false")
    )
    writer.option("value.format", "json").option("key.format", "json").save(str(tmp_path / "logs"))
    found = load(spark, tmp_path / "logs", "key string, value string").collect()
    assert found == [('{"k":1}', '{"a":null,"b":"x"}')]
    with fails() as failure:
        spark.sql("SELECT array(1) AS value").write.format("kafkalog").mode("append").option("topic", "made").option(
            "value.format", "json"
        ).save(str(tmp_path / "logs"))
    assert "the column 'value' is list<" in failure.line
