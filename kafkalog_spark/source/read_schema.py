"""The schema of a read in Spark's types, and the columns that a schema of the user's own asks for.

A name that is one of Kafka's columns, in any case, is that column. A struct column `value` or `key` holds the decoded
fields, which keeps names apart; every other name is a field of the values, or of the keys if only those have a format.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import pyarrow as pa
from pyspark.sql.pandas.types import from_arrow_schema, from_arrow_type
from pyspark.sql.types import ArrayType, DataType, MapType, StringType, StructField, StructType

from kafkalog_spark.errors import OptionError
from kafkalog_spark.log.decode.record_schema import COLUMN_TYPES, DAMAGE_COLUMN_TYPES
from kafkalog_spark.source.options import ReadOptions
from kafkalog_spark.typed.decoder import ResolvedFormat

# StructType.fromDDL needs a Spark session, which workers do not have.
_TYPES: dict[str, DataType] = {name: from_arrow_type(kind) for name, kind in COLUMN_TYPES.items()}
_ALL_TYPES = _TYPES | {name: from_arrow_type(kind) for name, kind in DAMAGE_COLUMN_TYPES.items()}
_BY_NAME = {name.lower(): name for name in _ALL_TYPES}
_NEVER_NULL = frozenset({"topic", "partition", "offset", "timestamp", "timestampType"})
_NOT_DECODED = (
    "CharType", "VarcharType", "VariantType", "CalendarIntervalType", "YearMonthIntervalType", "DayTimeIntervalType",
    "TimeType", "GeometryType", "GeographyType", "NullType",
)  # fmt: skip


def load_schema(options: ReadOptions, formats: Mapping[str, ResolvedFormat]) -> StructType:
    """Schema of a load without one of the user's own: Kafka's columns, with values and keys that have a format as
    structs. Raises OptionError where the options do not say what these hold."""
    fields = []
    for name in options.columns:
        kind, format = _ALL_TYPES[name], formats.get(name)
        if format is not None:
            # Spark's own cast from bytes gives what the format `string` does
            kind = StringType() if format.name == "string" else from_arrow_schema(format.schema())
        fields.append(StructField(name, kind, True))  # nullable, as all are in Spark's Kafka connector
    return StructType(fields)


def kafkas_name(name: str) -> str:
    """Spelled as Kafka's column of that name, in any case; any other as it is."""
    return _BY_NAME.get(name.lower(), name)


def _checked_columns(fields: list[StructField], with_damage: bool) -> tuple[str, ...]:
    """The columns that a schema asks for, spelled as Kafka's. with_damage: of mode=PERMISSIVE, which has columns about
    damage, and nulls in the others. Raises OptionError."""
    types, never_null = (_ALL_TYPES, {"topic", "partition"}) if with_damage else (_TYPES, _NEVER_NULL)
    names = _distinct_names(fields)
    for name, field in zip(names, fields, strict=True):
        if name in DAMAGE_COLUMN_TYPES and not with_damage:
            raise OptionError(f"the schema has a column '{field.name}', which is of mode=PERMISSIVE alone")
        if name not in types:
            raise OptionError(
                f"the schema has a column '{field.name}', a Kafka log has none", hint=f"there are {', '.join(types)}"
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
            "mode=PERMISSIVE with a schema in which no column tells rows about damage from records",
            hint=f"add one of {', '.join(DAMAGE_COLUMN_TYPES)}, or take mode=DROPMALFORMED",
        )
    return names


def _distinct_names(fields: Iterable[StructField]) -> tuple[str, ...]:
    names = tuple(kafkas_name(field.name) for field in fields)
    if len(set(names)) < len(names):
        raise OptionError(f"the schema names a column twice: {', '.join(names)}")
    return names


def _divided(
    options: ReadOptions, schema: StructType, target: pa.Schema
) -> tuple[list[StructField], dict[str, list[pa.Field]], list[tuple[str | None, int]]]:
    """(Kafka's columns, the fields that are decoded by side, the source of each column of the schema: (None, column of
    the scan), or (side, field of what is decoded), -1 for all of it)."""
    flat = next(iter(options.formats))
    plain: list[StructField] = []
    wanted: dict[str, list[pa.Field]] = {}
    origins: list[tuple[str | None, int]] = []
    for name, field, arrow in zip(_distinct_names(schema.fields), schema.fields, target, strict=True):
        if name in options.formats and isinstance(field.dataType, StructType):
            _check_decoded(field)
            wanted.setdefault(name, []).extend(list(arrow.type))
            origins.append((name, -1))
        elif name in _ALL_TYPES:
            kind, ours = field.dataType.simpleString(), _ALL_TYPES[name].simpleString()
            may_be_text = name in ("key", "value") and isinstance(field.dataType, StringType)
            # a column of Kafka's name and another type is most likely one of the values
            if kind != ours and not may_be_text and name not in DAMAGE_COLUMN_TYPES:
                raise OptionError(
                    f"the schema's column '{field.name}' is {kind}, and Kafka's own column of that name {ours}",
                    hint=f"a field '{field.name}' of the {flat}s is asked for inside a struct: "
                    f"{flat} struct<{field.name}: {kind}>",
                )
            origins.append((None, len(plain)))
            plain.append(field)
        else:
            _check_decoded(field)
            fields = wanted.setdefault(flat, [])
            origins.append((flat, len(fields)))
            fields.append(arrow)
    for side, at in origins:
        if at == -1 and any(other == side and field >= 0 for other, field in origins):
            raise OptionError(
                f"the schema has a struct '{side}', and columns of the {side}s beside it",
                hint="put them into the struct",
            )
    return plain, wanted, origins


def _check_decoded(field: StructField, within: str = "") -> None:
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
