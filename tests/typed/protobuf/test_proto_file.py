"""Protobuf schemas in the forms of a registry: explicit map entries, known types, descriptors in base64."""

from __future__ import annotations

import base64
from typing import Any

import pytest
from google.protobuf import descriptor_pb2

from kafkalog_spark.errors import OptionError
from kafkalog_spark.typed.protobuf.field_types import is_map
from kafkalog_spark.typed.protobuf.known_types import known_file, known_files
from kafkalog_spark.typed.protobuf.map_entries import mark_map_entries
from kafkalog_spark.typed.protobuf.message_indexes import message_at
from kafkalog_spark.typed.protobuf.proto_file import ProtoFile, compile_schema
from kafkalog_spark.typed.protobuf.proto_text import imports_of

WRITTEN_OUT = """syntax = "proto3";
package p;

message A {
  repeated .p.A.MEntry m = 1 [json_name = "m"]; // option map_entry = true;
  string s = 2;

  message MEntry {
    option map_entry = true;

    string key = 1;
    .p.B value = 2;
  }
  message C {
    int32 c = 1;
  }
  message D {
    int32 d = 1;
  }
}
message B {
  int32 b = 1;
}
"""
SHORT = """syntax = "proto3"; package p;
message A {
  map<string, B> m = 1; string s = 2; message C { int32 c = 1; } message D { int32 d = 1; }
}
message B { int32 b = 1; }
"""


def in_base64(text: str, **imported: str) -> str:
    """The descriptor of a text, as Confluent's Python client registers it."""
    made = descriptor_pb2.FileDescriptorProto()
    compile_schema(text, imported, "it").descriptor.CopyToProto(made)
    return base64.b64encode(made.SerializeToString()).decode()


def names(file: ProtoFile, *paths: tuple[int, ...]) -> list[str | None]:
    """The message of each path of indexes, None for none."""
    found: list[str | None] = []
    for path in paths:
        try:
            found.append(message_at(file, path).full_name)
        except OptionError:
            found.append(None)
    return found


@pytest.mark.parametrize("syntax", ["proto3", "proto2", "2023"])
def test_repeated_message_with_option_map_entry_is_a_map(syntax: str) -> None:
    """Java's clients register it so: the option stands in the text, where protoc refuses it."""
    text = WRITTEN_OUT
    if syntax == "2023":
        text = text.replace('syntax = "proto3"', 'edition = "2023"')
    elif syntax == "proto2":
        lines = text.replace("proto3", "proto2").splitlines()
        scalars = ("string", "int32", ".p.B")
        lines = [f"optional {line}" if line.strip().startswith(scalars) else line for line in lines]
        text = "\n".join(lines)
    fields = compile_schema(text, {}, "it").descriptor.message_types_by_name["A"].fields_by_name
    assert is_map(fields["m"])
    assert fields["m"].message_type.fields_by_name["value"].message_type.full_name == "p.B"
    assert not is_map(fields["s"])


@pytest.mark.parametrize(
    "fields",
    [
        "string key = 1;",
        "string key = 1; int32 value = 2; int32 more = 3;",
        "repeated string key = 1; int32 value = 2;",
    ],
)
def test_option_map_entry_on_another_message_is_refused(fields: str) -> None:
    text = f'syntax = "proto3"; message A {{ repeated E e = 1; message E {{ option map_entry = true; {fields} }} }}'
    with pytest.raises(OptionError, match=r"it has a message A.E with option map_entry, but it is not a key and"):
        compile_schema(text, {}, "it")


def test_map_entries_and_imports_in_comments_and_strings_are_ignored() -> None:
    text = """// import "a.proto";
/* import "b.proto"; */ import /* c */ "d.proto" ; import public 'e.proto';
message A { option (x) = "option map_entry = true;"; string option = 1; message B { option map_entry=true; } }
/* no end: import "f.proto";"""
    assert imports_of(text) == ["d.proto", "e.proto"]
    marked = mark_map_entries(text, "mark")
    assert marked == text.replace("option map_entry=true;", 'reserved "mark";')
    assert mark_map_entries(WRITTEN_OUT, "m").count("// option map_entry = true;") == 1
    assert mark_map_entries("message A { option map_entry = false; }", "m") == "message A { ; }"


def test_marker_of_map_entries_avoids_names_in_the_text() -> None:
    text = 'syntax = "proto3"; message A { reserved "kafkalog_map_entry"; int32 key = 1; int32 value = 2; }'
    message = compile_schema(text, {}, "it").descriptor.message_types_by_name["A"]
    assert not message.GetOptions().map_entry
    copied = descriptor_pb2.DescriptorProto()
    message.CopyToProto(copied)
    assert copied.reserved_name == ["kafkalog_map_entry"]


