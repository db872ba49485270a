"""Hostile schemas in a registry: only their own values are malformed, and nothing in them is used as a file name."""

from __future__ import annotations

import base64
import json
import random
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from google.protobuf import descriptor_pb2

from kafkalog_spark.errors import OptionError, SchemaRegistryError
from kafkalog_spark.typed.avro.read_options import read_options_of
from kafkalog_spark.typed.avro.schema import parse_schema
from kafkalog_spark.typed.avro.types import columns_of
from kafkalog_spark.typed.decoder import Decoded
from kafkalog_spark.typed.formats import ResolvedFormat, SchemaSources
from kafkalog_spark.typed.protobuf.descriptors import pool_of
from kafkalog_spark.typed.registry import confluent_decoder
from kafkalog_spark.typed.registry.schema_records import SchemaRecords

Record = tuple[bytes | None, bytes | None]
GOOD, ODD = 1, 2
AVRO = {"type": "record", "name": "R", "fields": [{"name": "id", "type": "int"}]}
PROTO = 'syntax = "proto3"; message R { int32 id = 1; }'


def registered(id_: int, schema: str, kind: str, references: Sequence[tuple[str, int]] = ()) -> Record:
    """A record of `_schemas`: version 1 of the subject s<id>. references: (name, id of the schema)."""
    value = {
        "subject": f"s{id_}",
        "version": 1,
        "id": id_,
        "schema": schema,
        "schemaType": kind,
        "references": [{"name": name, "subject": f"s{other}", "version": 1} for name, other in references],
    }
    return json.dumps({"keytype": "SCHEMA", "subject": f"s{id_}", "version": 1}).encode(), json.dumps(value).encode()


def framed(id_: int, rest: bytes) -> bytes:
    return b"\0" + id_.to_bytes(4, "big") + rest


def read(name: str, values: list[bytes | None], records: Sequence[Record], **given: str) -> Decoded:
    sources = SchemaSources("value", ("t",), lambda topic: records)
    format = ResolvedFormat.of(name, {"subject": f"s{GOOD}", **given}, sources)
    decoder = format.decoder(format.schema())
    return decoder.decode(pa.array(values, pa.binary()))


def reason_for_odd_schema(name: str, records: Sequence[Record]) -> str:
    """Check that only values of schema ODD are malformed, not those of GOOD; return the reason."""
    good = AVRO if name == "confluent-avro" else PROTO
    kind = "AVRO" if name == "confluent-avro" else "PROTOBUF"
    first = registered(GOOD, good if isinstance(good, str) else json.dumps(good), kind)
    value = b"\x0e" if name == "confluent-avro" else b"\0\x08\x07"
    found = read(name, [framed(GOOD, value), framed(ODD, value), framed(GOOD, value)], [first, *records])
    assert found.bad is not None
    assert found.bad.tolist() == [False, True, False]
    assert found.columns.field("id").to_pylist()[::2] == [7, 7]
    why = found.why(1)
    assert "it names schema 2, which" in why
    return why


@pytest.fixture
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The directory for temporary files and, as nobody else's, the working directory."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    return tmp_path


def polyglot(marker: Path) -> str:
    """A .proto file that is a Python module too, which makes a file."""
    return f'syntax = "proto3" // open({str(marker)!r}, "w") or """\n; message Ref {{ string a = 1; }}\n// """\n'


@pytest.mark.parametrize("name", ["grpc_tools/__init__.py", "grpc_tools/protoc.py", "encodings.py", "b.proto"])
def test_schema_is_never_imported_as_a_python_module(name: str, temporary: Path) -> None:
    marker = temporary / "marker"
    text = f'syntax = "proto3"; import "{name}"; message R {{ int32 id = 1; Ref ref = 2; }}'
    records = [registered(3, polyglot(marker), "PROTOBUF"), registered(ODD, text, "PROTOBUF", [(name, 3)])]
    if name.endswith(".py"):
        assert "not a relative path of a .proto file" in reason_for_odd_schema("confluent-protobuf", records)
    else:  # a good name for a file of Protobuf, which it is
        value = framed(ODD, b"\0\x08\x07")
        assert read("confluent-protobuf", [value], records, subject=f"s{ODD}").bad is None
    assert list(temporary.iterdir()) == []


def test_protoc_imports_no_module_of_the_working_directory(temporary: Path) -> None:
    (temporary / "grpc_tools").mkdir()
    (temporary / "grpc_tools" / "__init__.py").write_text(f"open({str(temporary / 'marker')!r}, 'w')")
    (temporary / "kafkalog.proto").write_text("not this one")
    value = framed(GOOD, b"\0\x08\x07")
    assert read("confluent-protobuf", [value], [registered(GOOD, PROTO, "PROTOBUF")]).bad is None
    assert not (temporary / "marker").exists()


