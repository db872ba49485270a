"""Types of the columns in Spark, and checks of a schema that the user gives.

In a user's schema, a name that equals one of Kafka's columns, in any case, is that column. The fields of a struct
column `value` or `key` are decoded, and their names cannot conflict with Kafka's columns. Every other name is a field
of the values, or of the keys if only those have a format.
"""

from __future__ import annotations

from collections.abc import Iterable

from pyspark.sql.pandas.types import from_arrow_type
from pyspark.sql.types import DataType, StringType, StructField

from kafkalog_spark.errors import OptionError
from kafkalog_spark.log.decode.record_schema import COLUMN_TYPES, DAMAGE_COLUMN_TYPES

# Made from Arrow types, because StructType.fromDDL needs a Spark session, which workers do not have.
_TYPES: dict[str, DataType] = {name: from_arrow_type(kind) for name, kind in COLUMN_TYPES.items()}
ALL_TYPES = _TYPES | {name: from_arrow_type(kind) for name, kind in DAMAGE_COLUMN_TYPES.items()}
"""Types of Kafka's columns and of the columns about damage."""
_BY_NAME = {name.lower(): name for name in ALL_TYPES}
_NEVER_NULL = frozenset({"topic", "partition", "offset", "timestamp", "timestampType"})


def kafka_name(name: str) -> str:
    """Return Kafka's spelling of a column name given in any case; any other name unchanged."""
    return _BY_NAME.get(name.lower(), name)


def checked_columns(fields: list[StructField], with_damage: bool) -> tuple[str, ...]:
    """Check the Kafka columns of a schema, and return their names in Kafka's spelling.

    Args:
        fields: Fields of the schema.
        with_damage: True for mode=PERMISSIVE, which has columns about damage, and nulls in the others.

    Raises:
        OptionError: For an unknown column, a column of another type, or NOT NULL for a column that may be null.
    """
    types, never_null = (ALL_TYPES, {"topic", "partition"}) if with_damage else (_TYPES, _NEVER_NULL)
    names = distinct_names(fields)
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


def distinct_names(fields: Iterable[StructField]) -> tuple[str, ...]:
    """Return the names of fields in Kafka's spelling. Raises OptionError if a name occurs twice."""
    names = tuple(kafka_name(field.name) for field in fields)
    if len(set(names)) < len(names):
        raise OptionError(f"the schema names a column twice: {', '.join(names)}")
    return names
