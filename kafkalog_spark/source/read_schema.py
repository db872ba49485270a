"""The schema of a read in Spark's types: the one that a load has by default, and checks of one that the user gives.

In a schema of the user's own, a name that is one of Kafka's columns, in any case, is that column. A struct column
`value` or `key` holds decoded fields, so that their names cannot conflict. Every other name is a field of the values,
or of the keys if only those have a format.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

import pyarrow as pa
from pyspark.sql.pandas.types import from_arrow_schema, from_arrow_type
from pyspark.sql.types import ArrayType, DataType, MapType, StringType, StructField, StructType

from kafkalog_spark.errors import OptionError
from kafkalog_spark.log.decode.record_schema import COLUMN_TYPES, DAMAGE_COLUMN_TYPES
from kafkalog_spark.source.options import ReadOptions
from kafkalog_spark.typed.formats import ResolvedFormat

# from Arrow types, because StructType.fromDDL needs a Spark session, which workers do not have
_TYPES: dict[str, DataType] = {name: from_arrow_type(kind) for name, kind in COLUMN_TYPES.items()}
_ALL_TYPES = _TYPES | {name: from_arrow_type(kind) for name, kind in DAMAGE_COLUMN_TYPES.items()}
_BY_NAME = {name.lower(): name for name in _ALL_TYPES}
_NEVER_NULL = frozenset({"topic", "partition", "offset", "timestamp", "timestampType"})
_NOT_DECODED = (
    "CharType", "VarcharType", "VariantType", "CalendarIntervalType", "YearMonthIntervalType", "DayTimeIntervalType",
    "TimeType", "GeometryType", "GeographyType", "NullType",
)  # fmt: skip


def load_schema(options: ReadOptions, formats: Mapping[str, ResolvedFormat]) -> StructType:
    """Return the default schema of a load: Kafka's columns, with values and keys that have a format as structs.

    Raises:
        OptionError: If the options do not say which fields a format decodes.
    """
    fields = []
    for name in options.columns:
        kind, format = _ALL_TYPES[name], formats.get(name)
        if format is not None:
            # The format `string` is the same as Spark's own cast from bytes.
            kind = StringType() if format.name == "string" else from_arrow_schema(format.schema())
        fields.append(StructField(name, kind, True))  # nullable, like all columns of Spark's Kafka connector
    return StructType(fields)


def kafkas_name(name: str) -> str:
    """Return Kafka's spelling of a column name given in any case; any other name unchanged."""
    return _BY_NAME.get(name.lower(), name)


def checked_columns(fields: list[StructField], with_damage: bool) -> tuple[str, ...]:
    """Check the Kafka columns of a schema, and return their names in Kafka's spelling.

    Args:
        fields: Fields of the schema.
        with_damage: True for mode=PERMISSIVE, which has columns about damage, and nulls in the others.

    Raises:
        OptionError: For an unknown column, another type, or NOT NULL for a column that may be null.
    """
    types, never_null = (_ALL_TYPES, {"topic", "partition"}) if with_damage else (_TYPES, _NEVER_NULL)
    names = _distinct_names(fields)
    for name, field in zip(names, fields, strict=True):
        if name in DAMAGE_COLUMN_TYPES and not with_damage:
            raise OptionError(f"the schema has a column '{field.name}', which requires mode=PERMISSIVE")
        if name not in types:
            raise OptionError(
                f"the schema has a column '{field.name}', which a Kafka log does not have",
                hint=f"its columns are {', '.join(types)}",
            )
        ours, may_be_text = types[name].simpleString(), name in ("key", "value")
        if field.dataType.simpleString() != ours and not (may_be_text and isinstance(field.dataType, StringType)):
            raise OptionError(
                f"the schema's column '{field.name}' is {field.dataType.simpleString()}, expected {ours}"
                f"{' or string' if may_be_text else ''}"
            )
        if not field.nullable and name not in never_null:
            raise OptionError(f"the schema's column '{field.name}' is NOT NULL, but records without one exist")
    if with_damage and not DAMAGE_COLUMN_TYPES.keys() & set(names):
        raise OptionError(
            "with mode=PERMISSIVE the schema needs a column that distinguishes rows about damage from records",
            hint=f"add one of {', '.join(DAMAGE_COLUMN_TYPES)}, or take mode=DROPMALFORMED",
        )
    return names


def _distinct_names(fields: Iterable[StructField]) -> tuple[str, ...]:
    """Return the names of fields in Kafka's spelling. Raises OptionError if a name occurs twice."""
    names = tuple(kafkas_name(field.name) for field in fields)
    if len(set(names)) < len(names):
        raise OptionError(f"the schema names a column twice: {', '.join(names)}")
    return names


class ColumnOrigin(NamedTuple):
    """Where a column of the result comes from: a column of the scan, or a decoded field of a side.

    side: "value" or "key", None for a column of the scan. position: that of the column or field; WHOLE_STRUCT for a
    struct of all fields of the side.
    """

    side: str | None
    position: int


WHOLE_STRUCT = -1


class DividedSchema(NamedTuple):
    """A schema divided into Kafka's columns and decoded fields by side, and the origin of each of its columns."""

    plain: list[StructField]
    decoded: dict[str, list[pa.Field]]
    origins: list[ColumnOrigin]


def divide_schema(options: ReadOptions, schema: StructType, target: pa.Schema) -> DividedSchema:
    """Divide a schema of a read with formats. target: the schema in Arrow's types.

    Raises:
        OptionError: For a column that cannot be decoded, or whose name is ambiguous.
    """
    flat = next(iter(options.formats))
    plain: list[StructField] = []
    decoded: dict[str, list[pa.Field]] = {}
    origins: list[ColumnOrigin] = []
    for name, field, arrow in zip(_distinct_names(schema.fields), schema.fields, target, strict=True):
        if name in options.formats and isinstance(field.dataType, StructType):
            _check_decoded(field)
            decoded.setdefault(name, []).extend(list(arrow.type))
            origins.append(ColumnOrigin(name, WHOLE_STRUCT))
        elif name in _ALL_TYPES:
            kind, ours = field.dataType.simpleString(), _ALL_TYPES[name].simpleString()
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
    """Raise OptionError for a field that cannot be decoded. within: path of the struct that has it."""
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
