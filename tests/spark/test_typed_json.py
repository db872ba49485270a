"""format("kafkalog") with value.format=json means what Spark's from_json means."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql.types import StructType

from tests.searches import examples
from tests.source.helpers.made_logs import append
from tests.spark.helpers.loads import fails, load
from tests.spark.helpers.random_json import DDL, random_values
from tests.spark.helpers.spark_functions import assert_same, by_spark, by_us
from tests.spark.helpers.streams import start_query

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
    "patterns without signs": {
        "timestampFormat": "yyyyMMddHHmmssXXX",
        "timestampNTZFormat": "yyyyMMddHHmmssSSS",
        "dateFormat": "yyyyMMdd",
        "timeZone": "Asia/Kathmandu",
    },
    "patterns with a day first": {
        "timestampFormat": "yyyy/MM/dd'T'HHmmss.SSSSSS",
        "timestampNTZFormat": "yyyy-MM-dd'T'HH:mm:ssS",
        "dateFormat": "dd/MM/yyyy",
        "timeZone": "America/St_Johns",
    },
    "zone": {"timeZone": "Europe/Berlin"},
    "zone of seconds": {"timeZone": "+05:45:30"},
    "no effect": {"primitivesAsString": "true", "prefersDecimal": "true", "multiLine": "true"},
}


def assert_decoded_as_by_from_json(spark: Any, values: Sequence[bytes | None], options: Mapping[str, str]) -> None:
    options = {"timeZone": "UTC", **options}
    theirs = by_spark(spark, "from_json", values, WITH_CORRUPT, options)
    assert_same(by_us("json", values, WITH_CORRUPT, options), theirs, values)


@pytest.mark.end_to_end
@pytest.mark.parametrize("name", OPTIONS)
def test_random_values_equal_from_json(spark: Any, name: str) -> None:
    assert_decoded_as_by_from_json(spark, random_values(examples(900), seed=len(name)), OPTIONS[name])


@pytest.mark.slow
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("name", OPTIONS)
def test_many_random_values_equal_from_json(spark: Any, name: str) -> None:
    """Of JSON_SEED, so many for each set of options as JSON_VALUES says."""
    count, seed = int(os.environ.get("JSON_VALUES", "10000")), int(os.environ.get("JSON_SEED", "20"))
    for begin in range(0, count, 5000):
        values = random_values(min(5000, count - begin), seed=seed + len(name) + begin)
        assert_decoded_as_by_from_json(spark, values, OPTIONS[name])


def test_surrogates_in_nested_json_read_as_a_string_equal_from_json(spark: Any) -> None:
    texts = [
        "\\ud83d", "\\ude00", "\\ud83d\\ude00", "\\uD83D", "😀", "\ud83d", "\\ude00\\ud83d", "a😀\\ud83d",
        "\\udbff\\udfff",
    ]  # fmt: skip
    values = []
    for text in texts:
        for nested in (f'{{"x":"{text}"}}', f'["{text}",["{text}"]]', f'{{"{text}":{{"{text}":1}}}}'):
            value = f'{{"user":{nested},"texts":{{"{text}":{nested}}},"whole":1}}'
            values.append(value.encode("utf-8", "surrogatepass"))
    assert_decoded_as_by_from_json(spark, values, {})
    first = by_us("json", values, WITH_CORRUPT, {})[0]
    assert first is not None
    assert (first["user"], first["whole"]) == (rb'{"x":"\uD83D"}', 1)


def test_escape_digits_are_accepted_as_by_jackson(spark: Any) -> None:
    """At their low eight bits: a character that has those of a digit is one, also half of one beyond the BMP."""
    texts = ["\\u0e9𝄞", "\\u0e𝄞", "\\u006İ", "\\u006Ā", "\\uİİİİx", "\\u006😀", "\\u00😀1"]
    values = [f'{{"user":"{text}","tags":["{text}"],"whole":1}}'.encode() for text in texts]
    assert_decoded_as_by_from_json(spark, values, {})


def test_invalid_json_literals_equal_from_json(spark: Any) -> None:
    """What is left of the fields depends on where Jackson goes on after the error."""
    words = [
        "\x7full",
        "#ull",
        "null",
        "ünull",
        "\u0301ull",
        "\u200dull",
        "𝒳ull",
        "😀ull",
        "٣ull",
        "_ull",
        "$",
        "\x01ull",
    ]
    values = [f'{{"flag":false,"items":[{{"sku":{{"k":{word}}},"count":1}}],"whole":1}}'.encode() for word in words]
    values += [
        b'{"flag":false,"items":[{/"sku":"x","count":1},{"count":2}],"whole":1}',
        b'{"whole":1,/"flag":true,"id":2}',
    ]
    values += [
        b'{"whole":1,"tags":[/"x"],"id":2}',
        b'{"whole"/:1,"id":2}',
        b'{"whole":/1,"id":2}',
        b'{"whole":1/,"id":2}',
    ]
    assert_decoded_as_by_from_json(spark, values, {})


@pytest.mark.parametrize("pattern", ["yyyy-MM-dd", "dd/MM/yyyy", "yyyyMMdd", "MMyyyydd", "yyyy-MM-dd'1'"])
def test_years_of_any_sign_with_a_pattern_equal_from_json(spark: Any, pattern: str) -> None:
    years = [
        "0000", "-0000", "+0000", "0001", "-0001", "-0044", "-44", "9999", "10000", "+10000", "-10000", "+2024",
        "+012345", "+5881580", "+5881581", "-5877641", "-5877642", "+999999999", "+1000000000", "+12345678901234567890",
    ]  # fmt: skip
    texts = [pattern.replace("'", "").replace("yyyy", year).replace("MM", "06").replace("dd", "07") for year in years]
    values = [f'{{"day":"{text}","at":"{text}","at_local":"{text}"}}'.encode() for text in texts]
    options = dict.fromkeys(("dateFormat", "timestampFormat", "timestampNTZFormat"), pattern)
    assert_decoded_as_by_from_json(spark, values, options)
    assert_decoded_as_by_from_json(spark, values, {**options, "enableDateTimeParsingFallback": "true"})


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


def test_value_columns_are_selected_together_with_kafkas(spark: Any, log_dir: Path) -> None:
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


def test_kafka_columns_are_case_insensitive_and_json_fields_case_sensitive(spark: Any, log_dir: Path) -> None:
    frame = load(spark, log_dir, "Offset long, User string, id long, KEY string", **{"value.format": "json"})
    assert frame.columns == ["Offset", "User", "id", "KEY"]
    assert frame.where("offset = 0").collect() == [(0, None, 1, '{"k":0}')]
    struct = load(spark, log_dir, "OFFSET long, Value struct<id: long>", **{"value.format": "json"})
    assert struct.where("offset = 0").collect() == [(0, (1,))]


def test_key_and_value_structs_keep_equal_names_apart(spark: Any, log_dir: Path) -> None:
    schema = "offset long, value struct<offset: int, id: int, _corrupt_record: string>, key struct<k: int>"
    frame = load(spark, log_dir, schema, **{"value.format": "json", "key.format": "json"})
    found = rows(frame)
    assert found[0] == (0, (None, 1, None), (0,))
    assert found[1] == (1, (None, None, VALUES[1]), (1,))
    assert [row[1] for row in found[2:5]] == [None, None, (None, None, VALUES[4])]


def test_schema_is_taken_from_the_value_schema_option(spark: Any, log_dir: Path) -> None:
    frame = load(
        spark, log_dir, **{"value.format": "json", "value.schema": "id bigint, user string", "key.format": "string"}
    )
    expected = "struct<key:string,value:struct<id:bigint,user:string>,topic:string,partition:int,offset:bigint,"
    assert frame.schema.simpleString().startswith(expected)
    assert frame.where("value.id = 1").select("key", "value.user").collect() == [('{"k":0}', "a")]


def test_malformed_value_fails_or_is_dropped_by_mode(spark: Any, log_dir: Path) -> None:
    schema = "id long, offset long"
    dropped = load(spark, log_dir, schema, mode="DROPMALFORMED", **{"value.format": "json"})
    assert [offset for _, offset in rows(dropped)] == [0, 2, 3, 5]
    with fails() as failure:
        load(spark, log_dir, schema, mode="FAILFAST", **{"value.format": "json"}).collect()
    assert "orders-0 (offset 1): the value cannot be read as json: id: STRING cannot be read as int64" in failure.line
    kept = load(spark, log_dir, schema, mode="FAILFAST", **{"value.format": "json", "value.mode": "PERMISSIVE"})
    assert len(rows(kept)) == len(VALUES)


def test_only_selected_values_are_validated(spark: Any, log_dir: Path) -> None:
    frame = load(spark, log_dir, "user string, offset long", mode="DROPMALFORMED", **{"value.format": "json"})
    assert [offset for _, offset in rows(frame)] == [0, 1, 2, 3, 5]
    assert load(spark, log_dir, "offset long", mode="FAILFAST", **{"value.format": "json"}).count() == len(VALUES)


def test_stream_decodes_json(spark: Any, log_dir: Path, tmp_path: Path) -> None:
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


def test_sql_view_decodes_json(spark: Any, log_dir: Path) -> None:
    spark.sql(
        f"CREATE OR REPLACE TEMPORARY VIEW typed_view (id BIGINT, user STRING) USING kafkalog OPTIONS "
        f"(path '{log_dir}', subscribe 'orders', `value.format` 'json')"
    )
    assert spark.sql("SELECT user FROM typed_view WHERE id = 1").collect() == [("a",)]


def test_sql_table_with_a_schema_decodes_json(spark: Any, log_dir: Path) -> None:
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
            "the schema's column 'timestamp' is bigint, but Kafka's own column of that name is timestamp",
        ),
        (
            "Timestamp long",
            {},
            "the schema's column 'Timestamp' is bigint, but Kafka's own column of that name is timestamp",
        ),
        ("value struct<x: int>, Value struct<y: int>", {}, "the schema names a column twice"),
        ("id variant", {}, "the schema's column 'id' is variant, a type that kafkalog does not decode"),
        ("id interval day to second", {}, "a type that kafkalog does not decode"),
        ("id long", {"encoding": "UTF-16LE"}, "option 'encoding' is not supported"),
        ("id long", {"timestampFormat": "EEE"}, "option 'timestampFormat': the pattern 'EEE' has 'EEE'"),
        ("id long", {"maxNumLen": "5"}, "option 'maxNumLen' is not supported"),
        ("id long", {"value.sep": ","}, "the format json has no option 'sep'"),
        (
            "id long, value struct<x: int>",
            {},
            "the schema has a struct 'value', and also fields of the values outside of it",
        ),
        ("_corrupt_record long", {}, "column '_corrupt_record' is for the text of bad values"),
        (None, {}, "values in JSON do not contain their schema, and no option declares it"),
        ("id long", {"value.format": "xml"}, "option 'value.format' must be one of"),
        ("id long", {"value.format": "csv"}, "got 'csv'; Spark's from_csv reads the column `value`"),
    ],
)
def test_unsupported_schema_or_option_is_refused(
    spark: Any, log_dir: Path, schema: str | StructType | None, options: Mapping[str, str], line: str
) -> None:
    with fails() as failure:
        load(spark, log_dir, schema, **{"value.format": "json", **options}).collect()
    assert line in failure.line


@pytest.mark.parametrize(
    ("name", "line"),
    [
        ("json", "got 'json'; write to_json(struct(...)) AS value"),
        ("csv", "got 'csv'; Spark's from_csv reads the column `value`, and to_csv makes it before a write"),
    ],
)
def test_unsupported_write_format_names_the_alternative(spark: Any, tmp_path: Path, name: str, line: str) -> None:
    with fails() as failure:
        spark.range(1).write.format("kafkalog").mode("append").option("topic", "made").option(
            "value.format", name
        ).save(str(tmp_path / "logs"))
    assert line in failure.line
