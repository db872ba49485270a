"""Avro, Protobuf and Confluent's formats read and streamed through Spark, from topics that a real Kafka kept."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.golden_data import GOLDEN
from tests.interop.record_schemas import CUSTOMERS, ORDERS, SECOND
from tests.source.helpers.made_logs import append
from tests.spark.helpers.streams import start_query
from tests.typed.random_avro import varint
from tests.typed.registry_server import RegistryServer

DATA = str(GOLDEN / "kafka-4.3.0-schemas" / "data")
ROWS = [(v["id"], v.get("user"), v.get("amount", 0.5)) for _, v in ORDERS]


def rows(frame: Any) -> list[tuple[Any, ...]]:
    return [tuple(row) for row in frame.collect()]


def test_avro_columns_are_found_by_the_registrys_topic_in_the_directory(spark: Any) -> None:
    loaded = (
        spark.read.format("kafkalog").option("subscribe", "orders").option("value.format", "confluent-avro").load(DATA)
    )
    assert loaded.schema["value"].dataType.simpleString() == "struct<id:bigint,user:string,amount:double>"
    assert rows(loaded.select("value.id", "value.user", "value.amount").orderBy("id")) == ROWS


def test_value_columns_are_selected_together_with_kafkas(spark: Any) -> None:
    read = spark.read.format("kafkalog").schema("offset bigint, amount double, id bigint").option("subscribe", "orders")
    loaded = read.option("value.format", "confluent-avro").load(DATA)
    assert rows(loaded.orderBy("offset")) == [(i, row[2], row[0]) for i, row in enumerate(ROWS)]


def test_stream_of_typed_values_equals_a_batch_read(spark: Any, tmp_path: Path) -> None:
    read = spark.readStream.format("kafkalog").schema("id bigint, user string, amount double")
    loaded = read.option("subscribe", "orders").option("startingOffsets", "earliest")
    query = (
        loaded.option("value.format", "confluent-avro").load(DATA).writeStream.format("memory").queryName("typed_avro")
    ).trigger(availableNow=True)
    start_query(query.option("checkpointLocation", str(tmp_path))).awaitTermination()
    assert sorted(rows(spark.table("typed_avro"))) == sorted(ROWS)


def test_tasks_read_schemas_from_a_registry(spark: Any) -> None:
    with RegistryServer(users={"alice": "secret"}) as registry:
        for schema in (ORDERS[0][0], SECOND):
            registry.register("orders-value", json.dumps(schema))
        read = spark.read.format("kafkalog").option("subscribe", "orders").option("value.format", "confluent-avro")
        read = read.option("value.schema.registry.url", registry.url)
        loaded = read.option("value.schema.registry.basic.auth.user.info", "alice:secret").load(DATA)
        assert rows(loaded.select("value.*").orderBy("id")) == ROWS
        with pytest.raises(Exception, match="HTTP 401"):
            read.option("value.schema.registry.basic.auth.user.info", "alice:wrong").load(DATA)


def test_malformed_values_are_null_or_fail_the_query_by_mode(spark: Any) -> None:
    """Customers are JSON with a prefix; as Avro of another schema none of them can be read."""
    read = spark.read.format("kafkalog").schema("id bigint, offset bigint").option("subscribe", "customers")
    read = read.option("value.format", "confluent-avro").option("value.subject", "orders-value")
    assert rows(read.load(DATA).orderBy("offset")) == [(None, i) for i in range(len(CUSTOMERS))]
    assert read.option("value.mode", "DROPMALFORMED").load(DATA).count() == 0
    with pytest.raises(Exception, match=r"customers-0.*cannot be read as confluent-avro.*schema 3 is one of JSON"):
        read.option("value.mode", "FAILFAST").load(DATA).collect()


def test_confluent_json_values_are_decoded(spark: Any) -> None:
    read = spark.read.format("kafkalog").schema("name string, age int, offset bigint").option("subscribe", "customers")
    loaded = read.option("value.format", "confluent-json").load(DATA)
    assert rows(loaded.orderBy("offset")) == [(one["name"], one["age"], i) for i, one in enumerate(CUSTOMERS)]


def test_avro_and_protobuf_values_round_trip(spark: Any, tmp_path: Path) -> None:
    (tmp_path / "m.proto").write_text('syntax = "proto3"; message M { int64 id = 1; string user = 2; }')
    run = [sys.executable, "-m", "grpc_tools.protoc", "-I.", "--descriptor_set_out=m.desc", "m.proto"]
    subprocess.run(run, cwd=tmp_path, check=True)
    order = {"type": "record", "name": "Order", "fields": [{"name": "id", "type": "long"}]}
    order["fields"].append({"name": "user", "type": ["null", "string"]})  # type: ignore[attr-defined]
    options = {
        "avro": {"value.schema": json.dumps(order)},
        "protobuf": {"value.descFilePath": str(tmp_path / "m.desc"), "value.messageName": "M"},
    }
    made = spark.range(20).selectExpr("id", "if(id % 2 = 0, null, concat('u', id)) as user")
    log = str(tmp_path / "log")
    for name, given in options.items():
        writer = made.write.format("kafkalog").mode("append").option("topic", name).option("value.format", name)
        writer.options(**given).save(log)
    expected = [(i, None if i % 2 == 0 else f"u{i}") for i in range(20)]
    for name, given in options.items():
        read = spark.read.format("kafkalog").schema("id bigint, user string").option("subscribe", name)
        found = sorted(rows(read.option("value.format", name).options(**given).load(log)), key=lambda row: row[0] or 0)
        zero = (None, None) if name == "protobuf" else (0, None)  # a zero of proto3 is not there
        assert found == [zero, *expected[1:]]
        said = ", ".join(f"`{key}` '{value}'" for key, value in {"path": log, "subscribe": name, **given}.items())
        view = f"CREATE OR REPLACE TEMPORARY VIEW {name}_view (id BIGINT, user STRING) USING kafkalog"
        spark.sql(f"{view} OPTIONS ({said}, `value.format` '{name}')")
        in_sql = rows(spark.sql(f"SELECT id, user FROM {name}_view ORDER BY id"))
        assert in_sql == [zero, *expected[1:]]


def test_sql_view_has_the_columns_of_the_registrys_schema(spark: Any) -> None:
    options = f"(path '{DATA}', subscribe 'orders', `value.format` 'confluent-avro')"
    spark.sql(f"CREATE OR REPLACE TEMPORARY VIEW registered USING kafkalog OPTIONS {options}")
    assert rows(spark.sql("SELECT value.id, value.user, value.amount FROM registered ORDER BY id")) == ROWS


def test_writing_confluent_avro_registers_the_schema(spark: Any, tmp_path: Path) -> None:
    made = spark.range(5).selectExpr("id", "cast(id as decimal(9,2)) as price")
    with RegistryServer() as registry:
        given = {"value.format": "confluent-avro", "value.schema.registry.url": registry.url}
        writer = made.write.format("kafkalog").mode("append").option("topic", "t").options(**given)
        writer.option("value.subject", "t-value").save(str(tmp_path / "log"))
        loaded = spark.read.format("kafkalog").option("subscribe", "t").options(**given).load(str(tmp_path / "log"))
        assert loaded.schema["value"].dataType.simpleString() == "struct<id:bigint,price:decimal(9,2)>"
        assert sorted(rows(loaded.selectExpr("value.id", "cast(value.price as double)"))) == [(i, i) for i in range(5)]


def test_unions_of_numbers_and_of_null_alone_equal_from_avro(spark: Any, tmp_path: Path) -> None:
    moment = {"type": "long", "logicalType": "timestamp-millis"}
    fields = [{"name": "n", "type": ["null"]}, {"name": "u", "type": ["int", moment]}]
    schema = json.dumps({"type": "record", "name": "R", "fields": fields})
    values = [varint(0) + varint(1) + varint(1_700_000_000_000), varint(0) + varint(0) + varint(7)]
    append(tmp_path, "t", 0, values)
    read = spark.read.format("kafkalog").option("subscribe", "t").option("value.format", "avro")
    loaded = read.option("value.schema", schema).load(str(tmp_path)).orderBy("offset").select("value")
    assert loaded.schema["value"].dataType.simpleString() == "struct<n:struct<>,u:bigint>"
    assert [tuple(row.value) for row in loaded.collect()] == [(None, 1_700_000_000_000), (None, 7)]
