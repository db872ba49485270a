"""Converts Avro types to Arrow types, with the result of Spark's `SchemaConverters.toSqlType`.

All fields are nullable, like those of `from_avro` with mode PERMISSIVE.
"""

from __future__ import annotations

import pyarrow as pa

from kafkalog_spark.errors import OptionError
from kafkalog_spark.typed.avro.read_options import MAX_RECURSION, AvroReadOptions
from kafkalog_spark.typed.avro.schema import AvroType
from kafkalog_spark.typed.schema_limits import MAX_COLUMNS, recursion_bounded

MAX_PRECISION = 38
VALUE = "value"  # name of the column if the reader schema is not a record
MILLIS = ("timestamp-millis", "local-timestamp-millis")
"""Logical types whose values are multiplied by 1000 to be timestamps in microseconds."""
_ARROW_TYPES = {
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
_LOGICAL_ARROW_TYPES = {
    "date": pa.date32(),
    "timestamp-millis": pa.timestamp("us", tz="UTC"),
    "timestamp-micros": pa.timestamp("us", tz="UTC"),
    "local-timestamp-millis": pa.timestamp("us"),
    "local-timestamp-micros": pa.timestamp("us"),
}
"""Values of any other logical type are read as the type that they are stored as."""


def columns_of(reader: AvroType, read_options: AvroReadOptions) -> pa.Schema:
    """Return the columns of a reader schema: the fields of its record, or one column `value`.

    Args:
        reader: The reader schema.
        read_options: Options that choose the types.

    Raises:
        OptionError: If Spark, or this reader, does not support the schema.
    """
    if reader.kind == "union" and len(reader.without_null()) > 1:
        raise OptionError(
            "the Avro schema is a union of several types, which from_avro does not read",
            hint="name one of them as the reader schema: value.avroSchema",
        )
    with recursion_bounded("an Avro schema"):
        type_ = _Converter(read_options).convert(reader, {}, VALUE)
    if type_ is None:  # records beyond the maximum depth are left out
        raise OptionError(f"the Avro schema {reader.type_name} has no fields within recursiveFieldMaxDepth")
    if root_record(reader) is None:
        return pa.schema([pa.field(VALUE, type_)])
    return pa.schema(list(type_))


def root_record(reader: AvroType) -> AvroType | None:
    """Return the record whose fields are the columns: the schema itself, or the record in a union with null."""
    if reader.kind == "union" and len(reader.without_null()) == 1:
        reader = reader.without_null()[0]
    return reader if reader.kind == "record" else None


def merged_number_type(branches: tuple[AvroType, ...]) -> str | None:
    """Return the number type that a union of two number types is read as; None for any other union.

    int and long are read as long, float and double as double.
    """
    kinds = [branch.kind for branch in branches]
    if sorted(kinds) == ["int", "long"]:
        return "long"
    return "double" if sorted(kinds) == ["double", "float"] else None


class _Converter:
    """Converts one schema. The result is None for a record beyond the maximum depth of recursion."""

    def __init__(self, read_options: AvroReadOptions) -> None:
        self._read_options = read_options
        self._columns_left = MAX_COLUMNS

    def convert(self, avro: AvroType, depths: dict[str, int], path: str) -> pa.DataType | None:
        """Convert a type.

        Args:
            avro: The type.
            depths: Number of enclosing records of each name.
            path: Path of the field, for errors.
        """
        self._columns_left -= 1
        if self._columns_left < 0:
            raise OptionError(f"an Avro schema has more than {MAX_COLUMNS:,} columns")
        if avro.kind == "record":
            return self._record(avro, depths, path)
        if avro.kind == "union":
            return self._union(avro, depths, path)
        if avro.kind == "array":
            items = self.convert(avro.element, depths, path)
            return None if items is None else pa.list_(pa.field("element", items))
        if avro.kind == "map":
            values = self.convert(avro.element, depths, path)
            return None if values is None else pa.map_(pa.string(), pa.field("value", values))
        if "spark.sql.catalyst.type" in avro.properties:
            raise OptionError(
                f"the Avro type {avro.properties!r} is an interval of Spark, which kafkalog does not read; remove the "
                "property spark.sql.catalyst.type from the schema to read its number"
            )
        if avro.logical == "custom-decimal":
            raise OptionError("the logical type custom-decimal on a long is not read by kafkalog")
        if avro.logical == "decimal":
            if avro.precision > MAX_PRECISION:
                raise OptionError(
                    f"{path} is an Avro decimal with precision {avro.precision}; Spark's largest is {MAX_PRECISION}",
                    hint=f"a reader schema, value.avroSchema, can give it precision {MAX_PRECISION} or the type bytes",
                )
            return pa.decimal128(avro.precision, avro.scale)
        return _LOGICAL_ARROW_TYPES.get(avro.logical or "", _ARROW_TYPES[avro.kind])

    def _record(self, avro: AvroType, depths: dict[str, int], path: str) -> pa.DataType | None:
        depth, maximum = depths.get(avro.name, 0), self._read_options.max_depth
        if depth and maximum < 1:
            raise OptionError(
                f"the Avro schema is recursive: {avro.name} contains itself, and Spark has no type for that; "
                f"recursiveFieldMaxDepth=1 to {MAX_RECURSION} limits how deep it is read"
            )
        if depth and depth >= maximum:
            return None
        lower = [field.name.lower() for field in avro.fields]
        if len(set(lower)) != len(lower):
            raise OptionError(
                f"the Avro record {avro.name} has fields that differ in case only, which Spark does not read"
            )
        inside = {**depths, avro.name: depth + 1}
        types = [(field.name, self.convert(field.type, inside, f"{path}.{field.name}")) for field in avro.fields]
        return pa.struct([pa.field(name, type_) for name, type_ in types if type_ is not None])

    def _union(self, avro: AvroType, depths: dict[str, int], path: str) -> pa.DataType | None:
        branches = avro.without_null()  # a union of null alone is a struct without fields
        if len(branches) == 1:
            return self.convert(branches[0], depths, path)
        number = merged_number_type(branches)
        if number is not None:
            return _ARROW_TYPES[number]
        fields = []
        for i, branch in enumerate(branches):
            type_ = self.convert(branch, depths, path)
            if type_ is None:
                raise OptionError(
                    f"the Avro union of {', '.join(other.type_name for other in branches)} cannot be read, because "
                    f"recursiveFieldMaxDepth leaves out its branch {branch.type_name}"
                )
            fields.append(pa.field(self._read_options.member_name(i, branch), type_))
        if len({field.name.lower() for field in fields}) != len(fields):
            raise OptionError("enableStableIdentifiersForUnionType gives two branches of an Avro union the same name")
        return pa.struct(fields)
