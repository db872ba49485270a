"""kafkalog-cat -s: values and keys of a format, printed as JSON."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import fastavro
import pytest

from kafkalog_spark.cli import cat
from tests.golden_data import GOLDEN
from tests.interop.record_schemas import ORDERS
from tests.source.helpers.made_logs import append

REGISTERED = GOLDEN / "kafka-4.3.0-schemas" / "data"
SCHEMA = {
    "type": "record",
    "name": "Order",
    "fields": [
        {"name": "id", "type": "long"},
        {"name": "user", "type": ["null", "string"]},
        {"name": "amount", "type": {"type": "bytes", "logicalType": "decimal", "precision": 6, "scale": 2}},
    ],
}


@pytest.fixture
def printed(capsysbinary: pytest.CaptureFixture[bytes]) -> Any:
    """What a run prints with -f json, line by line, or its complaint."""

    def run(root: Path, *arguments: str) -> list[dict[str, Any]] | str:
        code = cat.main([str(root), "-f", "json", *arguments])
        found = capsysbinary.readouterr()
        if code:
            return found.err.decode()
        return [json.loads(line) for line in found.out.splitlines()]

    return run


def avro(row: dict[str, Any]) -> bytes:
    out = io.BytesIO()
    fastavro.schemaless_writer(out, fastavro.parse_schema(json.loads(json.dumps(SCHEMA))), row)
    return out.getvalue()


def test_avro_values_are_printed_as_json_and_malformed_ones_as_strings(tmp_path: Path, printed: Any) -> None:
    from decimal import Decimal

    good: list[dict[str, Any]] = [
        {"id": 1, "user": "a\u009b", "amount": Decimal("1.50")},
        {"id": 2, "user": None, "amount": Decimal(3)},
    ]
    append(tmp_path / "logs", "orders", 0, [*map(avro, good), b"\xff", None, b"abc"], keys=['{"n":7}'] * 5)
    schema = tmp_path / "order.avsc"
    schema.write_text(json.dumps(SCHEMA))
    given = ("-t", "orders", "-s", "value=avro", "--option", f"value.schema={schema}")
    lines = printed(tmp_path / "logs", *given)
    assert [line["payload"] for line in lines] == [
        {"id": 1, "user": "a\u009b", "amount": 1.5},
        {"id": 2, "user": None, "amount": 3.0},
        "\ufffd",
        None,
        "abc",
    ]
    lines = printed(tmp_path / "logs", *given, "-s", "key=json", "--option", "key.schema=n int, k string")
    assert [line["key"] for line in lines] == [{"n": 7, "k": None}] * 5


def test_control_characters_of_values_are_escaped(tmp_path: Path, capsysbinary: pytest.CaptureFixture[bytes]) -> None:
    append(tmp_path, "names", 0, ['{"a":"a\u009b\x7f","b":1}'])
    given = ["-s", "value=json", "--option", "value.schema=a string, b int"]
    assert not cat.main([str(tmp_path), "-t", "names", "-f", "json", *given])
    assert rb'"payload":{"a":"a\u009b\u007f","b":1}' in capsysbinary.readouterr().out


def test_every_type_is_printed_as_json(tmp_path: Path, printed: Any) -> None:
    """Also dates and timestamps of years that Python's have not, and numbers that JSON has not."""
    schema = (
        "b binary, d date, t timestamp, l array<timestamp_ntz>, p decimal(38,2), f array<float>, "
        "m map<string, struct<day: date>>, flag boolean, _corrupt_record string"
    )
    value = {
        "b": "/wA=", "d": "+12345-01-02", "t": "-0044-03-15T00:00:00Z", "l": ["2024-01-02T03:04:05.678", None],
        "p": "123456789012345678901234567890123456.5", "f": ["NaN", "-INF", 1.5],
        "m": {"x": {"day": "2024-02-29"}, 'y"\u00e9': None}, "flag": True,
    }  # fmt: skip
    append(tmp_path, "all", 0, [json.dumps(value), "[1]", b'{"p":"\xff"}', " ", None])
    lines = printed(tmp_path, "-t", "all", "-s", "value=json", "--option", f"value.schema={schema}")
    assert [line["payload"] for line in lines] == [
        {
            "b": "/wA=", "d": "+12345-01-02", "t": "-0044-03-15T00:00:00.000000Z",
            "l": ["2024-01-02T03:04:05.678000", None], "p": 123456789012345678901234567890123456.5,
            "f": ["NaN", "-Infinity", 1.5], "m": {"x": {"day": "2024-02-29"}, 'y"\u00e9': None}, "flag": True,
            "_corrupt_record": None,
        },
        "[1]", '{"p":"\ufffd"}', " ", None,
    ]  # fmt: skip


def test_schemas_are_read_from_the_registrys_topic_in_the_directory(printed: Any) -> None:
    """Written by confluent-kafka's AvroSerializer into a real Kafka."""
    lines = printed(REGISTERED, "-t", "orders", "-s", "value=confluent-avro")
    expected = [{"id": v["id"], "user": v.get("user"), "amount": v.get("amount", 0.5)} for _, v in ORDERS]
    assert [line["payload"] for line in lines] == expected


def test_protobuf_values_are_printed_as_json(tmp_path: Path, printed: Any) -> None:
    from google.protobuf import descriptor_pb2

    described = descriptor_pb2.FileDescriptorSet()
    descriptor_pb2.FileDescriptorProto.DESCRIPTOR.file.CopyToProto(described.file.add())
    path = tmp_path / "all.desc"
    path.write_bytes(described.SerializeToString())
    range_ = descriptor_pb2.EnumDescriptorProto.EnumReservedRange(start=1, end=3)
    append(tmp_path / "logs", "ranges", 0, [range_.SerializeToString(), b"\xff"])
    options = [f"value.descFilePath={path}", "value.messageName=google.protobuf.EnumDescriptorProto.EnumReservedRange"]
    given = [part for option in options for part in ("--option", option)]
    lines = printed(tmp_path / "logs", "-t", "ranges", "-s", "value=protobuf", *given)
    assert [line["payload"] for line in lines] == [{"start": 1, "end": 3}, "\ufffd"]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["-s", "value=xml"], "-s takes value=FORMAT or key=FORMAT, got 'value=xml'"),
        (["-s", "offset=json"], "-s takes value=FORMAT or key=FORMAT"),
        (["-s", "value=avro"], "values in Avro do not contain their schema"),
        (["-s", "value=avro", "--option", "value.sep=,"], "the format avro has no option 'sep'"),
        (["-s", "value=json", "--option", "key.schema=a int"], "--option key.schema requires -s key=FORMAT"),
        (["--option", "value.schema=a int"], "requires -s value=FORMAT"),
    ],
)
def test_usage_error_names_the_correct_usage(printed: Any, arguments: list[str], said: str) -> None:
    assert said in printed(REGISTERED, "-t", "orders", *arguments)
