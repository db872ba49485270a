"""Division of a schema into Kafka's columns and decoded fields of values and keys."""

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
"""Position of the struct of all decoded fields of a side."""


class ColumnOrigin(NamedTuple):
    """Origin of a column of the result: a column of the scan, or decoded fields of a side.

    Attributes:
        side: "value" or "key"; None for a column of the scan.
        position: Index of the column or field, or WHOLE_STRUCT.
    """

    side: str | None
    position: int


class DividedSchema(NamedTuple):
    """A schema divided by the origin of its columns.

    Attributes:
        plain: Kafka's columns.
        decoded: Decoded fields by side.
        origins: Origin of each column of the schema.
    """

    plain: list[StructField]
    decoded: dict[str, list[pa.Field]]
    origins: list[ColumnOrigin]


def divide_schema(options: ReadOptions, schema: StructType, target: pa.Schema) -> DividedSchema:
    """Divide the schema of a read with formats.

    Args:
        options: Options of the read.
        schema: The schema.
        target: The same schema in Arrow's types.

    Raises:
        OptionError: For a column that cannot be decoded, or whose name is ambiguous.
    """
    default_side = next(iter(options.formats))  # side of the fields that are not in a struct
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
                    f"the schema's column '{field.name}' is {kind}, but Kafka's own column of that name is {ours}",
                    hint=f"a field '{field.name}' of the {default_side}s is read inside a struct: "
                    f"{default_side} struct<{field.name}: {kind}>",
                )
            origins.append(ColumnOrigin(None, len(plain)))
            plain.append(field)
        else:
            _check_decoded(field)
            fields = decoded.setdefault(default_side, [])
            origins.append(ColumnOrigin(default_side, len(fields)))
            fields.append(arrow)
    for side, position in origins:
        if position == WHOLE_STRUCT and any(other == side and field >= 0 for other, field in origins):
            raise OptionError(
                f"the schema has a struct '{side}', and also fields of the {side}s outside of it",
                hint="move these fields into the struct",
            )
    return DividedSchema(plain, decoded, origins)


def _check_decoded(field: StructField, within: str = "") -> None:
    """Raise OptionError for a field that cannot be decoded; `within` is the path of its struct, with a dot."""
    if not field.nullable:
        raise OptionError(f"the schema's column '{within}{field.name}' is NOT NULL, but values without one exist")
    _check_type(field.dataType, within + field.name)


def _check_type(kind: DataType, path: str) -> None:
    if type(kind).__name__ in _NOT_DECODED or type(kind).__name__.endswith("UDT"):
        raise OptionError(
            f"the schema's column '{path}' is {kind.simpleString()}, a type that kafkalog does not decode"
        )
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