ODD_NAMES = [
    ("\0.proto",), ("a\nb.proto",), ("../a.proto",), ("a/../b.proto",), ("/a.proto",), ("a//b.proto",), ("./a.proto",),
    ("a" * 300 + ".proto",), ("a=b.proto",), ("a:b.proto",), ("\ud800.proto",), ("a", "a/b.proto"), ("-I",), ("",),
    (".proto",),
]  # fmt: skip


@pytest.mark.parametrize("names", ODD_NAMES, ids=lambda names: repr(names)[:20])
def test_odd_names_of_references_are_not_used_as_paths(names: tuple[str, ...], temporary: Path) -> None:
    below = [registered(10 + i, 'syntax = "proto3";', "PROTOBUF") for i in range(len(names))]
    odd = registered(ODD, PROTO, "PROTOBUF", [(name, 10 + i) for i, name in enumerate(names)])
    assert "not a relative path of a .proto file" in reason_for_odd_schema("confluent-protobuf", [*below, odd])
    assert list(temporary.iterdir()) == []


def test_imports_are_found_by_the_names_of_references() -> None:
    """Directories, files inside what is a file, names with signs, and what Google's library brings."""
    names = ["shop/b.proto", "shop/b.proto/c.proto", "v1.2/d-e+f_g.proto", "kafkalog-0.proto"]
    below = [registered(10 + i, f'syntax = "proto3"; message M{i} {{}}', "PROTOBUF") for i in range(len(names))]
    imports = "".join(f'import "{one}";' for one in [*names, "google/protobuf/timestamp.proto"])
    fields = "".join(f"M{i} m{i} = {i + 3};" for i in range(len(names)))
    text = f'syntax = "proto3"; {imports} message R {{ int32 id = 1; google.protobuf.Timestamp at = 2; {fields} }}'
    odd = registered(GOOD, text, "PROTOBUF", [(name, 10 + i) for i, name in enumerate(names)])
    found = read("confluent-protobuf", [framed(GOOD, b"\0\x08\x07\x12\x02\x08\x01")], [*below, odd])
    assert found.bad is None
    assert found.columns[0].as_py()["at"].timestamp() == 1


def doubling(levels: int) -> str:
    """A file whose messages have two of the next one each: 2^levels columns."""
    each = (f"message M{i} {{ M{i + 1} a = 1; M{i + 1} b = 2; }}" for i in range(levels))
    return (
        'syntax = "proto3"; '
        + PROTO.partition(";")[2].replace("}", "M0 m = 2; }")
        + "".join(each)
        + (f"message M{levels} {{ int32 x = 1; }}")
    )


PROTOS = {
    "no text of Protobuf": "{}",
    "nothing": "",
    "half a character": 'syntax = "proto3"; message R { string a = 1; } // \ud800',
    "a NUL": 'syntax = "proto3"; \0',
    "a file of this machine": 'syntax = "proto3"; import "/etc/passwd"; message R {}',
    "a file above": 'syntax = "proto3"; import "../../../etc/passwd"; message R {}',
    "itself": 'syntax = "proto3"; import "kafkalog.proto"; message R {}',
    "10,000 levels": 'syntax = "proto3"; ' + "message R {" * 10_000,
    "a chain of 500 messages": 'syntax = "proto3"; message R { M0 m = 1; }'
    + "".join(f"message M{i} {{ M{i + 1} m = 1; }}" for i in range(500))
    + "message M500 { int32 x = 1; }",
    "2^40 columns": doubling(40),
    "another type": 'syntax = "proto3"; message R { string id = 1; }',
    "a descriptor of an unknown type": base64.b64encode(
        descriptor_pb2.FileDescriptorProto(
            name="x",
            message_type=[
                descriptor_pb2.DescriptorProto(
                    name="R", field=[descriptor_pb2.FieldDescriptorProto(name="a", number=1, type=11, type_name=".X")]
                )
            ],
        ).SerializeToString()
    ).decode(),
    "a descriptor that imports": base64.b64encode(
        descriptor_pb2.FileDescriptorProto(name="x", dependency=["/etc/passwd"]).SerializeToString()
    ).decode(),
}


@pytest.mark.parametrize("what", PROTOS)
def test_odd_protobuf_schema_makes_only_its_own_values_malformed(what: str) -> None:
    reason_for_odd_schema("confluent-protobuf", [registered(ODD, PROTOS[what], "PROTOBUF")])


