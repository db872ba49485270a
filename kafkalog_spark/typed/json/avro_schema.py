"""The Avro schema of inferred JSON columns, for kafkalog-schema."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pyarrow as pa

from kafkalog_spark.errors import OptionError
from kafkalog_spark.typed.avro.to_avro_schema import PRIMITIVE_NAMES


def avro_of_schema(columns: Iterable[pa.Field], name: str) -> dict[str, Any]:
    """Return the Avro schema of columns: a record with nullable fields.

    Args:
        columns: Columns as `infer_schema` infers them.
        name: Name of the record.

    Raises:
        OptionError: If the name of a column is not allowed in Avro.
    """
    fields = []
    for field in columns:
        if not field.name.isascii() or not field.name.isidentifier():
            raise OptionError(
                f"'{field.name}' is not a valid name of a field in Avro", hint="names consist of A-Z a-z 0-9 _"
            )
        fields.append(
            {"name": field.name, "type": ["null", _field_schema(field.type, f"{name}_{field.name}")], "default": None}
        )
    return {"type": "record", "name": name, "fields": fields}


def _field_schema(type_: pa.DataType, name: str) -> Any:
    if pa.types.is_struct(type_):
        return avro_of_schema(type_, name)
    if pa.types.is_list(type_):
        return {"type": "array", "items": ["null", _field_schema(type_.value_type, f"{name}_element")]}
    if pa.types.is_decimal(type_):
        return {"type": "bytes", "logicalType": "decimal", "precision": type_.precision, "scale": type_.scale}
    return PRIMITIVE_NAMES[type_]
