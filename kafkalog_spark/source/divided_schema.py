"""A schema with decoded fields, divided into Kafka's columns and the fields of values and keys."""

from __future__ import annotations

from typing import NamedTuple

import pyarrow as pa
from pyspark.sql.types import ArrayType, DataType, MapType, StringType, StructField, StructType

from kafkalog_spark.errors import OptionError
from kafkalog_spark.log.decode.record_schema import DAMAGE_COLUMN_TYPES
from kafkalog_spark.source.options import ReadOptions
from kafkalog_spark.source.read_schema import ALL_TYPES, distinct_names

_NOT_DECODED = (
    "CharType", "VarcharType", "VariantType", "CalendarIntervalType", "YearMonthIntervalType", "DayTimeIntervalType",
    "TimeType", "GeometryType", "GeographyType", "NullType",
)  # fmt: skip

WHOLE_STRUCT = -1
"""Position of a struct of all decoded fields of a side."""


class ColumnOrigin(NamedTuple):
    """Where a column of the result comes from: a column of the scan, or a decoded field of a side.

    Attributes:
        side: "value" or "key"; None for a column of the scan.
        position: Position of the column or field, or WHOLE_STRUCT.
    """

    side: str | None
    position: int


class DividedSchema(NamedTuple):
    """A schema divided into Kafka's columns and decoded fields by side, and the origin of each of its columns."""

    plain: list[StructField]
    decoded: dict[str, list[pa.Field]]
    origins: list[ColumnOrigin]


def divide_schema(options: ReadOptions, schema: StructType, target: pa.Schema) -> DividedSchema:
    """Divide a schema of a read with formats.

    Args:
        options: Options of the read.
        schema: The schema.
        target: The schema in Arrow's types.

    Raises:
        OptionError: For a column that cannot be decoded, or whose name is ambiguous.
    """
    flat = next(iter(options.formats))
    plain: list[StructField] = []
    decoded: dict[str, list[pa.Field]] = {}
    origins: list[ColumnOrigin] = []
    for name, field, arrow in zip(distinct_names(schema.fields), schema.fields, target, strict=True):
        if name in options.formats and isinstance(field.dataType, StructType):
            _check_decoded(field)
            decoded.setdefault(name, []).extend(list(arrow.type))
            origins.append(ColumnOrigin(name, WHOLE_STRUCT))
        elif name in ALL_TYPES:
            kind, ours = field.dataType.simpleString(), ALL_TYPES[name].simpleString()
            may_be_text = name in ("key", "value") and isinstance(field.dataType, StringType)
            # A column with a Kafka name and another type is most likely meant to be a field of the values.
            if kind != ours and not may_be_text and name not in DAMAGE_COLUMN_TYPES:
                raise OptionError(
                    f"the schema's column '{field.name}' is {kind}, and Kafka's own column of that name {ours}",
                    hint=f"a field '{field.name}' of the {flat}s is read inside a struct: "
                    f"{flat} struct<{field.name}: {kind}>",
                )
            origins.append(ColumnOrigin(None, len(plain)))
            plain.append(field)
        else:
            _check_decoded(field)
            fields = decoded.setdefault(flat, [])
            origins.append(ColumnOrigin(flat, len(fields)))
            fields.append(arrow)
    for side, position in origins:
        if position == WHOLE_STRUCT and any(other == side and field >= 0 for other, field in origins):
            raise OptionError(
                f"the schema has a struct '{side}', and columns of the {side}s beside it",
                hint="put them into the struct",
            )
    return DividedSchema(plain, decoded, origins)


def _check_decoded(field: StructField, within: str = "") -> None:
    """Raise OptionError for a field that cannot be decoded; `within` is the path of its struct, with a dot."""
    if not field.nullable:
        raise OptionError(f"the schema's column '{within}{field.name}' is NOT NULL, but values without one exist")
    _check_type(field.dataType, within + field.name)


def _check_type(kind: DataType, path: str) -> None:
    if type(kind).__name__ in _NOT_DECODED or type(kind).__name__.endswith("UDT"):
        raise OptionError(f"the schema's column '{path}' is {kind.simpleString()}, which is not decoded here")
    if isinstance(kind, StructType):
        for field in kind.fields:
            _check_decoded(field, f"{path}.")
    elif isinstance(kind, ArrayType):
        if not kind.containsNull:
            raise OptionError(f"the elements of the schema's column '{path}' are NOT NULL, but there may be nulls")
        _check_type(kind.elementType, f"{path}.element")
    elif isinstance(kind, MapType):
        if not kind.valueContainsNull:
            raise OptionError(f"the values of the schema's column '{path}' are NOT NULL, but there may be nulls")
        _check_type(kind.keyType, f"{path}.key")
        _check_type(kind.valueType, f"{path}.value")