def record(*fields: Any, **others: Any) -> Any:
    return {"type": "record", "name": "R", "fields": list(fields)} | others


def field(**others: Any) -> Any:
    return {"name": "id", "type": "int", **others}


AVROS: dict[str, Any] = {
    "aliases that are a number": record(field(), aliases=5),
    "an alias that is a number": record(field(), aliases=[5]),
    "aliases of a field": record(field(aliases=7)),
    "an alias of a field": record(field(aliases=[{}])),
    "no list of aliases": record(field(aliases=None)),
    "a size beyond all": record(field(), field(name="f", type={"type": "fixed", "name": "F", "size": 2**64})),
    "a size beyond Java's": record(field(), field(name="f", type={"type": "fixed", "name": "F", "size": 2**31})),
    "half a character": record(field(), field(name="\ud800")),
    "a name with a blank": record(field(), field(name="a b")),
    "half a character in a symbol": record(field(type={"type": "enum", "name": "E", "symbols": ["\ud800"]})),
    "a default that is no symbol": record(field(type={"type": "enum", "name": "E", "symbols": [], "default": "A"})),
    "an odd name": record(field(), name="a b"),
    "no JSON": '{"type":',
    "100,000 levels": "[" * 100_000,
    "a number of 10,000 digits": '{"type": "fixed", "name": "F", "size": ' + "9" * 10_000 + "}",
    "JSON of another kind": "7",
}  # fmt: skip


@pytest.mark.parametrize("what", AVROS)
def test_odd_avro_schema_makes_only_its_own_values_malformed(what: str) -> None:
    schema = AVROS[what]
    text = schema if isinstance(schema, str) else json.dumps(schema)
    reason_for_odd_schema("confluent-avro", [registered(ODD, text, "AVRO")])


@pytest.mark.parametrize("kind", ["AVRO", "PROTOBUF"])
def test_invalid_references_make_only_their_own_values_malformed(kind: str) -> None:
    name = f"confluent-{kind.lower()}"
    text = '{"type": "record", "name": "R", "fields": []}' if kind == "AVRO" else PROTO
    chain = [registered(i, text, kind, [(f"n{i}.proto", i + 1)]) for i in range(ODD, ODD + 1500)]
    assert "refers to version 1 of s99999" in reason_for_odd_schema(
        name, [registered(ODD, text, kind, [("n.proto", 99_999)])]
    )
    assert "refers to more than 1,000 others" in reason_for_odd_schema(
        name, [*chain, registered(ODD + 1500, text, kind)]
    )
    if kind == "AVRO":
        assert "defines R twice" in reason_for_odd_schema(name, [registered(ODD, text, kind, [("R", ODD)])])


def test_invalid_reader_schema_is_one_error() -> None:
    types = [record(field(type=f"N{i - 1}" if i else "int"), name=f"N{i}") for i in range(5000)]
    chain = record(field(type=[*types, "null"]))  # each type has the one before it
    for schema in (AVROS["aliases that are a number"], chain):
        with pytest.raises(OptionError):
            read("confluent-avro", [], [registered(GOOD, json.dumps(schema), "AVRO")])
    for what in ("10,000 levels", "2^40 columns", "a chain of 500 messages"):
        with pytest.raises(OptionError):
            read("confluent-protobuf", [], [registered(GOOD, PROTOS[what], "PROTOBUF")])
    with pytest.raises(OptionError, match="does not have"):
        read("confluent-protobuf", [], [registered(GOOD, PROTO, "PROTOBUF", [("a.proto", 7)])])
    with pytest.raises(SchemaRegistryError, match="no subject"):
        read("confluent-protobuf", [], [])


def test_default_out_of_the_range_of_float_is_infinite_as_in_java() -> None:
    more = [field(name="f", type="float", default=1e300), field(name="d", type="double", default=-(10**400))]
    records = [registered(GOOD, json.dumps(record(field(), *more)), "AVRO"), registered(ODD, json.dumps(AVRO), "AVRO")]
    found = read("confluent-avro", [framed(ODD, b"\x0e")], records)
    assert found.columns.to_pylist() == [{"id": 7, "f": float("inf"), "d": float("-inf")}]


