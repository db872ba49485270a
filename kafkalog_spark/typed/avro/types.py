"""Avro types in Spark, and so in Arrow: the types of Spark's `SchemaConverters.toSqlType`. Every field is nullable, as
`from_avro` makes them with mode PERMISSIVE."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import pyarrow as pa

from kafkalog_spark.errors import OptionError
from kafkalog_spark.options import OptionSpec, boolean, option, parsed_fields, plain_text, specs_of
from kafkalog_spark.typed.avro.schema import AvroType
from kafkalog_spark.typed.schema_limits import MAX_COLUMNS, depth_parser, recursion_bounded

MAX_RECURSION = 15  # the largest `recursiveFieldMaxDepth` that Spark allows
MAX_PRECISION = 38
VALUE = "value"  # the column of a reader schema that is not a record
_PLAIN = {
    "boolean": pa.bool_(),
    "int": pa.int32(),
    "long": pa.int64(),
    "float": pa.float32(),
    "double": pa.float64(),
    "bytes": pa.binary(),
    "fixed": pa.binary(),
    "string": pa.string(),
    "enum": pa.string(),
    "null": pa.null(),
}
_LOGICAL = {
    "date": pa.date32(),
    "timestamp-millis": pa.timestamp("us", tz="UTC"),
    "timestamp-micros": pa.timestamp("us", tz="UTC"),
    "local-timestamp-millis": pa.timestamp("us"),
    "local-timestamp-micros": pa.timestamp("us"),
}
"""Logical types of other names are read as what they are stored as."""
MILLIS = ("timestamp-millis", "local-timestamp-millis")
"""Those of which the microseconds of a timestamp are made."""


def _corrected(name: str, text: str) -> str:
    if text.upper() != "CORRECTED":
        raise OptionError(f"option '{name}' is '{text}': dates and timestamps are read as they are stored, CORRECTED")
    return text


@dataclass(frozen=True, kw_only=True)
class AvroMeaning:
    """Options of `from_avro` that choose the Spark types. recursion: below 1, recursive schemas are refused."""

    stable_ids: bool = option("enableStableIdentifiersForUnionType", boolean, "false")
    prefix: str = option("stableIdentifierPrefixForUnionType", plain_text, "member_")
    recursion: int = option("recursiveFieldMaxDepth", depth_parser(MAX_RECURSION, strict=True), "-1")
    rebase: str = option("datetimeRebaseMode", _corrected, "CORRECTED")

    def member(self, i: int, branch: AvroType) -> str:
        """Name of the field for branch i, nulls not counted, of a union of several types."""
        return f"{self.prefix}{branch.short_name}" if self.stable_ids else f"member{i}"


OPTIONS = (OptionSpec("avroSchema", plain_text), OptionSpec("avroSchemaUrl", plain_text), *specs_of(AvroMeaning))


def meaning_of(options: Mapping[str, str]) -> AvroMeaning:
    return AvroMeaning(**parsed_fields(AvroMeaning, options))


def _arrow(
    avro: AvroType, meaning: AvroMeaning, depths: dict[str, int], left: list[int], where: str
) -> pa.DataType | None:
    """None: deeper than `meaning.recursion` allows. depths: how often each record is around this. left: columns.
    where: path of the field, for messages."""
    left[0] -= 1
    if left[0] < 0:
        raise OptionError(f"an Avro schema makes more than {MAX_COLUMNS:,} columns")
    if avro.kind == "record":
        return _record(avro, meaning, depths, left, where)
    if avro.kind == "union":
        return _union(avro, meaning, depths, left, where)
    if avro.kind == "array":
        items = _arrow(avro.element, meaning, depths, left, where)
        return None if items is None else pa.list_(pa.field("element", items))
    if avro.kind == "map":
        values = _arrow(avro.element, meaning, depths, left, where)
        return None if values is None else pa.map_(pa.string(), pa.field("value", values))
    if "spark.sql.catalyst.type" in avro.properties:
        raise OptionError(
            f"the Avro type {avro.properties!r} is an interval of Spark, which is not read here; take the property "
            "spark.sql.catalyst.type out of the schema to read its number"
        )
    if avro.logical == "custom-decimal":
        raise OptionError("the logical type custom-decimal on a long is not read by kafkalog")
    if avro.logical == "decimal":
        if avro.precision > MAX_PRECISION:
            raise OptionError(
                f"{where} is an Avro decimal with precision {avro.precision}; Spark's largest is {MAX_PRECISION}",
                hint=f"a reader schema, value.avroSchema, can give it precision {MAX_PRECISION} or the type bytes",
            )
        return pa.decimal128(avro.precision, avro.scale)
    return _LOGICAL.get(avro.logical or "", _PLAIN[avro.kind])


def _record(
    avro: AvroType, meaning: AvroMeaning, depths: dict[str, int], left: list[int], where: str
) -> pa.DataType | None:
    depth = depths.get(avro.name, 0)
    if depth and meaning.recursion < 1:
        raise OptionError(
            f"the Avro schema is recursive: {avro.name} has itself in it, which Spark has no type for; "
            f"recursiveFieldMaxDepth=1 to {MAX_RECURSION} says how deep it is read"
        )
    if depth and depth >= meaning.recursion:
        return None
    lower = [field.name.lower() for field in avro.fields]
    if len(set(lower)) != len(lower):
        raise OptionError(f"the Avro record {avro.name} has fields that differ in case only, which Spark does not read")
    inside = {**depths, avro.name: depth + 1}
    typed = [(field.name, _arrow(field.type, meaning, inside, left, f"{where}.{field.name}")) for field in avro.fields]
    return pa.struct([pa.field(name, type_) for name, type_ in typed if type_ is not None])


def _union(
    avro: AvroType, meaning: AvroMeaning, depths: dict[str, int], left: list[int], where: str
) -> pa.DataType | None:
    branches = avro.without_null()  # none: a struct without fields, which is null
    if len(branches) == 1:
        return _arrow(branches[0], meaning, depths, left, where)
    number = number_of_union(branches)
    if number is not None:
        return _PLAIN[number]
    fields = []
    for i, branch in enumerate(branches):
        type_ = _arrow(branch, meaning, depths, left, where)
        if type_ is None:
            raise OptionError(
                f"the Avro union of {', '.join(other.called for other in branches)} loses {branch.called} to "
                "recursiveFieldMaxDepth, and Spark cannot read it then"
            )
        fields.append(pa.field(meaning.member(i, branch), type_))
    if len({field.name.lower() for field in fields}) != len(fields):
        raise OptionError("enableStableIdentifiersForUnionType gives two branches of an Avro union the same name")
    return pa.struct(fields)


def number_of_union(branches: tuple[AvroType, ...]) -> str | None:
    """The one number that a union of two becomes: int and long are read as long, float and double as double."""
    kinds = [branch.kind for branch in branches]
    if sorted(kinds) == ["int", "long"]:
        return "long"
    return "double" if sorted(kinds) == ["double", "float"] else None


def root_record(reader: AvroType) -> AvroType | None:
    """The record whose fields are the columns: the schema itself, or the one in a union of it and null."""
    if reader.kind == "union" and len(reader.without_null()) == 1:
        reader = reader.without_null()[0]
    return reader if reader.kind == "record" else None


def columns_of(reader: AvroType, meaning: AvroMeaning) -> pa.Schema:
    """The fields of a reader schema's record, or `value`. Raises OptionError where Spark or this reader has no type."""
    if reader.kind == "union" and len(reader.without_null()) > 1:
        raise OptionError(
            "the Avro schema is a union of several types, which from_avro does not read",
            hint="name one of them as the reader schema: value.avroSchema",
        )
    with recursion_bounded("an Avro schema"):
        type_ = _arrow(reader, meaning, {}, [MAX_COLUMNS], VALUE)
    if type_ is None:  # a record is given up only inside itself
        raise OptionError(f"the Avro schema {reader.called} has nothing left within recursiveFieldMaxDepth")
    if root_record(reader) is None:
        return pa.schema([pa.field(VALUE, type_)])
    return pa.schema(list(type_))
