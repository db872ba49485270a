"""Messages that no library writes and Java reads: submessages in parts, a oneof set twice, groups inside groups.

The expected results are those of Java's CodedInputStream and DynamicMessage (protobuf-java 4.29).
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from kafkalog_spark.typed.decoder import Decoded
from tests.typed.given_formats import of_format

schema, decoder = of_format("protobuf")

TEXT = """syntax = "proto3"; package p;
import "google/protobuf/timestamp.proto";
message Inner { int32 n = 1; string text = 2; Inner deeper = 3; repeated int32 many = 4; }
message Outer {
  int32 id = 1; Inner inner = 2;
  oneof one { Inner a = 3; Inner b = 4; string c = 5; google.protobuf.Timestamp at = 6; }
  repeated Inner list = 7; map<string, Inner> named = 8; Duration span = 9;
}
message Duration { string unit = 1; int64 length = 2; }
message Timed { int32 id = 1; Timed next = 2; google.protobuf.Timestamp at = 3; }
"""
OLD = """syntax = "proto2"; package q;
enum Level { LOW = 1; HIGH = 2; }
message Old {
  map<string, string> texts = 1; optional string text = 2; repeated Level levels = 3 [packed = true];
  optional sint64 zigzag = 4; optional int64 plain = 5; optional bool flag = 6; optional Old in = 7;
}
"""


@pytest.fixture(scope="module")
def descriptors(tmp_path_factory: pytest.TempPathFactory) -> Path:
    home = tmp_path_factory.mktemp("proto")
    (home / "p.proto").write_text(TEXT)
    (home / "q.proto").write_text(OLD)
    run = ["-I.", "--include_imports", "--descriptor_set_out=all.desc", "p.proto", "q.proto"]
    subprocess.run([sys.executable, "-m", "grpc_tools.protoc", *run], cwd=home, check=True)
    return home / "all.desc"


def decode(path: Path, values: list[bytes], name: str = "p.Outer", **options: str) -> Decoded:
    given = {"descfilepath": str(path), "messagename": name, "recursive.fields.max.depth": "2", **options}
    found = decoder(given, schema(given)).decode(pa.array(values, pa.binary()))
    found.columns.validate(full=True)
    return found


def row(path: Path, value: bytes) -> Any:
    found = decode(path, [value])
    assert found.bad is None, found.why(0)
    return found.columns[0].as_py()


def test_submessage_in_parts_is_merged_across_other_fields(descriptors: Path) -> None:
    parts = b"\x12\x02\x08\x01" + b"\x08\x07" + b"\x12\x05\x12\x03abc" + b"\x12\x02\x20\x05" + b"\x12\x02\x20\x06"
    inner = row(descriptors, parts)["inner"]
    assert (inner["n"], inner["text"], inner["many"]) == (1, "abc", [5, 6])


def test_nested_submessages_in_parts_are_merged(descriptors: Path) -> None:
    twice = b"\x1a\x02\x08\x01\x1a\x03\x12\x01x"  # deeper, in two parts
    found = row(descriptors, b"\x3a" + bytes([len(twice)]) + twice)
    assert found["list"][0]["deeper"]["n"] == 1
    assert found["list"][0]["deeper"]["text"] == "x"
    entry = b"\x0a\x01k\x12\x02\x08\x01\x12\x03\x12\x01x"
    (name, inner), = row(descriptors, b"\x42" + bytes([len(entry)]) + entry)["named"]  # fmt: skip
    assert (name, inner["n"], inner["text"]) == ("k", 1, "x")
    at = b"\x32\x02\x08\x05\x32\x03\x10\xe8\x07"  # a timestamp: seconds, then nanoseconds
    assert row(descriptors, at)["at"].timestamp() == 5.000001


def test_overlong_varints_in_merged_messages_are_read(descriptors: Path) -> None:
    """Google's library in C refuses such tags and lengths, Java does not."""
    long = b"\x92\x80\x80\x80\x80\x00" + b"\x82\x80\x80\x80\x80\x80\x00" + b"\x08\x01"
    assert row(descriptors, long + b"\x12\x03\x12\x01x")["inner"]["text"] == "x"


def test_last_member_of_a_oneof_clears_the_others(descriptors: Path) -> None:
    a, b, c = b"\x1a\x02\x08\x01", b"\x22\x02\x08\x02", b"\x2a\x01x"
    assert row(descriptors, a + b)["a"] is None
    assert row(descriptors, a + b)["b"]["n"] == 2
    found = row(descriptors, a + c + b"\x1a\x03\x12\x01y")
    assert (found["a"]["n"], found["a"]["text"], found["c"]) == (None, "y", None)
    found = row(descriptors, c + a + c)
    assert (found["a"], found["c"]) == (None, "x")


