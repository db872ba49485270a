"""Inference of schemas from samples, scans with typed values, and the commands for them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from kafkalog_spark import LogDirs
from kafkalog_spark.cli import cat, schema
from kafkalog_spark.errors import OptionError
from kafkalog_spark.typed.ddl import ddl_of_schema
from kafkalog_spark.typed.json.infer import infer_schema
from tests.source.helpers.made_logs import append

VALUES = [
    '{"id":1,"user":"a","tags":["x",null]}',
    '{"id":2.5,"nested":{"b":true,"a":null}}',
    "no json",
    '{"big":99999999999999999999}',
]


@pytest.fixture
def log_dir(tmp_path: Path) -> Path:
    append(tmp_path, "orders", 0, VALUES, keys=[f'{{"k": {i}}}' for i in range(len(VALUES))])
    return tmp_path


def test_inferred_types_are_merged_as_in_spark() -> None:
    found, count, others = infer_schema([*(value.encode() for value in VALUES), None])
    assert ddl_of_schema(found) == (
        "big decimal(38,0), id double, nested struct<a: string, b: boolean>, tags array<string>, user string"
    )
    assert (count, others) == (4, 1)
    assert ddl_of_schema(infer_schema([b'{"a":1}', b'{"a":"x"}'])[0]) == "a string"
    with pytest.raises(OptionError, match="none of 1 values is a JSON object"):
        infer_schema([b"1"])


def test_schema_command_prints_ddl_and_avro(log_dir: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert schema.main([str(log_dir), "-t", "orders"]) == 0
    out, err = capsys.readouterr()
    assert out.startswith("big decimal(38,0), id double, nested struct<")
    assert "1 of 4 values are not JSON objects" in err
    assert schema.main([str(log_dir), "-t", "orders", "--key", "-f", "avro"]) == 0
    avro = json.loads(capsys.readouterr().out)
    assert avro == {
        "type": "record",
        "name": "orders",
        "fields": [{"name": "k", "type": ["null", "long"], "default": None}],
    }
    assert schema.main([str(log_dir), "-t", "nothing"]) == 2
    assert schema.main([str(log_dir / "missing"), "-t", "orders"]) == 2


def test_scan_with_formats_decodes_values(log_dir: Path) -> None:
    batches = LogDirs.open(log_dir).scan(
        "orders",
        value_format="json",
        value_schema="id double",
        key_format="json",
        key_schema="k int",
        columns=("key", "value"),
    )
    rows = [row for batch in batches for row in batch.to_pylist()]
    assert [row["value"] for row in rows] == [{"id": 1.0}, {"id": 2.5}, {"id": None}, {"id": None}]
    assert [row["key"]["k"] for row in rows] == [0, 1, 2, 3]


def test_cat_embeds_json_values_as_json(log_dir: Path, capsysbinary: pytest.CaptureFixture[bytes]) -> None:
    assert cat.main([str(log_dir), "-t", "orders", "-f", "json", "-s", "value=json", "-s", "key=json"]) == 0
    lines = [json.loads(line) for line in capsysbinary.readouterr().out.splitlines()]
    assert [line["payload"] for line in lines[:3]] == [json.loads(VALUES[0]), json.loads(VALUES[1]), "no json"]
    assert lines[0]["key"] == {"k": 0}
    assert cat.main([str(log_dir), "-t", "orders", "-s", "value=json"]) == 2
    assert cat.main([str(log_dir), "-t", "orders", "-f", "json", "-s", "value=xml"]) == 2