def test_message_indexes_prefer_the_count_of_java_clients() -> None:
    """C is the first message that the text has in A. Python's client counts the entry of the map before it."""
    paths = ((0,), (1,), (2,), (0, 0), (0, 1), (0, 2), (0, 3), (0, 0, 0), (-1,))
    short = compile_schema(SHORT, {}, "it")
    assert names(short, *paths) == ["p.A", "p.B", None, "p.A.C", "p.A.D", "p.A.D", None, None, None]
    counted = ["p.A", "p.B", None, None, "p.A.C", "p.A.D", None, None, None]
    assert names(compile_schema(WRITTEN_OUT, {}, "it"), *paths) == counted  # the text has the entry
    assert names(compile_schema(in_base64(SHORT), {}, "it"), *paths) == counted


KNOWN = [*known_files(), *(f"google/protobuf/{name}.proto" for name in ("any", "api", "source_context", "type"))]


@pytest.mark.parametrize("name", KNOWN)
def test_known_types_need_no_reference(name: str) -> None:
    """Confluent's serializers register none for them (skip.known.types), whether they are used or not."""
    known = known_file(name)
    message = next(iter(known.message_type), None)
    field = "int32" if message is None else f".{known.package}.{message.name}"
    text = f'syntax = "proto3"; import "{name}"; message A {{ {field} a = 1; }}'
    for schema in (text, in_base64(text)):
        found = compile_schema(schema, {}, "it").descriptor.message_types_by_name["A"].fields_by_name["a"]
        if message is not None:
            assert found.message_type.full_name == f"{known.package}.{message.name}"


def test_confluent_field_options_need_no_reference() -> None:
    text = """syntax = "proto3"; import "confluent/meta.proto"; import "confluent/types/decimal.proto";
    message A { confluent.type.Decimal d = 1 [(confluent.field_meta) = { params: [{ key: "scale", value: "2" }] }]; }"""
    field = compile_schema(text, {}, "it").descriptor.message_types_by_name["A"].fields_by_name["d"]
    assert field.message_type.full_name == "confluent.type.Decimal"


def test_reference_overrides_known_file_with_the_same_name() -> None:
    own = 'syntax = "proto3"; package google.type; message Date { string own = 1; }'
    text = 'syntax = "proto3"; import "google/type/date.proto"; message A { google.type.Date d = 1; }'
    for reference in (own, in_base64(own)):
        file = compile_schema(text, {"google/type/date.proto": reference}, "it")
        message = file.descriptor.message_types_by_name["A"]
        assert [field.name for field in message.fields_by_name["d"].message_type.fields] == ["own"]


def test_texts_and_descriptors_import_each_other() -> None:
    texts = {
        "c.proto": 'syntax="proto3"; package c; import "google/type/date.proto"; message C { google.type.Date d = 1; }',
        "b.proto": 'syntax = "proto3"; package b; import "c.proto"; message B { c.C c = 1; }',
    }
    root = 'syntax = "proto3"; import "b.proto"; message A { b.B b = 1; }'
    binary = {
        "c.proto": in_base64(texts["c.proto"]),
        "b.proto": in_base64(texts["b.proto"], **{"c.proto": texts["c.proto"]}),
    }
    for i in range(8):
        chosen = {name: (texts if i >> place & 1 else binary)[name] for place, name in enumerate(texts)}
        schema = root if i & 4 else in_base64(root, **texts)
        found: Any = compile_schema(schema, chosen, "it").descriptor.message_types_by_name["A"]
        for name in ("b", "c", "d"):
            found = found.fields_by_name[name].message_type
        assert found.full_name == "google.type.Date"


def test_an_import_without_a_reference_may_be_unused() -> None:
    text = 'syntax = "proto3"; import "no/where.proto"; message A { int32 a = 1; }'
    binary = descriptor_pb2.FileDescriptorProto(name="x", dependency=["no/where.proto"], syntax="proto3")
    binary.message_type.add(name="A").field.add(name="a", number=1, type=5, label=1)
    for schema in (text, base64.b64encode(binary.SerializeToString()).decode()):
        assert names(compile_schema(schema, {}, "it"), (0,)) == ["A"]
    binary.message_type[0].field[0].type = 11
    binary.message_type[0].field[0].type_name = ".no.B"
    for schema in (text.replace("int32", "no.B"), base64.b64encode(binary.SerializeToString()).decode()):
        with pytest.raises(OptionError) as refused:
            compile_schema(schema, {}, "it")
        assert "the schema imports no/where.proto, but the registry lists no such reference" in str(refused.value)


def test_import_with_an_invalid_path_is_refused() -> None:
    for name in ("/etc/passwd", "../a.proto", "a=b.proto"):
        with pytest.raises(OptionError):
            compile_schema(f'syntax = "proto3"; import "{name}"; message A {{ int32 a = 1; }}', {}, "it")