REFUSED = {
    "a member of a oneof that does not count": (b"\x1a\x02\x12\x05" + b"\x22\x00", "does not end"),
    "its text": (b"\x1a\x04\x12\x02\xc3\x28" + b"\x22\x00", "UTF-8"),
    "the first part": (b"\x12\x02\x12\x05" + b"\x12\x05abcde", "does not end"),
    "a number in the second part": (b"\x12\x00" + b"\x12\x02\x08\x80", "does not end"),
    "a group in a group that ends as another": (b"\x83\x01\x8b\x01\x84\x01\x8c\x01", "group"),
    "more groups than Java allows": (b"\x83\x01" * 101 + b"\x84\x01" * 101, "100 messages"),
    "a field of the outermost with another wire type": (b"\x12\x00\x12\x00\x0a\x00", "another wire type"),
    "a wire type that there is not": (b"\x12\x00\x12\x01\x0f", "wire type"),
    "field number 0": (b"\x12\x00\x12\x02\x00\x00", "number 0"),
}


@pytest.mark.parametrize("what", REFUSED)
def test_part_that_java_refuses_makes_the_value_malformed(descriptors: Path, what: str) -> None:
    value, why = REFUSED[what]
    found = decode(descriptors, [b"\x08\x01", value, b"\x08\x02"])
    assert found.bad is not None
    assert found.bad.tolist() == [False, True, False]
    assert why in found.why(1)
    assert [one and one["id"] for one in found.columns.to_pylist()] == [1, None, 2]


def test_nested_unknown_groups_are_skipped(descriptors: Path) -> None:
    group = b"\x83\x01\x8b\x01\x90\x01\x05\x8c\x01\x84\x01"
    assert row(descriptors, b"\x08\x01" + group)["id"] == 1
    assert row(descriptors, b"\x08\x01" + b"\x83\x01" * 100 + b"\x84\x01" * 100)["id"] == 1


def test_merged_messages_may_be_nested_as_deep_as_in_java(descriptors: Path) -> None:
    def nested(levels: int) -> bytes:
        found = b""
        for _ in range(levels):
            size = bytes([len(found)]) if len(found) < 128 else bytes([len(found) & 127 | 128, len(found) >> 7])
            found = b"\x1a" + size + found
        return found

    def outer(levels: int) -> bytes:
        inner = nested(levels - 1)
        return b"\x12\x00\x12" + bytes([len(inner) & 127 | 128, len(inner) >> 7]) + inner

    found = decode(descriptors, [outer(100), outer(101)])
    assert found.bad is not None
    assert found.bad.tolist() == [False, True]


def test_map_strings_of_proto2_must_be_utf8(descriptors: Path) -> None:
    found = decode(descriptors, [b"\x0a\x07\x0a\x01k\x12\x02\xc3\x28", b"\x12\x02\xc3\x28"], "q.Old")
    assert found.bad is not None
    assert found.bad.tolist() == [True, False]
    assert found.columns[1].as_py()["text"] == "\ufffd("


def test_message_named_duration_with_other_fields_is_a_struct(descriptors: Path) -> None:
    assert row(descriptors, b"\x4a\x05\x0a\x01s\x10\x05")["span"] == {"unit": "s", "length": 5}


def test_malformed_value_is_a_null_row_as_in_from_protobuf(descriptors: Path) -> None:
    found = decode(descriptors, [b"\x08\x01", b"\x08"])
    assert found.columns.is_valid().to_pylist() == [True, False]


def test_tenth_byte_of_a_varint_sets_bit_63_as_in_java(descriptors: Path) -> None:
    """As Java reads it: the tenth byte only ends the number. Writers give ten bytes to such numbers alone."""
    ten = b"\x82" + b"\x80" * 8 + b"\x00"
    found = decode(descriptors, [b"\x20" + ten + b"\x28" + ten + b"\x30" + b"\x80" * 9 + b"\x00"], "q.Old")
    assert found.columns[0].as_py()["plain"] == 2 - 2**63
    assert found.columns[0].as_py()["zigzag"] == (2**63 + 2) >> 1
    assert found.columns[0].as_py()["flag"] is True


def test_timestamp_seconds_overflow_as_in_spark(descriptors: Path) -> None:
    lowest = b"\x32\x0b\x08" + b"\x80" * 9 + b"\x01"  # -2^63, of which 1000 times is 0 in 64 bits
    assert row(descriptors, lowest)["at"].timestamp() == 0


def test_out_of_range_timestamp_without_a_column_is_ignored(descriptors: Path) -> None:
    far = b"\x1a\x08\x08\x80\xc0\xca\xf3\x84\xa3\x02"  # 10^13 seconds
    inner = b"\x12" + bytes([len(far)]) + far
    assert decode(descriptors, [inner], "p.Timed", **{"recursive.fields.max.depth": "1"}).bad is None
    found = decode(descriptors, [inner, far], "p.Timed")
    assert found.bad is not None
    assert found.bad.tolist() == [True, True]


def test_unknown_packed_number_of_a_closed_enum_is_ignored(descriptors: Path) -> None:
    """Which from_protobuf takes for another type, in the outermost message alone."""
    found = decode(descriptors, [b"\x1a\x01\x05", b"\x1a\x02\x01\x05", b"\x3a\x04\x1a\x02\x05\x02"], "q.Old")
    assert found.bad is not None
    assert found.bad.tolist() == [True, True, False]
    assert found.columns[2].as_py()["in"]["levels"] == ["HIGH"]