def test_mutually_recursive_types_are_matched_once_per_pair() -> None:
    """2^40 pairs of types, where each is a record of the reader's by its structure, and as many records of no bytes."""
    branch = [{"name": name, "type": ["null", "N"], "default": None} for name in ("a", "b")]
    wrote: Any = record(name="X")
    for i in range(40):
        wrote = record({"name": "a", "type": wrote}, {"name": "b", "type": f"X{i - 1}" if i else "X"}, name=f"X{i}")
    schemas = {GOOD: ["null", record(*branch, name="N")], ODD: wrote}
    texts = {id_: json.dumps(record(field(), {"name": "n", "type": one})) for id_, one in schemas.items()}
    records = [registered(id_, text, "AVRO") for id_, text in texts.items()]
    values: list[bytes | None] = [framed(ODD, b"\x0e"), framed(GOOD, b"\x0e\0")]
    found = read("confluent-avro", values, records, recursivefieldmaxdepth="2")
    assert found.bad is not None
    assert found.bad.tolist() == [True, False]
    assert "65,536 elements that take no bytes" in found.why(0)


def test_a_schema_of_100_000_fields_is_resolved() -> None:
    fields = [field(name=f"f{i}") for i in range(100_000)]
    odd = registered(ODD, json.dumps(record(field(), *fields)), "AVRO")
    found = read(
        "confluent-avro", [framed(ODD, b"\x0e" + bytes(100_000))], [registered(GOOD, json.dumps(AVRO), "AVRO"), odd]
    )
    assert found.columns.to_pylist() == [{"id": 7}]


def test_a_oneof_of_20_000_fields_is_planned() -> None:
    fields = "".join(f"int32 f{i} = {i + 2 if i < 18_000 else i + 3000};" for i in range(20_000))
    text = f'syntax = "proto3"; message R {{ int32 id = 1; oneof o {{ {fields} }} }}'
    records = [registered(GOOD, PROTO, "PROTOBUF"), registered(ODD, text, "PROTOBUF")]
    assert read("confluent-protobuf", [framed(ODD, b"\0\x08\x07")], records).columns.to_pylist() == [{"id": 7}]


class CountingStore(SchemaRecords):
    """A store that records its look-ups by ID."""

    def __init__(self, records: Sequence[Record]) -> None:
        super().__init__(records, "the registry")
        self.looked_up: list[int] = []

    def by_id(self, id_: int, subject: str = "") -> Any:
        self.looked_up.append(id_)
        return super().by_id(id_, subject)


def decoder_and_counting_store(
    name: str, records: Sequence[Record], monkeypatch: pytest.MonkeyPatch
) -> tuple[Any, CountingStore]:
    """Return a decoder with the reader schema GOOD, and its store."""
    store = CountingStore(records)
    monkeypatch.setattr("kafkalog_spark.typed.registry.confluent_decoder.store_of", lambda format: store)
    format = ResolvedFormat(name, {}, reader_id=GOOD)
    return format.decoder(pa.schema([("id", pa.int32())])), store


@pytest.mark.parametrize("kind", ["AVRO", "PROTOBUF"])
def test_invented_ids_and_indexes_do_not_affect_good_values(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    good, other = (
        (json.dumps(AVRO), json.dumps(record(field(), name="Other"))) if kind == "AVRO" else (PROTO, PROTO + " ")
    )
    decoder, store = decoder_and_counting_store(
        f"confluent-{kind.lower()}", [registered(GOOD, good, kind), registered(70_000, other, kind)], monkeypatch
    )
    value = b"\x0e" if kind == "AVRO" else b"\0\x08\x07"
    junk = [framed(id_, value) for id_ in range(10, 2010)]
    if kind == "PROTOBUF":
        junk += [framed(GOOD, b"\x02" + bytes([128 + i % 64, 2 + i // 64 * 2]) + b"\x08\x07") for i in range(2000)]
    for _ in range(2):
        store.looked_up.clear()
        found = decoder.decode(pa.array([*junk, framed(GOOD, value), framed(70_000, value)], pa.binary()))
        assert found.bad is not None
        assert found.bad.tolist() == [True] * len(junk) + [False, False]
        assert found.columns.field("id").to_pylist()[-2:] == [7, 7]
        junk, look_ups = junk[::-1], len(store.looked_up)
    assert look_ups == 0  # the second batch finds all results in the cache


@pytest.mark.parametrize("kind", ["AVRO", "PROTOBUF"])
def test_batch_with_more_schemas_than_the_maximum_is_read(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(confluent_decoder, "MAX_SCHEMAS", 3)
    texts = [json.dumps(AVRO | {"doc": str(i)}) if kind == "AVRO" else PROTO + " " * i for i in range(10)]
    records = [registered(GOOD + i, text, kind) for i, text in enumerate(texts)]
    decoder, _ = decoder_and_counting_store(f"confluent-{kind.lower()}", records, monkeypatch)
    numbers = [(i, i % 10) for i in range(40)]
    values: list[bytes | None] = [
        framed(GOOD + id_, bytes([2 * i]) if kind == "AVRO" else bytes([0, 8, i])) for i, id_ in numbers
    ]
    values[7:7] = [None, framed(99, b"\0"), b"?"]
    headers = pa.array(
        [[{"key": "other", "value": b"x"}] * (i % 3) for i in range(len(values))],
        pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())])),
    )
    for given in (None, headers):
        found = decoder.decode(pa.array(values, pa.binary()), given)
        expected = [i if kind == "AVRO" or i else None for i in range(40)]
        expected[7:7] = [None, None, None]
        assert found.columns.field("id").to_pylist() == expected
        assert found.bad is not None
        assert found.bad.nonzero()[0].tolist() == [8, 9]
        assert "names schema 99" in found.why(8)
        assert "does not begin with" in found.why(9)


def mutated(value: Any, random_: random.Random) -> Any:
    """JSON with one part replaced, left out or put into another."""
    odd: list[Any] = [
        None,
        5,
        -1,
        2**64,
        1e300,
        True,
        "",
        "R",
        "\ud800",
        "a.b",
        [],
        {},
        [[]],
        {"type": "R"},
        ["null", "null"],
    ]
    if random_.random() < 0.15 or not isinstance(value, dict | list) or not value:
        return random_.choice([*odd, [value], {"type": value}])
    if isinstance(value, list):
        at = random_.randrange(len(value))
        return [*value[:at], *[mutated(value[at], random_)] * random_.randrange(3), *value[at + 1 :]]
    at = random_.choice([*value])
    kept = {key: one for key, one in value.items() if key != at}
    return kept if random_.random() < 0.2 else {**kept, at: mutated(value[at], random_)}


def test_mutated_schemas_of_avro_are_read_or_refused() -> None:
    whole = record(
        field(aliases=["i"], default=3),
        field(name="e", type={"type": "enum", "name": "E", "symbols": ["A", "B"], "default": "A"}, default="A"),
        field(name="d", type={"type": "fixed", "name": "F", "size": 8, "logicalType": "decimal", "precision": 9}),
        field(name="u", type=["null", "int", {"type": "array", "items": {"type": "map", "values": "int"}}]),
        field(name="r", type=["null", "R"], default=None),
        field(name="t", type={"type": "long", "logicalType": "timestamp-millis"}, default=1),
        namespace="n",
        aliases=["Q"],
    )  # fmt: skip
    meaning, random_ = read_options_of({"recursivefieldmaxdepth": "2"}), random.Random(1)
    from kafkalog_spark.typed.avro.resolving_decoder import AvroResolvingDecoder

    known = parse_schema(json.dumps(whole))
    columns = columns_of(known, meaning)
    read_ = 0
    for _ in range(3000):
        text = json.dumps(mutated(mutated(whole, random_), random_))
        try:
            odd = parse_schema(text)
            for writer, reader, wanted in ((odd, known, columns), (known, odd, columns_of(odd, meaning))):
                decoder = AvroResolvingDecoder(reader, wanted, meaning)
                entry = decoder.add_schema(writer)
                decoder.decode(named_values(b"\0" * 20), pa.array([entry]).to_numpy())
            read_ += 1
        except OptionError:
            pass
    assert 200 < read_ < 2800


def named_values(value: bytes) -> Any:
    from kafkalog_spark.typed.columns.binary_values import Values

    return Values.of(pa.array([value], pa.binary()))


def test_mutated_descriptors_are_read_or_refused() -> None:
    from kafkalog_spark.typed.protobuf.arrow_types import columns_of as protobuf_columns_of
    from kafkalog_spark.typed.protobuf.read_options import read_options_of as protobuf_read_options_of
    from kafkalog_spark.typed.protobuf.resolving_decoder import ProtobufResolvingDecoder

    file = descriptor_pb2.FileDescriptorProto()
    descriptor_pb2.DESCRIPTOR.CopyToProto(file)
    whole, random_, read_ = descriptor_pb2.FileDescriptorSet(file=[file]).SerializeToString(), random.Random(2), 0
    for _ in range(400):
        data = bytearray(whole)
        for _ in range(random_.randrange(1, 4)):
            data[random_.randrange(len(data))] = random_.randrange(256)
        try:
            pool, names = pool_of(bytes(data), "it")
            for descriptor in pool.FindFileByName(names[0]).message_types_by_name.values():
                meaning = protobuf_read_options_of({"recursive.fields.max.depth": "1"})
                wanted = protobuf_columns_of(descriptor, meaning)
                ProtobufResolvingDecoder(descriptor, wanted, meaning).add_schema(descriptor)
            read_ += 1
        except OptionError:
            pass
    assert 10 < read_ < 390
